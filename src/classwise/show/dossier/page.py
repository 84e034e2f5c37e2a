"""The page of a dossier: one HTML file with everything in it, in the style of the reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from classwise.core.csv_files import visible
from classwise.core.format import level
from classwise.core.records import CLEAN
from classwise.results.dossier import standards
from classwise.results.dossier.facts import FACTS
from classwise.show.dossier.cells import Cells
from classwise.show.page import document
from classwise.show.page.data import attack_label

SECTIONS = {
    "identity": "Identity",
    "domain": "Operating domain",
    "threat": "Threat model",
    "criteria": "Criteria",
    "results": "Results by class",
    "statement": "Statistical statement",
    "adequacy": "Attack adequacy",
    "drop": "Clean, attacked, corrupted",
    "limits": "Known limits",
    "standards": "Standards",
    "signature": "Responsibility",
}
_ASSETS = Path(__file__).parent / "assets"
_DOMAIN = (("system", tuple(FACTS["system"])), ("data", tuple(FACTS["data"])))
_LABELS = {
    "name": "Name", "version": "Version", "provider": "Provider", "purpose": "Purpose",
    "operating_domain": "Operating domain", "out_of_scope": "Out of scope", "description": "Images",
    "represents": "Why they represent the domain", "role": "Role", "organisation": "Organisation", "date": "Date",
}  # fmt: skip


def html(dossier: Mapping[str, Any], scope: Sequence[tuple[str, str]], title: str | None = None) -> str:
    """The page as text. scope: what was audited, as a report opens with it."""
    shown = visible(dict(dossier))
    cells = Cells(shown)
    name = shown["facts"]["system"]["name"] or shown["identity"]["model"]["spec"] or "the model"
    return document.render(
        "dossier.html",
        ["dom.js", "theme.js", "dossier.js"],
        {},
        styles=["dossier.css"],
        folder=_ASSETS,
        title=title or f"Audit dossier of {name}",
        sections=list(SECTIONS.items()),
        names=SECTIONS,
        d=shown,
        scope=visible(list(scope)),
        badge=_badge(shown["criteria"]),
        figures=_figures(shown, cells),
        identity=_identity(shown),
        domain=[(_LABELS[key], shown["facts"][table][key]) for table, keys in _DOMAIN for key in keys],
        threats=[(run, threat) for run, threat in shown["threat"].items() if threat],
        runs=[_run(shown, run, cells) for run in shown["results"]],
        statements=_statements(shown),
        adequacy=[
            (run, own, _about_attacks(own["findings"]), _rated(shown, run, cells))
            for run, own in shown["adequacy"].items()
            if own["attacks"] or _about_attacks(own["findings"])
        ],
        drops=_drops(shown, cells),
        standards=standards.STANDARDS,
        note=standards.NOTE,
        responsible=[(_LABELS[key], shown["facts"]["responsible"][key]) for key in FACTS["responsible"]],
        settings=_settings,
    )


def _badge(criteria: Mapping[str, Any]) -> tuple[str, str]:
    """Whether the criteria hold, as a word and a sentence."""
    if not criteria["stated"]:
        return "none", "no criteria were stated"
    failed = sum(not one["passed"] for one in criteria["results"])
    total = len(criteria["results"])
    if failed:
        return "failed", f"{failed:,} of {total:,} criteria failed"
    return "passed", "the criterion holds" if total == 1 else f"all {total:,} criteria hold"


def _figures(dossier: Mapping[str, Any], cells: Cells) -> list[tuple[Any, str, Any]]:
    """The numbers of the first screen: of the first run."""
    run = dossier["first"]
    numbers = dossier["results"][run]
    where, clean = ("results", run, "attacks", numbers["headline"]), ("results", run, "attacks", CLEAN)
    label = attack_label(numbers["headline"])
    worst = dossier["results"][run]["attacks"][numbers["headline"]]["worst"]
    names = " and ".join(worst["classes"][:2]) if len(worst["classes"]) <= 2 else f"{len(worst['classes'])} classes tie"
    lowest = cells.interval("low", "high", *where, "worst")
    whole = cells.interval("accuracy_low", "accuracy_high", *where)
    found = [
        (cells.percent(*where, "worst", "accuracy"), f"worst class: {names}", lowest),
        (cells.percent(*where, "accuracy"), f"accuracy, {label}", whole),
    ]
    if CLEAN in numbers["attacks"] and numbers["headline"] != CLEAN:
        ends = cells.interval("accuracy_low", "accuracy_high", *clean)
        found.append((cells.percent(*clean, "accuracy"), "clean accuracy", ends))
    return found


def _identity(dossier: Mapping[str, Any]) -> list[tuple[str, str | None, bool]]:
    """Rows of what, value, and whether it is a digest."""
    own, facts = dossier["identity"], dossier["facts"]
    model, software = own["model"], own["software"]
    trained = {True: "yes", False: "no", None: "not recorded"}[model["adversarially_trained"]]
    rows: list[tuple[str, str | None, bool]] = [
        ("Model", model["spec"], False),
        ("Weights and buffers, SHA-256", model["fingerprint"], True),
        ("Weights file, SHA-256", model["weights_sha256"], True),
        ("Adversarially trained", trained, False),
    ]
    for run, about in own["runs"].items():
        selection = ", ".join(f"{key} {value}" for key, value in about["selection"].items()) or "all of it"
        rows += [
            (f"{run}: data", f"{about['data']}, {about['images']:,} images ({selection}), seed {about['seed']}", False),
            (f"{run}: data, SHA-256", about["data_fingerprint"], True),
            (f"{run}: finished", about["finished"], False),
            (f"{run}: made by", _versions(software["versions"][run]), False),
        ]
        kept = {name: digest for name, digest in about["files"].items() if not name.startswith("records/")}
        rows += [(f"{run}: {name}, SHA-256", digest, True) for name, digest in kept.items()]
        rows.append((f"{run}: records, SHA-256 of all", about["records_sha256"], True))
    rows += [(f"Data file {name}, SHA-256", digest, True) for name, digest in own["data_files"].items()]
    return [
        *rows,
        ("This dossier was written by", f"classwise {software['classwise']}", False),
        ("Its source, SHA-256", software["classwise_sha256"], True),
        ("Its environment, SHA-256", software["environment_sha256"], True),
        ("Commit of the model's code", facts["software"]["commit"] or "not stated", False),
    ]


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _run(dossier: Mapping[str, Any], run: str, cells: Cells) -> dict[str, Any]:
    """The tables of a run: its attacks, and its classes from the weakest on."""
    numbers = dossier["results"][run]
    headline, confidence = numbers["headline"], level(numbers["confidence"])
    attacks = []
    for attack, own in numbers["attacks"].items():
        where = ("results", run, "attacks", attack)
        attacks.append(
            {
                "name": attack_label(attack),
                "accuracy": cells.percent(*where, "accuracy"),
                "interval": cells.interval("accuracy_low", "accuracy_high", *where),
                "average": cells.percent(*where, "average"),
                "class": ", ".join(own["worst"]["classes"][:3]) + ("…" if len(own["worst"]["classes"]) > 3 else ""),
                "worst": cells.percent(*where, "worst", "accuracy"),
                "worst_interval": cells.interval("low", "high", *where, "worst"),
            }
        )
    return {
        "name": run,
        "verdict": numbers["verdict"],
        "headline": attack_label(headline),
        "level": confidence,
        "attacks": attacks,
        "classes": _classes(dossier, run, cells),
        "attacked": headline != CLEAN,
        "corrupted": run in dossier["corrupted"],
    }


def _classes(dossier: Mapping[str, Any], run: str, cells: Cells) -> list[dict[str, Any]]:
    numbers = dossier["results"][run]
    headline, worst = numbers["headline"], numbers["attacks"][numbers["headline"]]["worst"]["classes"]
    own = numbers["attacks"][headline]["classes"]
    order = sorted(range(len(own)), key=lambda place: (own[place]["accuracy"] is None, own[place]["accuracy"] or 0))
    rows = []
    for place in order:
        where, clean = ("results", run, "attacks", headline, "classes", place), ("results", run, "attacks", CLEAN)
        row = own[place]
        rows.append(
            {
                "class": row["class"],
                "criticality": dossier["criticality"].get(row["class"]),
                "worst": row["class"] in worst,
                "n": cells.count(*where, "n"),
                "clean": cells.percent(*clean, "classes", place, "accuracy") if CLEAN in numbers["attacks"] else None,
                "accuracy": cells.percent(*where, "accuracy"),
                "interval": cells.interval("low", "high", *where),
                "simultaneous": cells.interval("simultaneous_low", "simultaneous_high", *where),
                "bar": None if row["accuracy"] is None else _bar(row["accuracy"], row["low"], row["high"]),
            }
        )
    return rows


def _bar(value: float, low: float, high: float) -> dict[str, float]:
    """Width of the bar, and place and length of its whisker, in percent."""
    return {"width": round(100 * value, 2), "low": round(100 * low, 2), "span": round(100 * (high - low), 2)}


def _statements(dossier: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """The statement of each run; what is the same for all of them once."""
    found = dossier["statement"]
    common = [text for text in found[dossier["first"]] if all(text in own for own in found.values())]
    each = [(run, [text for text in own if text not in common]) for run, own in found.items()]
    return [*((run, own) for run, own in each if own), ("", common)]


def _rated(dossier: Mapping[str, Any], run: str, cells: Cells) -> dict[str, Any] | None:
    """Optimality: a row per class, a column per attack."""
    rows = dossier["adequacy"][run]["optimality"]
    if not rows:
        return None
    attacks = list(dict.fromkeys(row["attack"] for row in rows))
    classes = list(dict.fromkeys(row["class"] for row in rows))
    place = {(row["class"], row["attack"]): number for number, row in enumerate(rows)}
    return {
        "attacks": attacks,
        "rows": [
            (
                name,
                [cells.fixed("adequacy", run, "optimality", place[name, attack], "optimality") for attack in attacks],
            )
            for name in classes
        ],
    }


def _about_attacks(findings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Warnings and notes; what to do next for the model's sake is in the report."""
    return [finding for finding in findings if finding["severity"] != "recommendation"]


def _drops(dossier: Mapping[str, Any], cells: Cells) -> list[dict[str, Any]]:
    rows = dossier["drop"]
    order = sorted(range(len(rows)), key=lambda place: rows[place]["change_attacked"] or 0)
    keys = ("clean", "attacked", "corrupted")
    return [
        {
            "class": rows[place]["class"],
            **{key: cells.percent("drop", place, key) for key in keys},
            **{key: cells.points("drop", place, key) for key in ("change_attacked", "change_corrupted")},
            "bars": [(key, round(100 * rows[place][key], 2)) for key in keys if rows[place][key] is not None],
        }
        for place in order
    ]


def _settings(settings: Mapping[str, Any]) -> str:
    """The settings of an attack, in a line."""
    shown = {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()}
    return ", ".join(f"{key} {value}" for key, value in shown.items() if key != "name")
