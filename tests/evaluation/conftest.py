"""The small network and its images, as fixtures."""

from __future__ import annotations

import pytest
from small_net import make_images, make_net
from torch import nn

from classwise.datasets.images import Images


@pytest.fixture
def net() -> nn.Module:
    return make_net()


@pytest.fixture
def images(net: nn.Module) -> Images:
    return make_images(net)
