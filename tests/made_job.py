"""A small job for the tests of those who carry it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from classwise.attacks.attack import Attack
from classwise.attacks.fgsm import Fgsm
from classwise.attacks.pgd import Pgd
from classwise.core.meta import Meta
from classwise.core.threat import Threat
from classwise.data.images import Images
from classwise.engine import evaluation
from classwise.engine.attack_copy import AttackCopy

EPS = 0.02
CPU = torch.device("cpu")
ATTACKS: dict[str, Attack] = {"fgsm": Fgsm(), "pgd-5": Pgd(steps=5)}


def job_of(
    net: Callable[[Tensor], Tensor], images: Images, attacks: dict[str, Attack] = ATTACKS, **changes: Any
) -> evaluation.Evaluation:
    batch, part, workers = (changes.pop(key, default) for key, default in (("batch", 32), ("part", 50), ("workers", 1)))
    protocol, coverage = changes.get("protocol", "any"), changes.pop("coverage", "all")
    eps = np.broadcast_to(np.asarray(changes.pop("eps", EPS), dtype=float), len(images)).copy()
    meta = Meta(
        class_names=images.class_names, eps=EPS, seed=3, attacks=evaluation.attack_infos(attacks, protocol, coverage)
    )
    fast = changes.pop("fast", net)
    fast = fast if isinstance(fast, AttackCopy) else AttackCopy(model=fast)
    return evaluation.Evaluation(
        model=net,
        attack_copy=fast,
        images=images,
        attacks=attacks,
        threat=Threat("linf", EPS),
        eps=eps,
        meta=meta,
        plan=evaluation.BatchPlan(batch, part, workers),
        device=CPU,
        **changes,
    )
