"""DenseNet-121 and DenseNet-169 in the small-image form, or any stages and growth rate.

Huang et al., CVPR 2017 (DenseNet-BC: 1×1 bottlenecks of 4k channels, transitions that halve the channels). The
small-image form has a 3×3 stem of stride 1 without pooling, in place of the 7×7 of stride 2 and the max-pool; the
growth rate stays 32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classwise.models.networks.network import Staged, choose

PAPERS = ("huang2017",)
DEPTHS = {121: (6, 12, 24, 16), 169: (6, 12, 32, 32), 201: (6, 12, 48, 32)}


class DenseLayer(nn.Module):
    """New channels go in front of the old ones: the order of the published CIFAR checkpoints."""

    def __init__(self, in_channels: int, growth: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, 4 * growth, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        new = self.conv1(F.relu(self.bn1(x), inplace=True))
        new = self.conv2(F.relu(self.bn2(new), inplace=True))
        return torch.cat([new, x], 1)


class Transition(nn.Module):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(in_channels)
        self.conv = nn.Conv2d(in_channels, out_channels, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(self.conv(F.relu(self.bn(x), inplace=True)), 2)


class DenseNet(Staged):
    def __init__(self, blocks: tuple[int, ...], growth: int, num_classes: int, in_channels: int) -> None:
        super().__init__()
        channels = 2 * growth
        self.conv1 = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
        for stage, count in enumerate(blocks, start=1):
            layers = [DenseLayer(channels + place * growth, growth) for place in range(count)]
            channels += count * growth
            self.add_stage(f"dense{stage}", nn.Sequential(*layers))
            if stage < len(blocks):
                self.add_stage(f"trans{stage}", Transition(channels, channels // 2))
                channels //= 2
        self.bn = nn.BatchNorm2d(channels)
        self.linear = nn.Linear(channels, num_classes)

    def features(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.through_stages(self.conv1(x))), inplace=True).mean((2, 3))


def build(
    num_classes: int,
    depth: int | None = None,
    *,
    growth: int = 32,
    blocks: tuple[int, ...] | None = None,
    in_channels: int = 3,
) -> nn.Module:
    stages = choose("densenet", DEPTHS, depth, blocks)
    return DenseNet(stages, growth, num_classes, in_channels)
