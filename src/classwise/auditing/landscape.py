"""A slice of the loss around an image: cross entropy on a grid spanned by the gradient and a random direction.

    x(a, b) = clamp(x + ε (a·g + b·r), 0, 1),   a, b ∈ [−1, 1]

with g = sign ∇CE and r random signs for linf, g = ∇CE/‖∇CE‖ and r a random unit vector orthogonal to g for l2. Along
each axis the ends lie on the ball's surface; corners leave it. A smooth slope along a is what gradient attacks rely on;
ridges, plateaus, or a loss that rises as fast along b as along a say that they are misled (Engstrom et al. 2018).
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from classwise.attacks.attack import Model, value_and_gradient
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.losses import cross_entropy
from classwise.core.records import Array
from classwise.core.threat import Ball, Threat, wide
from classwise.data.images import Images, IntArray

_BATCH = 256  # grid points evaluated at once


def landscape(
    model: Model,
    images: Images,
    count: int,
    threat: Threat,
    points: int = 21,
    seed: int = 0,
    device: torch.device | None = None,
) -> pd.DataFrame:
    """The slices of `count` images drawn at random; see `slices` for the columns. The model is in eval mode."""
    some = images.subset(limit=count, seed=seed)
    x, y = some.batch(np.arange(len(some)))
    table = slices(model, x.to(device), y.to(device), threat, points, seed, some.positions)
    return table.assign(**{"class": [images.class_names[label] for label in table.pop("label")]})


def slices(
    model: Model,
    x: Tensor,
    y: Tensor,
    threat: Threat,
    points: int = 21,
    seed: int = 0,
    index: IntArray | None = None,
) -> pd.DataFrame:
    """One row per grid point of every image: image (its index), label, a, b, loss, prediction.

    points: of the grid along each axis; an odd number has the image itself in it.
    """
    if points < 2:
        raise UserError(f"a slice needs at least 2 points along each axis, got {points}.")
    numbers = np.arange(len(x)) if index is None else np.asarray(index)
    g, r = _directions(model, x, y, threat.ball, seed, numbers)
    axis = (2 * np.arange(points) - (points - 1)) / (points - 1)  # the middle is exactly 0
    a, b = (grid.reshape(-1) for grid in np.meshgrid(axis, axis, indexing="ij"))
    tables = []
    for i in range(len(x)):
        loss, prediction = _along(model, x[i], y[i], threat.eps * g[i], threat.eps * r[i], a, b)
        found = {"loss": loss.cpu().numpy(), "prediction": prediction.cpu().numpy()}
        tables.append(pd.DataFrame({"image": int(numbers[i]), "label": int(y[i]), "a": a, "b": b, **found}))
    return pd.concat(tables, ignore_index=True)


def _directions(model: Model, x: Tensor, y: Tensor, ball: Ball, seed: int, index: IntArray) -> tuple[Tensor, Tensor]:
    """The two unit directions of each image; its random one depends on the seed and its index alone."""
    _, gradient = value_and_gradient(model, x, lambda z: cross_entropy(z, y))
    g = ball.step(torch.zeros_like(x), gradient, 1.0)
    key = rng.keys(seed, torch.from_numpy(index)).to(x.device)
    r = rng.normal(key, x.shape[1:]).to(x.dtype)
    if ball.name == "l2":
        r = r - wide((g * r).flatten(1).sum(1), g) * g
    return g, ball.unit(r)


@torch.no_grad()
def _along(model: Model, x: Tensor, y: Tensor, g: Tensor, r: Tensor, a: Array, b: Array) -> tuple[Tensor, Tensor]:
    """Loss and prediction at every grid point of one image."""
    logits = []
    for begin in range(0, len(a), _BATCH):
        some = slice(begin, begin + _BATCH)
        u, v = (torch.from_numpy(axis[some]).to(x).reshape(-1, *[1] * x.ndim) for axis in (a, b))
        logits.append(model((x + u * g + v * r).clamp(0, 1)))
    z = torch.cat(logits)
    return cross_entropy(z, y.expand(len(z))), z.argmax(1)
