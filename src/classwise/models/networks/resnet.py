"""ResNet: depth 18, 34, 50, 101 or 152, or any width and stages; CIFAR or ImageNet stem.

He et al., CVPR 2016. The CIFAR stem is one 3×3 convolution of stride 1 without pooling; the ImageNet stem is a 7×7
convolution of stride 2 and a max-pool. Bottlenecks put the stride in the 3×3 convolution, as torchvision and the
usual CIFAR code do (the paper has it in the first 1×1). ResNet-18 has 11,173,962 parameters on CIFAR-10.

    resnet-18                             the CIFAR network of the robustness papers
    resnet:width=16,blocks=[1, 1, 1, 1]        stages of one block, 16-32-64-128 channels
    resnet-50:stem=imagenet               torchvision's network; its checkpoints load
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from classwise.models.networks.network import Staged, choose

PAPERS = ("he2016resnet",)

Kind = Literal["basic", "bottleneck"]
Stem = Literal["cifar", "imagenet"]

DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def _conv(in_channels: int, out_channels: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, size, stride, padding=size // 2, bias=False)


def _shortcut(in_channels: int, out_channels: int, stride: int) -> nn.Sequential:
    """The identity, or a projection where the shape changes."""
    if stride == 1 and in_channels == out_channels:
        return nn.Sequential()
    return nn.Sequential(_conv(in_channels, out_channels, 1, stride), nn.BatchNorm2d(out_channels))


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(in_channels, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = _shortcut(in_channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x), inplace=True)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = self.expansion * width
        self.conv1 = _conv(in_channels, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, out_channels, 1)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.shortcut = _shortcut(in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = F.relu(self.bn2(self.conv2(out)), inplace=True)
        return F.relu(self.bn3(self.conv3(out)) + self.shortcut(x), inplace=True)


class ResNet(Staged):
    def __init__(
        self, kind: Kind, blocks: tuple[int, ...], width: int, stem: Stem, num_classes: int, in_channels: int
    ) -> None:
        super().__init__()
        block = BasicBlock if kind == "basic" else Bottleneck
        self.stem = stem
        self.conv1 = _conv(in_channels, width, 3) if stem == "cifar" else _conv(in_channels, width, 7, 2)
        self.bn1 = nn.BatchNorm2d(width)
        channels = self.add_residual_stages(block, width, blocks)
        self.linear = nn.Linear(channels, num_classes)
        if stem == "imagenet":  # the CIFAR code keeps PyTorch's initial weights
            self.start_convolutions()

    def features(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        if self.stem == "imagenet":
            x = F.max_pool2d(x, 3, 2, padding=1)
        return self.through_stages(x).mean((2, 3))


def build(
    num_classes: int,
    depth: int | None = None,
    *,
    width: int = 64,
    blocks: tuple[int, ...] | None = None,
    block: Kind | None = None,
    stem: Stem = "cifar",
    in_channels: int = 3,
) -> nn.Module:
    kind = block or ("bottleneck" if (depth or 18) >= 50 else "basic")
    stages = choose("resnet", DEPTHS, depth, blocks)
    return ResNet(kind, stages, width, stem, num_classes, in_channels)
