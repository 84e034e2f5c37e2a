"""The commands train and pseudo-label: wiring only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from classwise.core.errors import UserError
from classwise.core.stopping import Interrupted, exit_code


def train(
    recipe: Annotated[str | None, typer.Argument(help="A recipe's file, or the name of a shipped one, e.g. cifar10/trades. [default: that of --resume]")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Run folder; the same command resumes where it stopped.")] = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Resume the training in this run folder, by its own recipe where none is given.")] = None,
    change: Annotated[list[str] | None, typer.Option("--set", "-s", help="Change a setting: train.epochs=30; repeatable.")] = None,
    root: Annotated[Path | None, typer.Option("--root", help="Where data sets are. [default: data]")] = None,
    download: Annotated[bool, typer.Option("--download", help="Download the data set if it is not there.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Short for --set train.seed=….")] = None,
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda, cuda:1, mps. [default: the best there is]")] = None,
    track: Annotated[list[str] | None, typer.Option("--track", help="tensorboard, mlflow or wandb, besides history.csv; repeatable.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin the run folder from scratch.")] = False,
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
        raise UserError("--resume continues in its folder: leave out --out and --overwrite.")
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
        network = module_of(model, images, weights=weights, num_classes=num_classes, device=device)
    labels, confidence = pseudo.label(network, images, threshold)
    pseudo.write_pseudo(out, images, labels, confidence)
    typer.echo(f"{int((labels >= 0).sum()):,} of {len(labels):,} images labelled, in {out}.")
