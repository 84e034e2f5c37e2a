"""DecoSAM: sharpness-aware training of the last layer's weights, with a larger radius for classes of small norm.

    ν = softmax(−τ (‖W_1‖₂, …, ‖W_C‖₂)),   r_k = ρ C ν_k ‖W‖ˉ        ‖W‖ˉ the mean norm
    ε_k = r_k g_k/‖g_k‖₂,  g = ∇_W E[ℓ(W f(x') + b, y)]              W ← W − lr · ∇_W E[ℓ((W + ε) f(x') + b, y)]

Features and bias are frozen; x' is adversarial for the current network. The paper trains one epoch; here every epoch is
a change that is tried. Its τ, ρ and learning rate were not obtained: the values here are ours, and so is that ε_k is
scaled row by row, and ρ in units of the mean norm.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from classwise.core.losses import cross_entropy
from classwise.repairing.knobs.head_training import Head, train_epoch
from classwise.repairing.knobs.knob import Knob, Task
from classwise.repairing.trials import Proposal, Trial

PAPERS = ()  # ours, or common knowledge
TAU, RHO = 1.0, 0.05


def radii(weight: Tensor, tau: float, rho: float = RHO) -> Tensor:
    """r_k for each class's row."""
    norms = weight.flatten(1).norm(dim=1)
    found: Tensor = rho * len(norms) * torch.softmax(-tau * norms, 0) * norms.mean()
    return found


class Decosam(Knob):
    """One epoch a round, each from where the last one ended."""

    def changes(self, task: Task) -> int:
        return task.settings.rounds

    def propose(self, task: Task, trials: Sequence[Trial]) -> Proposal | None:
        if len(trials) > task.settings.rounds:
            return None
        tau = TAU if task.settings.tau is None else task.settings.tau

        def gradients(head: Head, x_adv: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return sharpness_aware(head, x_adv, y, tau), torch.zeros_like(head.bias)

        return Proposal(change=train_epoch(task, trials[-1].change, len(trials), gradients), about={"tau": tau})


def sharpness_aware(head: Head, x_adv: Tensor, y: Tensor, tau: float) -> Tensor:
    """The gradient of the weight at W + ε."""
    rows = _gradient(head, x_adv, y).flatten(1)
    unit = rows / rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    moved = (radii(head.weight.detach(), tau)[:, None] * unit).reshape(head.weight.shape)
    with torch.no_grad():
        before = head.weight.clone()
        head.weight.add_(moved)
    found = _gradient(head, x_adv, y)
    with torch.no_grad():
        head.weight.copy_(before)
    return found


def _gradient(head: Head, x_adv: Tensor, y: Tensor) -> Tensor:
    with torch.enable_grad():
        loss = cross_entropy(head.model(x_adv), y).mean()
    return torch.autograd.grad(loss, head.weight)[0]
