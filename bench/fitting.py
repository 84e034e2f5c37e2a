"""A robust model in about a minute, for benchmarks without given weights.

FGSM-RS (Wong, Rice and Kolter, ICLR 2020): one signed gradient step of 1.25·ε from a uniformly random point of the
ε-ball, projected, and an ordinary step of SGD on what comes out. It is one step of PGD, and is written as such.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from classwise.attacks.attack import craft
from classwise.attacks.pgd import Pgd
from classwise.core.losses import cross_entropy
from classwise.core.threat import Threat
from classwise.data.images import Images
from classwise.engine.attack_copy import channels_last

STEPS, BATCH = 200, 128
_HIGHEST_RATE = 0.2


def fit(model: nn.Module, images: Images, eps: float, seed: int = 0) -> None:
    """Train `model` in place for STEPS batches; leaves it in eval mode."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    attack = Pgd(steps=1, step=1.25 * eps)
    optimiser = torch.optim.SGD(model.parameters(), lr=_HIGHEST_RATE, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _HIGHEST_RATE, total_steps=STEPS)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for _ in range(STEPS):
        x, y = images.batch(rng.integers(len(images), size=BATCH))
        x = channels_last(x)
        model.eval()  # the attack must not move the running statistics of batch-norm
        x_adv = craft(attack, model, x, y, Threat("linf"), eps=eps, generator=generator)
        model.train()
        optimiser.zero_grad()
        cross_entropy(model(x_adv), y).mean().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    model.eval()
