"""The contract of a knob: what it needs of a model, and which change to try next, given those tried so far."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from classwise.core.records import Array
from classwise.models.last_layer import Change
from classwise.repairing import preview
from classwise.repairing.config import KnobPart
from classwise.repairing.goal import Goal
from classwise.repairing.preview import Margins
from classwise.repairing.trials import Calibration, Proposal, Trial


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a knob is turned for.

    weight: of the last layer, (classes, features); None where there is none that can be changed.
    """

    settings: KnobPart
    calibration: Calibration
    goal: Goal
    weight: Array | None
    seed: int

    @functools.cached_property
    def margins(self) -> Margins:
        """The margins of the unchanged model, from which a bias can be proposed."""
        return preview.measure(self.calibration)


class Knob(ABC):
    """A way to change a model's last layer."""

    needs_weight: bool = True  # of the last layer; a knob that does without can change black boxes too

    @abstractmethod
    def changes(self, task: Task) -> int:
        """How many changes are tried at most, besides none."""

    def between(self, task: Task, trials: Sequence[Trial], end: Trial, share: float) -> Proposal:
        """The change at a share of the way from none to that of a trial: straight, unless the knob knows a better."""
        change, weight = end.change, end.change.weight
        if weight is not None:
            assert task.weight is not None
            weight = (1 - share) * task.weight + share * weight
        about = {"share": share, "of": float(end.number)}
        return Proposal(change=Change(share * change.bias, weight), kind="between", about=about)

    @abstractmethod
    def propose(self, task: Task, trials: Sequence[Trial]) -> Proposal | None:
        """The change to try after these trials, the first of which is of the unchanged model; None where nothing is
        left to try. The same trials give the same change, so that a repair can resume."""
