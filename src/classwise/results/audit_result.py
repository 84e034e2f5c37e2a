"""`Audit`: the results of an audit, as tables. Reads a run folder without torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from classwise import metrics
from classwise.core import adversarial_examples
from classwise.core.arguments import checked
from classwise.core.errors import UserError, check_known
from classwise.core.format import interval, percent
from classwise.core.mirror import local_copy
from classwise.core.notebook import Charted
from classwise.core.records import CLEAN, WORST_CASE, Array, Records
from classwise.core.run_folder import AuditFolder, Kind, kind_of
from classwise.core.spec import number
from classwise.core.storage import safe_name
from classwise.metrics import confusion as confusion_metric
from classwise.metrics import curve as curve_metric
from classwise.metrics import worst as worst_metric
from classwise.results import verdict
from classwise.results.finding import Finding
from classwise.results.verdict import Verdict

SCHEMA = 3  # of summary.json; docs/summary.md describes it


@dataclass(frozen=True)
class Audit(Charted):
    """The records of an audit, and everything that is computed from them.

    findings: of the model and of the records, as they were when the audit ended. config: the settings it was made with.
    adversarially_trained: whether the model was, as far as its checkpoint says; None if that is unknown.
    """

    records: Records
    _: KW_ONLY
    findings: Sequence[Finding] = ()
    timing: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    confidence: float = 0.95
    adversarially_trained: bool | None = None
    _found: dict[str, Records] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def attacks(self) -> tuple[str, ...]:
        """The attacks that ran, without clean."""
        return tuple(name for name in self.names if name != CLEAN)

    @property
    def names(self) -> tuple[str, ...]:
        """Every attack in the order they ran, clean first; also one that had no survivors to attack, and no rows."""
        return tuple(dict.fromkeys((*self.records.meta.attacks, *self.records.attacks)))

    @property
    def headline(self) -> str:
        """The main result: the attack if there is only one, the worst case over all of them if there are several."""
        return self.attacks[0] if len(self.attacks) == 1 else WORST_CASE if self.attacks else CLEAN

    def rows(self, attack: str | None = None) -> Records:
        """The rows of one attack. An attack on the survivors of earlier ones is joined with those."""
        name = self.headline if attack is None else attack
        if name not in self._found:  # every table asks for them again
            info = self.records.meta.attacks.get(name)
            alone = info is None or info.coverage != "survivors"
            earlier = () if alone else self.names[: self.names.index(name) + 1]
            self._found[name] = self.records.of(name) if alone else self.records.worst_case(earlier)
        return self._found[name]

    def by_class(self, attack: str | None = None) -> pd.DataFrame:
        """One row per class: class, n, correct, accuracy, low, high, p_worst, confused_with, confused_share."""
        return metrics.by_class(self.rows(attack), self.confidence)

    @property
    def worst(self) -> worst_metric.Worst:
        """The worst class under the headline attack, with the confidence interval of the lowest true class accuracy."""
        return worst_metric.compute(self.rows(), confidence=self.confidence)

    def verdict(self, attack: str | None = None) -> Verdict:
        """Which class is the worst under the headline attack or the one named, its interval, and a sentence."""
        name = self.headline if attack is None else attack
        return verdict.of(self.rows(name), name, self.confidence)

    def first_broken_by(self) -> dict[str, int]:
        """How many examples each attack was the first to break, in order; clean: misclassified without an attack."""
        first = self.rows(WORST_CASE).frame["broken_by"]
        return {name: int((first == name).sum()) for name in self.names}

    def confusion(self, attack: str | None = None, rates: bool = False) -> pd.DataFrame:
        """True class by predicted class: counts, or shares of each true class."""
        matrix = (confusion_metric.rates if rates else confusion_metric.compute)(self.rows(attack))
        names = list(self.records.class_names)
        return pd.DataFrame(matrix, index=pd.Index(names, name="class"), columns=names)

    @property
    def has_curve(self) -> bool:
        """Whether an attack ran at several radii."""
        return any(info.family is not None for info in self.records.meta.attacks.values())

    def curve(self) -> pd.DataFrame:
        """Robustness against the radius: family, eps, class, n, accuracy, low, high; eps 0 is clean."""
        return curve_metric.compute(self.records, self.confidence)

    def areas(self) -> pd.DataFrame:
        """Per attack and class the area under the curve (the mean accuracy up to the largest eps) and the median
        distance at which an example is known to break."""
        return curve_metric.areas(self.records)

    def at(self, eps: float | str, attack: str | None = None) -> pd.DataFrame:
        """Robust accuracy by class at any radius, from attacks that recorded minimal distances (`distances=True`)."""
        found = curve_metric.at(self.records, number(eps), attack, self.confidence)
        return found.to_frame().rename(columns={"value": "accuracy"})

    def adversarial(self, attack: str | None = None) -> dict[str, Array]:
        """The adversarial images of one attack, kept by `save_adversarial`; see docs/audit.md for the arrays."""
        if self.folder is None:
            raise UserError(
                "adversarial images are kept in the run folder: audit with out=… and save_adversarial=True."
            )
        name = attack or (self.attacks[0] if self.attacks else CLEAN)
        check_known("attack in this audit", self.names, name)
        found = adversarial_examples.read(self.folder, name)
        kept = self.records.meta.stats.get(name, {}).get("kept", len(found["index"]))
        if len(found["index"]) != kept:
            raise UserError(
                f"{self.folder} holds {len(found['index'])} of the {kept:g} adversarial images of {name}. Repeat the "
                "audit's command, which computes the others again."
            )
        return found

    def summary(self) -> dict[str, Any]:
        """Everything in one JSON-ready dictionary; see docs/summary.md for the schema."""
        meta = self.records.meta
        attacks = {}
        for name in self.names:
            info = meta.attacks.get(name)
            extra = {} if info is None else {"protocol": info.protocol, "coverage": info.coverage}
            settings = {} if info is None else {"settings": dict(info.settings)}
            own = {} if info is None or info.eps is None else {"eps": info.eps, "family": info.family}
            attacks[name] = {**self._entry(name), **extra, **own, **settings}
        return {
            "schema": SCHEMA,
            "attacks": attacks,
            "worst_case": self._entry(WORST_CASE),
            "first_broken_by": self.first_broken_by(),
            "areas": json_rows(self.areas()) if self.has_curve else None,
            "headline": self.headline,
            "verdict": self.verdict().to_dict(),
            "confidence": self.confidence,
            "threat": {"norm": meta.norm, "eps": meta.eps},
            "seed": meta.seed,
            "classes": list(meta.class_names),
            "adversarially_trained": self.adversarially_trained,
            "findings": [finding.to_dict() for finding in self.findings],
            "timing": dict(self.timing),
            "versions": dict(meta.versions),
        }

    def _entry(self, attack: str) -> dict[str, Any]:
        return {**metrics.summary(self.rows(attack), self.confidence), "verdict": self.verdict(attack).to_dict()}

    def save(self, folder: Path) -> None:
        """Write summary.json and one CSV per attack into the folder; the records are there already."""
        run = AuditFolder(folder)
        run.write_summary(self.summary())
        for name in dict.fromkeys((*self.names, self.headline)):
            run.write_table(safe_name(name), self.by_class(name))
            run.write_table(f"{safe_name(name)}-confusion", self.confusion(name), index=True)
        if self.has_curve:
            run.write_table("curve", self.curve())
            run.write_table("areas", self.areas())

    @classmethod
    @checked
    def load(cls, folder: str | Path) -> Audit:
        """A finished audit from its run folder."""
        folder = local_copy(folder)
        stored = _read_summary(folder)
        return cls(Records.read(folder), config=AuditFolder(folder).config(), folder=folder, **stored)

    def __str__(self) -> str:
        found, rows = self.verdict(), self.rows()
        return (
            f"Audit of {len(rows):,} examples under {self.headline}: {percent(rows.correct.mean())} overall, "
            f"worst class {found.label} {percent(found.accuracy)} [{interval(found.low, found.high)}]"
        )

    __repr__ = __str__


#: What a folder may hold instead of an audit, and what to do then.
_OTHERS: dict[Kind | None, str] = {
    "search": "a search for the worst class, not an audit. See its worst.json and worst.csv, or repeat the search's "
    "command to see it again (nothing is attacked twice).",
    "repair": "a repair, not an audit. Its audits are {folder}/before and {folder}/after.",
    "training": "a training, not an audit. Audit its best.pt with the command that the training ended with.",
}


def _read_summary(folder: Path) -> dict[str, Any]:
    """What of a finished audit is not computed from its records, as fields of `Audit`."""
    path = AuditFolder(folder).summary_file
    try:
        if (kind := kind_of(folder)) in _OTHERS:
            raise UserError(f"{folder} holds {_OTHERS[kind].format(folder=folder)}")
        if not path.is_file():
            raise UserError(f"{folder} holds no finished audit (no summary.json). Finish it with the same command.")
        summary = json.loads(path.read_text(encoding="utf-8"))
        findings = [Finding.from_dict(finding) for finding in summary["findings"]]
        timing, confidence = dict(summary["timing"]), summary["confidence"]
        adversarial = summary.get("adversarially_trained")  # summaries before schema 3 do not say
        costs = [cost for spent in timing.get("attacks", {}).values() for cost in spent.values()]
        times = (timing.get("wall_seconds", 0), *costs)
        if not all(isinstance(value, (int, float)) for value in (confidence, *times)) or not 0 < confidence < 1:
            raise ValueError("confidence or a time is no number")
        if adversarial not in (True, False, None):
            raise ValueError("adversarially_trained is neither true nor false")
    except UserError:
        raise
    except Exception as error:  # what a damaged file holds may be anything
        raise UserError(
            f"{path} is damaged ({type(error).__name__}: {error}). Repeat the audit's command: it writes the summary "
            "again from the records."
        ) from error
    trained = {"adversarially_trained": adversarial}
    return {"findings": findings, "timing": timing, "confidence": confidence, **trained}


def json_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A table as JSON-ready rows; what is not finite is None."""
    finite = table.astype(object).where(table.notna() & ~table.isin([math.inf]), None)
    return [{str(key): value for key, value in row.items()} for row in finite.to_dict("records")]


def unique_names(folders: Sequence[str | Path]) -> list[str]:
    """A name for each run folder: as much of the end of its path as makes it unique, less what all of them end with."""
    parts = [Path(folder).resolve().parts for folder in folders]
    for place, own in enumerate(parts):
        if own in parts[:place]:
            raise UserError(f"the run {folders[place]} is given twice; give each run once.")
    shortest = min(map(len, parts), default=0)
    same = next((d for d in range(shortest) if len({own[-d - 1] for own in parts}) > 1), 0)
    parts = [own[: len(own) - same] for own in parts]
    depth = next(d for d in range(1, 10_000) if len({own[-d:] for own in parts}) == len(parts))
    return ["/".join(own[-depth:]) for own in parts]
