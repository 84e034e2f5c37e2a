"""Pre-activation ResNet: depth 18 or 34, or any width and stages; with or without the final batch norm.

He et al., ECCV 2016: BN-ReLU-conv twice, and a shortcut taken from the activated input, without batch norm. The
networks of Fast AT, CFA and FAAL end in BN and ReLU; FRL's has neither: ``preact_resnet:final_norm=false``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classwise.models.networks.stages import choose
from classwise.models.normalize import Normalization, normalized

DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}


class PreActBlock(nn.Module):
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


class PreActResNet(nn.Module):
    def __init__(
        self, blocks: tuple[int, ...], width: int, final_norm: bool, num_classes: int, in_channels: int
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        channels, self.stages = width, [f"layer{stage + 1}" for stage in range(len(blocks))]
        for stage, (name, count) in enumerate(zip(self.stages, blocks, strict=True)):
            layers: list[nn.Module] = []
            for place in range(count):
                layers.append(PreActBlock(channels, width * 2**stage, 2 if stage and place == 0 else 1))
                channels = width * 2**stage
            self.add_module(name, nn.Sequential(*layers))
        self.bn = nn.BatchNorm2d(channels) if final_norm else None
        self.linear = nn.Linear(channels, num_classes)

    @property
    def head(self) -> nn.Linear:
        return self.linear

    def features(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        for name in self.stages:
            x = self.get_submodule(name)(x)
        if self.bn is not None:
            x = F.relu(self.bn(x), inplace=True)
        return x.mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.features(x))
        return logits


def build(
    num_classes: int,
    depth: int | None = None,
    *,
    width: int = 64,
    blocks: tuple[int, ...] | None = None,
    final_norm: bool = True,
    in_channels: int = 3,
    normalize: Normalization = None,
) -> nn.Module:
    stages = choose("preact_resnet", DEPTHS, depth, blocks)
    return normalized(PreActResNet(stages, width, final_norm, num_classes, in_channels), normalize)
