"""`RepairResult`: a model before and after its repair, on images that the repair did not see. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from classwise.core.arguments import checked
from classwise.core.csv_files import read_csv
from classwise.core.errors import UserError
from classwise.core.format import interval, level, p_equals, percent, points
from classwise.core.notebook import Charted
from classwise.core.records import CLEAN, Records
from classwise.core.repair_folder import RepairFolder
from classwise.metrics import average, tail, worst
from classwise.results.audit_result import Audit, json_rows
from classwise.results.compare import Comparison, compare
from classwise.results.finding import SERIOUS, Finding

SCHEMA = 1  # of repair.json; docs/repair.md describes it
BEFORE, AFTER = "before", "after"


@dataclass(frozen=True, kw_only=True)
class RepairResult(Charted):
    """The result of a repair.

    before and after: audits on the judging images. rounds: a row for each change tried, by its accuracies on the
    calibration images; see `tried`. by_round: a row for each change and class. chosen: the number of the change taken.
    bias: what is added to each class's logit, and norms: by what the norm of its weights was multiplied.
    settings: what was asked for. remarks: what to know about the numbers. command: audits the repaired model.
    model: the repaired model itself; None where the result was read from its run folder.
    """

    before: Audit
    after: Audit
    rounds: pd.DataFrame
    by_round: pd.DataFrame
    chosen: int
    bias: Mapping[str, float]
    norms: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    command: str = ""
    seconds: float = 0.0
    folder: Path | None = None
    model: Any = None

    @property
    def confidence(self) -> float:
        return self.before.confidence

    @property
    def comparison(self) -> Comparison:
        """The two audits compared, image by image."""
        return compare({BEFORE: self.before, AFTER: self.after})

    @property
    def best(self) -> Path | None:
        """The file of the repaired model."""
        if self.folder is None:
            return None
        run = RepairFolder(self.folder)
        return next((path for path in (run.best, run.best_box) if path.is_file()), None)

    def by_class(self) -> pd.DataFrame:
        """One row per class, on the judging images.

        class, n, before and after with low and high each, difference with difference_low and difference_high, p and
        p_holm of the paired test, change ("gained", "lost" or ""), clean_before, clean_after, confused_with and
        confused_share (after), bias.
        """
        versus = self.comparison.by_class()
        old, new = self.before.by_class(), self.after.by_class()
        clean = [audit.by_class(CLEAN)["accuracy"] for audit in (self.before, self.after)]
        return pd.DataFrame(
            {
                "class": old["class"],
                "n": old["n"],
                BEFORE: old["accuracy"],
                "before_low": old["low"],
                "before_high": old["high"],
                AFTER: new["accuracy"],
                "after_low": new["low"],
                "after_high": new["high"],
                **{key: versus[key].to_numpy() for key in ("difference", "p", "p_holm", "change")},
                **{f"difference_{end}": versus[end].to_numpy() for end in ("low", "high")},
                "clean_before": clean[0],
                "clean_after": clean[1],
                **{key: new[key] for key in ("confused_with", "confused_share")},
                "bias": [self.bias.get(name, np.nan) for name in old["class"]],
            }
        )

    def judged(self) -> dict[str, dict[str, Any]]:
        """Worst class, average and clean average before and after, with intervals, on the judging images."""
        return {BEFORE: _numbers(self.before), AFTER: _numbers(self.after)}

    def calibrated(self) -> dict[str, dict[str, float]]:
        """Worst class, average and clean average before and after on the calibration images."""
        names = ["worst", "average", "clean"]
        rows = self.rounds.set_index("number")[names].to_dict("index")
        return {
            name: {str(key): float(value) for key, value in rows[number].items()}
            for name, number in ((BEFORE, 0), (AFTER, self.chosen))
        }

    def optimism(self) -> dict[str, float]:
        """By how much the gains are larger on the calibration images than on those that judge."""
        fitted, judged = self.calibrated(), self.judged()
        return {
            key: fitted[AFTER][key] - fitted[BEFORE][key] - (judged[AFTER][key] - judged[BEFORE][key])
            for key in ("worst", "average", "clean")
        }

    def test(self) -> dict[str, Any]:
        """The paired test of the class that was the worst, and of all images together."""
        table = self.by_class()
        row = table[table["class"] == self.before.worst.name].iloc[0]
        whole = self.comparison.table().iloc[1]
        keys = {"difference": "difference", "low": "difference_low", "high": "difference_high", "p": "p_holm"}
        return {
            "worst_before": {"class": row["class"], **{key: _plain(row[name]) for key, name in keys.items()}},
            "all": {key: _plain(whole[key]) for key in ("difference", "low", "high", "p")},
        }

    def front(self) -> pd.DataFrame:
        """The changes that no other exceeds in both, from the highest average to the highest worst class."""
        return self.rounds[self.rounds["front"]].sort_values(["average", "worst"], ascending=[False, True])

    def cautions(self) -> list[Finding]:
        """Errors and warnings about model, images or attacks that either audit found, each once."""
        found: dict[str, Finding] = {}
        for finding in (*self.before.findings, *self.after.findings):
            if finding.severity in SERIOUS:
                found.setdefault(finding.code, finding)
        return list(found.values())

    def sentences(self) -> list[str]:
        """The result in words."""
        judged, test = self.judged(), self.test()["worst_before"]
        old, new = judged[BEFORE], judged[AFTER]
        if self.chosen == 0:
            return ["No change was better than none on the calibration images: the model is as it was."]
        ci = f"{level(self.confidence)} CI"
        return [
            f"Worst class under {self.after.headline}: {old['worst_class']} {percent(old['worst'])} "
            f"({ci} {interval(old['worst_low'], old['worst_high'])}) before, {new['worst_class']} "
            f"{percent(new['worst'])} ({interval(new['worst_low'], new['worst_high'])}) after.",
            f"{test['class']}: {points(test['difference'])} points ({ci} {points(test['low'])} to "
            f"{points(test['high'])}; paired test, Holm-corrected, {p_equals(test['p'])}); average "
            f"{points(new['average'] - old['average'])}, clean {points(new['clean'] - old['clean'])}.",
            *self.comparison.sentences(),
        ]

    def summary(self) -> dict[str, Any]:
        """Everything in one JSON-ready dictionary."""
        return {
            "schema": SCHEMA,
            "settings": dict(self.settings),
            "chosen": self.chosen,
            "bias": dict(self.bias),
            "norms": dict(self.norms),
            "attack": self.after.headline,
            "confidence": self.confidence,
            "judged": self.judged(),
            "calibrated": self.calibrated(),
            "optimism": self.optimism(),
            "test": self.test(),
            "by_class": json_rows(self.by_class()),
            "rounds": json_rows(self.rounds),
            "remarks": list(self.remarks),
            "findings": [finding.to_dict() for finding in self.cautions()],
            "sentences": self.sentences(),
            "command": self.command,
            "seconds": round(self.seconds, 3),
        }

    def save(self, folder: Path) -> None:
        """Write repair.json and the tables; audits, changes and the model are there already."""
        run = RepairFolder(folder)
        tables = {"rounds": self.rounds, "rounds_by_class": self.by_round, "classes": self.by_class()}
        for name, table in tables.items():
            run.write_table(name, table)
        run.write_result(self.summary())

    @classmethod
    @checked
    def load(cls, folder: str | Path) -> RepairResult:
        """A finished repair from its run folder."""
        run = RepairFolder(Path(folder))
        if not run.result_file.is_file():
            raise UserError(f"{folder} holds no finished repair (no repair.json). Finish it with the same command.")
        try:
            stored = json.loads(run.result_file.read_text(encoding="utf-8"))
            rounds = pd.DataFrame(stored["rounds"])
            names: Any = {"dtype": {"class": str}, "keep_default_na": False, "na_values": [""]}  # a class may be "NA"
            by_round = read_csv(run.path / "tables" / "rounds_by_class.csv", **names)
            kept = ("chosen", "bias", "norms", "settings", "remarks", "command", "seconds")
            own = {name: stored[name] for name in kept}
        except Exception as error:  # what a damaged file holds may be anything
            raise UserError(
                f"{run.result_file} is damaged ({type(error).__name__}: {error}). Repeat the repair's command: nothing "
                "is attacked twice."
            ) from error
        before, after = Audit.load(run.before), Audit.load(run.after)
        return cls(before=before, after=after, rounds=rounds, by_round=by_round, folder=run.path, **own)

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    __repr__ = __str__


def tried(
    number: int, kind: str, about: Mapping[str, float], robust: Records, clean: Records, confidence: float
) -> dict[str, Any]:
    """The row of a change in the table of rounds: its number, kind, step, tau and share (of the change it lies on the
    way to), and its numbers on the calibration images."""
    how = {key: about.get(key, np.nan) for key in ("step", "tau", "share")}
    return {"number": number, "kind": kind, **how, **_accuracies(robust, clean, confidence)}


def _numbers(audit: Audit) -> dict[str, Any]:
    return _accuracies(audit.rows(), audit.rows(CLEAN), audit.confidence)


def _accuracies(robust: Records, clean: Records, confidence: float) -> dict[str, Any]:
    lowest, mean = worst.compute(robust, confidence=confidence), average.estimate(robust, confidence)
    natural = average.estimate(clean, confidence)
    return {
        "worst_class": lowest.label,
        "worst": lowest.value,
        "worst_low": lowest.low,
        "worst_high": lowest.high,
        "tail": tail.compute(robust),
        "average": mean.value,
        "average_low": mean.low,
        "average_high": mean.high,
        "clean": natural.value,
        "clean_low": natural.low,
        "clean_high": natural.high,
    }


def _plain(value: Any) -> Any:
    return None if pd.isna(value) else float(value)
