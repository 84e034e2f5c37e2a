"""Class offsets: TRADES against logits that favour the robust classes. A method of classwise's own, for fine-tuning.

    x' = argmax KL(p(x) ‖ p(x'))
    min_θ  (1/B) Σ w_y [ CE(z(x) + o, y) + β_y KL(σ(z(x) + o) ‖ σ(z(x') + o)) ],      σ the softmax
    o_k ← o_k − s dᵗ (ā − a_k)      before every epoch, t of them done

a_k is the robust accuracy of class k on the held-out images, ā the mean over the classes. The loss lowers the logit of
a class that is less robust than the others, so that the network has to raise it by as much; neither the attack nor the
trained model knows of o. It is the bias of `classwise repair` moved into training, where features can follow. Robust
networks have small gaps between their logits, so that s must be small (s = 4 overshoots within an epoch), and later
corrections smaller than the first, since the network follows them with a delay.

Related: logit adjustment for unequal class frequencies (Menon et al., ICLR 2021) adds a fixed log π_k; here classes are
equally frequent, and o comes from their robustness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from classwise.core.losses import cross_entropy, kl
from classwise.core.records import Records
from classwise.core.spec import NonNegative, Share
from classwise.methods.method import Batch, Loss, State, attacked_rows, require_validation
from classwise.methods.trades import Trades
from classwise.metrics import accuracy

PAPERS = ("zhang2019", "menon2021")


@dataclass(frozen=True, kw_only=True)
class ClassOffsets(Trades):
    """Fields of trades; strength: s; decay: d. State: offset, o of each class."""

    strength: NonNegative = 0.8
    decay: Share = 0.5

    validates_first = True

    def init(self, class_names: Sequence[str]) -> State:
        return {**super().init(class_names), "offset": torch.zeros(len(class_names))}

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        z, z_adv = self.both_logits(model, batch, state)
        shifted, shifted_adv = z + state["offset"], z_adv + state["offset"]
        natural = cross_entropy(shifted, batch.y, smoothing=batch.smoothing)
        stability = state["beta"][batch.y] * kl(shifted, shifted_adv)
        return Loss(state["weight"][batch.y] * (natural + stability), z_adv)

    def update(self, state: State, train: Records | None, valid: Records | None, epoch: int) -> State:
        a = accuracy.compute(attacked_rows(require_validation(valid, self))).values
        behind = np.nan_to_num(np.nanmean(a) - a)  # a class without held-out images keeps its offset
        step = self.strength * self.decay**epoch * state["offset"].new_tensor(behind)
        return {**state, "offset": state["offset"] - step}
