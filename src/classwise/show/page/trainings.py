"""What the page says of a training: a headline, its numbers, a table of the classes, its settings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from classwise.core.format import fixed, interval, level, percent, radius
from classwise.core.run_config import plain
from classwise.metrics.worst import label
from classwise.results.training_result import CONFIDENCE, Share, TrainingResult
from classwise.results.verdict import called
from classwise.show.page.sections import setting_rows

_RULES = {
    "worst": "by the worst class on held-out images",
    "average": "by the average on held-out images",
    "minimax": "by the largest class loss on held-out images",
    "last": "as the last one",
}
_PARTS = {
    "method": "Method", "threat": "Threat", "train": "Training", "data": "Data", "model": "Model",
    "validate": "Validation", "teacher": "Teacher", "teacher_clean": "Clean teacher", "run": "Run",
}  # fmt: skip


def describe(name: str, training: TrainingResult, folder: Path) -> dict[str, Any]:
    """All that the template shows of a training, its charts aside."""
    return {
        "name": name,
        "scope": scope(training),
        "headline": headline(training),
        "sentence": sentence(training),
        "numbers": numbers(training),
        "classes": class_rows(training),
        "caption": _caption(training),
        "remarks": list(training.remarks),
        "command": _command(training.config, folder),
        "settings": settings(training.config),
    }


def scope(training: TrainingResult) -> list[tuple[str, str]]:
    """What was trained, on what and against what; what the recipe does not say is left out."""
    config = training.config
    parts = {key: config.get(key, {}) for key in ("method", "model", "data", "threat", "run")}
    threat = parts["threat"]
    norm = {"linf": "L∞", "l2": "L2"}.get(str(threat.get("norm", "linf")), str(threat.get("norm")))
    lines = {
        "method": parts["method"].get("name"),
        "model": parts["model"].get("spec"),
        "data": parts["data"].get("name"),
        "threat": f"{norm} ≤ {radius(float(threat['eps']))}" if "eps" in threat else None,
        "validated by": _attack(config) if config else None,
    }
    return [(key, str(value)) for key, value in lines.items() if value]


def headline(training: TrainingResult) -> str:
    """The verdict on the selected epoch in one plain line."""
    tied, worst = training.worst()
    if not tied:
        return "No image was held out, so the accuracy is not known: audit the model."
    ci = f" ({level(CONFIDENCE)} CI {interval(worst.low, worst.high)})" if _known(worst) else ""
    who = f"{called(tied[0])} is the worst class" if len(tied) == 1 else f"{len(tied)} classes tie for the worst"
    return f"{who} on held-out images: {percent(worst.value)} robust{ci}."


def sentence(training: TrainingResult) -> str:
    """What was trained, which epoch was selected, and what its worst class and average are."""
    config, last = training.config, int(training.history["epoch"].iloc[-1])
    method, data = config.get("method", {}).get("name"), config.get("data", {}).get("name")
    what = f"{method} on {data}" if method and data else "A training"
    wanted = config.get("train", {}).get("epochs", last)
    part = f"{last} epochs" if last >= wanted else f"{last} of {wanted} epochs so far"
    epoch = training.selected
    chosen = "" if epoch is None else f", of which epoch {epoch} was selected {_RULES.get(training.rule, '')}".rstrip()
    tied, worst = training.worst()
    if not tied:
        return f"{what}: {part}{chosen}. No image was held out, so its accuracy is not known; audit it."
    ci = "" if not _known(worst) else f" ({level(CONFIDENCE)} CI of the worst class {interval(worst.low, worst.high)})"
    one = len(tied) == 1
    who = f"{tied[0]} is the worst class:" if one else f"{label(tied)}{'' if len(tied) > 2 else ' tie'} for the worst:"
    return (
        f"{what}: {part}{chosen}. On held-out images under {_attack(config)}, {who} {percent(worst.value)} robust{ci}; "
        f"the average of the classes is {percent(training.average())}."
    )


def numbers(training: TrainingResult) -> list[tuple[str, str, str]]:
    """The numbers under the headline: each number, what it is, and its interval or remark."""
    tied, worst = training.worst()
    epochs = len(training.history)
    seconds = float(training.history["seconds"].sum()) if "seconds" in training.history else float("nan")
    found = []
    if tied:
        robust, clean = training.overall("robust"), training.overall("clean")
        found = [
            (percent(worst.value), f"worst class: {label(tied)}", _ci(worst)),
            (percent(robust.value), f"robust accuracy, {_attack(training.config)}", _ci(robust)),
            (percent(clean.value), "clean accuracy", _ci(clean)),
        ]
    epoch = "–" if training.selected is None else str(training.selected)
    spent = "" if seconds != seconds else f", {fixed(seconds / 60, 1)} minutes"
    return [*found, (epoch, "selected epoch", f"of {epochs}{spent}")]


def class_rows(training: TrainingResult) -> list[dict[str, Any]]:
    """A row for each class, weakest first, with its bar in percent of the width; classes without images last."""
    table = training.by_class().sort_values(["robust", "class"], na_position="last")
    tied, _ = training.worst()
    return [
        {
            "class": row["class"],
            "place": place,
            "n": f"{row['n']:,}" if row["n"] else "–",
            "clean": percent(row["clean"]),
            "robust": percent(row["robust"]),
            "interval": interval(row["low"], row["high"]),
            "width": round(100 * row["robust"], 2) if row["robust"] == row["robust"] else 0,
            "low": round(100 * row["low"], 2) if row["low"] == row["low"] else None,
            "span": round(100 * (row["high"] - row["low"]), 2) if row["low"] == row["low"] else None,
            "weakest": row["class"] in tied,
        }
        for place, row in table.iterrows()
    ]


def settings(config: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The recipe, part by part, method first."""
    tree = plain(config)
    if "threat" in tree:
        tree["threat"]["eps"] = radius(float(tree["threat"]["eps"]))
    return [(caption, setting_rows(tree[part])) for part, caption in _PARTS.items() if tree.get(part)]


def _caption(training: TrainingResult) -> str:
    epoch = training.selected
    when = "the last epoch" if epoch is None else f"epoch {epoch}, the selected one"
    count = "" if training.images is None else f"{training.images:,} "
    return (
        f"Accuracy on {count}held-out images of each class after {when}, under {_attack(training.config)}, with "
        f"{level(CONFIDENCE)} confidence intervals. The epoch was selected on these images, so an audit on test images "
        "is what counts."
    )


def _command(config: Mapping[str, Any], folder: Path) -> str:
    """The command that trains the same again; empty where something was given in Python, or the settings are gone."""
    run = config.get("run", {})
    if not config or run.get("given"):
        return ""
    root = ["--root", str(run["root"])] if run.get("root") else []
    return shlex.join(["classwise", "train", str(folder / "config.toml"), *root, "--out", "AGAIN"])


def _attack(config: Mapping[str, Any]) -> str:
    attacks = config.get("validate", {}).get("attack", [])
    return "the validation attack" if not attacks else " and ".join(map(str, attacks))


def _known(share: Share) -> bool:
    return share.low == share.low


def _ci(share: Share) -> str:
    return f"{level(CONFIDENCE)} CI {interval(share.low, share.high)}" if _known(share) else ""
