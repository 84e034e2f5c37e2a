"""The commands train and pseudo-label: wiring only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from classwise.cli.options import with_options
from classwise.core.errors import UserError
from classwise.core.stopping import Interrupted, exit_code
from classwise.training.options import SETTINGS, Options


@with_options(SETTINGS.values())
def train(
    recipe: Annotated[str | None, typer.Argument(help="A recipe's file, or the name of a shipped one, e.g. cifar10/trades. Without one, --method, --model and --data say what to train.")] = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Resume the training in this run folder, by its own recipe where none is given.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the whole recipe, including defaults, and exit.")] = False,
    **given: Any,
) -> None:  # fmt: skip
    """Train a model by a recipe or by a method, and watch the robustness of each class while it trains."""
    from classwise.training.choices import begin
    from classwise.training.progress_display import choice_table
    from classwise.training.recipe import to_toml
    from classwise.training.resume import recipe_of, root_of
    from classwise.training.train import planned
    from classwise.training.train import train as run_training

    settings = {name: value for name, value in given.items() if value is not None}
    if resume is not None and ("out" in settings or settings["overwrite"]):
        raise UserError("--resume continues in its folder: leave out --out and --overwrite.")
    source: Any = recipe if recipe is not None or resume is None else recipe_of(resume)
    folder = settings.pop("out", resume)
    options = Options.of(**settings)
    if dry_run:
        typer.echo(to_toml(planned(source, options)), nl=False)
        return
    begin(source, options)  # what is wrong with it is said first
    if folder is None:
        raise UserError("give --out FOLDER for the run (the same command resumes it after a kill), or --resume FOLDER.")
    if resume is not None:
        settings.setdefault("root", root_of(resume))
    try:
        trained = run_training(source, out=folder, **settings)
    except KeyboardInterrupt as stop:
        kept = "saved" if isinstance(stop, Interrupted) else "not saved"
        Console(stderr=True).print(
            f"stopped ({kept}); the same command resumes in {escape(str(folder))}.", soft_wrap=True
        )
        raise typer.Exit(exit_code(stop)) from None
    if settings.get("progress") is False and trained.choices and not trained.quiet:  # otherwise shown at the start
        Console(stderr=True).print(choice_table(trained.choices))
    trained.show()


def pseudo_label(
    model: Annotated[str, typer.Option("--model", "-m", help="Model that labels: a checkpoint or any model spec.")],
    data: Annotated[str, typer.Option("--data", "-d", help="Images to label: a data set's spec, e.g. folder:resize=32,crop=32.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, for data.extra of a recipe.")],
    weights: Annotated[Path | None, typer.Option("--weights", "-w", help="Weights for the model.")] = None,
    threshold: Annotated[float, typer.Option("--threshold", help="Leave images unlabelled (-1) below this probability.")] = 0.0,
    root: Annotated[Path | None, typer.Option("--root", help="Where data sets are. Default: data.")] = None,
    split: Annotated[str, typer.Option("--split", help="Which split of the data set.")] = "train",
    limit: Annotated[int | None, typer.Option("--limit", help="At most this many images.")] = None,
    num_classes: Annotated[int | None, typer.Option("--num-classes", help="Outputs of the model, if not the data's classes.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda, mps; by default the best available.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Load files that run code: programs, checkpoints that name a Python file.")] = False,
) -> None:  # fmt: skip
    """Label images with a model's predictions, for robust self-training (rst)."""
    from classwise.auditing.inputs import module_of
    from classwise.core.trust import trusting
    from classwise.data import load
    from classwise.training import pseudo

    images = load(data, root, split).subset(limit)
    with trusting(trust):
        network = module_of(model, images, weights=weights, num_classes=num_classes, device=device)
    labels, confidence = pseudo.label(network, images, threshold)
    pseudo.write_pseudo(out, images, labels, confidence)
    typer.echo(f"{int((labels >= 0).sum()):,} of {len(labels):,} images labelled, in {out}.")
