"""A small network with batch-norm, and images that it classifies rightly but not robustly."""

from __future__ import annotations

import copy
import functools

import numpy as np
import torch
from torch import nn

from classwise.data.images import ArrayPixels, Images

CLASSES = ("ant", "bee", "cow", "doe")
RADIUS = 0.02  # breaks about half of the images


def make_net(seed: int = 0) -> nn.Module:
    """A network for one test alone: a copy, which takes less time than to make it."""
    return copy.deepcopy(_made(seed))


@functools.cache
def _made(seed: int) -> nn.Module:
    """conv, norm, relu, conv, norm, relu, linear on 8×8 grey images; its answers are spread over the classes."""
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, stride=2, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 9, len(CLASSES)),
    )
    with torch.no_grad():
        for parameter in net.parameters():
            fan_in = parameter[0].numel() if parameter.ndim > 1 else 4
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * (2 / fan_in) ** 0.5)
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.abs_().add_(0.5)
                module.momentum = None
        head = net[-1]
        assert isinstance(head, nn.Linear)
        head.bias -= net(pixels()).mean(0)  # in train mode: the norms take the images' statistics
        head.bias -= net.eval()(pixels()).mean(0)
    return net


def pixels(count: int = 120) -> torch.Tensor:
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(7))


def make_images(net: nn.Module, wrong: int = 6) -> Images:
    """Images labelled as the network sees them, but for the first few, which are labelled otherwise."""
    x = pixels()
    with torch.no_grad():
        labels = net(x).argmax(1).numpy()
    labels[:wrong] = (labels[:wrong] + 1) % len(CLASSES)
    return Images(ArrayPixels(x), labels.astype(np.int64), CLASSES, "noise")
