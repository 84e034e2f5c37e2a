"""What of a model a repair changes: one file each, by the name that ``--knob`` takes."""

from __future__ import annotations

from classwise.repairing.knobs.bias import Bias
from classwise.repairing.knobs.knob import Knob, Task

#: Every knob by its name, from the cheapest on.
KNOBS: dict[str, Knob] = {"bias": Bias()}

__all__ = ["KNOBS", "Knob", "Task"]
