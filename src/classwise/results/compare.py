"""Comparison of runs: which is better, in which classes, and whether the difference is beyond chance.

    comparison = compare(["runs/trades", "runs/wat"])              # run folders, or audits by name
    comparison.table()                                             # a row per run
    comparison.by_class()                                          # a row per run and class, against the base
    print("\\n".join(comparison.sentences()))

Runs of the same examples are paired, example by example; runs of different examples are compared unpaired, and a note
says so.
docs/compare.md explains every number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from classwise.core.arguments import checked
from classwise.core.csv_files import csv_text
from classwise.core.errors import UserError, unknown
from classwise.core.format import interval, level, listed, percent, points
from classwise.core.notebook import Charted
from classwise.core.records import CLEAN, Records
from classwise.metrics import agreement, average, cv, difference, mcd, overall, rho, worst
from classwise.results import comparable
from classwise.results.audit_result import Audit, json_rows, unique_names
from classwise.stats import comparisons, intervals


@dataclass(frozen=True, kw_only=True)
class Comparison(Charted):
    """Several runs against one of them, the base. Accuracies are fractions, `cv` is in percent².

    pairs: for each run but the base whether it saw the same examples. notes: what makes the numbers harder to compare.
    runs and classes: the tables, which `table` and `by_class` return.
    """

    audits: Mapping[str, Audit]
    base: str
    attack: str
    confidence: float
    pairs: Mapping[str, bool]
    notes: tuple[str, ...]
    runs: pd.DataFrame
    classes: pd.DataFrame

    def table(self) -> pd.DataFrame:
        """One row per run.

        run, n, paired, overall, clean and average (means of the class accuracies), worst_class (its name, or how many
        classes tie), worst, worst_low, worst_high (the confidence interval of the worst class), cv, mcd, rho; and
        against the base, over all examples: difference with low and high, p, p_holm (over the runs), and spearman and
        kendall of the order of the classes.
        """
        return self.runs.copy()

    def by_class(self) -> pd.DataFrame:
        """One row per run (but the base) and class, in class order.

        run, class, n_base, n, base and accuracy, difference with low and high, p, p_holm (over the classes of a run),
        and change: "gained" or "lost" where p_holm is below one minus the confidence, else "".
        """
        return self.classes.copy()

    @property
    def title(self) -> str:
        """What is compared, in a line."""
        return f"{len(self.audits)} runs under {self.attack}, against {self.base}"

    @property
    def headline(self) -> str:
        """Which run has the best worst class, against the base or else the next best, in one plain line."""
        ranked = self.runs.sort_values("worst", ascending=False, kind="stable")
        first = ranked.iloc[0]
        other = ranked[ranked["run"] == self.base].iloc[0] if first["run"] != self.base else ranked.iloc[1]
        of = "" if len(ranked) == 2 else f" of the {len(ranked)} runs"
        ends = [interval(run["worst_low"], run["worst_high"]) for run in (first, other)]
        shares = [percent(run["worst"]) for run in (first, other)]
        if first["worst"] == other["worst"]:
            return f"The worst classes of {first['run']} and {other['run']} are equally robust: {shares[0]}."
        overlap = "; the intervals overlap" if first["worst_low"] <= other["worst_high"] else ""
        return (
            f"{first['run']} has the {'highest' if of else 'higher'} worst class{of}: {shares[0]} robust "
            f"({level(self.confidence)} CI {ends[0]}) against {shares[1]} ({ends[1]}) of {other['run']}{overlap}."
        )

    def sentences(self) -> list[str]:
        """For each run but the base, which classes gained and which lost."""
        return [_sentence(run, self.base, self.classes[self.classes["run"] == run]) for run in self.pairs]

    def summary(self) -> dict[str, Any]:
        """Everything in one JSON-ready dictionary; what is not defined is None."""
        return {
            "base": self.base,
            "attack": self.attack,
            "confidence": self.confidence,
            "notes": list(self.notes),
            "runs": json_rows(self.runs),
            "classes": json_rows(self.classes),
            "sentences": self.sentences(),
        }

    def to_csv(self, by_class: bool = False) -> str:
        """The numbers as they are, of the runs or of the classes."""
        return csv_text(self.classes if by_class else self.runs)

    def __str__(self) -> str:
        return "\n".join((self.title, *self.notes, *self.sentences()))

    __repr__ = __str__


@checked
def compare(
    runs: Mapping[str, Audit] | Sequence[str | Path],
    base: str | None = None,
    attack: str | None = None,
    confidence: float | None = None,
) -> Comparison:
    """Compare audits by name, or run folders, with `base` (by default the first).

    attack: the rows to compare; by default the headline, whose attacks must then have had the same settings. An
    attack that is named is compared even where its settings differ, and the notes say how.
    confidence: by default the base's.
    """
    audits = dict(runs) if isinstance(runs, Mapping) else read_runs(runs)
    if len(audits) < 2:
        raise UserError(f"a comparison needs at least two runs; got {', '.join(audits) or 'none'}.")
    base = next(iter(audits)) if base is None else _find_base(base, audits)
    others = [name for name in audits if name != base]
    for name in others:
        comparable.check_classes(audits, base, name)
    notes = [] if attack is None else comparable.attack_notes(audits, base, attack)
    attack = comparable.common_attack(audits, base) if attack is None else attack
    rows = {name: audit.rows(attack) for name, audit in audits.items()}
    pairs = {}
    for name in others:
        reason = comparable.why_unpaired(audits[base], audits[name], rows[base], rows[name])
        pairs[name] = reason is None
        if reason is not None:
            notes.append(
                f"{name} and {base} did not see the same examples ({reason}): they are compared unpaired, by Fisher's "
                "exact test, which needs a larger difference than a paired comparison."
            )
    level = intervals.check_confidence(audits[base].confidence if confidence is None else confidence)
    versus = {name: difference.compute(rows[base], rows[name], pairs[name], level) for name in others}
    table = pd.DataFrame(
        [
            {"run": name, "paired": pairs.get(name, True)}
            | _run(audit, rows[name], rows[base], versus.get(name), level)
            for name, audit in audits.items()
        ]
    )
    table["p_holm"] = comparisons.holm(table["p"].to_numpy(dtype=np.float64))
    classes = pd.concat([_classes(name, versus[name], level) for name in others], ignore_index=True)
    return Comparison(
        audits=audits,
        base=base,
        attack=attack,
        confidence=level,
        pairs=pairs,
        notes=tuple(notes),
        runs=table,
        classes=classes,
    )


def read_runs(folders: Sequence[str | Path]) -> dict[str, Audit]:
    """Finished audits by the names of their folders, or by as much of the paths as makes them unique."""
    return {name: Audit.load(folder) for name, folder in zip(unique_names(folders), folders, strict=True)}


def _find_base(base: str, audits: Mapping[str, Audit]) -> str:
    """The name of the run that is named, or whose folder is."""
    for name, audit in audits.items():
        if base == name or (audit.folder is not None and Path(base).resolve() == audit.folder.resolve()):
            return name
    raise unknown("run to compare with", base, audits)


# ---- the numbers ---------------------------------------------------------------------------------------------------


def _run(audit: Audit, mine: Records, base: Records, versus: pd.DataFrame | None, confidence: float) -> dict[str, Any]:
    """The numbers of a run in the table of runs; the base's own has no `versus`."""
    lowest, order = worst.compute(mine, confidence=confidence), _order(base, mine)
    whole: Mapping[Any, Any] = {} if versus is None else versus.iloc[-1].to_dict()
    return {
        "n": len(mine),
        "clean": average.compute(audit.rows(CLEAN)) if CLEAN in audit.names else float("nan"),
        "overall": overall.compute(mine).value,
        "average": average.compute(mine),
        "worst_class": lowest.label,
        "worst": lowest.value,
        "worst_low": lowest.low,
        "worst_high": lowest.high,
        "cv": cv.compute(mine),
        "mcd": mcd.compute(mine),
        "rho": rho.compute(mine, base),
        **{key: float(whole.get(key, np.nan)) for key in ("difference", "low", "high", "p")},
        "p_holm": float("nan"),
        "spearman": order[0],
        "kendall": order[1],
    }


def _order(base: Records, run: Records) -> tuple[float, float]:
    """Spearman's and Kendall's coefficient; NaN where fewer than two classes can be ordered."""
    if len(np.intersect1d(base.label, run.label)) < 2:
        return float("nan"), float("nan")
    found = agreement.compute(base, run)
    return found.spearman, found.kendall


def _classes(name: str, versus: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """The rows of one run in the table of classes."""
    named = {"n_first": "n_base", "n_second": "n", "first": "base", "second": "accuracy"}
    rows = versus[:-1].rename(columns=named)
    beyond = rows["p_holm"] < 1 - confidence
    rows["change"] = np.where(beyond, np.where(rows["difference"] > 0, "gained", "lost"), "")
    rows.insert(0, "run", name)
    return rows


# ---- in words ------------------------------------------------------------------------------------------------------


def _sentence(run: str, base: str, rows: pd.DataFrame) -> str:
    tested = rows.dropna(subset=["p"])
    of = f"of {len(tested)} classes"
    if tested.empty:
        return f"{run} against {base}: no class has examples in both."
    parts = []
    for change, ascending in (("gained", False), ("lost", True)):
        chosen = tested[tested["change"] == change].sort_values("difference", ascending=ascending, kind="stable")
        if len(chosen):
            who = [f"{c}: {points(d)}" for c, d in zip(chosen["class"], chosen["difference"], strict=True)]
            parts.append(f"{len(who)} {of} {change} ({listed(who)})")
    if not parts:
        return f"{run} against {base}: none {of} differs beyond chance."
    same = int((tested["change"] == "").sum())
    rest = f"; the other {same if same > 1 else 'one'} did not change beyond chance" if same else ""
    return f"{run} against {base}, in percentage points: {', '.join(parts)}{rest}."
