"""A bias on the logits, z ↦ z + b, found by the game of `classwise.repairing.game`.

Exactly a change of the last layer's bias, so no feature moves; it bounds what weighing the classes against each other
can do. No paper is known that measures it on balanced data. Long-tailed recognition sets b_k = −τ log π_k from the
class frequencies π (Menon et al., ICLR 2021; under attack RoBal, Wu et al., CVPR 2021), which is no change where
classes are of one size; here the accuracies under attack take their place.
"""

from __future__ import annotations

from collections.abc import Sequence

from classwise.models.last_layer import Change
from classwise.repairing import game
from classwise.repairing.config import KnobPart
from classwise.repairing.knobs.knob import Knob, Task
from classwise.repairing.trials import Proposal, Trial


class Bias(Knob):
    """b by the game, from b = 0 on; works for every model that returns scores."""

    needs_weight = False

    def changes(self, settings: KnobPart) -> int:
        return settings.rounds

    def propose(self, task: Task, trials: Sequence[Trial]) -> Proposal | None:
        return next_round(task, trials, trials) if len(trials) <= task.settings.rounds else None


def next_round(task: Task, rounds: Sequence[Trial], trials: Sequence[Trial]) -> Proposal | None:
    """The game's next change after these rounds, which begin with the change that it starts from; the first of all
    trials sets the unit of the step."""
    first = task.settings.step_size * game.unit_of(trials[0].clean)
    found = game.next_bias([(one.change.bias, one.accuracy) for one in rounds], first, task.minimums)
    if found is None:
        return None
    bias, step = found
    return Proposal(change=Change(bias, rounds[0].change.weight), about={"step": step})
