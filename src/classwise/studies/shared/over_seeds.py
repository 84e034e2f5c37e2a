"""A training repeated with several seeds: its accuracies, and its changes against another with the same seeds.

A run is given as the records of each seed, all of the same images. What it changes in a class against a base is

    d = (1/S) Σ_s (a_s − b_s)        a_s, b_s the class's accuracy with seed s

With one seed the interval of d is the paired one of `metrics.difference`: it covers the choice of images, not what
another seed would do. With several it covers both, by the method of `stats.over_seeds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
import scipy  # its stats are loaded at their first use

from classwise.core.records import Records
from classwise.metrics import accuracy, average, cv, difference, mcd, rho, worst
from classwise.results import measured
from classwise.stats import comparisons
from classwise.stats.intervals import Array, Estimate
from classwise.studies.shared.together import BOOTSTRAP, PAIRED, in_percent, interval, resampled, rhos, smallest
from classwise.studies.shared.verdicts import LEVEL, Ruling, exceeds, falls_short, images

#: The records of each seed.
Runs: TypeAlias = Sequence[Records]

AVERAGE = "(average)"
_CONFIDENCE = 0.95
#: How a class's change is tested, or the average's, with one seed and with several; and how the worst class's is.
OF_SEEDS = "Student's t over images and seeds"
_CHANGE = (PAIRED, OF_SEEDS)
_WORST = (BOOTSTRAP, "Student's t over the seeds")


def by_class(runs: Runs) -> pd.DataFrame:
    """class, n, accuracy, low, high: with one seed Wilson's interval, with several the one over images and seeds."""
    found = accuracy.compute(runs[0]).to_frame().rename(columns={"value": "accuracy"})
    if len(runs) == 1:
        return found
    several = _estimates(_answers(runs), runs[0]).iloc[:-1]
    return found.assign(accuracy=several["value"], low=several["low"].clip(lower=0), high=several["high"].clip(upper=1))


def changes(base: Runs, runs: Runs) -> pd.DataFrame:
    """What the runs change against the base: a row per class, and a last one for the mean of the classes.

    Columns: class, n, base, accuracy, change, low, high, p_holm (over the classes; none for their mean), and effect:
    "gains" or "loses" if p_holm is below 0.05.
    """
    moved = _one_seed(base[0], runs[0]) if len(runs) == 1 else _estimates(_answers(runs) - _answers(base), runs[0])
    p_holm = np.append(comparisons.holm(moved["p"].to_numpy()[:-1]), np.nan)
    support = accuracy.counts(runs[0])[1]
    return pd.DataFrame(
        {
            "class": [*runs[0].class_names, AVERAGE],
            "n": np.append(support, support.sum()),
            "base": _means(base),
            "accuracy": _means(runs),
            "change": moved["value"],
            "low": moved["low"],
            "high": moved["high"],
            "p_holm": p_holm,
            "effect": np.where(p_holm < LEVEL, np.where(moved["value"] > 0, "gains", "loses"), ""),
        }
    )


def change_of(table: pd.DataFrame, name: str = AVERAGE) -> Estimate:
    """The row of one class, or of their mean, of a table of changes; support: images of the smallest class in it."""
    row = table[table["class"] == name].iloc[0]
    n = table["n"].iloc[:-1]
    support = int(n[n > 0].min() if name == AVERAGE else row["n"])
    return Estimate(float(row["change"]), float(row["low"]), float(row["high"]), support)


def points(change: Estimate) -> str:
    if not np.isfinite([change.low, change.high]).all():
        return f"{100 * change.value:+.1f} points, no interval"
    return f"{100 * change.value:+.1f} points, 95% CI {100 * change.low:+.1f} to {100 * change.high:+.1f}"


def rises(change: Estimate, seeds: int, threshold: float = 0.0, worst: bool = False) -> Ruling:
    """Whether a class, or the average, changes by more than the threshold; worst: of a `worst_change`."""
    test = (_WORST if worst else _CHANGE)[seeds > 1]
    return exceeds(change.low, change.high, threshold, test=test, sample=images(change.support))


def falls(change: Estimate, seeds: int, worst: bool = False, margin: float = 0.0) -> Ruling:
    """Whether it changes by less than 0, or by less than a margin, a fraction that counts as no gain."""
    test = (_WORST if worst else _CHANGE)[seeds > 1] + (f", margin {100 * margin:g} points" if margin else "")
    return falls_short(change.low, change.high, margin, test=test, sample=images(change.support))


def worst_change(base: Runs, runs: Runs) -> Estimate:
    """The change of the lowest class accuracy, whichever class has it.

    With one seed by resampling the images (`together`); with several Student's t over the seeds, on these images.
    """
    moved, support = _lowest(runs) - _lowest(base), smallest(runs[0])
    if len(runs) > 1:
        low, high = _student(moved)
        return Estimate(float(moved.mean()), max(low, -1.0), min(high, 1.0), support)
    lowest = np.nanmin(resampled([base[0], runs[0]]), axis=2)
    return Estimate(float(moved[0]), *interval(lowest[:, 1] - lowest[:, 0], _CONFIDENCE), support)


def rho_of(base: Runs, runs: Runs) -> Estimate:
    """ρ of the runs against the base, with an interval like that of `worst_change`."""
    found = np.array([rho.compute(run, start) for run, start in zip(runs, base, strict=True)])
    if len(runs) > 1:
        return Estimate(float(found.mean()), *_student(found), len(runs[0]))
    drawn = rhos(resampled([base[0], runs[0]]))
    return Estimate(float(found[0]), *interval(drawn[:, 1], _CONFIDENCE), len(runs[0]))


def level(runs: Runs, base: Runs) -> dict[str, float | str]:
    """A row of a table, in percent: average and worst class with intervals, CV, MCD and ρ; means over the seeds."""
    whole = average.estimate(runs[0])
    if len(runs) > 1:
        row = _estimates(_answers(runs), runs[0]).iloc[-1]
        whole = Estimate(float(row["value"]), float(row["low"]), float(row["high"]), len(runs[0]))
    lowest, first = _lowest(runs), worst.compute(runs[0])
    low, high = (first.low, first.high) if len(runs) == 1 else _student(lowest)
    gain = rho_of(base, runs)
    return {
        "n": whole.support,
        **in_percent("average", whole),
        "worst class": " or ".join(sorted({worst.compute(run).name for run in runs})),
        **in_percent("worst", Estimate(float(lowest.mean()), low, high, whole.support)),
        "CV (%²)": float(np.mean([cv.compute(run) for run in runs])),
        "MCD (%)": 100 * float(np.mean([mcd.compute(run) for run in runs])),
        "rho": gain.value,
        "rho low": gain.low,
        "rho high": gain.high,
    }


def _answers(runs: Runs) -> Array:
    """Whether each image is right, a row per seed."""
    return np.stack([run.correct for run in runs]).astype(np.float64)


def _lowest(runs: Runs) -> Array:
    return np.array([accuracy.seen(run).min() for run in runs])


def _means(runs: Runs) -> Array:
    """The accuracy of each class over the seeds, and their mean."""
    each = np.mean([accuracy.compute(run).values for run in runs], axis=0)
    return np.append(each, np.nanmean(each))


def _one_seed(base: Records, run: Records) -> pd.DataFrame:
    """value, low, high, p of each class and of their mean, whose interval is that of a sum of independent parts (MOVER,
    as in `metrics.average`)."""
    table = difference.compute(base, run).iloc[:-1].rename(columns={"difference": "value"})
    seen = table[table["n_first"] > 0]
    mean = seen["value"].mean()
    down, up = (float(np.linalg.norm(seen["value"] - seen[end])) / len(seen) for end in ("low", "high"))
    whole = pd.DataFrame({"value": [mean], "low": [mean - down], "high": [mean + up], "p": [np.nan]})
    return pd.concat([table[["value", "low", "high", "p"]], whole], ignore_index=True)


def _estimates(answers: Array, records: Records) -> pd.DataFrame:
    """value, low, high, p of each class and of their mean, over images and seeds; answers: (seeds, images)."""
    classes = measured.of_answers(answers.T, records.label, records.num_classes)
    found = measured.stacked([classes, measured.mean_of(classes)]).mean(np.arange(len(answers)))
    low, high = (np.clip(end, -1, 1) for end in found.interval(_CONFIDENCE))  # shares, and differences of shares
    return pd.DataFrame({"value": found.value, "low": low, "high": high, "p": found.p_value()})


def _student(values: Array) -> tuple[float, float]:
    """Student's interval of a mean over seeds."""
    half = scipy.stats.t.ppf((1 + _CONFIDENCE) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)
