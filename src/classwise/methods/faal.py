"""FAAL, fairness-aware adversarial learning (Zhang et al., CVPR 2024): class weights that are worst for the batch.

    min_θ  (C/B) Σ_i q_{y_i} ℓ_i,       q = argmax_{q ∈ Δ} Σ_c q_c a_c   subject to   KL(U ‖ q) ≤ r
    a_c = Σ_{i: y_i = c} m_i,           m_i = max_{j≠y} p_j(x'_i) − p_y(x'_i)

    base=madry     x' = PGD(x; CE)                ℓ = CE(z(x'), y)
    base=trades    x' = argmax KL(p(x) ‖ p(x'))   ℓ = CE(z(x), y) + β_y KL(p(x) ‖ p(x'))
    base=mart      the same x'                    ℓ = mart's loss, β_y its λ

No state: q is solved for every batch, over all processes that share it, and is constant for the gradient. The
official code hands the problem to a convex solver; its solution is q_c ∝ 1/(ν − a_c), where ν > max a is the number for
which the constraint holds with equality, found here by bisection. Where all a_c are equal, q is uniform. As in the code
a_c sums over the batch, so that a class counts more where it has more images; the margin is one of probabilities; the
adversarial images go through the network before the clean ones, and the clean ones do for every base, as batch-norm's
statistics depend on it. Defaults are the code's: r = 0.5, β = 6, two epochs at rates 0.01 and 0.001 from a robust model
(the recipes; without model.weights it trains from scratch). The code's start is Gaussian with trades and mart:
start="gaussian". Departure: weight perturbation (train.awp) ascends the weighted loss, in the code the unweighted one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classwise.attacks.attack import Attack
from classwise.attacks.kl_pgd import KlPgd
from classwise.core.losses import cross_entropy, kl, margin
from classwise.core.records import Array
from classwise.core.spec import NonNegative
from classwise.methods.madry import Madry
from classwise.methods.mart import boosted_cross_entropy, weighted_kl
from classwise.methods.method import Batch, ClassValues, Loss, State, both_logits

PAPERS = ("zhang2024",)

_HALVINGS = 100
_RANGE = (-700.0, 50.0)  # of log((ν − max a) / (max a − min a))


@dataclass(frozen=True, kw_only=True)
class Faal(Madry):
    """Fields of madry; base: whose attack and loss ℓ; beta: of trades and mart; radius: r, 0 for equal weights."""

    base: Literal["madry", "trades", "mart"] = "madry"
    beta: ClassValues = 6.0
    radius: NonNegative = 0.5

    class_wise: ClassVar[tuple[str, ...]] = (*Madry.class_wise, "beta")
    batch_wise: ClassVar[bool] = True

    def inner(self) -> Attack:
        return super().inner() if self.base == "madry" else self.pgd(KlPgd)

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        z, z_adv = both_logits(model, batch, state, "adversarial")
        weight = state["weight"] * self.class_weights(z_adv, batch, len(state["weight"])).to(state["weight"])
        return Loss(weight[batch.y] * self._base_loss(z, z_adv, batch, state["beta"][batch.y]), z_adv)

    def class_weights(self, z_adv: Tensor, batch: Batch, classes: int) -> Tensor:
        """C q for the whole batch."""
        m = margin(F.softmax(z_adv.detach(), 1), batch.y)
        sums = batch.total(torch.zeros(classes, dtype=m.dtype, device=m.device).index_add(0, batch.y, m))
        return torch.from_numpy(classes * worst_distribution(sums.cpu().double().numpy(), self.radius))

    def _base_loss(self, z: Tensor, z_adv: Tensor, batch: Batch, beta: Tensor) -> Tensor:
        if self.base == "mart":
            return boosted_cross_entropy(z_adv, batch.y, batch.smoothing) + beta * weighted_kl(z, z_adv, batch.y)
        if self.base == "trades":
            return cross_entropy(z, batch.y, smoothing=batch.smoothing) + beta * kl(z, z_adv)
        return cross_entropy(z_adv, batch.y, smoothing=batch.smoothing)


def worst_distribution(values: Array, radius: float) -> Array:
    """argmax_q Σ q_c a_c where KL(U ‖ q) ≤ r: q_c ∝ 1/(ν − a_c), by bisection of log(ν − max a)."""
    behind = values.max() - values
    uniform = np.full(len(values), 1 / len(values))
    if behind.max() <= 0 or radius == 0:
        return uniform
    behind = behind / behind.max()

    def at(log_t: float) -> Array:
        q = 1 / (np.exp(log_t) + behind)
        return np.asarray(q / q.sum())

    low, high = _RANGE
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        too_far = -np.log(len(values) * at(middle)).mean() > radius  # KL(U ‖ q) falls as ν grows
        low, high = (middle, high) if too_far else (low, middle)
    return at(high)
