"""CODAT, class optimal distribution adversarial training (Zhi et al. 2025, arXiv 2501.04527): the worst class weights.

    min_θ  max_q  Σ_k q_k L_k        over the q with  (1/C) Σ_k (C q_k − 1)² ≤ ρ,  Σ q = 1,  q ≥ 0
    q_k = (1/C) (1 + √ρ (L_k − L̄)/σ),   value  L̄ + √ρ σ           while no q_k is below 0; σ: divisor C

L_k is the mean loss of class k in the batch (of the whole batch with several processes) and C the number of classes
that are in it. The loss of an example is then w_y q_y (B/n_y) ℓ. Where the formula would make a q_k negative, the
classes of lowest loss get 0 and the others the same formula with what the ball leaves them, which is the exact
solution. The paper's abstract has the χ² ball and the closed form; its radius and settings were not obtained: ρ = 0.5,
the form of the ball, taking L from the batch, and ℓ of TRADES or, base="madry", CE(z(x'), y) are ours. ρ = 0 weighs
all classes of the batch equally; with C classes the largest weight C q_k is at most 1 + √(ρ (C − 1)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from classwise.attacks.attack import Attack
from classwise.core.spec import NonNegative
from classwise.methods.batch_classes import class_means
from classwise.methods.madry import Madry
from classwise.methods.method import Batch, Loss, State
from classwise.methods.trades import Trades

PAPERS = ("zhi2025",)


@dataclass(frozen=True, kw_only=True)
class Codat(Trades):
    """Fields of trades; base: whose loss is ℓ; rho: ρ, the radius of the ball."""

    base: Literal["trades", "madry"] = "trades"
    rho: NonNegative = 0.5

    batch_wise: ClassVar[bool] = True

    def balances(self) -> bool:
        return True

    def inner(self) -> Attack:
        return super().inner() if self.base == "trades" else Madry.inner(self)

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        plain = super().loss if self.base == "trades" else super(Trades, self).loss
        found = plain(model, batch, {**state, "weight": torch.ones_like(state["weight"])})
        means, counts = class_means(found.value, batch, len(state["weight"]))
        seen = counts > 0
        q = torch.zeros_like(means).masked_scatter(seen, worst_distribution(means[seen], self.rho))
        factor = state["weight"].to(q) * q * counts.sum() / counts.clamp_min(1)
        return found._replace(value=factor[batch.y] * found.value)


def worst_distribution(losses: Tensor, rho: float) -> Tensor:
    """The q of the ball with the largest Σ q L.

    Only the m largest losses have a weight. Among them the formula holds with √(m (1 + ρ)/C − 1) in the place of √ρ,
    for Σ q² = (1 + ρ)/C on the ball's boundary; m is the largest number for which the smallest weight is not negative.
    """
    ranked, order = losses.sort(descending=True)
    m = torch.arange(1, len(losses) + 1, device=losses.device).to(losses)
    mean = ranked.cumsum(0) / m
    gap = mean - ranked  # of the m-th loss below the mean of the first m
    # Σ (L − L̄_m)² by Welford's recurrence: no difference of large numbers.
    squares = torch.cat([gap.new_zeros(1), (ranked[1:] - mean[:-1]) * (ranked[1:] - mean[1:])]).cumsum(0)
    spread = (squares / m).sqrt()
    reach = (m * (1 + rho) / len(losses) - 1).clamp_min(0).sqrt()
    last = int((spread >= reach * gap).nonzero()[-1])
    first = ranked[: last + 1]
    slope = reach[last] / spread[last] if spread[last] > 0 else reach.new_zeros(())
    q = (1 + slope * (first - mean[last])) / (last + 1)
    return torch.zeros_like(losses).index_copy(0, order[: last + 1], q.clamp_min(0))
