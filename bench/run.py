"""Run the benchmarks and write docs/benchmarks.md: ``python -m bench.run --help``."""

from __future__ import annotations

import argparse
import datetime
import shlex
import sys
import tempfile
from pathlib import Path

import torch

from bench import alone, autoattack, libraries, machine, memory, throughput, training
from bench.markdown import bullets
from bench.setting import Setting, prepare
from classwise.errors import UserError

BENCHMARKS = {
    "libraries": libraries,
    "autoattack": autoattack,
    "training": training,
    "throughput": throughput,
    "memory": memory,
}
ON_REQUEST = {"alone": alone}  # take too long for every run
DOCUMENT = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__.split(":")[0])
    options.add_argument("--root", type=Path, default=Path("data"), help="folder that holds CIFAR-10 [%(default)s]")
    options.add_argument("--weights", type=Path, help="weights of the small ResNet [fitted on the spot]")
    options.add_argument("--about", help="what those weights are, in words for the document")
    options.add_argument("--batch", type=int, default=128, help="batch size of the other libraries [%(default)s]")
    options.add_argument("--rounds", type=int, default=5, help="measured rounds [%(default)s]")
    options.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of torch [%(default)s]")
    options.add_argument(
        "--only", choices={**BENCHMARKS, **ON_REQUEST}, nargs="+", help="just these, printed and not written"
    )
    options.add_argument("--out", type=Path, default=DOCUMENT, help="the document [docs/benchmarks.md]")
    return options


def main() -> None:
    options = parser()
    args = options.parse_args()
    if min(args.batch, args.rounds, args.threads) < 1:
        options.error("--batch, --rounds and --threads must be at least 1")
    torch.set_num_threads(args.threads)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            _say("preparing model and data")
            setting = prepare(args.root, args.weights, args.about, args.batch, args.rounds, Path(scratch))
            sections = [_section(name, setting) for name in args.only or BENCHMARKS]
    except UserError as error:
        sys.exit(f"error: {error}")
    text = "\n\n".join([_head(options, args), *sections]) + "\n"
    print(text)
    if args.only is None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text, encoding="utf-8")
        _say(f"written to {args.out.name}")


def _section(name: str, setting: Setting) -> str:
    _say(name)
    benchmark = {**BENCHMARKS, **ON_REQUEST}[name]
    return f"## {benchmark.TITLE}\n\n{benchmark.run(setting)}"


def _head(options: argparse.ArgumentParser, args: argparse.Namespace) -> str:
    date = datetime.datetime.now(datetime.timezone.utc)
    facts = bullets(
        f"Date: {date:%Y-%m-%d}",
        f"Machine: {machine.processor()}, {machine.cores()} cores, {machine.memory():.0f} GB of memory",
        f"Versions: {machine.versions()}",
        f"Command: `{_command(options, args)}`",
    )
    return f"# Benchmarks\n\nWritten by `make bench`; every number comes from that run.\n\n{facts}"


def _command(options: argparse.ArgumentParser, args: argparse.Namespace) -> str:
    """The command with its settings, without the paths of the machine it ran on."""
    words = ["python", "-m", "bench.run"]
    for name, value in vars(args).items():
        if value == options.get_default(name) or name in ("only", "out"):
            continue
        words += [f"--{name}", name.upper() if isinstance(value, Path) else str(value)]
    return shlex.join(words)


def _say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr)


if __name__ == "__main__":
    main()
