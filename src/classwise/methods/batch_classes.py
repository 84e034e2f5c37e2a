"""Class means of a batch, over all processes that share it, and losses that are functions of them.

    M_k = (1/n_k) Σ_{i: y_i = k} v_i            ∂F(M)/∂v_i = (1/n_{y_i}) ∂F/∂M_{y_i}

A loss F(M) is one number for the batch, while a method gives a loss for each example, and each process differentiates
only those of its own part. `of_class_means` gives every example the value F, with B/n_y · ∂F/∂M_y as the derivative by
its own v: averaged over the batch that is F with its gradient, in one process or in several.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from classwise.methods.method import Batch


def class_means(values: Tensor, batch: Batch, classes: int) -> tuple[Tensor, Tensor]:
    """M, (C, …), without gradient, 0 for a class that is not in the batch; and n, the examples of each class."""
    member = F.one_hot(batch.y, classes).to(values.dtype)
    counts = batch.total(member.sum(0))
    sums = batch.total(torch.tensordot(member, values.detach(), dims=([0], [0])))
    return sums / counts.clamp_min(1).reshape(-1, *[1] * (values.ndim - 1)), counts


def of_class_means(function: Callable[[Tensor, Tensor], Tensor], values: Tensor, batch: Batch, classes: int) -> Tensor:
    """F(M, n) of the values' class means, (B,): each example's is F, with its own part of the gradient."""
    means, counts = class_means(values, batch, classes)
    with torch.enable_grad():
        found = function(means.requires_grad_(), counts)
        slope = torch.autograd.grad(found, means)[0]
    moving = slope[batch.y] * (values - values.detach())  # 0, with the derivative that it needs
    return found.detach() + moving.reshape(len(batch.y), -1).sum(1) * counts.sum() / counts[batch.y]
