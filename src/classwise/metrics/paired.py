"""Paired comparison of two audits of the same examples: exact McNemar test per class and over all.

The test and Holm's correction (`p_holm`, over the classes that have pairs) are those of `stats.comparisons`; the row
over all examples asks one question of its own and is not part of that family.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.metrics import confusion
from classwise.stats import intervals
from classwise.stats.comparisons import holm, mcnemar
from classwise.stats.intervals import Array

PAPERS = ("mcnemar1947",)
ALL = "(all)"


def compute(records: Records, other: Records) -> pd.DataFrame:
    """One row per class and a last one, "(all)", with the number of pairs as `n`.

    Columns: class, n, first and second (accuracies on the pairs), difference (second − first), only_first and
    only_second (b and c), p, p_holm. A class without pairs is NaN. `attrs` says how many examples were paired, and how
    many each audit holds.
    """
    pairs = _join(records, other)
    label, first, second = (pairs[name].to_numpy() for name in ("label", "first", "second"))
    size = records.num_classes
    n, right_first, right_second, only_first, only_second = (
        _count(label[chosen], size) for chosen in (np.ones_like(first), first, second, first & ~second, second & ~first)
    )
    p = np.where(n > 0, mcnemar(only_first, only_second), np.nan)
    table = pd.DataFrame(
        {
            "class": [*records.class_names, ALL],
            "n": n,
            "first": intervals.ratio(right_first, n),
            "second": intervals.ratio(right_second, n),
            "difference": intervals.ratio(right_second - right_first, n),
            "only_first": only_first,
            "only_second": only_second,
            "p": p,
            "p_holm": np.append(holm(p[:-1]), p[-1]),
        }
    )
    table.attrs = {"paired": len(pairs), "first": len(records), "second": len(other)}
    return table


def _count(label: Array, size: int) -> Array:
    """The number of examples of each class, and their total as a last entry."""
    counts = np.bincount(label, minlength=size)
    return np.append(counts, counts.sum())


def _join(records: Records, other: Records) -> pd.DataFrame:
    """The examples both hold: index, label, and whether the first and the second are right."""
    if records.class_names != other.class_names:
        differing = sorted(set(records.class_names) ^ set(other.class_names))
        what = f"only one of them knows {', '.join(differing[:5])}" if differing else "the order differs"
        raise UserError(f"the two audits do not have the same classes: {what}. Compare audits of one data set.")
    first, second = _answers(records, "first"), _answers(other, "second")
    pairs = first.join(second, how="inner")
    if pairs.empty:
        raise UserError(
            f"the two audits share no example: {len(first)} and {len(second)} examples, none with the same index. "
            "Compare audits of the same data and selection."
        )
    disagree = pairs[pairs["label_first"] != pairs["label_second"]]
    if len(disagree):
        at = disagree.iloc[0]
        raise UserError(
            f"the two audits give different labels to {len(disagree)} of {len(pairs)} shared examples, such as example "
            f"{disagree.index[0]}: {records.class_names[at['label_first']]!r} and "
            f"{records.class_names[at['label_second']]!r}. Compare audits of the same data."
        )
    return pairs.rename(columns={"label_first": "label"})


def _answers(records: Records, side: str) -> pd.DataFrame:
    records = records.single()
    confusion.require_classes(records, "label")
    return pd.DataFrame({f"label_{side}": records.label, side: records.correct}, index=records.index)
