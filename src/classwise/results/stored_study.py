"""A finished study as its folder keeps it: what was studied, the claims and their verdicts, tables, figures and costs.

    found = stored_study.read("runs/norms")
    found.sentence          # 7 of 9 claims decided: 5 held, 2 did not hold.

Neither the models nor torch are needed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import pandas as pd

from classwise.core.csv_files import read_csv
from classwise.core.errors import UserError
from classwise.core.run_folder import StudyFolder, kind_of

#: The verdicts that decide a claim; see `studies.shared.verdicts`.
DECIDED = ("held", "did not hold")
_OPEN = ("not decided here", "not enough images")
#: That of a claim whose precondition did not hold, so that there is nothing to decide.
MOOT = "does not apply"
_NOTES = "What differs from the papers"
_AGAIN = "Run the study again with the same command: finished jobs are kept."


class Job(TypedDict):
    """A finished job of a study: a training, an audit, or what is derived from them."""

    name: str
    kind: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class StoredStudy:
    """What a study found. charts: by name as Vega-Lite, or of earlier versions as drawings (SVG). asked: the jobs with
    their settings, as jobs.json has them; jobs: what each took."""

    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    claims: Sequence[Mapping[str, str]] = ()
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    charts: Mapping[str, Mapping[str, Any] | str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    jobs: Sequence[Job] = ()
    asked: Sequence[Mapping[str, Any]] = ()
    finished: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def verdicts(self) -> Counter[str]:
        """How many claims have each verdict."""
        return Counter(str(claim["verdict"]) for claim in self.claims)

    @property
    def sentence(self) -> str:
        """The verdicts counted, in one line."""
        if not self.claims:
            return (
                f"No claim is tested: {_number(len(self.tables), 'table')} and {_number(len(self.charts), 'figure')}."
            )
        decided, total = sum(self.verdicts[word] for word in DECIDED), len(self.claims) - self.verdicts[MOOT]
        shown = ", ".join(
            f"{count} {word}" for word in (DECIDED if decided else _OPEN) if (count := self.verdicts[word])
        )
        of = _number(total, "claim")
        if not total:
            return "No claim applies: their preconditions did not hold."
        if decided:
            return f"{decided} of {of} decided: {shown}."
        return f"{'The claim is not' if total == 1 else f'None of the {of} is'} decided: {shown}."


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def read(folder: str | Path) -> StoredStudy:
    """The study in a folder. One of an earlier version, which left no study.json, says less of itself."""
    files = StudyFolder(Path(folder))
    if kind_of(files.path) != "study":
        raise UserError(f"{folder} is no folder of a finished study (it has no study.md).")
    try:
        return _read(files)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"the files of the study in {folder} are damaged ({error!r}). {_AGAIN}") from error


def _read(files: StudyFolder) -> StoredStudy:
    about: dict[str, Any] = _json(files.about_file, None) or _earlier(files)
    keys = ("source", "text", "verdict", "numbers", "test")
    return StoredStudy(
        title=str(about["title"]),
        settings=about["settings"],
        claims=[{**{key: claim[key] for key in keys}, **claim} for claim in _json(files.claims_file, [])],
        tables={name: _table(files.table(name)) for name in about["tables"]},
        charts={name: _chart(files, name) for name in about["figures"]},
        notes=about["notes"],
        jobs=[Job(name=job["name"], kind=job["kind"], seconds=float(job["seconds"])) for job in about["jobs"]],
        asked=[{**job, "kind": job["kind"]} for job in _json(files.jobs_file, {}).get("jobs", [])],
        finished=about["finished"],
        versions=about["versions"],
    )


def _json(path: Path, otherwise: Any) -> Any:
    if not path.is_file():
        return otherwise
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}. {_AGAIN}") from error


def _table(path: Path) -> pd.DataFrame:
    try:
        return read_csv(path, keep_default_na=False, na_values=[""])  # a class may be called null
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}. {_AGAIN}") from error


def _chart(files: StudyFolder, name: str) -> Mapping[str, Any] | str:
    found: Mapping[str, Any] | None = _json(files.chart(name), None)
    if found is not None:
        return found
    try:
        return files.figure(name).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {files.figure(name)}: {error}. {_AGAIN}") from error


def _earlier(files: StudyFolder) -> dict[str, Any]:
    """What study.md and the files beside it say."""
    text = files.page.read_text(encoding="utf-8")
    head, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    notes = next((part for part in sections if part.startswith(_NOTES)), "")
    pairs = (item.partition(": ") for item in _items(head))
    headings = [part.partition("\n")[0].lower() for part in sections]
    return {
        "title": head.partition("\n")[0].removeprefix("# "),
        "settings": {key: value.replace("`", "") for key, _, value in pairs},
        "tables": _in_order(files.path / "tables", ".csv", headings),
        "figures": _in_order(files.path / "figures", ".svg", headings),
        "notes": list(_items(notes)),
        "jobs": list(_jobs(files)),
        "finished": "",
        "versions": {},
    }


def _items(text: str) -> Iterator[str]:
    return (line.removeprefix("- ") for line in text.splitlines() if line.startswith("- "))


def _in_order(folder: Path, suffix: str, headings: Sequence[str]) -> list[str]:
    """The names of files, in the order that the headings have."""
    names = sorted(path.stem for path in folder.glob(f"*{suffix}"))
    place = {heading: number for number, heading in enumerate(headings)}
    return sorted(names, key=lambda name: place.get(name.replace("_", " ").lower(), len(place)))


def _jobs(files: StudyFolder) -> Iterator[Job]:
    for path in sorted(files.path.glob("jobs/*/job.json")):
        about = _json(path, {})
        yield Job(name=path.parent.name, kind=about["job"]["kind"], seconds=float(about.get("seconds") or 0.0))
