"""Every reproduction on one page: what the paper states, what is done at each scale, and what differs.

python -m classwise.studies.reproduction.page > docs/results/reproductions.md
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from classwise import published
from classwise.published.paper_settings import NOT_STATED, Settings, StatedAttack
from classwise.show import tables
from classwise.studies.reproduction import reproduce
from classwise.studies.reproduction.reproduce import ReproductionPlan
from classwise.studies.reproduction.used import Used, used

_HEAD = """# Reproductions beside the papers

Every table and figure that `classwise reproduce ID` makes again. Of each: what the paper states of how it was made (and
where), what is done at `--scale paper` and at `--scale desk`, and what is not as in the paper. What a paper does not
state is left out, and cannot differ. A test compares the plans with the papers' settings and fails on a difference that
is not listed here. WideResNet-32-10 is the papers' name for a network that others call WideResNet-34-10.

This page is made by `python -m classwise.studies.reproduction.page`.
"""
_COLUMNS = ["", "the paper", "--scale paper", "--scale desk"]
_TRAINED = {
    "network": "{}",
    "weights": "{} weights",
    "epochs": "{} epochs",
    "checkpoint": "evaluated: {}",
    "lr": "rate {}",
    "milestones": "decayed at {}",
    "weight_decay": "weight decay {}",
    "train_steps": "{} inner steps",
    "train_step": "of {}",
    "train_eps": "at {}",
}


def markdown() -> str:
    """The page."""
    parts = [_HEAD]
    for citation, items in itertools.groupby(published.items(), key=lambda item: item.citation):
        measured = [item for item in items if item.study is not None]
        parts.append(f"## {citation}\n")
        parts.append(_overview([item.id for item in measured]))
        parts += [_section(item) for item in measured]
    return "\n".join(parts).replace("\n\n\n", "\n\n")


def _overview(names: Sequence[str]) -> str:
    rows = []
    for name in names:
        found = reproduce.differences(name, "paper"), reproduce.differences(name, "desk")
        keys = [", ".join(dict.fromkeys(each.key for each in own)) for own in found]
        rows.append((name, published.item(name).title, *(text or "nothing" for text in keys)))
    frame = pd.DataFrame(rows, columns=["id", "what", "differs at paper scale", "differs at desk scale"])
    return tables.markdown(frame, words=tuple(frame.columns)) + "\n"


def _section(item: published.Item) -> str:
    stated = published.settings(item.id)
    plans = [reproduce.plan(item.id, "paper"), reproduce.plan(item.id, "desk")]
    here = [used(reproduce.graph(item.id, "paper")), used(reproduce.graph(item.id, "desk"))]
    rows = [
        ("models", _stated_models(stated), *map(_models, here)),
        ("attacks", _stated_attacks(stated), *map(_attacks, here)),
        ("images", _images([stated.images]), *(_images(each.images for each in own) for own in here)),
        *((name, _listed(value), *(_listed(getattr(plan.study, name)) for plan in plans))
          for name, value in stated.options.items()),
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    where = f"{item.title}. Stated in: {stated.where}."
    printed = f"Printed: {stated.rows} × {stated.columns}." if stated.rows != NOT_STATED else ""
    table = tables.markdown(frame, words=tuple(frame.columns))
    return "\n\n".join(part for part in (f"### `{item.id}`", where, printed, table, _differs(plans)) if part) + "\n"


def _differs(plans: Sequence[ReproductionPlan]) -> str:
    lines = []
    for plan, scale in zip(plans, ("paper", "desk"), strict=True):
        lines.append(f"- Not as in the paper at {scale} scale: {' '.join(plan.sentences) or 'nothing.'}")
    return "\n".join(lines)


def _stated_models(stated: Settings) -> str:
    each = []
    for run in stated.runs:
        facts = {key: getattr(run.training, key) for key in _TRAINED}
        each.append((f"{run.method} on {run.data}", _training(facts)))
    return _grouped(each)


def _models(here: Iterable[Used]) -> str:
    """The models of a plan; of several epochs of one the first that is audited stands for all."""
    found: dict[str, tuple[str, str]] = {}
    for own in here:
        found.setdefault(own.model.partition("}")[0], (f"{own.method} on {own.data}", _training(own.training)))
    return _grouped(found.values())


def _training(facts: Mapping[str, Any]) -> str:
    known = {key: facts.get(key, NOT_STATED) for key in _TRAINED}
    said = [text.format(_short(known[key])) for key, text in _TRAINED.items() if known[key] != NOT_STATED]
    return ", ".join(text for text in said if text != "trained here weights")


def _stated_attacks(stated: Settings) -> str:
    return _by_data((run.data, _attack(attack)) for run in stated.runs for attack in run.attacks)


def _attacks(here: Iterable[Used]) -> str:
    return _by_data((own.data, _attack(own.attack)) for own in here)


def _by_data(pairs: Iterable[tuple[str, str]]) -> str:
    """The attacks of each data set, in one place where several have the same."""
    found: dict[str, dict[str, None]] = {}
    for data, attack in pairs:
        found.setdefault(data, {})[attack] = None
    return _grouped((data, ", ".join(attacks)) for data, attacks in found.items())


def _attack(own: StatedAttack) -> str:
    if own.attack in ("clean", NOT_STATED):
        return own.attack
    parts = [own.attack]
    if own.steps != NOT_STATED:
        parts.append(f"{own.steps} steps")
    if own.step != NOT_STATED:
        parts.append(f"of {_short(own.step)}")
    if own.eps != NOT_STATED:
        parts.append(f"at {_short(own.eps)}")
    if own.norm not in (NOT_STATED, "linf"):
        parts.append(f"in {own.norm}")
    if own.start != NOT_STATED:
        parts.append(f"from {'a random start' if own.start == 'random' else own.start}")
    if own.surrogate != NOT_STATED:
        parts.append(f"on a {own.surrogate}")
    if "inv_temperature" in own.settings:
        parts.append(f"1/T {_short(own.settings['inv_temperature'])}")
    return " ".join(parts)


def _images(counts: Iterable[int | str]) -> str:
    found = dict.fromkeys(str(count) for count in counts)
    return ", ".join(text if text in ("all", NOT_STATED) else f"{text} of each class" for text in found) or NOT_STATED


def _grouped(pairs: Iterable[tuple[str, str]]) -> str:
    """``a, b: x; c: y`` of pairs, each name once."""
    found: dict[str, dict[str, None]] = {}
    for name, text in pairs:
        found.setdefault(text, {})[name] = None
    return "; ".join(f"{', '.join(names)}{f': {text}' if text else ''}" for text, names in found.items()) or NOT_STATED


def _listed(value: Any) -> str:
    return ", ".join(map(_short, value)) if isinstance(value, (list, tuple)) else _short(value)


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    print(markdown(), end="")
