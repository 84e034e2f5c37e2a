"""The commands that read run folders, show, compare, figure and report: wiring only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from classwise.auditing.config import AuditConfig
from classwise.cli.audit import enforce, present
from classwise.core.errors import UserError, unknown
from classwise.core.settings import settings_of
from classwise.core.spec import items, number

if TYPE_CHECKING:
    from classwise.results.run_groups import Pairing, Variance


_CLASSES, _OUTPUT, _GATED, _SEEDS = "Classes", "Output", "Gate", "Groups over seeds"  # panels of the help
_GATE = {name: escape(one.text) for name, one in settings_of(AuditConfig).items() if one.group == "gate"}
_GROUP = (
    "Runs of one method with several seeds: NAME=FOLDERS, such as trades='runs/trades-*' or trades=a,b; repeatable."
)
_CONTROL = "The group the others are compared with. Default: the first."
_PAIR = (
    "Which runs of two groups are pairs: by name or position, none, or auto (by name where every run has a partner)."
)
_VARIANCE = "Variance over seeds of a difference: pooled over all groups, where three or more are paired, or own."


def show(
    run: Annotated[Path, typer.Argument(help="Run folder of a finished audit, search or repair.")],
    attack: Annotated[str | None, typer.Option("--attack", "-a", help="Which attack. Default: the headline one.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Show every class, however many there are.", rich_help_panel=_CLASSES)] = False,
    sort: Annotated[str | None, typer.Option("--sort", help="Order of the classes: robust, clean, drop (clean − robust), n, p_worst, class (by name) or data. Default: the weakest first.", rich_help_panel=_CLASSES)] = None,
    classes: Annotated[list[str] | None, typer.Option("--class", help="Only this class, under every attack and with what it is misclassified as; repeatable.", rich_help_panel=_CLASSES)] = None,
    metric: Annotated[list[str] | None, typer.Option("--metric", help="Show this metric too: a name, or mine.py:gini; repeatable.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the class table as CSV.", rich_help_panel=_OUTPUT)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.", rich_help_panel=_OUTPUT)] = False,
    require: Annotated[list[str] | None, typer.Option("--require", help=_GATE["require"], rich_help_panel=_GATED)] = None,
    confident: Annotated[bool, typer.Option("--confident", help=_GATE["confident"], rich_help_panel=_GATED)] = False,
    baseline: Annotated[Path | None, typer.Option("--baseline", help=_GATE["baseline"], rich_help_panel=_GATED)] = None,
    margin: Annotated[str | None, typer.Option("--margin", help=_GATE["margin"], rich_help_panel=_GATED)] = None,
    junit: Annotated[Path | None, typer.Option("--junit", help=_GATE["junit"], rich_help_panel=_GATED)] = None,
    summary: Annotated[Path | None, typer.Option("--summary", help=_GATE["summary"], rich_help_panel=_GATED)] = None,
) -> None:  # fmt: skip
    """Show a finished audit, search or repair again, without the model and without torch."""
    from classwise.core.mirror import local_copy
    from classwise.core.run_folder import kind_of
    from classwise.results.audit_result import Audit
    from classwise.results.criteria import Criteria
    from classwise.results.repair_result import RepairResult
    from classwise.results.search_result import SearchResult
    from classwise.show import repair, terminal
    from classwise.show.class_table import Choice

    choice = Choice(every=every, sort=sort, classes=classes or ())
    run = local_copy(run)
    if kind_of(run) == "repair":
        repaired = RepairResult.load(run)
        present(repaired, lambda: repair.show(repaired, choice=choice), as_json, csv)
        return
    if kind_of(run) == "search":
        found = SearchResult.load(run)
        present(found, lambda: terminal.show_worst(found, choice=choice), as_json, csv)
        return
    result = Audit.load(run)
    criteria = Criteria.of(require or [], confident, baseline, margin)
    besides = [*(metric or []), *criteria.own_metrics()]

    def draw() -> None:
        if attack is None and not choice.classes:
            terminal.show(result, besides=besides, choice=choice)
            return
        console = Console()
        terminal.show_classes(result, console, attack, choice)
        console.print(Text(result.verdict(attack).sentence, "bold"))

    present(result, draw, as_json, csv, *([] if attack is None else [attack]))
    enforce(result, criteria, junit, summary)


def merge(
    run: Annotated[Path, typer.Argument(help="Run folder of an audit whose shards have all been computed.")],
) -> None:
    """Write the summary of an audit that was computed in shards, without the model and without torch."""
    from classwise.results import merging
    from classwise.show import terminal

    result = merging.merge(run)
    terminal.show(result)


def compare(
    runs: Annotated[list[Path] | None, typer.Argument(help="Run folders of finished audits.")] = None,
    base: Annotated[str | None, typer.Option("--base", help="The run the others are compared with. Default: the first.")] = None,
    group: Annotated[list[str] | None, typer.Option("--group", "-g", help=_GROUP, rich_help_panel=_SEEDS)] = None,
    control: Annotated[str | None, typer.Option("--control", help=_CONTROL, rich_help_panel=_SEEDS)] = None,
    pair: Annotated[str, typer.Option("--pair", help=_PAIR, rich_help_panel=_SEEDS)] = "auto",
    variance: Annotated[str, typer.Option("--variance", help=_VARIANCE, rich_help_panel=_SEEDS)] = "pooled",
    plan: Annotated[str | None, typer.Option("--plan", help="The differences that 3, 5 and 10 seeds would find, for a standard deviation over seeds, such as 0.01, and one over images: 0.01,0.005.", rich_help_panel=_SEEDS)] = None,
    attack: Annotated[str | None, typer.Option("--attack", "-a", help="Which attack. Default: the headline one.")] = None,
    confidence: Annotated[float | None, typer.Option("--confidence", help="Confidence level of all intervals. Default: that of the base.")] = None,
    columns: Annotated[str | None, typer.Option("--columns", help="The numbers to compare, such as clean,average,worst,cv; of groups any metric.", rich_help_panel=_OUTPUT)] = None,
    name: Annotated[list[str] | None, typer.Option("--name", help="What to call a run, group, class or column: OLD=NEW; repeatable.", rich_help_panel=_OUTPUT)] = None,
    form: Annotated[str, typer.Option("--format", "-f", help="table, csv, latex, markdown or json.", rich_help_panel=_OUTPUT)] = "table",
    by_class: Annotated[bool, typer.Option("--by-class", help="For csv, latex and markdown: the table by class.", rich_help_panel=_OUTPUT)] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write it into this file.", rich_help_panel=_OUTPUT)] = None,
) -> None:  # fmt: skip
    """Compare audits, or groups of them over training seeds: which is better, for which classes, and whether beyond chance."""
    from classwise.core.storage import atomic_write_text
    from classwise.show import comparison as of_runs
    from classwise.show import group_comparison as of_groups

    forms = ("csv", "json", "latex", "markdown", "table")
    if form not in forms:
        raise unknown("format", form, forms)
    if form == "table" and out is not None:
        raise UserError("--out needs a --format: csv, latex, markdown or json.")
    if plan is not None:
        typer.echo(of_groups.plan_text(*_plan(plan), 0.95 if confidence is None else confidence))
        return
    names, chosen = _names(name or []), None if columns is None else columns.split(",")
    compared = _compared_groups(runs, base, group, control, pair, attack, confidence, chosen, variance)
    made: Any = compared or _compared_runs(runs or [], base, attack, confidence)
    shown: Any = of_groups if compared else of_runs
    more = {"names": names} | ({} if compared else {"columns": chosen})
    if form == "table":
        shown.show(made, **more)
        return
    if form == "json":
        text = json.dumps(made.summary(), indent=1, allow_nan=False)
    elif form == "csv":
        text = made.to_csv(by_class)
    else:
        text = getattr(shown, form)(made, by_class, **more)
    if out is None:
        typer.echo(text)
    else:
        atomic_write_text(out, text if text.endswith("\n") else f"{text}\n")


def _compared_runs(runs: list[Path], base: str | None, attack: str | None, confidence: float | None) -> Any:
    from classwise.results.compare import compare as compare_runs

    return compare_runs(runs, base, attack, confidence)


def _compared_groups(
    runs: list[Path] | None,
    base: str | None,
    groups: list[str] | None,
    control: str | None,
    pair: str = "auto",
    attack: str | None = None,
    confidence: float | None = None,
    columns: list[str] | None = None,
    variance: str = "pooled",
) -> Any:
    """The comparison of groups; None where there are none."""
    from classwise.results import run_groups
    from classwise.results.compare_groups import METRICS, compare_groups

    if not groups:
        about_groups = {"--control": control is not None, "--pair": pair != "auto", "--variance": variance != "pooled"}
        for option, given in about_groups.items():
            if given:
                raise UserError(f"{option} is about groups of runs: give --group NAME=FOLDERS, or use --base for runs.")
        return None
    if runs or base is not None:
        raise UserError("give runs (with --base) or groups of runs (--group, with --control), not both.")
    return compare_groups(
        run_groups.parse(groups),
        control,
        attack,
        confidence,
        columns or METRICS,
        cast("Pairing", pair),
        cast("Variance", variance),
    )


def _names(texts: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for old, sign, new in pairs:
        if not (old and sign and new):
            raise UserError(f"--name is OLD=NEW, such as cv='class variance'; got {old + sign + new!r}.")
    return {old: new for old, _, new in pairs}


def _plan(text: str) -> tuple[float, float]:
    sd, _, image_sd = text.partition(",")
    return number(sd), number(image_sd or 0)


def figure(
    name: Annotated[str, typer.Argument(help="Which figure; see: classwise list figures.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file: .pdf, .svg, .png, .html or .json.", rich_help_panel=_OUTPUT)],
    runs: Annotated[list[Path] | None, typer.Argument(help="Run folders of audits; of trainings for figures over epochs; of repairs and studies for theirs.")] = None,
    group: Annotated[list[str] | None, typer.Option("--group", "-g", help=_GROUP, rich_help_panel=_SEEDS)] = None,
    control: Annotated[str | None, typer.Option("--control", help=_CONTROL, rich_help_panel=_SEEDS)] = None,
    pair: Annotated[str, typer.Option("--pair", help=_PAIR, rich_help_panel=_SEEDS)] = "auto",
    variance: Annotated[str, typer.Option("--variance", help=_VARIANCE, rich_help_panel=_SEEDS)] = "pooled",
    attack: Annotated[str | None, typer.Option("--attack", "-a", help="Which attack, for figures of one. Default: the headline one.")] = None,
    width: Annotated[str | None, typer.Option("--width", help="column, page, slide, or a number of points.", rich_help_panel=_OUTPUT)] = None,
    change: Annotated[list[str] | None, typer.Option("--set", "-s", help="An option of the figure: key=value; repeatable.")] = None,
) -> None:  # fmt: skip
    """Draw one figure of run folders, or of a study's folder, into a file, for a paper or a talk."""
    from classwise.core.run_folder import kind_of
    from classwise.show import figures
    from classwise.show.figures import frames
    from classwise.show.page import page

    options: dict[str, Any] = dict(text.partition("=")[::2] for text in change or [])
    kinds, runs = figures.sources(name), runs or []
    columns = items(options["columns"]) if "columns" in options else ["worst", "average"]
    compared = _compared_groups(runs, None, group, control, pair, attack, columns=columns, variance=variance)
    if attack is not None and compared is None:
        options["attack"] = attack
    if compared is not None:
        chart = figures.from_groups(name, compared, **options)
    elif "studies" in kinds and (len(kinds) == 1 or all(kind_of(run) == "study" for run in runs)):
        chart = figures.from_studies(name, frames.read(runs), **options)
    elif "repairs" in kinds:
        chart = figures.from_repairs(name, page.read(runs).repairs, **options)
    elif "histories" in kinds:
        chart = figures.from_histories(name, page.read(runs).histories, **options)
    else:
        chart = figures.from_runs(name, page.read(runs).audits, **options)
    typer.echo(figures.save(chart, out, width if width is None or width.isalpha() else number(width)))  # type: ignore[arg-type]


def report(
    runs: Annotated[list[Path] | None, typer.Argument(help="Run folders of audits, of trainings and of repairs; or the folder of one study.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page.", rich_help_panel=_OUTPUT)] = Path("report.html"),
    group: Annotated[list[str] | None, typer.Option("--group", "-g", help=_GROUP, rich_help_panel=_SEEDS)] = None,
    control: Annotated[str | None, typer.Option("--control", help=_CONTROL, rich_help_panel=_SEEDS)] = None,
    pair: Annotated[str, typer.Option("--pair", help=_PAIR, rich_help_panel=_SEEDS)] = "auto",
    variance: Annotated[str, typer.Option("--variance", help=_VARIANCE, rich_help_panel=_SEEDS)] = "pooled",
    name: Annotated[list[str] | None, typer.Option("--name", help="What to call the runs, one for each; repeatable. Default: the folders' names.", rich_help_panel=_OUTPUT)] = None,
    title: Annotated[str | None, typer.Option("--title", help="Title of the page.", rich_help_panel=_OUTPUT)] = None,
    note: Annotated[str, typer.Option("--note", help="A note to show below the title.", rich_help_panel=_OUTPUT)] = "",
    require: Annotated[list[str] | None, typer.Option("--require", help="Show whether this holds, such as worst>=0.25, or @FILE.toml; repeatable. Default: what the audit recorded.", rich_help_panel=_GATED)] = None,
    confident: Annotated[bool, typer.Option("--confident", help=_GATE["confident"], rich_help_panel=_GATED)] = False,
    baseline: Annotated[Path | None, typer.Option("--baseline", help="Show whether a class is less accurate than in this run folder, beyond chance.", rich_help_panel=_GATED)] = None,
    margin: Annotated[str | None, typer.Option("--margin", help=_GATE["margin"], rich_help_panel=_GATED)] = None,
    base: Annotated[str | None, typer.Option("--base", help="The run the others are compared with. Default: the first.")] = None,
    images: Annotated[bool, typer.Option("--images/--no-images", help="Show the images that flipped, where an audit kept them.", rich_help_panel=_OUTPUT)] = True,
    metric: Annotated[list[str] | None, typer.Option("--metric", help="Show this metric too: a name, or mine.py:gini; repeatable.")] = None,
) -> None:  # fmt: skip
    """Write a self-contained HTML report of run folders, which opens in any browser, offline."""
    from classwise.show.page import page

    room = {} if images else {"image_bytes": 0}
    compared = _compared_groups(None, None, group, control, pair, variance=variance)
    gated: dict[str, Any] = {
        "requirements": require or (),
        "confident": confident,
        "baseline": baseline,
        "margin": margin,
    }
    shown: dict[str, Any] = {"metrics": metric or (), "groups": compared, "note": note, **gated, **room}
    typer.echo(page.build(runs or [], out, name, title, base, **shown))
