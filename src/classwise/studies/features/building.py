"""Training sets of one kind of feature, built from images by optimisation; the kinds are those of `features`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from classwise.attacks.attack import value_and_gradient
from classwise.auditing.inputs import device_of, module_of
from classwise.core.losses import cross_entropy
from classwise.core.threat import L2
from classwise.data import load as load_data
from classwise.data.arrays import save
from classwise.engine.attack_copy import accelerate
from classwise.models.penultimate import penultimate
from classwise.studies.runner.work import Environment

ORIGINAL = "original"
_BATCH = 250


def build(
    folder: Path,
    environment: Environment,
    kind: str,
    model: str,
    data: str,
    per_class: int,
    iterations: int,
    step: float,
    eps: float,
    seed: int,
) -> None:
    """images.npz: training images of a kind with their labels; every kind from the same originals in the same order."""
    images = load_data(data, environment.root, "train", environment.download).subset(per_class=per_class, seed=seed)
    given = module_of(model, images, device=environment.device)
    device, rng = device_of(given), np.random.default_rng(seed)
    some = images.first().to(device)
    fast = accelerate(given, some).model  # takes a third less time
    module = fast if isinstance(fast, nn.Module) else given
    others = rng.permutation(len(images))
    labels = {
        "rand": rng.integers(images.num_classes, size=len(images)),
        "det": (images.labels + 1) % images.num_classes,
    }.get(kind, images.labels)
    made = []
    for begin in range(0, len(images), _BATCH):
        rows = np.arange(begin, min(begin + _BATCH, len(images)))
        x = images.batch(rows)[0].to(device)
        if kind in ("rand", "det"):
            x = toward(module, x, torch.from_numpy(labels[rows]).to(device), eps, step, iterations)
        elif kind != ORIGINAL:
            start = images.batch(others[rows])[0].to(device)
            x = inverted(penultimate(module), x, start, step, iterations)
        made.append(x.cpu().numpy().astype(np.float16))  # half the size; its error is an eighth of that of 8 bits
    save(folder / "images.npz", np.concatenate(made), labels, images.class_names)


def inverted(features: Callable[[Tensor], Tensor], x: Tensor, start: Tensor, step: float, iterations: int) -> Tensor:
    """The images nearest to `x` in feature space on the path of gradient descent from `start`."""
    with torch.no_grad():
        goal = features(x)
    point = best = start
    least = torch.full((len(x),), float("inf"), device=x.device)
    for _ in range(iterations + 1):  # each evaluates the point before its step, so the last step is never evaluated
        found, gradient = value_and_gradient(features, point, lambda g: -(g - goal).norm(dim=1))
        distance = (found - goal).norm(dim=1)
        nearer = distance < least
        best = torch.where(nearer[:, None, None, None], point, best)
        least = torch.where(nearer, distance, least)
        point = L2.step(point, gradient, step).clamp(0, 1)
    return best


def toward(
    model: Callable[[Tensor], Tensor], x: Tensor, target: Tensor, eps: float, step: float, iterations: int
) -> Tensor:
    """Targeted PGD in the L2 ball around x, from x itself; also where the target is the image's own class."""
    point = x
    for _ in range(iterations):
        _, gradient = value_and_gradient(model, point, lambda z: -cross_entropy(z, target))
        point = L2.project(L2.step(point, gradient, step), x, eps)
    return point
