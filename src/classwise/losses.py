"""Per-example losses of logits z and labels y, each of shape (B,). Higher is worse for the classifier."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(z: Tensor, y: Tensor, inv_temperature: float = 1.0) -> Tensor:
    """−log softmax(z/T)_y."""
    return F.cross_entropy(z * inv_temperature if inv_temperature != 1 else z, y, reduction="none")


def best_other(z: Tensor, y: Tensor) -> Tensor:
    """max_{j≠y} z_j."""
    return z.scatter(1, y[:, None], float("-inf")).amax(1)


def margin(z: Tensor, y: Tensor) -> Tensor:
    """max_{j≠y} z_j − z_y: positive exactly where the example is misclassified (ties aside)."""
    return best_other(z, y) - z.gather(1, y[:, None])[:, 0]


def log_odds(z: Tensor, y: Tensor, inv_temperature: float = 1.0) -> Tensor:
    """L = log((1 − p_y)/p_y) = logsumexp_{j≠y}((z_j − z_y)/T), with p = softmax(z/T).

    Cross entropy is log(1 + e^L), so ∇CE = σ(L)·∇L: a positive multiple. Any attack that uses only the direction
    of the gradient takes the same step on L as on cross entropy in exact arithmetic, but L's gradient cannot
    underflow: its weights are a softmax over the *other* classes, which always sums to one.
    """
    scaled = z * inv_temperature
    others = scaled.scatter(1, y[:, None], float("-inf"))
    return torch.logsumexp(others, 1) - scaled.gather(1, y[:, None])[:, 0]
