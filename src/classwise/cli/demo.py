"""The demo: the same small network on scikit-learn's digits, trained normally and adversarially, both audited
and ranked.

    standard      min_θ mean CE(f_θ(x), y)
    adversarial   min_θ mean CE(f_θ(x'), y),  x' = PGD on the current network (Madry et al., ICLR 2018)

These are the shipped recipes desk/digits/standard and desk/digits/madry. Nothing is downloaded; it takes less than a
minute on two CPU cores.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

RECIPES = {"standard": "desk/digits/standard", "adversarial": "desk/digits/madry"}


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where checkpoints and run folders go.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option("--seed", help="Seed of training and attack.")] = 0,
) -> None:
    """Train a small network on the embedded digits, with and without attacks, audit both and rank them. Takes a minute."""
    from classwise.published.leaderboard import leaderboard
    from classwise.show import leaderboard as board_text
    from classwise.show import terminal
    from classwise.show.page import board as board_page
    from classwise.show.page import build as build_page
    from classwise.training.train import train

    console = Console()
    audits = {}
    for name, recipe in RECIPES.items():
        console.print(f"training on the digits: {recipe} …", style="dim")
        trained = train(recipe, out=out / "training" / name, changes=[f"train.seed={seed}"], overwrite=True)
        console.print("auditing it on the test split with PGD-20 …", style="dim")
        audits[name] = trained.audit("pgd-20", out=out / name, overwrite=True, seed=seed, save_adversarial=True)
    console.print()
    console.print(terminal.side_by_side(audits))
    for name, result in audits.items():
        console.print(f"{name:>12}: {result}", soft_wrap=True)
    console.print(f"\nsee one again with: classwise show {out}/adversarial", soft_wrap=True)
    folders = [out / name for name in RECIPES] + [out / "training" / name for name in RECIPES]
    page = build_page(folders, out / "report.html", [*RECIPES, *(f"{name} training" for name in RECIPES)])
    console.print(f"look at all of it in a browser: {page}", soft_wrap=True)
    console.print("\nand who is ahead:")
    board = leaderboard([out / name for name in RECIPES])
    board_text.show(board, console)
    written = board_page.build(board, out / "board", "Leaderboard of the demo")
    console.print(f"the board, with a report of each model: {written}", soft_wrap=True)
