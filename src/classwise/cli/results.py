"""The commands that read run folders, show, compare, figure and report: wiring only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from classwise.cli.audit import enforce, present
from classwise.core.errors import UserError, unknown
from classwise.core.spec import number
from classwise.results import gate


def show(
    run: Annotated[Path, typer.Argument(help="Run folder of a finished audit, search or repair.")],
    attack: Annotated[str | None, typer.Option("--attack", "-a", help="Which attack. [default: the headline one]")] = None,
    metric: Annotated[list[str] | None, typer.Option("--metric", help="Show this metric too: a name, or mine.py:gini; repeatable.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the class table as CSV.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    require: Annotated[list[str] | None, typer.Option("--require", help="Exit 1 unless this holds; repeatable.")] = None,
    confident: Annotated[bool, typer.Option("--confident", help="Ask requirements of the interval's bound.")] = False,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write the requirements' results as JUnit XML.")] = None,
) -> None:  # fmt: skip
    """Show a finished audit, search or repair again, without the model and without torch."""
    from classwise.core.run_folder import kind_of
    from classwise.results.audit_result import Audit
    from classwise.results.repair_result import RepairResult
    from classwise.results.search_result import SearchResult
    from classwise.show import repair, terminal

    if kind_of(run) == "repair":
        repaired = RepairResult.load(run)
        present(repaired, lambda: repair.show(repaired), as_json, csv)
        return
    if kind_of(run) == "search":
        found = SearchResult.load(run)
        present(found, lambda: terminal.show_worst(found), as_json, csv)
        return
    result = Audit.load(run)
    besides = [*(metric or []), *gate.own_metrics(require or [])]

    def draw() -> None:
        if attack is None:
            terminal.show(result, besides=besides)
            return
        console = Console()
        console.print(terminal.class_table(result, attack, width=console.width))
        console.print(Text(result.verdict(attack).sentence, "bold"))

    present(result, draw, as_json, csv, *([] if attack is None else [attack]))
    enforce(result, require or [], confident, junit)


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


def figure(
    name: Annotated[str, typer.Argument(help="Which figure; see: classwise list figures.")],
    runs: Annotated[list[Path], typer.Argument(help="Run folders of audits; of trainings for figures over epochs; of repairs and studies for theirs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file: .pdf, .svg, .png, .html or .json.")],
    attack: Annotated[str | None, typer.Option("--attack", "-a", help="Which attack, for figures of one. [default: the headline one]")] = None,
    width: Annotated[str | None, typer.Option("--width", help="column, page, slide, or a number of points.")] = None,
    change: Annotated[list[str] | None, typer.Option("--set", "-s", help="An option of the figure: key=value; repeatable.")] = None,
) -> None:  # fmt: skip
    """Draw one figure of run folders, or of a study's folder, into a file, for a paper or a talk."""
    from classwise.core.run_folder import kind_of
    from classwise.show import figures
    from classwise.show.figures import frames
    from classwise.show.page import page

    options: dict[str, Any] = dict(text.partition("=")[::2] for text in change or [])
    if attack is not None:
        options["attack"] = attack
    kinds = figures.sources(name)
    if "studies" in kinds and (len(kinds) == 1 or all(kind_of(run) == "study" for run in runs)):
        chart = figures.from_studies(name, frames.read(runs), **options)
    elif "repairs" in kinds:
        chart = figures.from_repairs(name, page.read(runs).repairs, **options)
    elif "histories" in kinds:
        chart = figures.from_histories(name, page.read(runs).histories, **options)
    else:
        chart = figures.from_runs(name, page.read(runs).audits, **options)
    typer.echo(figures.save(chart, out, width if width is None or width.isalpha() else number(width)))  # type: ignore[arg-type]


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of audits, of trainings and of repairs.")],
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
