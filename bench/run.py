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
from bench.markdown import paragraph
from bench.setting import Setting, prepare
from classwise.core.errors import UserError

BENCHMARKS = {
    "libraries": libraries,
    "autoattack": autoattack,
    "training": training,
    "throughput": throughput,
    "memory": memory,
}
ON_REQUEST = {"alone": alone}  # take too long for every run
_HEAD = "# Benchmarks\n\nWritten by `make bench`. Every number comes from a run; each section says which."
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
        "--only", choices={**BENCHMARKS, **ON_REQUEST}, nargs="+", help="just these; the document's others stay"
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
            for name in args.only or BENCHMARKS:
                title, text = _section(name, setting)
                print(f"## {title}\n\n{text}\n")
                _write(args.out, title, f"{text}\n\n{_facts(options, args)}")
    except UserError as error:
        sys.exit(f"error: {error}")


def _section(name: str, setting: Setting) -> tuple[str, str]:
    _say(name)
    benchmark = {**BENCHMARKS, **ON_REQUEST}[name]
    return benchmark.TITLE, benchmark.run(setting)


def _facts(options: argparse.ArgumentParser, args: argparse.Namespace) -> str:
    """When, where and how a section was measured."""
    date = datetime.datetime.now(datetime.timezone.utc)
    return paragraph(
        f"Measured on {date:%Y-%m-%d} on {machine.processor()}, {machine.cores()} cores, {machine.memory():.0f} GB of",
        f"memory, with {machine.versions()}, by `{_command(options, args)}`.",
    )


def _write(path: Path, title: str, text: str) -> None:
    """Put a section into the document: in the place of the one of that title, else at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = dict(part.partition("\n\n")[::2] for part in before.split("\n## ")[1:])
    sections = {**found, title: text}
    order = [benchmark.TITLE for benchmark in {**BENCHMARKS, **ON_REQUEST}.values()]
    known = sorted((name for name in sections if name in order), key=order.index)
    body = "\n\n".join(f"## {name}\n\n{sections[name].strip()}" for name in known)
    path.write_text(f"{_HEAD}\n\n{body}\n", encoding="utf-8")
    _say(f"{title}: written to {path.name}")


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
