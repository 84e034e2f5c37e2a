"""The run folder: the one place that knows the files of an audit, a search, a training and a study.

    every run   config.toml          its settings: the same command resumes, another one is refused
                job.json, log.txt    of a job of a study: written when it is finished; what it printed
    audit       records/*.parquet    the rows, part by part         adversarial/*.npz   the images found, if kept
                examples.npz         clean images worth a look, with those
                checks.json          what the checks of the model found, for the summary
                summary.json, tables/*.csv   written at the end
    search      records/*.parquet; worst.json and worst.csv, written at the end
    training    last.pt, next.pt, previous.pt, best.pt, epochs/0014.pt   checkpoints (`training.checkpoint`)
                history.csv          one row per epoch              remarks.json   written at the end
    repair      before/, after/      ordinary audits of the model as it was and as it is, on the judging images
                rounds/03/           an audit of each change tried, on the calibration images; change.npz: the change
                margins/*.npz        of the unchanged model, from which biases are proposed
                best.pt (best.toml: of a black box)   the repaired model      repair.json, tables/*.csv   at the end
    study       jobs.json, jobs/NAME/   what is to be done, and a run folder for each job
                study.md, claims.json, tables/*.csv, figures/*.svg, data/*.csv   what was found
                study.json, figures/*.json   the rest of what the page needs; study.html   the page

Files appear whole or not at all (`core.storage`), and one process at a time writes (`core.run_lock`).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pandas as pd

from classwise.core.csv_files import read_csv, write_csv
from classwise.core.errors import UserError
from classwise.core.mirror import mirror_of
from classwise.core.run_config import damaged, read_config, write_config
from classwise.core.run_lock import LOCK, WRITER
from classwise.core.storage import atomic_write, atomic_write_text, remove, safe_name

Kind = Literal["audit", "search", "training", "repair", "study"]

_CONFIG, _JOB, _LOG = "config.toml", "job.json", "log.txt"
_EPOCHS = tuple(f"epochs/{digits * '[0-9]'}.pt" for digits in (4, 5))  # not what others may have put there
_MARKS = {"method": "training", "repair": "repair"}  # the table of config.toml that no other kind of run has
REPAIR_RESULT = "repair.json"  # of `classwise.core.repair_folder`
_PART = re.compile(r"(?P<place>\d+)-(?P<attack>.+)-\d{5}")


@dataclass(frozen=True)
class Named:
    """A file or folder that has the same name in every run folder."""

    name: str

    def __get__(self, folder: RunFolder | None, owner: object = None) -> Path:
        return Path(self.name) if folder is None else folder.path / self.name


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run, and the files that every kind of run has.

    owned: patterns of all files that a run of this kind leaves, which ``--overwrite`` removes in this order.
    results: the files that are never without a config.toml: what they are called, and their patterns.
    """

    path: Path

    kind: ClassVar[str] = "run"
    owned: ClassVar[tuple[str, ...]] = ()
    results: ClassVar[tuple[str, tuple[str, ...]]] = ("results", ())

    config_file = Named(_CONFIG)
    job_file = Named(_JOB)
    log_file = Named(_LOG)

    def config(self) -> dict[str, Any]:
        """The settings the run was made with; empty if they are not there."""
        return read_config(self.config_file)

    def open_or_create(self, config: Mapping[str, Any], overwrite: bool = False) -> dict[str, Any]:
        """Make the folder with these settings, or open the one that is there; return the settings it was made with.

        overwrite: first remove all that an earlier run has left; other files stay.
        """
        self._refuse_other_kind()
        try:
            if overwrite:
                remove(self.path, self.owned)
            if not self.config_file.exists():
                self._create(config)
        except OSError as error:
            raise UserError(f"cannot use {self.path} as a run folder: {error.strerror or error}.") from error
        stored = self.config()
        if not stored:
            raise damaged(self.config_file, "it is empty")
        return stored

    def _create(self, config: Mapping[str, Any]) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file; --out must be a folder.")
        word, patterns = self.results
        if any(True for pattern in patterns for _ in self.path.glob(pattern)):
            raise UserError(f"{self.path} holds {word} but no {_CONFIG}; choose another --out, or --overwrite.")
        self.path.mkdir(parents=True, exist_ok=True)
        write_config(self.config_file, config)
        if (mirror := mirror_of(self.path)) is not None:
            mirror.create_once(self.config_file)

    def _refuse_other_kind(self) -> None:
        try:
            found = self.config()
        except UserError:
            return  # damaged: whoever reads it for its settings will say so
        own = next((kind for table, kind in _MARKS.items() if table in found), AuditFolder.kind)
        if found and own != self.kind:
            raise UserError(
                f"{self.path} is the run folder of another kind, {own}; choose another --out for the {self.kind}."
            )

    def copy_from(self, other: RunFolder) -> None:
        """Copy another run into this folder, config.toml last: a copy without it is unfinished, and is made again."""

        def later(at: str, names: list[str]) -> list[str]:
            own = Path(at) == other.path
            return [name for name in names if own and (name in (_CONFIG, LOCK, WRITER) or name.startswith(".shard-"))]

        shutil.copytree(other.path, self.path, ignore=later, dirs_exist_ok=True)
        with atomic_write(self.config_file) as handle:
            handle.write(other.config_file.read_bytes())

    def write_table(self, name: str, table: pd.DataFrame, index: bool = False) -> None:
        """One of the tables of an audit or a study."""
        write_csv(self.path / "tables" / f"{name}.csv", table, index)


class AuditFolder(RunFolder):
    """The files of an audit, or of a search for the worst class."""

    kind = "audit"
    owned = (
        _JOB, "summary.json", "checks.json", "worst.json", "worst.csv", "tables/*.csv", "adversarial/*.npz",
        "examples.npz", "records/*.parquet", "logs/*.txt", "slurm/*", "*/*.partial", _LOG, _CONFIG,
    )  # fmt: skip
    results = ("records", ("records/*.parquet",))

    summary_file = Named("summary.json")
    checks_file = Named("checks.json")
    search_file = Named("worst.json")
    records = Named("records")
    adversarial = Named("adversarial")
    examples_file = Named("examples.npz")

    def part(self, place: int, attack: str, number: int) -> Path:
        """The rows of an attack on a part of the data. Names sort by attack in the order they ran, then by part."""
        return self.records / f"{place:02d}-{safe_name(attack)}-{number:05d}.parquet"

    def search_part(self, number: int) -> Path:
        """The rows of some of the images that a search has attacked."""
        return self.records / f"worst-{number:05d}.parquet"

    def search_parts(self) -> list[Path]:
        return sorted(self.records.glob("worst-*.parquet"))

    @classmethod
    def images_of(cls, part: Path) -> Path:
        """The adversarial images of a part of the records."""
        return cls(part.parents[1]).adversarial / f"{part.stem}.npz"

    def adversarial_files(self, attack: str) -> list[Path]:
        """The files with adversarial images of an attack, whatever its place among the attacks."""
        return [path for path in sorted(self.adversarial.glob("*")) if place_and_attack(path)[1] == safe_name(attack)]

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_json(self.summary_file, summary)

    def write_search(self, summary: Mapping[str, Any], table: pd.DataFrame) -> None:
        write_json(self.search_file, summary)
        write_csv(self.path / "worst.csv", table)


class TrainingFolder(RunFolder):
    """The files of a training; `next` becomes `last`, to resume from, and what was `last` becomes `previous`."""

    kind = "training"
    results = ("checkpoints", ("history.csv", "last.pt", "next.pt", "previous.pt", "best.pt", *_EPOCHS))
    owned = (
        _JOB, _CONFIG, *results[1], "remarks.json", "not_finite_*.pt", "*.partial", _LOG,
        "tensorboard/events.out.tfevents.*", "mlflow-run.txt", "wandb-run.txt",
    )  # fmt: skip

    history_file = Named("history.csv")
    remarks_file = Named("remarks.json")
    last = Named("last.pt")
    next = Named("next.pt")
    previous = Named("previous.pt")
    best = Named("best.pt")
    tensorboard = Named("tensorboard")

    def epoch(self, number: int) -> Path:
        """Where the model of an epoch, counted from 1, is kept."""
        return self.path / "epochs" / f"{number:04}.pt"

    def kept_epochs(self) -> list[int]:
        """The epochs whose models are kept."""
        return sorted(int(path.stem) for path in self.path.glob("epochs/*.pt") if path.stem.isdecimal())

    def checkpoint(self, which: str | int) -> Path:
        """The file of a model: "best", "last", or of an epoch that was kept, by its number."""
        if isinstance(which, str):
            return self.path / f"{which}.pt"
        if not (path := self.epoch(which)).is_file():
            kept = ", ".join(map(str, self.kept_epochs())) or "none"
            raise UserError(
                f"{self.path} does not keep epoch {which}; it keeps {kept}. Train with train.keep = {which} (every "
                f"{which} epochs) or all."
            )
        return path

    @staticmethod
    def which(checkpoint: Path) -> str | int:
        """Which model of a training a checkpoint is, as `checkpoint` takes it."""
        kept = checkpoint.parent.name == "epochs" and checkpoint.stem.isdecimal()
        return int(checkpoint.stem) if kept else checkpoint.stem

    def not_finite(self, rank: int) -> Path:
        """The batch that the training diverged on, in the process of that rank."""
        return self.path / f"not_finite_{rank}.pt"

    def tracker_id(self, tracker: str) -> Path:
        """The id that the run has with a tracker, "mlflow" or "wandb"."""
        return self.path / f"{tracker}-run.txt"

    def history(self) -> pd.DataFrame:
        """One row per epoch."""
        path = self.history_file
        if not path.is_file():
            raise UserError(f"{self.path} has no {path.name}: it is no training, or none of its epochs has finished.")
        try:
            return read_csv(path)
        except (ValueError, OSError) as error:  # pandas' own errors of parsing and of empty files are ValueErrors
            raise UserError(f"cannot read {path}: {error}. Is its first epoch over?") from error

    def write_history(self, history: pd.DataFrame) -> None:
        write_csv(self.history_file, history)

    def remarks(self) -> list[str]:
        """What the training reported at its end; nothing where it has not ended, or had nothing to report."""
        path = self.remarks_file
        if not path.is_file():
            return []
        try:
            return [str(sentence) for sentence in json.loads(path.read_text(encoding="utf-8"))]
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read {path}: {error}. Delete it to do without.") from error

    def write_remarks(self, remarks: Sequence[str]) -> None:
        atomic_write_text(self.remarks_file, json.dumps(remarks, indent=1, ensure_ascii=False))


class StudyFolder(RunFolder):
    """The files of a study; each of its jobs has a run folder of its own."""

    kind = "study"

    jobs_file = Named("jobs.json")
    page = Named("study.md")
    html = Named("study.html")
    about_file = Named("study.json")
    claims_file = Named("claims.json")
    slurm = Named("slurm")

    def job(self, name: str) -> RunFolder:
        return RunFolder(self.path / "jobs" / name)

    def figure(self, name: str) -> Path:
        return self.path / "figures" / f"{name}.svg"

    def chart(self, name: str) -> Path:
        """What a figure is drawn from by Vega-Lite."""
        return self.path / "figures" / f"{name}.json"

    def table(self, name: str) -> Path:
        return self.path / "tables" / f"{name}.csv"

    def figure_data(self) -> list[Path]:
        """The tables that the figures were drawn from, by the figures' names."""
        return sorted((self.path / "data").glob("*.csv"))

    def write_figure_data(self, name: str, table: pd.DataFrame) -> None:
        write_csv(self.path / "data" / f"{name}.csv", table)


def place_and_attack(path: Path) -> tuple[int, str]:
    """The place among the attacks and the attack (as in file names) that a part is of; -1 and "" of other files."""
    match = _PART.fullmatch(path.stem)
    return (-1, "") if match is None else (int(match["place"]), match["attack"])


def kind_of(path: Path) -> Kind | None:
    """What a folder is the finished run of, by the files that are there."""
    marks: dict[Kind, Path] = {
        "study": StudyFolder(path).page,
        "repair": path / REPAIR_RESULT,
        "search": AuditFolder(path).search_file,
        "audit": AuditFolder(path).summary_file,
        "training": TrainingFolder(path).history_file,
    }
    return next((kind for kind, mark in marks.items() if mark.is_file()), None)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    atomic_write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")
