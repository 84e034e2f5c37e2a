"""Comparison of methods over training seeds: groups of runs against a control, on the same images.

A group is the audits of one method trained with several seeds. Each number of a group is the mean over its runs, with
the standard deviation over them and an interval; each difference from the control has an interval and a test that
account for both the seeds and the images (`stats.over_seeds`). Where three or more groups are paired, the variance over
seeds is pooled over all of them. p-values are corrected by Holm: those of the groups over
all groups and metrics asked about, those of the classes over the classes of a group. What is not decided comes with
the number of seeds that would decide it, with a power of 80%, if the true difference is the observed one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from classwise import metrics
from classwise.core.arguments import checked
from classwise.core.csv_files import csv_text
from classwise.core.errors import UserError, check_known
from classwise.core.format import level as written_level
from classwise.core.format import listed, percent
from classwise.core.notebook import Charted
from classwise.core.records import CLEAN, Records
from classwise.metrics.metric import Metric, Shown
from classwise.results import comparable, measured, run_groups
from classwise.results.audit_result import Audit, json_rows
from classwise.results.group_table import GroupTable
from classwise.results.run_groups import Pairing, Variance
from classwise.stats import intervals
from classwise.stats.intervals import POWER, Array

METRICS = (CLEAN, "average", "worst", "cv")


@dataclass(frozen=True, kw_only=True)
class GroupComparison(Charted):
    """Groups of runs against one of them, the control. Accuracies are fractions, `cv` is in percent².

    pairs: for each group but the control its pairs of runs, (run, run of the control), none if it is not paired.
    pairing: why they are, or are not. pooled: whether the variance over seeds is that of all groups. shown: how each
    metric is written. groups and classes: the tables, which `table` and `by_class` return.
    """

    audits: Mapping[str, Mapping[str, Audit]]
    control: str
    attack: str
    confidence: float
    pairs: Mapping[str, Sequence[tuple[str, str]]]
    pairing: Mapping[str, str]
    pooled: bool
    notes: tuple[str, ...]
    shown: Mapping[str, Shown]
    groups: pd.DataFrame
    classes: pd.DataFrame

    def table(self) -> pd.DataFrame:
        """One row per group and metric.

        group, metric, seeds, mean, sd (over the runs), low, high; and against the control: paired, difference,
        difference_sd (over the pairs), difference_low, difference_high, df, p, p_holm (over all groups and metrics),
        verdict ("higher", "lower" or "undecided"), detectable (the difference found with 80% power with these seeds,
        at the corrected level), and seeds_needed (of each group, to decide a true difference of the observed size;
        infinite if more images are needed).
        """
        return self.groups.copy()

    def by_class(self) -> pd.DataFrame:
        """One row per group and class, in class order: class and n in the place of metric, p_holm over the classes."""
        return self.classes.copy()

    @property
    def title(self) -> str:
        """What is compared, in a line."""
        return f"{len(self.audits)} groups of runs under {self.attack}, against {self.control}"

    @property
    def tests(self) -> int:
        """The tests that the p-values of the groups are corrected for."""
        return int(self.groups["p"].notna().sum())

    def sentences(self) -> list[str]:
        """For each group but the control, its pairs, what is decided and what is not; and the power of the seeds."""
        pooled = [f"The variance over seeds is pooled over the {len(self.audits)} groups."] if self.pooled else []
        return [*map(self._sentence, self.pairs), *map(self._pairs, self.pairs), *pooled, self._power()]

    def summary(self) -> dict[str, Any]:
        """Everything in one JSON-ready dictionary; what is not defined is None."""
        return {
            "control": self.control,
            "attack": self.attack,
            "confidence": self.confidence,
            "notes": list(self.notes),
            "runs": {name: list(runs) for name, runs in self.audits.items()},
            "pairs": {name: [list(pair) for pair in own] for name, own in self.pairs.items()},
            "pairing": dict(self.pairing),
            "pooled": self.pooled,
            "groups": json_rows(self.groups),
            "classes": json_rows(self.classes),
            "sentences": self.sentences(),
        }

    def to_csv(self, by_class: bool = False) -> str:
        """The numbers as they are, of the groups or of the classes."""
        return csv_text(self.classes if by_class else self.groups)

    def __str__(self) -> str:
        return "\n".join((self.title, *self.notes, *self.sentences()))

    __repr__ = __str__

    def _sentence(self, name: str) -> str:
        rows = self.groups[self.groups["group"] == name]
        parts = [verdict_text(row, self.shown[str(row["metric"])], self.confidence) for _, row in rows.iterrows()]
        return f"{name} against {self.control}: {'; '.join(parts)}."

    def _pairs(self, name: str) -> str:
        named = [f"{run} with {other}" for run, other in self.pairs[name]]
        return f"{name} and {self.control} are {self.pairing[name]}{f': {listed(named)}' if named else ''}."

    def _power(self) -> str:
        """What the seeds could have decided, which does not depend on what came out but for the variances."""
        tested = self.groups.dropna(subset=["detectable"])
        parts = []
        for metric, rows in tested.groupby("metric", sort=False):
            how = self.shown[str(metric)]
            ends = (
                how.difference(float(end)).lstrip("+") for end in (rows["detectable"].min(), rows["detectable"].max())
            )
            parts.append(f"{how.title} {' to '.join(dict.fromkeys(ends))}")
        return (
            f"With these seeds and images a true difference is found with {percent(POWER, 0)} power, all "
            f"{self.tests} tests corrected for, from this size on: {', '.join(parts)}."
        )


def verdict_text(row: pd.Series[Any], shown: Shown, confidence: float) -> str:
    """A difference with its interval and what it decides, such as worst +3.1 (95% CI −1.0 to +7.2) undecided (…)."""
    value, low, high = (
        shown.difference(float(row[key])) for key in ("difference", "difference_low", "difference_high")
    )
    return f"{shown.title} {value} ({written_level(confidence)} CI {low} to {high}) {decision(row)}".lstrip()


def decision(row: pd.Series[Any]) -> str:
    """The verdict, and the seeds that would decide what is undecided."""
    if row["verdict"] != "undecided":
        return str(row["verdict"])
    return f"undecided ({needed(row)})"


def needed(row: pd.Series[Any]) -> str:
    """What would decide a difference that is undecided."""
    return "more images" if np.isinf(row["seeds_needed"]) else f"about {row['seeds_needed']:.0f} seeds"


@checked
def compare_groups(
    groups: Mapping[str, Any],
    control: str | None = None,
    attack: str | None = None,
    confidence: float | None = None,
    columns: Sequence[str] = METRICS,
    pair: Pairing = "auto",
    variance: Variance = "pooled",
) -> GroupComparison:
    """Compare groups of runs with `control` (by default the first).

    groups: for each name run folders, a pattern such as ``runs/trades-*``, or audits by name; two or more runs each,
        all of the same examples.
    attack, confidence: as in `compare`. columns: the metrics, of which `clean` is the mean accuracy of the classes
        without an attack. Every metric of every group is a test of its own, and all are corrected together.
    pair: "name" pairs runs whose folders differ from the others of their group in the same way, "position" in the order
        given, "none" compares the groups as independent; "auto" pairs by name where every run has a partner.
    variance: "pooled" estimates the variance over seeds from all groups, where there are three or more and all are
        paired, which assumes that it is the same for all; "own" from the two groups of each difference.
    """
    audits = run_groups.read(groups)
    if len(audits) < 2:
        raise UserError(f"a comparison needs at least two groups; got {', '.join(audits) or 'none'}.")
    for name, runs in audits.items():
        if len(runs) < 2:
            raise UserError(
                f"the group {name} has {len(runs)} run{'s' * (len(runs) != 1)}, which says nothing about other seeds: "
                "give two or more, better five. Single runs are compared with classwise compare RUN RUN."
            )
    control = next(iter(audits)) if control is None else control
    check_known("group to compare with", list(audits), control)
    every = {f"{name}/{run}": audit for name, runs in audits.items() for run, audit in runs.items()}
    attack, rows, notes = _rows(every, attack)
    first = next(iter(every.values()))
    level = intervals.check_confidence(first.confidence if confidence is None else confidence)
    chosen = {name: _metric(name) for name in columns}
    if not chosen:
        raise UserError(f"name at least one metric to compare, such as {', '.join(METRICS)}.")
    places = _places(audits)
    paired = {
        name: run_groups.pairs({key: list(runs) for key, runs in audits.items()}, control, name, pair)
        for name in audits
        if name != control
    }
    clean = [audit.rows(CLEAN) for audit in every.values()] if CLEAN in chosen else []
    numbers = measured.stacked(
        [measured.of_metric(metric, clean if name == CLEAN else rows) for name, metric in chosen.items()]
    )
    partners = {name: pairs for name, (pairs, _) in paired.items()}
    pooled = variance == "pooled" and len(partners) > 1 and None not in partners.values()
    table = GroupTable(places, control, partners, level, pooled)
    support = np.bincount(rows[0].label, minlength=rows[0].num_classes)
    shares = np.array([metric.shown.unit == "share" for metric in chosen.values()])
    least = np.full(len(chosen), support[support > 0].min())
    groups_table = table.made("metric", list(chosen), numbers, np.where(shares, least, 0))
    groups_table = table.judged(groups_table, numbers, [groups_table.index])
    accuracies = measured.of_classes(rows)
    by_class = table.made("class", list(rows[0].class_names), accuracies, support)
    by_class = table.judged(by_class, accuracies, list(by_class.groupby("group").groups.values()))
    by_class.insert(2, "n", np.tile(support, len(audits)))
    names = {name: list(runs) for name, runs in audits.items()}
    return GroupComparison(
        audits=audits,
        control=control,
        attack=attack,
        confidence=level,
        pairs={
            name: [] if found is None else [(names[name][b], names[control][a]) for a, b in enumerate(found)]
            for name, (found, _) in paired.items()
        },
        pairing={name: why for name, (_, why) in paired.items()},
        pooled=pooled,
        notes=tuple(notes),
        shown={name: metric.shown for name, metric in chosen.items()},
        groups=groups_table,
        classes=by_class,
    )


def _rows(audits: Mapping[str, Audit], attack: str | None) -> tuple[str, list[Records], list[str]]:
    """The attack that is compared, its rows in every run, all of the same examples, and what to note."""
    first = next(iter(audits))
    for name in audits:
        comparable.check_classes(audits, first, name)
    notes = [] if attack is None else comparable.attack_notes(audits, first, attack)
    attack = comparable.common_attack(audits, first) if attack is None else attack
    rows = {name: audit.rows(attack) for name, audit in audits.items()}
    for name, audit in audits.items():
        reason = comparable.why_unpaired(audits[first], audit, rows[first], rows[name])
        if reason is not None:
            raise UserError(
                f"{name} and {first} did not see the same examples ({reason}). Groups are compared on the same images: "
                "audit every run with the same data and selection."
            )
    return attack, [run.single() for run in rows.values()], notes


def _metric(name: str) -> Metric:
    """A metric by its name; `clean` is the average of the rows without an attack."""
    if name != CLEAN:
        return metrics.find(name)
    mean = metrics.find("average")
    return Metric(CLEAN, mean.compute, Shown(title=CLEAN, unit="share"), mean.of)


def _places(audits: Mapping[str, Mapping[str, Audit]]) -> dict[str, Array]:
    """The numbers of each group's runs among all."""
    ends = np.cumsum([0, *(len(runs) for runs in audits.values())])
    return {name: np.arange(*pair) for name, pair in zip(audits, itertools.pairwise(ends), strict=True)}
