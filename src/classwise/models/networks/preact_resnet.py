"""Pre-activation ResNet: depth 18 or 34, or any width and stages; with or without the final batch norm.

He et al., ECCV 2016: BN-ReLU-conv twice, and a shortcut taken from the activated input, without batch norm. The
networks of Fast AT, CFA and FAAL end in BN and ReLU; FRL's has neither: ``preact_resnet:final_norm=false``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classwise.models.networks.network import Staged, choose

PAPERS = ("he2016preact",)
DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}


class PreActBlock(nn.Module):
    expansion = 1

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.shortcut: nn.Sequential | None = None
        if stride != 1 or in_channels != width:
            self.shortcut = nn.Sequential(nn.Conv2d(in_channels, width, 1, stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(x), inplace=True)
        residual: Tensor = x if self.shortcut is None else self.shortcut(out)
        out = F.relu(self.bn2(self.conv1(out)), inplace=True)
        return torch.add(self.conv2(out), residual)


class PreActResNet(Staged):
    def __init__(
        self, blocks: tuple[int, ...], width: int, final_norm: bool, num_classes: int, in_channels: int
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        channels = self.add_residual_stages(PreActBlock, width, blocks)
        self.bn = nn.BatchNorm2d(channels) if final_norm else None
        self.linear = nn.Linear(channels, num_classes)

    def features(self, x: Tensor) -> Tensor:
        x = self.through_stages(self.conv1(x))
        if self.bn is not None:
            x = F.relu(self.bn(x), inplace=True)
        return x.mean((2, 3))


def build(
    num_classes: int,
    depth: int | None = None,
    *,
    width: int = 64,
    blocks: tuple[int, ...] | None = None,
    final_norm: bool = True,
    in_channels: int = 3,
) -> nn.Module:
    stages = choose("preact_resnet", DEPTHS, depth, blocks)
    return PreActResNet(stages, width, final_norm, num_classes, in_channels)
