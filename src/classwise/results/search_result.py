"""What a search for the worst class found, as numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.format import interval, level, percent
from classwise.core.notebook import Displayed
from classwise.core.records import CLEAN, Array, Records
from classwise.core.run_folder import AuditFolder
from classwise.results.audit_result import json_rows
from classwise.results.finding import Finding
from classwise.stats import confidence_sequences
from classwise.stats.confidence_sequences import RaceState


@dataclass(frozen=True, kw_only=True)
class SearchResult(Displayed):
    """What a search found: the classes that may be the worst, bounds for every class, and what it cost.

    records: the clean rows of all images, and the rows of those that were attacked.
    cost: passes spent, and about those of a full audit, where a file says so; a run folder may hold rows of other
    searches besides.
    """

    state: RaceState
    records: Records
    confidence: float
    tolerance: float
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    folder: Path | None = None
    cost: tuple[int, int] | None = None

    @property
    def worst(self) -> tuple[str, ...]:
        """The class of lowest robust accuracy; several where they are tied, or within the tolerance."""
        return tuple(self.records.class_names[c] for c in np.flatnonzero(self.state.open))

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of the lowest robust accuracy of any class, on all images."""
        s = self.state
        return float(s.low[s.open].min()), float(s.high[s.open].min())

    def by_class(self) -> pd.DataFrame:
        """One row per class.

        Columns: class, n, right (classified correctly when clean), attacked, robust (of those), estimate, low and high
        (of the robust accuracy on all n images), in_question, population_low and population_high; see
        docs/find_worst.md.
        """
        s = self.state
        population = confidence_sequences.population(s, self.confidence)
        return pd.DataFrame(
            {
                "class": self.records.class_names,
                "n": s.whole,
                "right": s.right,
                "attacked": s.seen,
                "robust": s.robust,
                "estimate": s.estimate,
                "low": s.low,
                "high": s.high,
                "in_question": s.open,
                "population_low": population[0],
                "population_high": population[1],
            }
        )

    @property
    def attacked(self) -> int:
        """Images attacked; a full audit attacks all that are classified correctly when clean."""
        return int(self.state.seen.sum())

    @property
    def passes(self) -> int:
        """Gradient passes (model evaluations of the attack) of single images."""
        return int(self._spent().sum()) if self.cost is None else self.cost[0]

    @property
    def full_passes(self) -> int:
        """About what a full audit takes: each class's passes per attacked image, times its correctly classified images.

        A class without attacked images counts with the average of the others.
        """
        if self.cost is not None:
            return self.cost[1]
        seen = self.state.seen
        average = self.passes / max(self.attacked, 1)
        per_image = np.where(seen > 0, self._spent() / np.maximum(seen, 1), average)
        return round(float(per_image @ self.state.right))

    def _spent(self) -> Array:
        rows = self.records.frame[self.records.frame["attack"] != CLEAN]
        return np.bincount(rows["label"], rows["queries"], minlength=self.records.num_classes)

    def summary(self) -> dict[str, Any]:
        """Everything in one JSON-ready dictionary."""
        meta = self.records.meta
        return {
            "worst": list(self.worst),
            "low": self.interval[0],
            "high": self.interval[1],
            "sentence": f"{self}.",
            "confidence": self.confidence,
            "tolerance": self.tolerance,
            "by_class": json_rows(self.by_class()),
            "images": {
                "all": int(self.state.whole.sum()),
                "right": int(self.state.right.sum()),
                "attacked": self.attacked,
            },
            "passes": {"spent": self.passes, "full_audit": self.full_passes},
            "rounds": self.state.rounds,
            "attacks": {name: dict(info.settings) for name, info in meta.attacks.items() if name != CLEAN},
            "threat": {"norm": meta.norm, "eps": meta.eps},
            "seed": meta.seed,
            "findings": [finding.to_dict() for finding in self.findings],
            "seconds": round(self.seconds, 3),
            "versions": dict(meta.versions),
        }

    def save(self, folder: Path) -> None:
        """Write worst.json and worst.csv into the folder; the records are there already."""
        AuditFolder(folder).write_search(self.summary(), self.by_class())

    @classmethod
    def load(cls, folder: str | Path) -> SearchResult:
        """A finished search from its run folder."""
        run = AuditFolder(Path(folder))
        try:
            stored = json.loads(run.search_file.read_text(encoding="utf-8"))
            table = pd.DataFrame(stored["by_class"])
            columns = {"whole": "n", "right": "right", "seen": "attacked", "robust": "robust", "open": "in_question"}
            counts = {field: table[name].to_numpy() for field, name in columns.items()}
            bounds = {name: table[name].to_numpy(float) for name in ("low", "high")}
            return cls(
                state=RaceState(**counts, **bounds, rounds=stored["rounds"]),
                records=Records.read(run.path),
                confidence=stored["confidence"],
                tolerance=stored["tolerance"],
                findings=tuple(Finding.from_dict(finding) for finding in stored["findings"]),
                seconds=stored["seconds"],
                folder=run.path,
                cost=(stored["passes"]["spent"], stored["passes"]["full_audit"]),
            )
        except UserError:
            raise
        except FileNotFoundError:
            raise UserError(f"{folder} holds no finished search. Finish it with the same command.") from None
        except Exception as error:  # what a damaged file holds may be anything
            raise UserError(
                f"{run.search_file} is damaged ({type(error).__name__}: {error}). Repeat the search's command: nothing "
                "is attacked twice."
            ) from error

    def __str__(self) -> str:
        share = f"{self.passes:,} passes, about {percent(self.passes / max(self.full_passes, 1), 0)} of a full audit's"
        names = self.worst[0] if len(self.worst) == 1 else f"one of {', '.join(self.worst)}"
        return (
            f"Worst class: {names}, robust accuracy {interval(*self.interval)} ({level(self.confidence)} confidence); "
            f"{self.attacked:,} of {self.state.right.sum():,} images attacked, {share}"
        )

    __repr__ = __str__
