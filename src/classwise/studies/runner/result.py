"""The result of a study: tables, figures, and a verdict on each claim of the papers."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from classwise.core.csv_files import read_csv, visible
from classwise.core.records import Records
from classwise.core.run_folder import StudyFolder
from classwise.core.storage import atomic_write_text
from classwise.core.version import __version__
from classwise.results.audit_result import Audit
from classwise.results.stored_study import Job, StoredStudy
from classwise.show import figures, notebook
from classwise.show.figures.style import Chart
from classwise.show.page import study as study_page
from classwise.show.tables import markdown, printed, words
from classwise.studies.runner.work import Workspace
from classwise.studies.shared.verdicts import Ruling, Verdict


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, the verdict of a test on it (`shared.verdicts`), and the numbers."""

    source: str  # an id such as tian2021:table1
    text: str
    ruling: Ruling
    numbers: str

    def __post_init__(self) -> None:
        if not isinstance(self.ruling, Ruling):
            raise TypeError(f"a claim takes a ruling of shared.verdicts, which names its test; got {self.ruling!r}")

    @property
    def verdict(self) -> Verdict:
        return self.ruling.verdict

    @property
    def test(self) -> str:
        return self.ruling.test

    @property
    def sample(self) -> str:
        return self.ruling.sample

    @property
    def needs(self) -> str:
        """How many would decide it, where it is not decided."""
        return self.ruling.needs

    def to_dict(self) -> dict[str, str]:
        names = ("source", "text", "verdict", "numbers", "test", "sample", "needs")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class StudyResult:
    """What a study found; `notes` say what differs from the papers' setting.

    data: the tables its figures were drawn from, by the figures' names, so that `classwise figure` can draw them again.
    """

    tables: Mapping[str, pd.DataFrame]
    _: KW_ONLY
    figures: Mapping[str, Chart] = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    notes: Sequence[str] = ()
    data: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdicts on the claims, the tables, the figures and the notes."""
        frames = {_sentence(name): (printed(table), words(table)) for name, table in self.tables.items()}
        if self.claims:
            claims = pd.DataFrame([claim.to_dict() for claim in self.claims])
            frames = {"Claims": (claims, list(claims.columns)), **frames}
        return notebook.study(frames, {_sentence(name): chart for name, chart in self.figures.items()}, self.notes)

    def write_page(
        self, out: str | Path, title: str = "Study", settings: Mapping[str, Any] | None = None, note: str = ""
    ) -> Path:
        """Write the result as one HTML page, as `classwise report` does of the folder of a study."""
        found = StoredStudy(
            title=title,
            settings=dict(settings or {}),
            claims=[claim.to_dict() for claim in self.claims],
            tables=self.tables,
            charts={name: as_specification(chart) for name, chart in self.figures.items()},
            notes=list(self.notes),
        )
        return study_page.write(found, Path(out), note=note)


def merged(parts: Sequence[tuple[str, StudyResult]]) -> StudyResult:
    """Results as one; the text that goes with each is appended to the names of its tables, figures and data."""
    frames: dict[str, list[pd.DataFrame]] = {}
    for end, own in parts:
        for name, frame in own.data.items():
            frames.setdefault(f"{name}{end}", []).append(frame)
    return StudyResult(
        {f"{name}{end}": table for end, own in parts for name, table in own.tables.items()},
        figures={f"{name}{end}": chart for end, own in parts for name, chart in own.figures.items()},
        claims=[claim for _, own in parts for claim in own.claims],
        notes=list(dict.fromkeys(note for _, own in parts for note in own.notes)),
        data={name: pd.concat(own, ignore_index=True) for name, own in frames.items()},
    )


def named_charts(kind: str, charts: Mapping[str, Chart]) -> dict[str, Chart]:
    """Charts of one kind, such as one for each model, under the names of their files: KIND, or KIND_NAME of several."""
    return {kind if len(charts) == 1 else f"{kind}_{name}": chart for name, chart in charts.items()}


@dataclass(frozen=True)
class Done:
    """The finished jobs of a study, for its tables."""

    workspace: Workspace

    def folder(self, name: str) -> Path:
        return self.workspace.folder_of(name)

    def audit(self, name: str) -> Audit:
        return Audit.load(self.folder(name))

    def rows(self, name: str, attack: str | None = None) -> Records:
        """The records of an audit under one attack, or under all of them."""
        return self.audit(name).rows(attack)

    def table(self, name: str, file: str) -> pd.DataFrame:
        """A table that a derived job wrote."""
        return read_csv(self.folder(name) / file)


def write(
    result: StudyResult, folder: Path, title: str, settings: Mapping[str, object], jobs: Sequence[Job] = ()
) -> Path:
    """Write tables/*.csv, figures/*.svg and their data (data/*.csv), claims.json, study.md to read, and what else its
    page is made of (study.json, figures/*.json). jobs: what it took."""
    files, parts = StudyFolder(folder), [f"# {title}", _settings(settings)]
    if result.claims:
        rows = pd.DataFrame([claim.to_dict() for claim in result.claims])
        atomic_write_text(files.claims_file, json.dumps(rows.to_dict("records"), indent=1))
        parts += ["## Claims", markdown(rows, rows.columns)]
    for name, frame in result.tables.items():
        files.write_table(name, frame)
        parts += [f"## {_sentence(name)}", markdown(printed(frame), words(frame))]
    for name, chart in result.figures.items():
        path = files.figure(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        figures.save(chart, path)
        atomic_write_text(files.chart(name), json.dumps(as_specification(chart)))
        parts += [f"## {_sentence(name)}", f"![{_sentence(name)}]({path.relative_to(folder).as_posix()})"]
    for name, frame in result.data.items():
        files.write_figure_data(name, frame)
    if result.notes:
        parts += ["## What differs from the papers", "\n".join(f"- {note}" for note in result.notes)]
    about = {
        "title": title,
        "settings": {key: value for key, value in settings.items() if value not in (None, ())},
        "tables": list(result.tables),
        "figures": list(result.figures),
        "notes": list(result.notes),
        "jobs": list(jobs),
        "finished": date.today().isoformat(),
        "versions": {"classwise": __version__, "torch": version("torch"), "python": platform.python_version()},
    }
    atomic_write_text(files.about_file, json.dumps(about, indent=1, default=str))
    atomic_write_text(files.page, "\n\n".join(parts) + "\n")
    return files.page


def _settings(settings: Mapping[str, object]) -> str:
    given = {key: value for key, value in settings.items() if value not in (None, ())}
    return "\n".join(f"- {key}: {_code(value)}" for key, value in given.items())


def _code(value: object) -> str:
    return ", ".join(map(_code, value)) if isinstance(value, (list, tuple)) else f"`{value}`"


def _sentence(name: str) -> str:
    return name.replace("_", " ").capitalize()


def as_specification(chart: Chart) -> dict[str, Any]:
    """A figure as Vega-Lite, without its style, which is that of whatever shows it."""
    found: dict[str, Any] = visible(chart.to_dict(validate=False))
    found.pop("config", None)
    return found
