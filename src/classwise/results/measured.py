"""Numbers of several runs of the same images, with their covariance over draws of the images.

The accuracy of a class, and the mean of them, are means of answers, whose covariance is known:

    K_rt = Σ_i (y_ri − ȳ_r)(y_ti − ȳ_t) / (n (n − 1))        y_ri whether run r is right about image i of the class

For everything else the images of each class are drawn again (`stats.resampling`), the same ones for every run, and the
metric is computed from each draw; the mean of the draws minus the value estimates its bias.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.metrics import average
from classwise.metrics.metric import Metric
from classwise.stats import resampling
from classwise.stats.intervals import Array, ratio
from classwise.stats.over_seeds import Measured

_DRAWS = 1000
_DRAWS_OF_RECORDS = 200  # where the metric needs more than the class accuracies, and each draw takes longer


def of_classes(runs: Sequence[Records]) -> Measured:
    """The accuracy of every class; NaN for one without images."""
    return of_answers(_answers(runs), runs[0].label, runs[0].num_classes)


def of_answers(right: Array, label: Array, size: int) -> Measured:
    """The mean answer of every class, from answers of shape (images, runs); also of differences of answers."""
    count = right.shape[1]
    values, covariance = np.full((size, count), np.nan), np.full((size, count, count), np.nan)
    for which in np.unique(label).tolist():
        own = right[label == which]
        values[which] = own.mean(axis=0)
        rest = own - values[which]
        covariance[which] = rest.T @ rest / (len(own) * max(len(own) - 1, 1))
    return Measured(values=values, covariance=covariance, bias=np.zeros_like(values), least=_least(label, size))


def of_metric(metric: Metric, runs: Sequence[Records]) -> Measured:
    """One metric of one number."""
    classes = of_classes(runs)
    seen = np.isfinite(classes.values[:, 0])
    if metric.of is average.of:
        return mean_of(classes)
    right, label = _answers(runs), runs[0].label
    if metric.of is not None:
        drawn = resampling.class_accuracies(right, label, len(seen), _DRAWS)[:, :, seen]
        values = np.array([metric.of(row) for row in classes.values[seen].T])
        found = np.apply_along_axis(metric.of, 2, drawn)
    else:
        values = np.array([metric.estimate(run)[0] for run in runs])
        drawn_rows = resampling.rows(label, _DRAWS_OF_RECORDS)
        found = np.array([[metric.estimate(_taken(run, rows))[0] for run in runs] for rows in drawn_rows])
    if not np.isfinite(values).all() or not np.isfinite(found).all():
        raise UserError(f"the metric {metric.name} is not defined for every run or draw of its images; name another.")
    least = np.nanmax(classes.least) if metric.shown.unit != "number" else 0.0
    return Measured(
        values=values[None],
        covariance=np.cov(found.T).reshape(1, len(runs), len(runs)),
        bias=(found.mean(axis=0) - values)[None],
        least=np.array([least]),
    )


def stacked(parts: Sequence[Measured]) -> Measured:
    """The numbers of all parts, of the same runs."""
    columns = ("values", "covariance", "bias", "least")
    return Measured(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in columns})


def mean_of(classes: Measured) -> Measured:
    """The mean of the class accuracies, whose images are drawn independently."""
    seen = np.isfinite(classes.values[:, 0])
    count = int(seen.sum())
    return Measured(
        values=classes.values[seen].mean(axis=0, keepdims=True),
        covariance=classes.covariance[seen].sum(axis=0, keepdims=True) / count**2,
        bias=np.zeros((1, classes.values.shape[1])),
        least=classes.least[seen].sum(keepdims=True) / count**2,
    )


def _least(label: Array, size: int) -> Array:
    """The variance of a difference of two shares of the same n images that never disagree, with one more image on which
    either is right alone: 2/(n + 2)² (Bonett & Price, Journal of Educational and Behavioral Statistics 2012)."""
    n = np.bincount(label, minlength=size)
    return np.where(n > 0, ratio(np.full(size, 2.0), (n + 2.0) ** 2), np.nan)


def _answers(runs: Sequence[Records]) -> Array:
    return np.stack([run.correct for run in runs], axis=1).astype(np.float64)


def _taken(run: Records, rows: Array) -> Records:
    """A draw of the images, each with a number of its own."""
    taken = run.take(rows)
    return Records(taken.frame.assign(index=np.arange(len(rows))), taken.meta, taken.probs)
