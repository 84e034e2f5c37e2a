"""The commands of the zoo, add and check: wiring only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from classwise.core.errors import UserError

if TYPE_CHECKING:
    from classwise.zoo.adding import Added

app = typer.Typer(
    help="The trained models that come with classwise: add one or audits of one, check them. See also: classwise list zoo.",
    no_args_is_help=True,
)

_FOLDER = typer.Option("--zoo", help="The folder of the zoo. Default: the one in use, see docs/zoo.md.")
_ROOT = typer.Option("--root", help="Where data sets are. Default: data.")


@app.command()
def add(
    run: Annotated[Path, typer.Argument(help="Run folder of a finished training or repair.")],
    name: Annotated[str, typer.Option("--as", help="Its name, DATA/NETWORK/METHOD-SEED, e.g. cifar10/resnet16/wat-0.")],
    audit: Annotated[list[Path] | None, typer.Option("--audit", help="Run folder of an audit of its best.pt; repeatable. The list shows the first.")] = None,
    half: Annotated[bool, typer.Option("--half", help="Store weights in half precision, if every audit predicts the same with them; it is repeated to find out.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Half precision in any case, with the repeated audits.")] = False,
    cores: Annotated[int, typer.Option("--cores", help="Cores that training and audits ran on, for the cost.")] = 1,
    zoo: Annotated[Path | None, _FOLDER] = None,
    root: Annotated[Path | None, _ROOT] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model of that name.")] = False,
) -> None:  # fmt: skip
    """Add a trained or repaired model: its weights, recipe, history, audits and cost, and their digests in the index."""
    from classwise.zoo import adding

    folder = _own(zoo)
    added = adding.add(
        run, name, folder, audited=audit or (), half=half, force=force, cores=cores, root=root, overwrite=overwrite
    )
    _show(added, folder)


@app.command("add-audits")
def add_audits(
    name: Annotated[str, typer.Argument(help="A model of the zoo, e.g. cifar10/resnet16/wat-0.")],
    audit: Annotated[list[Path], typer.Argument(help="Run folders of audits of it.")],
    zoo: Annotated[Path | None, _FOLDER] = None,
) -> None:
    """Add further audits of a model that the zoo has; its other files stay as they are."""
    from classwise.zoo import adding

    folder = _own(zoo)
    _show(adding.add_audits(name, folder, audit), folder)


def _own(zoo: Path | None) -> Path:
    """The folder of the zoo that is added to."""
    from classwise.models.zoo import open_zoo

    if zoo is not None:
        return zoo
    used = open_zoo()
    if used.url is not None:
        raise UserError(f"the zoo in use is fetched from {used.url}; give --zoo FOLDER to add to one of your own.")
    return used.folder


def _show(added: Added, folder: Path) -> None:
    for remark in added.remarks:
        typer.echo(f"{remark}.")
    spec, files = added.entry.spec, added.entry.files
    typer.echo(f"{spec}: {len(files)} files, {added.bytes / 1000:,.0f} kB, in {folder / added.entry.name}.")


@app.command()
def check(
    names: Annotated[list[str] | None, typer.Argument(help="Which models. Default: all.")] = None,
    audit: Annotated[bool, typer.Option("--audit", help="Also audit some images again and compare the rows.")] = False,
    per_class: Annotated[int, typer.Option("--per-class", help="How many images of each class.")] = 10,
    zoo: Annotated[Path | None, _FOLDER] = None,
    root: Annotated[Path | None, _ROOT] = None,
) -> None:  # fmt: skip
    """Check the digests of all files, that every model loads, and that its audits belong to it; exit with code 1 otherwise."""
    from classwise.models.zoo import in_folder, open_zoo
    from classwise.zoo import checking

    found = open_zoo() if zoo is None else in_folder(zoo)
    console, failed = Console(), False
    for entry in [found.entry(name) for name in names or sorted(found.entries)]:
        result = checking.check(found, entry, audit, per_class, root)
        failed |= bool(result.wrong)
        state = "[bold red]wrong[/]" if result.wrong else "[green]ok[/]"
        console.print(f"{state} {escape(entry.name)}", soft_wrap=True)
        for sentence in result.wrong or result.remarks:
            console.print(f"   {escape(sentence)}", soft_wrap=True)
    if failed:
        raise typer.Exit(1)
