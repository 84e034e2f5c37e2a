"""What a bias would do, predicted from one attack on the unchanged model; it proposes, and fresh attacks judge.

A bias shifts the logits alike at every point, so a point x' that was found against z attacks z + b as well. Over all
points that the attacks end with (each restart; for apgd_t one towards every wrong class)

    M_ij = min_x' z_y(x') − z_j(x')       a_k(b) = share of class k's images with min_{j≠y} M_ij + b_y − b_j > 0

is an upper bound on the robust accuracy of z + b, and close to it where the attack maximises margins: an attack on
z_t − z_y takes the same steps whatever b is. So one attack without early stopping predicts every b, and a game of many
small steps costs nothing:

    b ← b + η (q − 1/C),     q_k ∝ exp(−a_k(b)/T)                              the worst classes rise, all others yield

Where minimums are asked for, q_k is what the class lacks. T and η are ours. On CIFAR-10, cross-validated, small steps
for the worst classes cost less of the average than steps that make all classes equal, and less than the straight way
from b = 0 to where either ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from classwise.attacks.attack import final_point, initial_rows, run
from classwise.core import rng
from classwise.core.records import Array
from classwise.data.images import IntArray
from classwise.repairing.game import deficits
from classwise.repairing.trials import Calibration, read_arrays, write_arrays
from classwise.stats.intervals import ratio

TEMPERATURE = 0.03  # T: classes three points above the worst weigh a third of it
STEP = 0.04  # η, of the step that would be made for a difference of 100 percentage points
MOST_STEPS = 120
_PART = 256  # images in a file
_PATIENCE = 30  # steps without a better worst class


@dataclass(frozen=True, kw_only=True)
class Margins:
    """M, (images, classes), +∞ in each image's own column; and the labels."""

    values: Array
    labels: IntArray

    def accuracy(self, bias: Array) -> Array:
        """a(b); NaN for a class without images."""
        survives = (self.values + bias[self.labels][:, None] - bias).min(1) > 0
        count = np.bincount(self.labels, minlength=len(bias))
        return ratio(np.bincount(self.labels, survives, minlength=len(bias)), count)


def measure(calibration: Calibration) -> Margins:
    """Attack the unchanged model without early stopping, part by part; what a killed run has found is read back."""
    images, folder = calibration.job.images, calibration.folder
    parts = []
    for number, begin in enumerate(range(0, len(images), _PART)):
        rows = np.arange(begin, min(begin + _PART, len(images)))
        path = None if folder is None else folder.margins(number)
        found = None if path is None else read_arrays(path)
        if found is None:
            steps = range(0, len(rows), calibration.job.plan.batch)
            batches = [rows[step : step + calibration.job.plan.batch] for step in steps]
            found = {"margins": np.concatenate([_batch(calibration, batch) for batch in batches])}
            if path is not None:
                write_arrays(path, found)
        parts.append(found["margins"])
        calibration.report(len(rows) * len(calibration.job.attacks))
    return Margins(values=np.concatenate(parts).astype(np.float64), labels=images.labels)


def _batch(calibration: Calibration, rows: IntArray) -> Array:
    """M of some images: the least margin over each point that any attack ends with, and over the clean image."""
    job = calibration.job
    x, y = (part.to(job.device) for part in job.images.batch(rows))
    key = rng.keys(job.meta.seed, torch.from_numpy(job.images.positions[rows])).to(job.device)
    eps = torch.from_numpy(job.eps[rows]).to(x)
    with torch.no_grad():
        least = _margins(job.model(x), y)
    for attack in job.attacks.values():
        for restart in range(attack.restarts):
            first = initial_rows(x, y, eps, rng.keys(restart, key), restart)
            point = final_point(run(attack, job.attack_copy, first, job.threat.ball))
            with torch.no_grad():
                least = torch.minimum(least, _margins(job.model(point), y))
    return least.cpu().numpy()


def _margins(z: Tensor, y: Tensor) -> Tensor:
    """z_y − z_j, +∞ for j = y."""
    return (z.gather(1, y[:, None]) - z).scatter(1, y[:, None], torch.inf)


def path(margins: Margins, unit: float, minimums: Mapping[int, float]) -> list[Array]:
    """Every bias that the game passes through, from 0 on; it ends where minimums are reached, or where the worst class
    has not risen for long."""
    classes = margins.values.shape[1]
    biases, best, since = [np.zeros(classes)], -1.0, 0
    accuracy = margins.accuracy(biases[-1])
    while len(biases) <= MOST_STEPS and since <= _PATIENCE:
        pull = deficits(accuracy, minimums) if minimums else _softmin(accuracy)
        if not pull.any():
            break
        biases.append(biases[-1] + STEP * unit * (pull / pull.sum() - 1 / classes))
        accuracy = margins.accuracy(biases[-1])
        worst = float(np.nanmin(accuracy))
        since = 0 if minimums or worst > best else since + 1
        best = max(best, worst)
    return biases


def _softmin(accuracy: Array) -> Array:
    """exp(−a/T) over the smallest; 0 for a class without images."""
    pull: Array = np.exp(-(accuracy - np.nanmin(accuracy)) / TEMPERATURE)
    return np.nan_to_num(pull)
