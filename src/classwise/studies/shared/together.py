"""Runs compared on the same images: resampled together, or split into halves together.

A number made of several class accuracies (a worst class, a variance, ρ, a slope) has no interval of its own. Here the
images of each class are drawn with replacement, as many as there are and the same ones for every run, and the number
is computed from each draw: its quantiles are the interval (Efron 1979, percentile). The correlation of runs on the
same images is kept. The minimum over classes is biased downwards by drawing as it is by sampling; a difference of two
minima much less so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy  # its stats are loaded at their first use

from classwise.core.errors import UserError
from classwise.core.per_class import PerClass
from classwise.core.records import Records
from classwise.metrics import accuracy
from classwise.metrics.worst import Worst
from classwise.stats import resampling
from classwise.stats.intervals import Array, Estimate, bounds
from classwise.studies.runner.models_under_study import ModelUnderStudy

DRAWS = 2000
#: How claims are tested by such draws, and by those of `metrics.widening`.
BOOTSTRAP = "bootstrap over the images of each class"
PAIRED = "Newcombe's interval of paired shares"
HALVES = "bootstrap between two halves of the images"
EXACT = "exact binomial interval"
RANKS = "permutation test of Spearman's ρ"
CV_RATIO = "bootstrap interval of the ratio of the variances (Fieller)"
WIDEST = 20  # classes that have columns of their own in a table


def resampled(runs: Sequence[Records], draws: int = DRAWS, seed: int = 0) -> Array:
    """Class accuracies of each run for each draw of images, of shape (draws, runs, classes).

    A run need not contain every image; a class without images in a draw is NaN there.
    """
    right, label = _aligned(runs)
    return resampling.class_accuracies(right, label, runs[0].num_classes, draws, seed)


def interval(values: Array, confidence: float = 0.95) -> tuple[float, float]:
    """The middle `confidence` of the draws that are numbers; NaN if more than the tails are not.

    NaN also if all draws are equal: images that are all right or all wrong, drawn again, say nothing about those that
    were not sampled.
    """
    tail = (1 - confidence) / 2
    if np.mean(~np.isfinite(values)) > tail or np.nanmin(values) == np.nanmax(values):
        return float("nan"), float("nan")
    low, high = np.nanquantile(values, [tail, 1 - tail])
    return float(low), float(high)


def rhos(drawn: Array) -> Array:
    """ρ of every run against the first, for every draw; NaN if the accuracy of the first's worst class is 0."""
    lowest, mean = np.nanmin(drawn, axis=2), np.nanmean(drawn, axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (lowest - lowest[:, :1]) / lowest[:, :1] - (mean[:, :1] - mean) / mean[:, :1]
    return np.where(lowest[:, :1] > 0, found, np.nan)


def interval_between(drawn: Array) -> tuple[float, float]:
    """Of four runs, a number of each for each draw: by how much the gain d − c exceeds the gain b − a."""
    a, b, c, d = drawn.T
    return interval((d - c) - (b - a))


def halves(runs: Sequence[Records]) -> tuple[list[Records], list[Records]]:
    """Every run split in two by image, an image into the same half of every run, every class about evenly.

    What is measured on one half is independent of what is measured on the other.
    """
    right, label = _aligned(runs)
    images = pd.DataFrame({"label": label, "seen": np.isfinite(right).sum(axis=1)}, index=_index(runs))
    ordered = images.sort_values(["label", "seen"], ascending=[True, False], kind="stable")  # what all runs have first
    odd = ordered.groupby("label").cumcount() % 2 == 1
    first, second = (
        [run.take(np.flatnonzero(np.isin(run.index, odd.index[odd]) == half)) for run in runs] for half in (False, True)
    )
    return first, second


def smallest(*runs: Records) -> int:
    """How many images the smallest class has, of those that have any, in the smallest of the runs."""
    supports = [np.bincount(run.single().label) for run in runs]
    return min(int(n[n > 0].min(initial=len(runs[0]))) for n in supports)


def exact(share: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of Clopper and Pearson of a share of n."""
    low, high = bounds(np.array(round(share * n) if n else 0), np.array(n), confidence, "exact")
    return float(low), float(high)


def mean_interval(values: Array, confidence: float = 0.95) -> tuple[float, float]:
    """Student's interval of the mean of numbers between −1 and 1, no wider than these; NaN of fewer than two.

    If all are equal there is no variance to estimate: then anything may be true of a share of up to
    q = 1 − (α/2)^(1/n), the upper bound for what was observed in none of n.
    """
    n, tail = len(values), (1 - confidence) / 2
    if n < 2:
        return float("nan"), float("nan")
    mean = float(np.mean(values))
    if np.ptp(values) == 0:
        unseen = 1 - tail ** (1 / n)
        return mean - unseen * (1 + mean), mean + unseen * (1 - mean)
    half = float(scipy.stats.t.ppf(1 - tail, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return max(mean - half, -1.0), min(mean + half, 1.0)


def times(ratio: float, low: float, high: float) -> str:
    """A ratio of two CVs as text; 0/0 is undefined."""
    if np.isnan(ratio):
        return "undefined: the classes differ by no more than chance"
    return f"{ratio:.2f} times, 95% CI {low:.2f} to {high:.2f}"


def in_percent(name: str, found: Estimate | Worst | PerClass, ends: str | None = None) -> dict[str, Any]:
    """Columns of a table: ``NAME (%)`` and its interval, ``NAME low`` and ``NAME high`` or ``ENDS low``."""
    before = f"{name if ends is None else ends} ".lstrip()
    value = found.values if isinstance(found, PerClass) else found.value
    return {f"{name} (%)": 100 * value, f"{before}low": 100 * found.low, f"{before}high": 100 * found.high}


def columns_in_percent(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The table with fractions in these columns made percentages."""
    return table.assign(**{column: 100 * table[column] for column in columns})


def of_models(tables: Mapping[Any, pd.DataFrame], label: str = "model") -> pd.DataFrame:
    """Tables by name as one, the names in the first column."""
    return pd.concat([own.assign(**{label: name})[[label, *own]] for name, own in tables.items()], ignore_index=True)


def by_name(rows: Records) -> dict[str, float]:
    """Accuracy in percent by class name, for the columns of a table."""
    return dict(zip(rows.class_names, (100 * accuracy.compute(rows).values).tolist(), strict=True))


def covariance(x: Array, y: Array) -> Array:
    """Over the classes, which are the last axis; those that are NaN do not count."""
    return np.asarray(np.nanmean(x * y, axis=-1) - np.nanmean(x, axis=-1) * np.nanmean(y, axis=-1))


def cv_change(first: Records, second: Records, confidence: float = 0.95, seed: int = 0) -> tuple[float, float, float]:
    """CV of the second run minus that of the first, in percent², with its interval, free of the noise of few images.

    The variance of measured accuracies holds that of measuring them. Between two halves of the images there is none
    in common: cov(a_A, a_B) over the classes is the variance of the true ones.
    """
    parts = halves([first, second])
    seen = [np.stack([accuracy.compute(rows).values for rows in half])[None] for half in parts]
    drawn = [resampled(half, seed=2 * seed + place) for place, half in enumerate(parts)]
    found, all_found = (100**2 * covariance(*pair) for pair in (seen, drawn))
    return float(found[0, 1] - found[0, 0]), *interval(all_found[:, 1] - all_found[:, 0], confidence)


def require_same_setting(models: Sequence[ModelUnderStudy]) -> None:
    """Raise if models are for different data or threats: their accuracies are not comparable."""
    first = models[0]
    for other in models[1:]:
        if other.data != first.data or other.threat != first.threat:
            raise UserError(
                f"{first.name} is for {first.data} in {first.norm} at eps {first.eps}, {other.name} for {other.data} "
                f"in {other.norm} at eps {other.eps}; compare models of one setting, or give --data, --norm and --eps "
                "for all."
            )


def _index(runs: Sequence[Records]) -> Array:
    return np.unique(np.concatenate([run.index for run in runs]))


def _aligned(runs: Sequence[Records]) -> tuple[Array, Array]:
    """Whether each run is right about each image (NaN if it does not contain it), and the images' labels."""
    index = _index(runs)
    right, label = np.full((len(index), len(runs)), np.nan), np.full(len(index), -1)
    for place, run in enumerate(runs):
        if run.class_names != runs[0].class_names:
            raise UserError("the runs do not have the same classes in the same order; compare runs of one data set.")
        run = run.single()
        rows = np.searchsorted(index, run.index)
        if ((label[rows] >= 0) & (label[rows] != run.label)).any():
            raise UserError("the runs give different labels to the same images; compare runs of the same data.")
        right[rows, place], label[rows] = run.correct, run.label
    return right, label
