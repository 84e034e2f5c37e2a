"""Another normalisation is named where it is beyond chance the one the model was trained with, and not otherwise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import classwise as cw
from classwise.auditing import normalization
from classwise.core.records import CLEAN
from classwise.data.images import Images
from classwise.models.normalize import normalized
from classwise.results.finding import Finding

CPU = torch.device("cpu")
MEAN, STD = 0.1307, 0.3081  # of MNIST


class Trained(nn.Module):
    """The network as it would be had it been trained on images normalised as MNIST's are."""

    def __init__(self, net: nn.Module, mean: float = MEAN, std: float = STD) -> None:
        super().__init__()
        self.net, self.mean, self.std = net, mean, std

    def forward(self, z: Tensor) -> Tensor:
        return self.net(z * self.std + self.mean)  # type: ignore[no-any-return]


def found(model: nn.Module, images: Images) -> list[Finding]:
    return [*normalization.check(model, images, CPU, seed=0)]


def test_none_for_a_model_that_is_right(net: nn.Module, images: Images) -> None:
    assert found(net, images) == []
    assert found(normalized(Trained(net), "mnist"), images) == []


def test_none_where_no_normalisation_helps(net: nn.Module, images: Images) -> None:
    shuffled = replace(images, labels=np.random.default_rng(0).permutation(images.labels))
    assert found(net, shuffled) == []


def test_one_that_is_missing(net: nn.Module, images: Images) -> None:
    (finding,) = found(Trained(net), images)
    assert finding.severity == "error"
    assert finding.numbers["normalize"] == "mnist"
    assert finding.numbers["other"] == 0.95  # as labelled, see small_net
    assert "with that of mnist 95.0%" in finding.what
    assert finding.remedy.startswith("Audit it with --normalize mnist")


def test_one_too_many(net: nn.Module, images: Images) -> None:
    (finding,) = found(normalized(net, "mnist"), images)
    assert finding.numbers["normalize"] == "none"
    assert "with the normalisation it was given" in finding.what
    assert "without any 95.0%" in finding.what


@pytest.mark.parametrize(("mean", "std", "words"), [(0.5, 0.5, "pixels in −1…1"), (0.0, 1 / 255, "pixels in 0…255")])
def test_the_range_of_the_pixels(net: nn.Module, images: Images, mean: float, std: float, words: str) -> None:
    """What it names can be given to an audit, whose clean accuracy is then that of the model."""
    model = Trained(net, mean, std)
    (finding,) = found(model, images)
    assert words in finding.what
    mended = cw.audit(normalized(model, finding.numbers["normalize"]), images, "clean", progress=False)
    assert mended.rows(CLEAN).correct.mean() == 0.95


def test_an_audit_says_so(net: nn.Module, images: Images) -> None:
    result = cw.audit(Trained(net), images, "clean", progress=False)
    assert "normalisation" in [finding.code for finding in result.findings]
