"""The whole last layer trained against the attack by a worst-class game, the features frozen.

    min_{W, b} max_q Σ_k q_k E[ℓ(W f(x') + b, k)]            q on the simplex, x' adversarial for the current network

One player takes an epoch of SGD on cross entropy weighted by C·q_y; the other answers by exponentiated gradient on the
classes' robust errors under the fresh attack of each round, q_k ∝ exp(η Σ_t (1 − a_k(t))) (Freund and Schapire, 1999;
for classes CFOL, Pethick et al., TMLR 2023). η and the learning rate are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from classwise.core.losses import cross_entropy
from classwise.core.records import Array
from classwise.repairing.knobs.head_training import Head, train_epoch
from classwise.repairing.knobs.knob import Knob, Task
from classwise.repairing.trials import Proposal, Trial

PAPERS = ("freund1999", "pethick2023")
ETA = 2.0


def class_weights(accuracies: Sequence[Array]) -> Array:
    """C·q after rounds with these class accuracies; a class without images counts as one of no error."""
    errors = np.sum([np.nan_to_num(1 - accuracy) for accuracy in accuracies], axis=0)
    odds = np.exp(ETA * (errors - errors.max()))
    return np.asarray(len(odds) * odds / odds.sum())


class LastLayer(Knob):
    """One epoch a round, each from where the last one ended."""

    def changes(self, task: Task) -> int:
        return task.settings.rounds

    def propose(self, task: Task, trials: Sequence[Trial]) -> Proposal | None:
        if len(trials) > task.settings.rounds:
            return None
        weights = torch.from_numpy(class_weights([trial.accuracy for trial in trials]))

        def gradients(head: Head, x_adv: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                loss = (weights.to(x_adv)[y] * cross_entropy(head.model(x_adv), y)).mean()
            of_weight, of_bias = torch.autograd.grad(loss, (head.weight, head.bias))
            return of_weight, of_bias

        return Proposal(change=train_epoch(task, trials[-1].change, len(trials), gradients))
