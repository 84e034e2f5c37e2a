"""An epoch of training of the last layer alone, on adversarial images of the whole network as it is at every step.

The attack is PGD on cross entropy (10 steps of ε/4 from a random start; the constants are ours), and goes through the
features, which stay as they are. SGD with momentum 0.9 in batches of 128. Every image is seen once in an order that
belongs to (seed, round), so that a round that was killed gives the same weights when it is repeated.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from classwise.attacks.attack import craft
from classwise.attacks.pgd import Pgd
from classwise.core import rng
from classwise.engine.attack_copy import follow
from classwise.models.last_layer import Change, changed
from classwise.models.logit_bias import Biased
from classwise.repairing.knobs.knob import Task

BATCH, MOMENTUM, STEPS = 128, 0.9, 10


@dataclass(frozen=True, kw_only=True)
class Head:
    """The trained tensors of a model whose other weights are frozen: the last layer's weight, and its bias."""

    model: nn.Module
    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, task: Task, change: Change) -> Head:
        """A copy of the model with this change, everything frozen but its last layer."""
        layer = task.calibration.layer
        assert layer is not None
        model = copy.deepcopy(changed(task.calibration.model, layer, change)).requires_grad_(False)
        inner: nn.Module
        bias: Tensor
        if layer.takes_bias:
            inner, bias = model, model.get_parameter(f"{layer.name}.bias")
        else:
            model = model if isinstance(model, Biased) else Biased(model, (0 * change.bias).tolist())
            inner, bias = model.body, model.bias
        weight = inner.get_parameter(f"{layer.name}.weight")
        return cls(model=model, weight=weight.requires_grad_(), bias=bias.requires_grad_())

    def change(self, task: Task) -> Change:
        """What differs from the untouched model."""
        start = Head.of(task, Change.none(len(self.bias))).bias
        moved = self.bias.detach().double() - start.detach().double()
        return Change(moved.cpu().numpy(), self.weight.detach().flatten(1).double().cpu().numpy())


#: From the head, adversarial images and their labels to the gradients of the weight and of the bias.
Gradients = Callable[[Head, Tensor, Tensor], tuple[Tensor, Tensor]]


def train_epoch(task: Task, start: Change, number: int, gradients: Gradients) -> Change:
    """The change after one epoch of training from `start` on."""
    job, head = task.calibration.job, Head.of(task, start)
    example = job.images.first().to(job.device)
    synced = follow(head.model, example, task.calibration.fold)
    order = np.random.default_rng([task.seed, number]).permutation(len(job.images))
    attack = Pgd(steps=STEPS, step=job.threat.eps / 4)
    velocity = [torch.zeros_like(head.weight), torch.zeros_like(head.bias)]
    for begin in range(0, len(order), BATCH):
        rows = order[begin : begin + BATCH]
        x, y = (part.to(job.device) for part in job.images.batch(rows))
        key = rng.keys(task.seed, torch.from_numpy(job.images.positions[rows]), number).to(job.device)
        eps = torch.from_numpy(job.eps[rows]).to(x)
        x_adv = craft(attack, synced.attack_copy, x, y, job.threat, eps=eps, key=key)
        with torch.no_grad():
            for place, (tensor, gradient) in enumerate(
                zip((head.weight, head.bias), gradients(head, x_adv, y), strict=True)
            ):
                velocity[place] = MOMENTUM * velocity[place] + gradient
                tensor -= task.settings.lr * velocity[place]
        synced.refresh()
    return head.change(task)
