"""Whether audits may be compared: the same classes and attacks, and the same examples if they are to be paired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from classwise.core.errors import UserError, check_known
from classwise.core.meta import AttackInfo
from classwise.core.records import CLEAN, WORST_CASE, Records
from classwise.core.run_config import same
from classwise.results.audit_result import Audit

_NAMED = 5  # differences an error or a note names


def check_classes(audits: Mapping[str, Audit], base: str, name: str) -> None:
    """An error unless two runs have the same classes in the same order."""
    mine, theirs = (audits[run].records.class_names for run in (base, name))
    if mine != theirs:
        only = [
            f"{c!r} only in {run}"
            for run, a, b in ((base, mine, theirs), (name, theirs, mine))
            for c in a
            if c not in b
        ]
        what = "; ".join(only[:_NAMED]) or "their order differs"
        raise UserError(f"{base} and {name} do not have the same classes: {what}. Compare audits of one data set.")


def _shared(audits: Mapping[str, Audit]) -> list[str]:
    """The attacks every run has."""
    first, *rest = (audit.names for audit in audits.values())
    return [name for name in first if all(name in names for names in rest)]


def common_attack(audits: Mapping[str, Audit], base: str) -> str:
    """The headline of all runs, if its attacks and their settings are the same in all of them."""
    headline, attacks = audits[base].headline, _attacks_of(audits[base])
    choice = f"name one that all have with attack (--attack): {', '.join(_shared(audits))}"
    for name, audit in audits.items():
        if _attacks_of(audit) != attacks:
            raise UserError(
                f"the runs were not attacked in the same way: {base} under {attacks}, {name} under "
                f"{_attacks_of(audit)}. Audit them with the same attacks, or {choice}."
            )
        if found := differing(conditions(audits[base], headline), conditions(audit, headline)):
            raise UserError(
                f"{base} and {name} were both attacked by {attacks}, with different settings: "
                f"{'; '.join(found[:_NAMED])}. Audit them with the same settings; or, to compare them anyway, "
                f"{choice}."
            )
    return headline


def _attacks_of(audit: Audit) -> str:
    """What decides the headline, in words."""
    return audit.headline if len(audit.attacks) < 2 else f"the worst case of {', '.join(sorted(audit.attacks))}"


def attack_notes(audits: Mapping[str, Audit], base: str, attack: str) -> list[str]:
    """A note for each run in which the chosen attack has other settings than in the base."""
    check_known("attack that all runs have", [*_shared(audits), WORST_CASE], attack)
    mine = conditions(audits[base], attack)
    found = {name: differing(mine, conditions(audit, attack)) for name, audit in audits.items()}
    return [
        f"{attack} was not the same in {base} and {name} ({'; '.join(own[:_NAMED])}): the difference may be due "
        "to the attack, not the model."
        for name, own in found.items()
        if own
    ]


def conditions(audit: Audit, attack: str) -> dict[tuple[str, str], Any]:
    """The settings that decide the rows of an attack, by attack and setting; empty for clean."""
    if attack == CLEAN:
        return {}
    meta, names = audit.records.meta, [attack]
    info = meta.attacks.get(attack)
    if attack == WORST_CASE and info is None:
        names = list(audit.attacks)
    elif info is not None and info.coverage == "survivors":
        names = [name for name in audit.names[: audit.names.index(attack) + 1] if name != CLEAN]
    per_example = audit.config.get("audit", {}).get("eps_per_example")
    found: dict[tuple[str, str], Any] = {("", "norm"): meta.norm, ("", "eps of each example"): per_example}
    for name in names:
        info = meta.attacks.get(name, AttackInfo())
        found[name, "eps"] = meta.eps if info.eps is None else info.eps
        found[name, "protocol"] = info.protocol
        found |= {(name, key): value for key, value in info.settings.items()}
    return found


def differing(one: Mapping[tuple[str, str], Any], other: Mapping[tuple[str, str], Any]) -> list[str]:
    """What differs, in words; an attack that only one has is one difference, not one for each of its settings."""

    def text(value: Any) -> str:
        return "unset" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    mine, theirs = ({name for name, _ in conditions} for conditions in (one, other))
    alone = [f"only one ran {name}" for name in sorted(mine ^ theirs)]
    shared = [key for key in dict.fromkeys((*one, *other)) if key[0] in mine & theirs]
    return alone + [
        f"{name} {setting} {text(one.get((name, setting)))} and {text(other.get((name, setting)))}".strip()
        for name, setting in shared
        if not same(one.get((name, setting)), other.get((name, setting)))
    ]


def why_unpaired(one: Audit, other: Audit, mine: Records, theirs: Records) -> str | None:
    """Why two runs cannot be paired; None if they saw the same examples."""
    if not np.array_equal(mine.index, theirs.index):
        return f"{len(mine):,} and {len(theirs):,} examples, {len(np.intersect1d(mine.index, theirs.index)):,} shared"
    if not np.array_equal(mine.label, theirs.label):
        return "their labels differ"
    marks = [audit.config.get("data", {}).get("fingerprint") for audit in (one, other)]
    return "their data differ" if all(marks) and not same(*marks) else None
