"""Per-example losses of logits z and labels y, each of shape (B,). Higher is worse for the classifier."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_NOT_ZERO = 1e-12  # where all logits are equal


def cross_entropy(z: Tensor, y: Tensor, inv_temperature: float = 1.0, smoothing: float = 0.0) -> Tensor:
    """−log softmax(z/T)_y; with smoothing ε the target is (1−ε)·onehot(y) + ε/C (Szegedy et al. 2016)."""
    scaled = z * inv_temperature if inv_temperature != 1 else z
    return F.cross_entropy(scaled, y, reduction="none", label_smoothing=smoothing)


def kl(z: Tensor, z_adv: Tensor) -> Tensor:
    """KL(p ‖ p') = Σ p (log p − log p') with p = softmax(z), p' = softmax(z'); differentiable in both."""
    log_p = F.log_softmax(z, 1)
    return (log_p.exp() * (log_p - F.log_softmax(z_adv, 1))).sum(1)


def best_other(z: Tensor, y: Tensor) -> Tensor:
    """max_{j≠y} z_j."""
    return z.scatter(1, y[:, None], float("-inf")).amax(1)


def margin(z: Tensor, y: Tensor) -> Tensor:
    """max_{j≠y} z_j − z_y: positive exactly where the example is misclassified (ties aside)."""
    return best_other(z, y) - z.gather(1, y[:, None])[:, 0]


def dlr(z: Tensor, y: Tensor) -> Tensor:
    """The difference of logits ratio (Croce and Hein 2020): margin / (z_π1 − z_π3), with π1, π2, … by falling logit.

    Unlike cross entropy it changes neither with a shift nor with a scale of the logits. Two classes have no third:
    there it is the margin itself, which for one and the same example points the same way.
    """
    if z.shape[1] < 3:
        return margin(z, y)
    top = z.topk(3, dim=1).values
    return margin(z, y) / (top[:, 0] - top[:, 2] + _NOT_ZERO)


def targeted_dlr(z: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """(z_t − z_y) / (z_π1 − ½(z_π3 + z_π4)), Croce and Hein's ratio towards class t.

    With fewer than four classes it is z_t − z_y: a denominator of what is left, z_π1 − z_π3, would make the loss a
    constant −1 wherever t is the last of three.
    """
    gain = (z.gather(1, target[:, None]) - z.gather(1, y[:, None]))[:, 0]
    if z.shape[1] < 4:
        return gain
    top = z.topk(4, dim=1).values
    return gain / (top[:, 0] - (top[:, 2] + top[:, 3]) / 2 + _NOT_ZERO)


def log_odds(z: Tensor, y: Tensor, inv_temperature: float = 1.0) -> Tensor:
    """L = log((1 − p_y)/p_y) = logsumexp_{j≠y}((z_j − z_y)/T), with p = softmax(z/T).

    Cross entropy is log(1 + e^L), so ∇CE = σ(L)·∇L: a positive multiple. Any attack that uses only the direction
    of the gradient takes the same step on L as on cross entropy in exact arithmetic, but L's gradient cannot
    underflow: its weights are a softmax over the *other* classes, which always sums to one.
    """
    scaled = z * inv_temperature
    others = scaled.scatter(1, y[:, None], float("-inf"))
    return torch.logsumexp(others, 1) - scaled.gather(1, y[:, None])[:, 0]
