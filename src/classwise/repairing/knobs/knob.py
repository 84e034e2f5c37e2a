"""The contract of a knob: what it needs of a model, and which change to try next, given those tried so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from classwise.core.records import Array
from classwise.repairing.config import KnobPart
from classwise.repairing.trials import Calibration, Proposal, Trial


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a knob is turned for.

    weight: of the last layer, (classes, features); None where there is none that can be changed. minimums: the
    accuracies that classes must reach, by their numbers.
    """

    settings: KnobPart
    calibration: Calibration
    minimums: Mapping[int, float]
    weight: Array | None
    seed: int


class Knob(ABC):
    """A way to change a model's last layer."""

    needs_weight: bool = True  # of the last layer; a knob that does without can change black boxes too

    @abstractmethod
    def changes(self, settings: KnobPart) -> int:
        """How many changes are tried at most, besides none."""

    @abstractmethod
    def propose(self, task: Task, trials: Sequence[Trial]) -> Proposal | None:
        """The change to try after these trials, the first of which is of the unchanged model; None where nothing is
        left to try. The same trials give the same change, so that a repair can resume."""
