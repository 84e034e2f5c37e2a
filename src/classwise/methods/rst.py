"""Robust self-training (Carmon et al., NeurIPS 2019): TRADES on labelled and pseudo-labelled images together.

    min_θ  Σ_{y≥0} w_y CE(z(x), y) / #{y ≥ 0}  +  (1/B) Σ w_y β_y KL(p(x) ‖ p(x'))

A pseudo-labelled image is treated like any other; the recipe mixes them into the batches (data.extra). An image without
a label (−1) has no cross entropy, and its KL has weight, margin and temperature 1 and the classes' mean β. As in
the official code the adversarial images go through the network before the clean ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from classwise.core.losses import cross_entropy, kl
from classwise.methods.method import Batch, Loss, State, both_logits
from classwise.methods.trades import Trades

PAPERS = ("carmon2019",)


@dataclass(frozen=True, kw_only=True)
class Rst(Trades):
    """Fields of trades."""

    passes: Literal[2] = 2

    first_pass: ClassVar[Literal["clean", "adversarial"]] = "adversarial"

    def attack(self, model: nn.Module, batch: Batch, state: State) -> Tensor:
        return super().attack(model, batch, _with_unlabelled(state))

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        state = _with_unlabelled(state)
        z, z_adv = both_logits(model, batch, state, self.first_pass)
        labelled = (batch.y >= 0).to(z.dtype)
        share = batch.average(labelled.mean()).clamp_min(torch.finfo(z.dtype).tiny)
        natural = cross_entropy(z, batch.y.clamp_min(0), smoothing=batch.smoothing) * labelled / share
        return Loss(state["weight"][batch.y] * (natural + state["beta"][batch.y] * kl(z, z_adv)), z_adv)


def _with_unlabelled(state: State) -> State:
    """The class vectors with one more entry at the end, which label −1 looks up."""
    ones = state["weight"].new_ones(1)
    neutral = {"weight": ones, "margin": ones, "temperature": ones, "beta": state["beta"].mean()[None]}
    return {**state, **{name: torch.cat([state[name], value]) for name, value in neutral.items()}}
