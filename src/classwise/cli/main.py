"""The command line: wiring only."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from classwise.cli import studies
from classwise.core.csv_files import csv_text
from classwise.core.errors import UserError, unknown
from classwise.core.registry import KINDS
from classwise.core.spec import number
from classwise.core.stopping import Interrupted, Stopped, exit_code, stopping
from classwise.core.version import __version__
from classwise.results import gate


class _Commands(TyperGroup):
    """The commands. A value that is an empty text is a mistake, of a shell variable mostly: ``--out ""`` is no folder."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for before, word in zip(["", *args], args, strict=False):
            if not word or (word.startswith("--") and word.endswith("=")):
                raise UserError(
                    f"{(before if not word else word[:-1]) or 'an argument'} has an empty value; give one, or leave it out."
                )
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="classwise",
    cls=_Commands,
    help="Class-by-class adversarial robustness: know your weakest class before an attacker does.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"classwise {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Class-by-class adversarial robustness."""


@app.command()
def audit(
    model: Annotated[str, typer.Option("--model", "-m", help="Model spec, e.g. resnet:width=16,blocks=1-1-1-1, net.py:make, timm:NAME, a .pt file.")],
    data: Annotated[str, typer.Option("--data", "-d", help="Data set, e.g. cifar10 or folder:resize=32,crop=32.")],
    weights: Annotated[Path | None, typer.Option("--weights", "-w", help="Weights for the model.")] = None,
    attack: Annotated[list[str] | None, typer.Option("--attack", "-a", help="Attack spec; repeat for several. [default: pgd-20]")] = None,
    eps: Annotated[str, typer.Option("--eps", "-e", help="Radius in units of pixels in [0,1], e.g. 8/255; several, 2/255,4/255,8/255, give a curve.")] = "8/255",
    eps_grid: Annotated[int | None, typer.Option("--eps-grid", help="A curve of this many equal steps up to eps.")] = None,
    class_eps: Annotated[list[str] | None, typer.Option("--class-eps", help="Another radius for one class: cat=4/255; repeatable.")] = None,
    norm: Annotated[str, typer.Option("--norm", help="linf or l2.")] = "linf",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Run folder; the same command goes on after a kill.")] = None,
    root: Annotated[Path | None, typer.Option("--root", help="Where data sets are. [default: data]")] = None,
    split: Annotated[str, typer.Option("--split", help="Which split of the data set.")] = "test",
    download: Annotated[bool, typer.Option("--download", help="Fetch the data set if it is not there.")] = False,
    protocol: Annotated[str, typer.Option("--protocol", help="any: no point tried may break it; final: judge the last iterate.")] = "any",
    coverage: Annotated[str | None, typer.Option("--coverage", help="all: every attack on every example; standing: on what still stands. [default: all; standing for autoattack]")] = None,
    distances: Annotated[bool, typer.Option("--distances", help="Record minimal distances of attacks that look for them.")] = False,
    save_adversarial: Annotated[bool, typer.Option("--save-adversarial", help="Keep the adversarial images, exact and rounded to 8 bits.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", help="At most this many examples.")] = None,
    per_class: Annotated[int | None, typer.Option("--per-class", help="At most this many examples of each class.")] = None,
    classes: Annotated[str | None, typer.Option("--classes", help="Only these classes, e.g. cat,dog.")] = None,
    num_classes: Annotated[int | None, typer.Option("--num-classes", help="Outputs of the model, if not the data's classes.")] = None,
    normalize: Annotated[str | None, typer.Option("--normalize", help="Normalising first layer: cifar10, imagenet, … or mean=…,std=….")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of random starts and subsets.")] = 0,
    confidence: Annotated[float, typer.Option("--confidence", help="Of all intervals.")] = 0.95,
    batch_size: Annotated[int | None, typer.Option("--batch-size", "-b", help="[default: chosen for the model and device]")] = None,
    workers: Annotated[int | None, typer.Option("--workers", help="Batches in flight at once on a CPU. [default: its threads]")] = None,
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda, cuda:1, mps. [default: the best there is]")] = None,
    amp: Annotated[str | None, typer.Option("--amp", help="float16 or bfloat16 gradient passes, on a GPU.")] = None,
    eot: Annotated[int, typer.Option("--eot", help="Draws to average over, for randomised models.")] = 1,
    probs: Annotated[bool | None, typer.Option("--probs/--no-probs", help="Keep all probabilities. [default: up to 100 classes]")] = None,
    fold: Annotated[bool, typer.Option("--fold/--no-fold", help="Fold batch-norm for the gradient passes.")] = True,
    force: Annotated[bool, typer.Option("--force", help="Audit although inputs are outside [0,1].")] = False,
    trust: Annotated[bool, typer.Option("--trust", help="Load files that run code: programs, checkpoints that name a Python file.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin the run folder anew.")] = False,
    find_worst: Annotated[bool, typer.Option("--find-worst", help="Only find the worst class, attacking as few images as that takes.")] = False,
    tolerance: Annotated[float, typer.Option("--tolerance", help="With --find-worst: stop once the classes left are this close.")] = 0.0,
    landscape: Annotated[int | None, typer.Option("--landscape", help="Write a slice of the loss around this many images.")] = None,
    require: Annotated[list[str] | None, typer.Option("--require", help="Exit 1 unless this holds, e.g. worst>=0.25; repeatable.")] = None,
    confident: Annotated[bool, typer.Option("--confident", help="Ask requirements of the interval's bound.")] = False,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write the requirements' outcome as JUnit XML.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the class table as CSV.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json's content instead of tables.")] = False,
    progress: Annotated[bool | None, typer.Option("--progress/--no-progress", help="[default: on a terminal]")] = None,
) -> None:  # fmt: skip
    """Attack a classifier and report its robustness class by class."""
    for text in require or []:
        gate.parse(text)  # a typing error here should not cost an audit
    common: dict[str, Any] = dict(  # noqa: C408
        norm=norm, out=out, overwrite=overwrite, seed=seed, confidence=confidence, weights=weights, normalize=normalize,
        root=root, split=split, download=download, limit=limit, per_class=per_class, classes=_names(classes),
        num_classes=num_classes, batch_size=batch_size, workers=workers, device=device, amp=amp, eot=eot, fold=fold,
        force=force, trust=trust, progress=progress,
    )  # fmt: skip
    settings: dict[str, Any] = dict(  # noqa: C408
        protocol=protocol, coverage=coverage, eps_grid=eps_grid, distances=distances, save_adversarial=save_adversarial,
        landscape=landscape, probs=probs,
    )  # fmt: skip
    radius = _eps(eps, class_eps)
    try:
        if find_worst:
            _refuse_with_find_worst({**settings, "require": require, "junit": junit})
            from classwise.auditing.find_worst import find_worst as search

            found = search(model, data, attack or ["pgd-20"], radius, tolerance=tolerance, **common)
            _present_worst(found, as_json, csv)
            return
        from classwise.auditing.audit import audit as run_audit

        result = run_audit(model, data, attack or ["pgd-20"], radius, **settings, **common)
    except KeyboardInterrupt as stop:
        how = f"the same command resumes in {out}" if out else "with --out a stopped audit can be resumed"
        Console(stderr=True).print(f"stopped; {escape(how)}.", soft_wrap=True)
        raise typer.Exit(exit_code(stop)) from None
    _present(result, as_json, csv, besides=gate.own_metrics(require or []))
    _enforce(result, require or [], confident, junit)


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="Run folder of a finished audit.")],
    attack: Annotated[str | None, typer.Option("--attack", "-a", help="Which attack. [default: the headline one]")] = None,
    metric: Annotated[list[str] | None, typer.Option("--metric", help="Show this metric too: a name, or mine.py:gini; repeatable.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the class table as CSV.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    require: Annotated[list[str] | None, typer.Option("--require", help="Exit 1 unless this holds; repeatable.")] = None,
    confident: Annotated[bool, typer.Option("--confident", help="Ask requirements of the interval's bound.")] = False,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write the requirements' outcome as JUnit XML.")] = None,
) -> None:  # fmt: skip
    """Show a finished audit again, without the model and without torch."""
    from classwise.results.audit_result import Audit
    from classwise.show import terminal

    result = Audit.load(run)
    if attack is not None and not as_json:
        console = Console()
        console.print(terminal.class_table(result, attack, width=console.width))
        console.print(Text(result.verdict(attack).sentence, "bold"))
    besides = [*(metric or []), *gate.own_metrics(require or [])]
    _present(result, as_json, csv, attack, tables=attack is None, besides=besides)
    _enforce(result, require or [], confident, junit)


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of finished audits.")],
    base: Annotated[str | None, typer.Option("--base", help="The run the others are compared with. [default: the first]")] = None,
    attack: Annotated[str | None, typer.Option("--attack", "-a", help="Which attack. [default: the headline one]")] = None,
    confidence: Annotated[float | None, typer.Option("--confidence", help="Of all intervals. [default: the base's]")] = None,
    form: Annotated[str, typer.Option("--format", "-f", help="table, csv, latex, markdown or json.")] = "table",
    by_class: Annotated[bool, typer.Option("--by-class", help="For csv, latex and markdown: the table by class.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write it into this file.")] = None,
) -> None:  # fmt: skip
    """Compare audits: who is better, in which classes, and whether that is more than chance."""
    from classwise.core.storage import atomic_write_text
    from classwise.results.compare import compare as compare_runs
    from classwise.show import comparison as shown

    forms = ("csv", "json", "latex", "markdown", "table")
    if form not in forms:
        raise unknown("format", form, forms)
    comparison = compare_runs(runs, base, attack, confidence)
    if form == "table":
        if out is not None:
            raise UserError("--out needs a --format: csv, latex, markdown or json.")
        shown.show(comparison)
        return
    markup = {"markdown": shown.markdown, "latex": shown.latex}
    if form == "json":
        text = json.dumps(comparison.summary(), indent=1, allow_nan=False)
    else:
        text = markup[form](comparison, by_class) if form in markup else comparison.to_csv(by_class)
    if out is None:
        typer.echo(text)
    else:
        atomic_write_text(out, text if text.endswith("\n") else f"{text}\n")


@app.command()
def figure(
    name: Annotated[str, typer.Argument(help="Which figure; see: classwise list figures.")],
    runs: Annotated[list[Path], typer.Argument(help="Run folders of audits; of trainings for figures over epochs; folders of studies for theirs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file: .pdf, .svg, .png, .html or .json.")],
    attack: Annotated[str | None, typer.Option("--attack", "-a", help="Which attack, for figures of one. [default: the headline one]")] = None,
    width: Annotated[str | None, typer.Option("--width", help="column, page, slide, or a number of points.")] = None,
    change: Annotated[list[str] | None, typer.Option("--set", "-s", help="An option of the figure: key=value; repeatable.")] = None,
) -> None:  # fmt: skip
    """Draw one figure of run folders, or of a study's folder, into a file, for a paper or a talk."""
    from classwise.core.run_folder import kind_of
    from classwise.show import figures
    from classwise.show.figures import studied
    from classwise.show.page import page

    options: dict[str, Any] = dict(text.partition("=")[::2] for text in change or [])
    if attack is not None:
        options["attack"] = attack
    kinds = figures.sources(name)
    if "studies" in kinds and (len(kinds) == 1 or all(kind_of(run) == "study" for run in runs)):
        chart = figures.from_studies(name, studied.read(runs), **options)
    elif "histories" in kinds:
        chart = figures.from_histories(name, page.read(runs).histories, **options)
    else:
        chart = figures.from_runs(name, page.read(runs).audits, **options)
    typer.echo(figures.save(chart, out, width if width is None or width.isalpha() else number(width)))  # type: ignore[arg-type]


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of audits, and of trainings.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.")] = Path("report.html"),
    name: Annotated[list[str] | None, typer.Option("--name", help="What to call the runs, one for each; repeatable. [default: the folders' names]")] = None,
    title: Annotated[str | None, typer.Option("--title", help="Of the page.")] = None,
    base: Annotated[str | None, typer.Option("--base", help="The run the others are compared with. [default: the first]")] = None,
    images: Annotated[bool, typer.Option("--images/--no-images", help="Show the images that flipped, where an audit kept them.")] = True,
    metric: Annotated[list[str] | None, typer.Option("--metric", help="Show this metric too: a name, or mine.py:gini; repeatable.")] = None,
) -> None:  # fmt: skip
    """Make one self-contained page of run folders, to look at in any browser, offline."""
    from classwise.show.page import page

    room = {} if images else {"image_bytes": 0}
    typer.echo(page.build(runs, out, name, title, base, metrics=metric or (), **room))


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where checkpoints and run folders go.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option("--seed", help="Of training and attack.")] = 0,
) -> None:
    """Fit a small network on embedded digits, normally and adversarially, and audit both. Takes a minute."""
    from classwise.cli import demo as example

    example.run(out, seed)


@app.command()
def train(
    recipe: Annotated[str | None, typer.Argument(help="A recipe's file, or the name of a shipped one, e.g. cifar10/trades. [default: that of --resume]")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Run folder; the same command goes on after a kill.")] = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Resume the training in this run folder, by its own recipe where none is given.")] = None,
    change: Annotated[list[str] | None, typer.Option("--set", "-s", help="Change a setting: train.epochs=30; repeatable.")] = None,
    root: Annotated[Path | None, typer.Option("--root", help="Where data sets are. [default: data]")] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch the data set if it is not there.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Short for --set train.seed=….")] = None,
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda, cuda:1, mps. [default: the best there is]")] = None,
    track: Annotated[list[str] | None, typer.Option("--track", help="tensorboard, mlflow or wandb, besides history.csv; repeatable.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin the run folder anew.")] = False,
    trust: Annotated[bool, typer.Option("--trust", help="Load files that run code: programs, checkpoints that name a Python file.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the whole recipe, defaults included, and leave.")] = False,
    progress: Annotated[bool | None, typer.Option("--progress/--no-progress", help="[default: on a terminal]")] = None,
) -> None:  # fmt: skip
    """Train a model by a recipe, and watch the robustness of each class while it trains."""
    from classwise.training.recipe import load, to_toml
    from classwise.training.resume import recipe_of, root_of
    from classwise.training.train import train as run_training

    changes = [*(change or []), *([f"train.seed={seed}"] if seed is not None else [])]
    if resume is not None and (out is not None or overwrite):
        raise UserError("--resume goes on in its folder: leave out --out and --overwrite.")
    chosen = load(recipe_of(resume) if recipe is None else recipe, changes)
    if dry_run:
        typer.echo(to_toml(chosen), nl=False)
        return
    folder = out or resume
    if folder is None:
        raise UserError("give --out FOLDER for the run (the same command resumes it after a kill), or --resume FOLDER.")
    if resume is not None:
        root = root_of(resume) if root is None else root
    try:
        trained = run_training(
            chosen, out=folder, root=root, download=download, device=device, trackers=track or (), overwrite=overwrite,
            trust=trust, progress=progress,
        )  # fmt: skip
    except KeyboardInterrupt as stop:
        kept = "saved" if isinstance(stop, Interrupted) else "not saved"
        Console(stderr=True).print(
            f"stopped ({kept}); the same command resumes in {escape(str(folder))}.", soft_wrap=True
        )
        raise typer.Exit(exit_code(stop)) from None
    trained.show()


@app.command("pseudo-label")
def pseudo_label(
    model: Annotated[str, typer.Option("--model", "-m", help="Model that labels: a checkpoint or any model spec.")],
    data: Annotated[str, typer.Option("--data", "-d", help="Images to label: a data set's spec, e.g. folder:resize=32,crop=32.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, for data.extra of a recipe.")],
    weights: Annotated[Path | None, typer.Option("--weights", "-w", help="Weights for the model.")] = None,
    threshold: Annotated[float, typer.Option("--threshold", help="Leave images unlabelled (-1) below this probability.")] = 0.0,
    root: Annotated[Path | None, typer.Option("--root", help="Where data sets are. [default: data]")] = None,
    split: Annotated[str, typer.Option("--split", help="Which split of the data set.")] = "train",
    limit: Annotated[int | None, typer.Option("--limit", help="At most this many images.")] = None,
    num_classes: Annotated[int | None, typer.Option("--num-classes", help="Outputs of the model, if not the data's classes.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="[default: the best there is]")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Load files that run code: programs, checkpoints that name a Python file.")] = False,
) -> None:  # fmt: skip
    """Label images by a model's answers, for robust self-training (rst)."""
    from classwise.auditing.inputs import module_of
    from classwise.core.trust import trusting
    from classwise.data import load
    from classwise.training import pseudo

    images = load(data, root, split).subset(limit)
    with trusting(trust):
        network = module_of(model, weights, None, images, num_classes, device)
    labels, confidence = pseudo.label(network, images, threshold)
    pseudo.write_pseudo(out, images, labels, confidence)
    typer.echo(f"{int((labels >= 0).sum()):,} of {len(labels):,} images labelled, in {out}.")


app.command("study", cls=studies.StudyCommand, context_settings=studies.STUDY_CONTEXT)(studies.study)
app.command("reproduce")(studies.reproduce)


@app.command("list")
def list_(
    kind: Annotated[
        str, typer.Argument(help="attacks, models, datasets, metrics, methods, recipes, figures or studies.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List what there is: attacks, models, datasets, metrics, methods, recipes, figures or studies, each in a sentence."""
    import importlib

    if kind not in KINDS:
        raise unknown("kind of thing", kind, KINDS)
    module: Any = importlib.import_module(KINDS[kind])
    found = {name: {"what": module.describe(name), "settings": module.usage(name)} for name in module.names()}
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, about in found.items():
        settings = f"\n[dim]{escape(about['settings'])}[/]" if about["settings"] else ""
        table.add_row(f"[bold]{escape(name)}[/]", escape(about["what"]) + settings)
    Console().print(table)


def _eps(eps: str, by_class: list[str] | None) -> str | dict[str, str]:
    if not by_class:
        return eps
    pairs = dict(text.partition("=")[::2] for text in by_class)
    return {"*": eps, **pairs}


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name for name in text.split(",") if name.strip()]


def _present(
    result: Any,
    as_json: bool,
    csv: Path | None,
    attack: str | None = None,
    tables: bool = True,
    besides: Sequence[str] = (),
) -> None:
    from classwise.core.storage import atomic_write_text
    from classwise.show import terminal

    if csv is not None:
        atomic_write_text(csv, csv_text(result.by_class(attack)))
    if as_json:
        typer.echo(json.dumps(result.summary(), indent=1, allow_nan=False))
    elif tables:
        terminal.show(result, besides=besides)


_WITHOUT_FIND_WORST = {"protocol": "any"}  # what these are by default where that is not "not given"


def _refuse_with_find_worst(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        if value and value != _WITHOUT_FIND_WORST.get(name):
            raise UserError(
                f"--{name.replace('_', '-')} does not go with --find-worst, which attacks only as many images as it "
                "takes to name the worst class. Leave one of them out."
            )


def _present_worst(found: Any, as_json: bool, csv: Path | None) -> None:
    from classwise.core.storage import atomic_write_text
    from classwise.show import terminal

    if csv is not None:
        atomic_write_text(csv, csv_text(found.by_class()))
    if as_json:
        typer.echo(json.dumps(found.summary(), indent=1, allow_nan=False))
    else:
        terminal.show_worst(found)


def _enforce(result: Any, require: list[str], confident: bool, junit: Path | None) -> None:
    outcomes = gate.check(result, require, confident)
    console = Console(stderr=True)
    for outcome in outcomes:
        console.print(escape(outcome.sentence), style="green" if outcome.passed else "bold red")
    if junit is not None:
        gate.write_junit(junit, outcomes)
    if not all(outcome.passed for outcome in outcomes):
        raise typer.Exit(1)


def _wait_politely() -> None:
    """Have torch's threads give their core up soon when they wait for each other; read when torch is first imported.

    By default they wait busily, for the sake of a few percent. Where somebody else uses the same cores, small networks
    then train more than ten times slower.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def main() -> None:
    """Run the command line; a user's mistake is a sentence and exit code 2, not a traceback.

    Who closes the pipe that is printed into (``| head -1``) ends it as SIGPIPE would, with 141; a signal, with 128 and
    its number.
    """
    _wait_politely()
    with stopping():
        try:
            try:
                app()
            finally:
                sys.stdout.flush()
        except UserError as error:
            _fail(str(error))
        except KeyboardInterrupt as stop:
            print("stopped.", file=sys.stderr)
            sys.exit(exit_code(stop))
        except SystemExit as leave:
            _leave_for(leave)
            raise
        except BrokenPipeError:
            _print_no_more()
            sys.exit(_PIPE_CLOSED)
        except OSError as error:
            if error.filename is not None:
                _fail(f"{error.filename}: {error.strerror or error}.")
            if error.errno not in _NO_ROOM:
                raise
            _print_no_more()
            _fail(f"cannot write what is to be printed: {error.strerror or error}.")


def _fail(message: str) -> NoReturn:
    Console(stderr=True).print(f"[bold red]error:[/] {escape(message)}", soft_wrap=True)
    sys.exit(2)


def _leave_for(reason: BaseException | None) -> None:
    """Leave by the code of a closed pipe or of a signal, where an exit is due to one."""
    while reason is not None:
        if isinstance(reason, BrokenPipeError):
            sys.exit(_PIPE_CLOSED)
        if isinstance(reason, Stopped):
            sys.exit(exit_code(reason))
        reason = reason.__cause__ or reason.__context__


def _print_no_more() -> None:
    """Let what is still in the buffer of the output go nowhere, instead of failing once more at the very end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_PIPE_CLOSED = 141  # 128 and the number of SIGPIPE
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


if __name__ == "__main__":
    main()
