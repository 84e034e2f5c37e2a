"""A bias on the logits, z ↦ z + b.

Exactly a change of the last layer's bias, so no feature moves; it bounds what weighing the classes against each other
can do. No paper is known that measures it on balanced data. Long-tailed recognition sets b_k = −τ log π_k from the
class frequencies π (Menon et al., ICLR 2021; under attack RoBal, Wu et al., CVPR 2021), which is no change where
classes are of one size; here the accuracies under attack take their place.

Of a model with a gradient one attack without early stopping predicts what every b would do (`repairing.preview`): the
biases tried are points on the path of the worst-class game that it predicts, the one that suits the goal best first,
then some before it. Of a black box, whose queries cost more than the steps of a game, b moves by one fresh attack after
the other (`repairing.game`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from classwise.core.records import Array
from classwise.models.last_layer import Change
from classwise.repairing import game, preview
from classwise.repairing.knobs.knob import Knob, Task
from classwise.repairing.trials import Proposal, Trial

PAPERS = ("menon2021",)

_SHARES = (1.0, 0.75, 0.5)  # of the way to the bias that suits the goal best


class Bias(Knob):
    """b from 0 on; works for every model that returns scores."""

    needs_weight = False

    def changes(self, task: Task) -> int:
        """One pass more than changes where they are predicted: the attack that predicts them."""
        return 1 + min(task.settings.rounds, len(_SHARES)) if _predicted(task) else task.settings.rounds

    def propose(self, task: Task, trials: Sequence[Trial]) -> Proposal | None:
        if not _predicted(task):
            return next_round(task, trials, trials) if len(trials) <= task.settings.rounds else None
        shares = _SHARES[len(trials) - 1 : task.settings.rounds]
        path = _path(task, trials)
        best = _best(task, path)
        points = [round(share * best) for share in shares]
        tried = [trial.proposal.about.get("point", 0) for trial in trials]
        left = [point for point in points if point not in tried]
        return Proposal(change=Change(path[left[0]]), about={"point": float(left[0])}) if left else None

    def between(self, task: Task, trials: Sequence[Trial], end: Trial, share: float) -> Proposal:
        straight = super().between(task, trials, end, share)
        if "point" not in end.proposal.about:
            return straight
        point = round(share * end.proposal.about["point"])
        about = {**straight.about, "point": float(point)}
        return dataclasses.replace(straight, change=Change(_path(task, trials)[point]), about=about)


def _predicted(task: Task) -> bool:
    """Whether biases are proposed from the margins that one attack finds."""
    return all(attack.needs_gradient for attack in task.calibration.job.attacks.values())


def _path(task: Task, trials: Sequence[Trial]) -> list[Array]:
    """The biases that the predicted game passes through; the first of the trials sets the unit of its steps."""
    unit = task.settings.step_size * game.unit_of(trials[0].clean)
    return preview.path(task.margins, unit, task.goal.minimums)


def _best(task: Task, path: Sequence[Array]) -> int:
    """The point of the path that suits the goal best by what is predicted, or one before it that is nearly as good."""
    scores = [task.goal.score(task.margins.accuracy(bias)) for bias in path]
    best = scores[task.goal.choose(scores)]
    allowed = (number for number, score in enumerate(scores) if task.goal.allowed(score, scores[0]))
    return next(number for number in allowed if task.goal.nearly(scores[number], best))


def next_round(task: Task, rounds: Sequence[Trial], trials: Sequence[Trial]) -> Proposal | None:
    """The game's next change after these rounds, which begin with the change that it starts from; the first of all
    trials sets the unit of the step."""
    first = task.settings.step_size * game.unit_of(trials[0].clean)
    found = game.next_bias([(one.change.bias, one.accuracy) for one in rounds], first, task.goal.minimums)
    if found is None:
        return None
    bias, step = found
    return Proposal(change=Change(bias, rounds[0].change.weight), about={"step": step})
