"""A tiny linear model whose right bias is known, and images for it.

Images of 1×3×4 pixels; logit k is 8 times the mean of row k, plus a bias that puts class 2 at a disadvantage of 1. So
the bias that makes the classes equal is (−1/3, −1/3, 2/3), up to a constant. The row of an image's class is brighter
than the others by one of 30 margins, the same for every class.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from classwise.data.images import ArrayPixels, Images

CLASSES = ("top", "middle", "bottom")
SCALE, HANDICAP, EPS = 8.0, 1.0, 0.05
MARGINS = torch.linspace(0.02, 0.4, 30)


class Rows(nn.Module):
    """The mean of each row of pixels, and a linear layer."""

    def __init__(self, bias: bool = True, scale: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3, bias=bias)
        self.scale = scale
        with torch.no_grad():
            self.linear.weight.copy_(SCALE * torch.eye(3))
            if bias:
                self.linear.bias.copy_(torch.tensor([0.0, 0.0, -HANDICAP]))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.scale * self.linear(x.mean((1, 3)))
        return logits


def make(bias: bool = True, slant: bool = False) -> nn.Module:
    """The model, as ``tilted.py:make`` names it; slant: the weights of class 2 put it at a disadvantage."""
    model = Rows(bias)
    if slant:
        with torch.no_grad():
            model.linear.weight[2] -= HANDICAP
    return model


def images(copies: int = 2) -> Images:
    """Of every class every margin, so many times."""
    x, y = [], []
    for label in range(3):
        for margin in MARGINS.repeat(copies):
            image = torch.full((1, 3, 4), 0.3)
            image[0, label] += margin
            x.append(image)
            y.append(label)
    return Images(ArrayPixels(torch.stack(x)), np.array(y), CLASSES, "rows")
