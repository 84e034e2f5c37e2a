"""Batch-norm over all processes that share a batch, on any device and backend.

    μ = Σ_r n_r μ_r / N        σ² = Σ_r [n_r σ_r² + n_r (μ_r − μ)²] / N        N = Σ_r n_r
    ∂L/∂x = γ/σ · (g − (1/N) Σ g − x̂ (1/N) Σ g x̂)                            g = ∂L/∂y, both sums over all processes

Two processes with half a batch each then compute what one does with all of it, and their running statistics are equal
bit by bit. (torch's SyncBatchNorm refuses tensors on a CPU, and is another class, which would not be folded for
attacks.) A forward and a backward pass cost one collective each per norm. Second derivatives are not supported, as in
torch's.

Only while `synced` is open do a model's norms compute so: copies, checkpoints and folding never see it. All processes
must make the same passes through the same norms; where one has taken another branch, `Synced.astray` says so.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase


@dataclass
class Synced:
    """Norms that compute over all processes. astray: more than 0 once processes were in different norms at a time."""

    world: int
    astray: Tensor = field(default_factory=lambda: torch.zeros(()))


def follows_batch(module: nn.Module) -> bool:
    """Whether it is one of torch's batch-norms, or a subclass with the same forward pass, which can be synced."""
    plain = type(module).forward is _BatchNorm.forward or isinstance(module, nn.SyncBatchNorm)
    return isinstance(module, _BatchNorm) and plain and "forward" not in vars(module)


def own_statistics(model: nn.Module, synced: bool) -> list[Tensor]:
    """The running statistics that each process has of its own share of the batches."""
    norms = (module for module in model.modules() if isinstance(module, _NormBase))
    alone = (norm for norm in norms if not (synced and follows_batch(norm)))
    return [value for norm in alone for value in (norm.running_mean, norm.running_var) if value is not None]


@contextmanager
def synced(model: nn.Module, world: int) -> Iterator[Synced]:
    """Inside, the model's batch-norms in train mode see the whole batch that the processes share."""
    shared = Synced(world)
    norms = [module for module in model.modules() if follows_batch(module)]
    for number, norm in enumerate(norms):
        norm.forward = functools.partial(_forward, norm, number, shared)
    try:
        yield shared
    finally:
        for norm in norms:
            del norm.forward


def _forward(norm: Any, number: int, shared: Synced, x: Tensor) -> Tensor:
    """What `_BatchNorm.forward` does, with the statistics of all processes."""
    if not norm.training:
        found: Tensor = type(norm).forward(norm, x)
        return found
    norm._check_input_dim(x)
    mean, var, count = _statistics(x.detach(), number, shared)
    if norm.track_running_stats and norm.running_mean is not None:
        norm.num_batches_tracked.add_(1)
        share = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
        with torch.no_grad():
            norm.running_mean.lerp_(mean.to(norm.running_mean), share)
            norm.running_var.lerp_((var * (count / (count - 1).clamp_min(1))).to(norm.running_var), share)
    normed: Tensor = _Normalise.apply(x, norm.weight, norm.bias, mean, var, count, norm.eps)  # type: ignore[no-untyped-call]
    return normed


@torch.no_grad()
def _statistics(x: Tensor, number: int, shared: Synced) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of each channel over all processes, and how many values they are of."""
    values = x if x.dtype == torch.float64 else x.float()
    others = [axis for axis in range(x.ndim) if axis != 1]
    count = values.numel() // max(values.shape[1], 1)
    var, mean = torch.var_mean(values, others, correction=0)
    if not count:
        var, mean = torch.zeros_like(var), torch.zeros_like(mean)
    mine = torch.cat([mean, var, values.new_tensor([count, number])])
    everyone = [torch.empty_like(mine) for _ in range(shared.world)]
    dist.all_gather(everyone, mine)
    table = torch.stack(everyone)
    means, variances, (counts, numbers) = *table[:, :-2].chunk(2, 1), table[:, -2:].T
    shared.astray = shared.astray.to(x.device) + (numbers != number).any()
    total = counts.sum()
    weight = (counts / total)[:, None]
    centre = (weight * means).sum(0)
    return centre, (weight * (variances + (means - centre).square())).sum(0), total


class _Normalise(torch.autograd.Function):
    """γ (x − μ)/√(σ² + ε) + β for statistics that are those of all processes' x."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        var: Tensor,
        count: Tensor,
        eps: float,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, var, count)
        ctx.eps = eps
        return F.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, var, count = ctx.saved_tensors
        inverse = (var + ctx.eps).rsqrt()
        # As of a constant map: γ/σ · g, Σ g x̂ and Σ g, of this process's examples.
        direct, by_weight, by_bias = torch.ops.aten.native_batch_norm_backward(
            g, x, weight, mean, var, mean, inverse, False, ctx.eps, [True, True, True]
        )
        grad_x = None
        if ctx.needs_input_grad[0]:
            sums = torch.cat([by_weight, by_bias]).to(mean)
            dist.all_reduce(sums)
            slope, level = (sums / count).chunk(2)
            scale = inverse if weight is None else inverse * weight.to(inverse)
            shape = (1, -1, *[1] * (x.ndim - 2))
            by_x = (scale * inverse * slope).view(shape)
            rest = (scale * (level - mean * inverse * slope)).view(shape)
            grad_x = (direct - (x * by_x + rest)).to(x.dtype)
        own = weight is not None
        return grad_x, by_weight if own else None, by_bias if own else None, None, None, None, None
