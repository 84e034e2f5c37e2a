"""VGG-16 and VGG-19 with batch norm, in the CIFAR form: one linear layer on the pooled 512 channels.

Simonyan & Zisserman, 2015. The small-image form replaces the three linear layers of the ImageNet network by one.
Pooling rounds up, so that 28×28 images survive the five halvings; at 32×32 this changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from classwise.core.errors import UserError
from classwise.models.networks.network import Network

PAPERS = ("simonyan2015",)
STAGES = {  # convolutions per stage
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}


def _layers(stages: tuple[int, ...], width: int, in_channels: int) -> Iterator[nn.Module]:
    for stage, convolutions in enumerate(stages):
        out_channels = width * min(2**stage, 8)
        for _ in range(convolutions):
            yield nn.Conv2d(in_channels, out_channels, 3, padding=1)
            yield nn.BatchNorm2d(out_channels)
            yield nn.ReLU(inplace=True)
            in_channels = out_channels
        yield nn.MaxPool2d(2, ceil_mode=True)
    yield nn.AdaptiveAvgPool2d(1)
    yield nn.Flatten()


class VGG(Network):
    """`features` is the convolutional part itself, ending in the pooled vector, under its usual name."""

    last = "classifier"

    def __init__(self, stages: tuple[int, ...], width: int, num_classes: int, in_channels: int) -> None:
        super().__init__()
        self.features = nn.Sequential(*_layers(stages, width, in_channels))
        self.classifier = nn.Linear(8 * width, num_classes)


def build(num_classes: int, depth: int = 16, *, width: int = 64, in_channels: int = 3) -> nn.Module:
    if depth not in STAGES:
        raise UserError(f"vgg has depth {', '.join(map(str, STAGES))}; got {depth}.")
    return VGG(STAGES[depth], width, num_classes, in_channels)
