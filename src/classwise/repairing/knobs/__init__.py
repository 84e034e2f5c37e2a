"""What of a model a repair changes: one file each, by the name that ``--knob`` takes."""

from __future__ import annotations

from classwise.repairing.knobs.bias import Bias
from classwise.repairing.knobs.bias_norms import BiasNorms
from classwise.repairing.knobs.decosam import Decosam
from classwise.repairing.knobs.knob import Knob, Task
from classwise.repairing.knobs.last_layer import LastLayer
from classwise.repairing.knobs.norms import Norms

#: Every knob by its name, from the cheapest on.
KNOBS: dict[str, Knob] = {
    "bias": Bias(),
    "norms": Norms(),
    "bias+norms": BiasNorms(),
    "last_layer": LastLayer(),
    "decosam": Decosam(),
}

__all__ = ["KNOBS", "Knob", "Task"]
