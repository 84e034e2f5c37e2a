"""Wide ResNet: wideresnet-28-10, wideresnet-34-10 (46,160,474 parameters) or any depth 6n+4 and width.

Zagoruyko & Komodakis, BMVC 2016: three groups of n = (depth − 4)/6 pre-activation blocks with 16k, 32k and 64k
channels. Parameter names are those of TRADES, MART, HE, RST, WAT and FRL; the block `sub_block1` that their files
hold is never used by their networks, and is not here. Depth 32, which some papers print, means n = 5 as in depth 34.
Convolutions start as N(0, 2/(size²·out_channels)), linear biases as zero.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classwise.core.errors import UserError
from classwise.models.networks.network import Network

PAPERS = ("zagoruyko2016",)


class WideBlock(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.dropout = dropout
        self.convShortcut: nn.Conv2d | None = None
        if in_channels != out_channels:
            self.convShortcut = nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(x), inplace=True)
        residual: Tensor = x if self.convShortcut is None else self.convShortcut(out)
        out = F.relu(self.bn2(self.conv1(out)), inplace=True)
        return torch.add(self.conv2(F.dropout(out, self.dropout, self.training)), residual)


class Group(nn.Module):
    def __init__(self, blocks: int, in_channels: int, out_channels: int, stride: int, dropout: float) -> None:
        super().__init__()
        first = WideBlock(in_channels, out_channels, stride, dropout)
        self.layer = nn.Sequential(
            first, *(WideBlock(out_channels, out_channels, 1, dropout) for _ in range(blocks - 1))
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out


class WideResNet(Network):
    last = "fc"

    def __init__(self, blocks: int, width: int, dropout: float, num_classes: int, in_channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        self.block1 = Group(blocks, 16, 16 * width, 1, dropout)
        self.block2 = Group(blocks, 16 * width, 32 * width, 2, dropout)
        self.block3 = Group(blocks, 32 * width, 64 * width, 2, dropout)
        self.bn1 = nn.BatchNorm2d(64 * width)
        self.fc = nn.Linear(64 * width, num_classes)
        self.start_convolutions()
        nn.init.zeros_(self.fc.bias)

    def features(self, x: Tensor) -> Tensor:
        x = self.block3(self.block2(self.block1(self.conv1(x))))
        return F.relu(self.bn1(x), inplace=True).mean((2, 3))


def _blocks_per_group(depth: int) -> int:
    if depth == 32:
        return 5
    if depth < 10 or (depth - 4) % 6:
        lower = max(10, 6 * ((depth - 4) // 6) + 4)
        raise UserError(
            f"wideresnet depth must be 6n+4 (10, 16, 22, 28, 34, 40, …), or 32 as the papers use it; got {depth}. "
            f"The nearest are {lower} and {lower + 6}."
        )
    return (depth - 4) // 6


def build(
    num_classes: int,
    depth: int = 34,
    width: int = 10,
    *,
    dropout: float = 0.0,
    in_channels: int = 3,
) -> nn.Module:
    return WideResNet(_blocks_per_group(depth), width, dropout, num_classes, in_channels)
