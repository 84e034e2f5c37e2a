"""Inception-v3 in the small-image form: the stem keeps the size of the image, the rest is the published network.

Szegedy et al., CVPR 2016. The small-image form gives the five stem convolutions stride 1 and padding and leaves out
the two max-pools of the stem, so a 32×32 image reaches the first module at 32×32 (and the last at 7×7) where a
299×299 image reaches it at 35×35; there is no auxiliary classifier. Parameter names are torchvision's, and since no
parameter changes shape its checkpoints load too.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classwise.core.spec import Fraction
from classwise.models.networks.network import Network

PAPERS = ("szegedy2016",)


class Conv(nn.Module):
    """Convolution, batch norm and ReLU; padded to keep the size unless `padded` is false."""

    def __init__(
        self, inputs: int, outputs: int, size: int | tuple[int, int], stride: int = 1, padded: bool = True
    ) -> None:
        super().__init__()
        height, width = (size, size) if isinstance(size, int) else size
        padding = (height // 2, width // 2) if padded else 0
        self.conv = nn.Conv2d(inputs, outputs, (height, width), stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)), inplace=True)


def _average(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 3, stride=1, padding=1)


class MixedA(nn.Module):
    def __init__(self, inputs: int, pooled: int) -> None:
        super().__init__()
        self.branch1x1 = Conv(inputs, 64, 1)
        self.branch5x5_1 = Conv(inputs, 48, 1)
        self.branch5x5_2 = Conv(48, 64, 5)
        self.branch3x3dbl_1 = Conv(inputs, 64, 1)
        self.branch3x3dbl_2 = Conv(64, 96, 3)
        self.branch3x3dbl_3 = Conv(96, 96, 3)
        self.branch_pool = Conv(inputs, pooled, 1)

    def forward(self, x: Tensor) -> Tensor:
        five = self.branch5x5_2(self.branch5x5_1(x))
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat([self.branch1x1(x), five, double, self.branch_pool(_average(x))], 1)


class ReduceB(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3 = Conv(inputs, 384, 3, 2, padded=False)
        self.branch3x3dbl_1 = Conv(inputs, 64, 1)
        self.branch3x3dbl_2 = Conv(64, 96, 3)
        self.branch3x3dbl_3 = Conv(96, 96, 3, 2, padded=False)

    def forward(self, x: Tensor) -> Tensor:
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat([self.branch3x3(x), double, F.max_pool2d(x, 3, 2)], 1)


class MixedC(nn.Module):
    def __init__(self, inputs: int, middle: int) -> None:
        super().__init__()
        self.branch1x1 = Conv(inputs, 192, 1)
        self.branch7x7_1 = Conv(inputs, middle, 1)
        self.branch7x7_2 = Conv(middle, middle, (1, 7))
        self.branch7x7_3 = Conv(middle, 192, (7, 1))
        self.branch7x7dbl_1 = Conv(inputs, middle, 1)
        self.branch7x7dbl_2 = Conv(middle, middle, (7, 1))
        self.branch7x7dbl_3 = Conv(middle, middle, (1, 7))
        self.branch7x7dbl_4 = Conv(middle, middle, (7, 1))
        self.branch7x7dbl_5 = Conv(middle, 192, (1, 7))
        self.branch_pool = Conv(inputs, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        seven = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        double = self.branch7x7dbl_5(self.branch7x7dbl_4(double))
        return torch.cat([self.branch1x1(x), seven, double, self.branch_pool(_average(x))], 1)


class ReduceD(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch3x3_1 = Conv(inputs, 192, 1)
        self.branch3x3_2 = Conv(192, 320, 3, 2, padded=False)
        self.branch7x7x3_1 = Conv(inputs, 192, 1)
        self.branch7x7x3_2 = Conv(192, 192, (1, 7))
        self.branch7x7x3_3 = Conv(192, 192, (7, 1))
        self.branch7x7x3_4 = Conv(192, 192, 3, 2, padded=False)

    def forward(self, x: Tensor) -> Tensor:
        three = self.branch3x3_2(self.branch3x3_1(x))
        seven = self.branch7x7x3_4(self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x))))
        return torch.cat([three, seven, F.max_pool2d(x, 3, 2)], 1)


class MixedE(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch1x1 = Conv(inputs, 320, 1)
        self.branch3x3_1 = Conv(inputs, 384, 1)
        self.branch3x3_2a = Conv(384, 384, (1, 3))
        self.branch3x3_2b = Conv(384, 384, (3, 1))
        self.branch3x3dbl_1 = Conv(inputs, 448, 1)
        self.branch3x3dbl_2 = Conv(448, 384, 3)
        self.branch3x3dbl_3a = Conv(384, 384, (1, 3))
        self.branch3x3dbl_3b = Conv(384, 384, (3, 1))
        self.branch_pool = Conv(inputs, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        three = self.branch3x3_1(x)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        parts = [self.branch1x1(x), self.branch3x3_2a(three), self.branch3x3_2b(three)]
        parts += [self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double), self.branch_pool(_average(x))]
        return torch.cat(parts, 1)


class InceptionV3(Network):
    last = "fc"

    def __init__(self, num_classes: int, in_channels: int, dropout: float) -> None:
        super().__init__()
        self.Conv2d_1a_3x3 = Conv(in_channels, 32, 3)
        self.Conv2d_2a_3x3 = Conv(32, 32, 3)
        self.Conv2d_2b_3x3 = Conv(32, 64, 3)
        self.Conv2d_3b_1x1 = Conv(64, 80, 1)
        self.Conv2d_4a_3x3 = Conv(80, 192, 3)
        self.Mixed_5b = MixedA(192, 32)
        self.Mixed_5c = MixedA(256, 64)
        self.Mixed_5d = MixedA(288, 64)
        self.Mixed_6a = ReduceB(288)
        self.Mixed_6b = MixedC(768, 128)
        self.Mixed_6c = MixedC(768, 160)
        self.Mixed_6d = MixedC(768, 160)
        self.Mixed_6e = MixedC(768, 192)
        self.Mixed_7a = ReduceD(768)
        self.Mixed_7b = MixedE(1280)
        self.Mixed_7c = MixedE(2048)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(2048, num_classes)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(module.weight, std=0.1, a=-0.2, b=0.2)

    def features(self, x: Tensor) -> Tensor:
        for name, module in self.named_children():  # the modules run in the order of their names above
            if name not in ("dropout", "fc"):
                x = module(x)
        features: Tensor = self.dropout(x.mean((2, 3)))
        return features


def build(num_classes: int, *, in_channels: int = 3, dropout: Fraction = 0.5) -> nn.Module:
    return InceptionV3(num_classes, in_channels, dropout)
