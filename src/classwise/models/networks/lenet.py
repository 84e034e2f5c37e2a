"""LeNet: two 5×5 convolutions and three linear layers, for 32×32 images (62,006 parameters for ten classes).

LeCun et al., 1998, with the ReLU and max-pooling of its CIFAR form. Images of another size are average-pooled to the
same 5×5 map before the linear layers, which at 32×32 changes nothing.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from classwise.models.networks.network import Network

PAPERS = ("lecun1998",)


class LeNet(Network):
    last = "fc3"

    def __init__(self, num_classes: int, in_channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, num_classes)

    def features(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.adaptive_avg_pool2d(x, 5).flatten(1)
        return F.relu(self.fc2(F.relu(self.fc1(x))))


def build(num_classes: int, *, in_channels: int = 3) -> nn.Module:
    return LeNet(num_classes, in_channels)
