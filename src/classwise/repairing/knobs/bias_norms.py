"""First the norms of the last layer's rows, then the game on the bias from the best of them on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from classwise.repairing.knobs.bias import next_round
from classwise.repairing.knobs.knob import Knob, Task
from classwise.repairing.knobs.norms import Norms
from classwise.repairing.trials import Proposal, Trial

PAPERS = ("menon2021", "kang2020")


class BiasNorms(Knob):
    """τ with the highest worst class (then average), and a bias on top."""

    def changes(self, task: Task) -> int:
        return Norms().changes(task) + task.settings.rounds

    def propose(self, task: Task, trials: Sequence[Trial]) -> Proposal | None:
        if (rescaled := Norms().propose(task, trials)) is not None:
            return rescaled
        grid = 1 + Norms().changes(task)
        start = max(trials[:grid], key=lambda one: (np.nanmin(one.accuracy), np.nanmean(one.accuracy), -one.number))
        rounds = [start, *trials[grid:]]
        return next_round(task, rounds, trials) if len(rounds) <= task.settings.rounds else None
