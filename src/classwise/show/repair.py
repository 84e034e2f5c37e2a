"""A repair on the terminal: each class before and after, what it cost, what an attacker can still do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from classwise.core.format import alpha, fixed, interval, level, listed, p_value, percent, points
from classwise.results.repair_result import AFTER, BEFORE, RepairResult
from classwise.show import tables
from classwise.show.class_table import Choice
from classwise.show.terminal import show_findings

WORDS = ("class", "", "worst class", "change", "misclassified as")
SORTED_BY = {"robust": BEFORE, "clean": "clean_before"}


def show(result: RepairResult, console: Console | None = None, choice: Choice | None = None) -> None:
    """The whole repair."""
    console, choice = console or Console(), choice or Choice()
    table = choice.arranged(result.by_class(), columns=SORTED_BY)
    shown = class_text(table, level(result.confidence))
    console.print(Text(f"Robust accuracy by class under {result.after.headline}, on the judging images", "italic"))
    for piece in tables.terminal(shown, WORDS, console.width, most=choice.most(len(shown))):
        console.print(piece)
    beyond = f"* beyond chance: paired test, Holm-corrected over the classes, p < {alpha(result.confidence)}"
    console.print(Text(beyond, "dim"))
    console.print()
    for piece in tables.terminal(totals_text(result), WORDS, console.width):
        console.print(piece)
    console.print()
    if result.settings.get("front"):
        console.print(Text("Worst class against average on the calibration images", "italic"))
        for piece in tables.terminal(front_text(result), WORDS, console.width):
            console.print(piece)
        console.print()
    for sentence in (*result.sentences(), attacker(result)):
        console.print(Text(sentence, "bold" if sentence == result.sentences()[0] else ""))
    for remark in result.remarks:
        console.print(Text(remark, "dim"))
    if result.best is not None:
        name = "The repaired model" if result.chosen else "The model, unchanged"
        console.print(Text(f"{name}: {result.best}"), soft_wrap=True)
    console.print(Text(f"Audit it: {result.command}", "dim"), soft_wrap=True)
    show_findings(console, result.cautions())


def class_text(table: pd.DataFrame, confidence: str) -> pd.DataFrame:
    """The classes in the order of the table, as text."""
    rows = table
    mark = rows["change"].map(lambda change: "*" if change else " ")
    other = [
        "" if pd.isna(name) else f"{name} {percent(share, 0)}"
        for name, share in zip(rows["confused_with"], rows["confused_share"], strict=True)
    ]
    return pd.DataFrame(
        {
            "class": rows["class"],
            "n": rows["n"].map("{:,}".format),
            "before": rows[BEFORE].map(percent),
            f"{confidence} CI": _intervals(rows, "before"),
            "after": rows[AFTER].map(percent),
            f"{confidence} CI ": _intervals(rows, "after"),
            "points": rows["difference"].map(points) + mark,
            "p": rows["p_holm"].map(p_value),
            "clean": rows["clean_before"].map(percent) + " → " + rows["clean_after"].map(percent),
            "bias": rows["bias"].map(lambda value: fixed(value, 2, signed=True)),
            "misclassified as": other,
        }
    )


def _intervals(rows: pd.DataFrame, side: str) -> list[str]:
    return [interval(*ends) for ends in zip(rows[f"{side}_low"], rows[f"{side}_high"], strict=True)]


def totals_text(result: RepairResult) -> pd.DataFrame:
    """Worst class, average and clean average, judged and on the calibration images."""
    judged, fitted = result.judged(), result.calibrated()
    lines = []
    for key, name in (("worst", "worst class"), ("average", "average"), ("clean", "clean")):
        old, new = judged[BEFORE], judged[AFTER]
        change, gained = new[key] - old[key], fitted[AFTER][key] - fitted[BEFORE][key]
        lines.append(
            {
                "": name,
                "before": percent(old[key]),
                "CI": interval(old[f"{key}_low"], old[f"{key}_high"]),
                "after": percent(new[key]),
                "CI ": interval(new[f"{key}_low"], new[f"{key}_high"]),
                "points": points(change),
                "calibration images": f"{percent(fitted[BEFORE][key])} → {percent(fitted[AFTER][key])}",
                "points ": points(gained),
                "calibration − judged": points(gained - change),
            }
        )
    return pd.DataFrame(lines)


def front_text(result: RepairResult) -> pd.DataFrame:
    """The changes that no other exceeds in both, from the highest average on; the one taken is marked."""
    rows = result.front()
    return pd.DataFrame(
        {
            "change": [_named(row) for row in rows.to_dict("records")],
            "average": rows["average"].map(percent),
            f"{level(result.confidence)} CI": _intervals(rows, "average"),
            "worst": rows["worst"].map(percent),
            f"{level(result.confidence)} CI ": _intervals(rows, "worst"),
            "worst class": rows["worst_class"],
            "clean": rows["clean"].map(percent),
            "": ["← taken" if taken else "" for taken in rows["chosen"]],
        }
    )


def _named(row: Mapping[Any, Any]) -> str:
    share = row["share"]
    if row["kind"] == "between" and isinstance(share, float):
        return f"{percent(share, 0)} of the way"
    return "none" if row["kind"] == "unchanged" else f"round {row['number']}"


def attacker(result: RepairResult) -> str:
    """What an attacker can still do to the model as it is now."""
    found = result.after.verdict()
    tied = len(found.worst) > 1
    who = f"each of the {len(found.worst):,} classes that tie ({listed(found.worst, 3)})" if tied else found.worst[0]
    other = "" if found.confused_with is None else f", most often as {found.confused_with}"
    return (
        f"What an attacker can still do: of the images of {who} {percent(1 - found.accuracy)} are misclassified under "
        f"{result.after.headline}{other}."
    )
