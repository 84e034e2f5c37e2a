"""GoogLeNet in the small-image form, with batch norm (6,166,250 parameters for ten classes).

Szegedy et al., CVPR 2015. The small-image form of the CIFAR literature has one 3×3 convolution of stride 1 with 192
channels for a stem, two 3×3 convolutions in place of each 5×5, batch norm after every convolution, and neither
auxiliary classifiers nor dropout.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from classwise.models.networks.network import Staged

PAPERS = ("szegedy2015",)

# Channels of each module: 1×1; 3×3 reduced, 3×3; 5×5 reduced, 5×5; after the pool. "pool" halves the map.
MODULES: dict[str, tuple[int, int, int, int, int, int] | None] = {
    "a3": (64, 96, 128, 16, 32, 32),
    "b3": (128, 128, 192, 32, 96, 64),
    "pool3": None,
    "a4": (192, 96, 208, 16, 48, 64),
    "b4": (160, 112, 224, 24, 64, 64),
    "c4": (128, 128, 256, 24, 64, 64),
    "d4": (112, 144, 288, 32, 64, 64),
    "e4": (256, 160, 320, 32, 128, 128),
    "pool4": None,
    "a5": (256, 160, 320, 32, 128, 128),
    "b5": (384, 192, 384, 48, 128, 128),
}


def _conv(in_channels: int, out_channels: int, size: int) -> tuple[nn.Module, ...]:
    conv = nn.Conv2d(in_channels, out_channels, size, padding=size // 2)
    return conv, nn.BatchNorm2d(out_channels), nn.ReLU(inplace=True)


class Inception(nn.Module):
    def __init__(self, inputs: int, n1: int, reduce3: int, n3: int, reduce5: int, n5: int, pooled: int) -> None:
        super().__init__()
        self.b1 = nn.Sequential(*_conv(inputs, n1, 1))
        self.b2 = nn.Sequential(*_conv(inputs, reduce3, 1), *_conv(reduce3, n3, 3))
        self.b3 = nn.Sequential(*_conv(inputs, reduce5, 1), *_conv(reduce5, n5, 3), *_conv(n5, n5, 3))
        self.b4 = nn.Sequential(nn.MaxPool2d(3, 1, padding=1), *_conv(inputs, pooled, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.b1(x), self.b2(x), self.b3(x), self.b4(x)], 1)


class GoogLeNet(Staged):
    def __init__(self, num_classes: int, in_channels: int) -> None:
        super().__init__()
        channels = 192
        self.pre_layers = nn.Sequential(*_conv(in_channels, channels, 3))
        for name, sizes in MODULES.items():
            if sizes is None:
                self.add_stage(name, nn.MaxPool2d(3, 2, padding=1))
                continue
            self.add_stage(name, Inception(channels, *sizes))
            channels = sizes[0] + sizes[2] + sizes[4] + sizes[5]
        self.linear = nn.Linear(channels, num_classes)

    def features(self, x: Tensor) -> Tensor:
        return self.through_stages(self.pre_layers(x)).mean((2, 3))


def build(num_classes: int, *, in_channels: int = 3) -> nn.Module:
    return GoogLeNet(num_classes, in_channels)
