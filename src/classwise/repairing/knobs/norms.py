"""The norms of the last layer's rows made more equal, its bias kept.

    W_k ← W_k · (mean_j ‖W_j‖₂ / ‖W_k‖₂)^τ                   τ = 0: as it was; τ = 1: all norms equal

Head weight normalisation with bias kept (HWNwB), reported to raise the worst class of PGD-AT models without training,
and in its partial form the τ-normalisation of long-tailed recognition (Kang et al., ICLR 2020). The mean norm, whose
use here is ours, keeps the scale of the logits: re-scaling them all would change attacks on cross entropy and look like
robustness. τ is given, or the best of a grid (ours) on the calibration images.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from classwise.core.records import Array
from classwise.models.last_layer import Change
from classwise.repairing.config import KnobPart
from classwise.repairing.knobs.knob import Knob, Task
from classwise.repairing.trials import Proposal, Trial

PAPERS = ("kang2020",)
TAUS = (0.25, 0.5, 0.75, 1.0)


def rescaled(weight: Array, tau: float) -> Array:
    """The rows with their norms moved towards the mean norm."""
    norms = np.linalg.norm(weight, axis=1)
    return weight * np.where(norms > 0, norms.mean() / np.maximum(norms, np.finfo(float).tiny), 1.0)[:, None] ** tau


class Norms(Knob):
    """Each τ of the grid, or the one given."""

    def changes(self, task: Task) -> int:
        return len(taus(task.settings))

    def propose(self, task: Task, trials: Sequence[Trial]) -> Proposal | None:
        left = taus(task.settings)[len(trials) - 1 :]
        if not left:
            return None
        assert task.weight is not None
        change = Change(np.zeros(len(task.weight)), rescaled(task.weight, left[0]))
        return Proposal(change=change, about={"tau": left[0]})


def taus(settings: KnobPart) -> tuple[float, ...]:
    """The exponents to try."""
    return TAUS if settings.tau is None else (settings.tau,)
