"""The page of a study: what was studied, the verdicts, every claim with its test, the tables and the figures."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from classwise.core.csv_files import csv_text, visible
from classwise.core.format import duration, listed, radius
from classwise.core.spec import number
from classwise.core.storage import atomic_write_text
from classwise.results import stored_study
from classwise.results.stored_study import DECIDED, MOOT, StoredStudy
from classwise.show.page import charts, document, first_screen, glossary
from classwise.show.page.data import slugs
from classwise.show.page.sections import setting_rows
from classwise.show.tables import printed, words

_SCRIPTS = ("dom.js", "theme.js", "charts.js", "download.js", "study.js")
_MOST_ROWS = 300  # of a table that are shown; the CSV file has all
_MOST_NAMED = 4
_KINDS = {"train": ("training", "trainings"), "audit": ("audit", "audits"), "derive": ("derived job", "derived jobs")}
_IN_SCOPE = ("model", "recipe", "base", "tuned", "scratch", "data", "eps", "norm", "attack", "from the zoo")
_SECTIONS = {
    "claims": "Claims",
    "tables": "Tables",
    "figures": "Figures",
    "costs": "Costs",
    "notes": "Notes",
    "settings": "Settings",
    "glossary": "Glossary",
}


def build(folder: Path, out: Path, title: str | None = None, note: str = "") -> Path:
    """Write the page of the study in a folder to `out`; without the models and without torch."""
    extra = [*(["--title", title] if title else []), *(["--note", note] if note else [])]
    command = shlex.join(["classwise", "report", str(folder), "--out", str(out), *extra])
    return write(stored_study.read(folder), out, title, note, command)


def write(found: StoredStudy, out: Path, title: str | None = None, note: str = "", command: str = "") -> Path:
    """Write the page of a study to `out`. title: instead of its own. command: what made the page."""
    atomic_write_text(out, visible(render(found, title or found.title, note, command)))
    return out


def render(found: StoredStudy, title: str, note: str, command: str) -> str:
    """The page as text."""
    drawn = charts.of_study(found.charts)
    names = slugs(list(found.tables))
    tables = [_table(*given) for given in zip(names, found.tables, found.tables.values(), strict=True)]
    there = {
        "claims": found.claims,
        "tables": tables,
        "figures": drawn,
        "costs": found.jobs,
        "notes": found.notes,
        "settings": found.settings or command,
        "glossary": True,
    }
    return document.render(
        "study.html",
        _SCRIPTS,
        {"tables": {one["id"]: one.pop("csv") for one in tables}},
        ["study.css"],
        title=title,
        note=note,
        sections=[(anchor, name) for anchor, name in _SECTIONS.items() if there[anchor]],
        scope=scope(found),
        verdict=found.sentence,
        numbers=_numbers(found),
        claims=[_claim(claim) for claim in found.claims],
        tables=tables,
        charts=[(drawing.figure, Markup(drawing.svg), drawing.problem) for drawing in drawn],
        costs=_costs(found),
        notes=found.notes,
        settings=[("Options", setting_rows(found.settings)), ("Versions", setting_rows(found.versions))],
        command=command,
        terms=glossary.of({"study", *_over_seeds(found)}),
    )


def scope(found: StoredStudy) -> first_screen.Scope:
    """What was studied: models, data, threat and attacks of its jobs, its other options, when and by which versions."""
    audits = [job for job in found.asked if job["kind"] == "audit"]
    recipes = [str(job["recipe"]) for job in found.asked if job["kind"] == "train"]
    given = [str(job["model"]) for job in audits if not str(job["model"]).startswith("{")]
    named = found.settings.get("model") or given
    models = [*([named] if isinstance(named, str) else map(str, named)), *recipes]
    options = [
        f"{key} {listed(_texts(value), _MOST_NAMED)}"
        for key, value in found.settings.items()
        if key not in _IN_SCOPE and _texts(value)
    ]
    lines = {
        "models": listed(_unique(models), _MOST_NAMED),
        "data": listed(_unique(str(job["data"]) for job in audits), _MOST_NAMED),
        "threat": listed(_unique(map(_threat, audits)), _MOST_NAMED),
        "attacks": listed(_unique(attack for job in audits for attack in job["attacks"]), _MOST_NAMED),
        "options": "; ".join(options),
        "date": first_screen.day(found.finished),
        "versions": ", ".join(f"{name} {version}" for name, version in found.versions.items() if name != "python"),
    }
    return [(key, value) for key, value in lines.items() if value]


def _unique(texts: Any) -> list[str]:
    return list(dict.fromkeys(texts))


def _texts(value: Any) -> list[str]:
    """An option as texts; none where it has no value."""
    if isinstance(value, (list, tuple)):
        return [str(one) for one in value]
    return [] if value in (None, "") else [str(value)]


def _threat(job: Mapping[str, Any]) -> str:
    return first_screen.threat(str(job["options"].get("norm") or "linf"), [radius(number(job["eps"]))])


def _numbers(found: StoredStudy) -> list[tuple[str, str, str]]:
    """The numbers below the verdict: how many claims have each, and the time it took."""
    numbers = []
    if found.claims:
        few = found.verdicts["not enough images"]
        undecided = len(found.claims) - sum(found.verdicts[word] for word in (*DECIDED, MOOT))
        numbers = [(str(found.verdicts[word]), f"claims {word}", "") for word in DECIDED]
        numbers.append((str(undecided), "claims not decided", f"{few} for want of images" if few else ""))
        if moot := found.verdicts[MOOT]:
            numbers.append((str(moot), "claims that do not apply", "their precondition did not hold"))
    if found.jobs:
        spent = sum(job["seconds"] for job in found.jobs)
        numbers.append(
            (duration(spent), "of computing", f"{len(found.jobs):,} job{'s' if len(found.jobs) > 1 else ''}")
        )
    return numbers


def _claim(claim: Mapping[str, str]) -> dict[str, Any]:
    """A claim as the template shows it; one of an earlier version has no sample, nor what would decide it."""
    kinds = dict(zip(DECIDED, ("held", "failed"), strict=True))
    rows = {"evidence": "numbers", "test": "test", "sample": "sample", "would decide it": "needs", "source": "source"}
    return {
        "text": claim["text"],
        "verdict": claim["verdict"],
        "kind": kinds.get(claim["verdict"], "undecided"),
        "rows": [(name, claim[key]) for name, key in rows.items() if claim.get(key)],
    }


def _table(anchor: str, name: str, frame: pd.DataFrame) -> dict[str, Any]:
    """A table as the template shows it, each cell as text and as what it is sorted by; and the whole of it as CSV."""
    shown = frame.head(_MOST_ROWS)
    texts, left = printed(shown).to_numpy().tolist(), set(words(frame))
    head = [(str(column), str(column) in left) for column in frame.columns]
    cut = f"The first {_MOST_ROWS:,} of {len(frame):,} rows; the CSV file has all." if len(frame) > _MOST_ROWS else ""
    return {
        "id": f"table-{anchor}",
        "name": name,
        "title": charts.heading(name),
        "caption": cut or f"{len(frame):,} row{'' if len(frame) == 1 else 's'}.",
        "head": head,
        "rows": [
            [
                {"text": text, "word": word, "value": "" if pd.isna(value) else str(value)}
                for text, value, (_, word) in zip(*row, head, strict=True)
            ]
            for row in zip(texts, shown.to_numpy().tolist(), strict=True)
        ],
        "csv": csv_text(frame),
    }


def _over_seeds(found: StoredStudy) -> list[glossary.Part]:
    """The part of the glossary about seeds, where a table is over them."""
    return ["seeds"] if any("seeds" in frame.columns for frame in found.tables.values()) else []


def _costs(found: StoredStudy) -> list[tuple[str, str, str]]:
    """The jobs of each kind: how many, and how long they took in all."""
    rows = []
    for kind, (one, several) in _KINDS.items():
        own = [job["seconds"] for job in found.jobs if job["kind"] == kind]
        if own:
            rows.append((one if len(own) == 1 else several, f"{len(own):,}", duration(sum(own))))
    return rows
