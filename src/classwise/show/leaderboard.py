"""A leaderboard on the terminal and in Markdown; the page is `show.page.board`."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd
from rich.console import Console
from rich.text import Text

from classwise.core.format import distance, duration, fixed, interval, level, p_value, percent
from classwise.results.division import Division
from classwise.results.leaderboard import Leaderboard
from classwise.show import tables

PRINTED = "printed"
WORDS = ("model", "method", "network", "worst class", "recipe", "models", "attack")


def show(board: Leaderboard, console: Console | None = None, printed: bool = False) -> None:
    """The whole board on the terminal. printed: with the papers' printed numbers, which are otherwise only counted."""
    console = console or Console()
    for number, one in enumerate(board.divisions, 1):
        console.print(Text(one.title, "bold"))
        texts = [division_text(one, board.confidence), *([family_text(one)] if len(one.families) else [])]
        beside = board.printed_beside(number)
        texts += [printed_text(beside)] if printed and len(beside) else []
        for text in texts:
            for table in tables.terminal(text, WORDS, console.width):
                console.print(table)
        console.print(Text(one.sentence()))
        if len(beside) and not printed:
            console.print(Text(f"{len(beside)} rows printed in papers are not shown here: --printed.", "dim"))
        console.print()
    for note in board.notes:
        console.print(Text(note, "yellow"))
    console.print(Text(legend(board), "dim"))


def markdown(board: Leaderboard) -> str:
    """Every division with its title, its table and what was printed."""
    return "\n".join(_markdown(board)) + "\n"


def _markdown(board: Leaderboard) -> Iterator[str]:
    for number, one in enumerate(board.divisions, 1):
        yield f"## {one.title}\n"
        yield tables.markdown(division_text(one, board.confidence), WORDS)
        yield f"{one.sentence()}\n"
        if len(one.families):
            yield tables.markdown(family_text(one), WORDS)
        if len(beside := board.printed_beside(number)):
            yield "Printed in papers, not ranked:\n"
            yield tables.markdown(printed_text(beside), WORDS)
    for note in board.notes:
        yield f"{note}\n"
    yield legend(board)


def legend(board: Leaderboard) -> str:
    """What the ranks and the p-values are."""
    return (
        f"Ranks by the worst class; rank intervals are simultaneous at {level(board.confidence)}. behind: of the worst "
        "class, in points, from the first model; p: of that one being better, Holm over each two models."
    )


def division_text(one: Division, confidence: float) -> pd.DataFrame:
    """The models of a division with their numbers as text."""
    rows = one.rows
    text = pd.DataFrame(
        {
            "model": rows["name"],
            "rank": [rank_text(*ends) for ends in zip(rows["rank_low"], rows["rank_high"], strict=True)],
            "worst": rows["worst"].map(percent),
            f"{level(confidence)} CI": [interval(*e) for e in zip(rows["worst_low"], rows["worst_high"], strict=True)],
            "worst class": rows["worst_class"],
            "average": rows["average"].map(percent),
            "clean": rows["clean"].map(percent),
            "CV (%²)": [fixed(value, 1) for value in rows["cv"]],
            "MCD": rows["mcd"].map(distance),
            "bottom 10%": rows["bottom_tenth"].map(percent),
            "behind": rows["behind"].map(distance),
            "p": rows["p_behind"].map(p_value),
            "method": rows["method"],
            "network": rows["architecture"],
            "training": rows["training_seconds"].map(cost_text),
        }
    )
    empty = [key for key in ("bottom 10%", "method", "network", "training") if set(text[key]) <= {"", "–"}]
    return text.drop(columns=empty)


def family_text(one: Division) -> pd.DataFrame:
    """Recipes trained with several seeds: mean, and lowest to highest."""
    rows = one.families
    return pd.DataFrame(
        {
            "recipe": rows["family"],
            "seeds": rows["seeds"].astype(str),
            "worst": rows["worst"].map(percent),
            "of all seeds": [interval(*ends) for ends in zip(rows["worst_low"], rows["worst_high"], strict=True)],
            "average": rows["average"].map(percent),
            "its range": [interval(*ends) for ends in zip(rows["average_low"], rows["average_high"], strict=True)],
            "ranks": [rank_text(*ends) for ends in zip(rows["rank_low"], rows["rank_high"], strict=True)],
            "models": rows["models"],
        }
    )


def printed_text(rows: pd.DataFrame) -> pd.DataFrame:
    """Numbers printed in papers, as text."""
    rows = rows.sort_values("worst", ascending=False, kind="stable")
    return pd.DataFrame(
        {
            "model": [f"{method}, {PRINTED}" for method in rows["method"]],
            "worst": rows["worst"].map(percent),
            "average": rows["average"].map(percent),
            "clean": rows["clean"].map(percent),
            "network": rows["network"],
            "attack": rows["attack"],
            "paper": rows["item"],
        }
    )


def rank_text(low: int, high: int) -> str:
    """An interval of ranks: 2, or 1–3."""
    return str(low) if low == high else f"{low}–{high}"


def cost_text(seconds: float) -> str:
    """What a training took; a dash where that is not known."""
    return "–" if math.isnan(seconds) else duration(seconds)
