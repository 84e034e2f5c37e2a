"""Models and data that cannot be audited say why, in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import classwise as cw
from classwise.auditing.prepare import evaluating
from classwise.cli.main import app
from classwise.core.errors import UserError
from classwise.data import load as load_data
from classwise.training.pseudo import read_pseudo

X, Y = torch.rand(12, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3


class Net(nn.Module):
    def __init__(self, outputs: int = 3, **kind: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(16, outputs, **kind)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(1))


class InPlace(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.sub_(0.5).div_(0.25))


class Wrapper(nn.Module):
    """As people write it around a model they have put into eval mode: itself it stays in train mode."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model((x - 0.5) / 0.25)


def audit(model: Any, data: Any = (X, Y), **rest: Any) -> cw.Audit:
    return cw.audit(model, data, "pgd-1", 0.1, progress=False, **rest)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Net(dtype=torch.float64), r"weights are float64, and images are float32.*model\.float\(\)"),
        (lambda: Net(dtype=torch.float16), r"weights are float16, which is slow on a CPU.*model\.float\(\)"),
        (lambda: Net(dtype=torch.bfloat16), r"weights are bfloat16"),
        (lambda: Net(device="meta"), r"on the meta device: it has shapes but no weights"),
        (lambda: InPlace(), r"changes its input in place"),
        (lambda: Net(1), r"has one output, and a classifier has one for each class"),
    ],
)
def test_models(make: Callable[[], nn.Module], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        audit(make())
    with pytest.raises(UserError, match=message):
        cw.train({"method": {"name": "madry"}, "validate": {"select": "last"}}, out=tmp_path, data=(X, Y), model=make())


@pytest.mark.parametrize(
    ("model", "warned"),
    [
        (Wrapper(Net().eval()), False),
        (nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(16, 3)), False),
        (Wrapper(nn.Sequential(nn.BatchNorm2d(1), Net())), True),
        (Wrapper(nn.Sequential(nn.BatchNorm2d(1), Net()).eval()), False),
        (nn.Sequential(nn.Dropout(0.5), Net()), True),
        (cw.load_model(Net(), normalize="mean=0.5,std=0.5"), False),
    ],
)
def test_only_a_mode_that_counts_is_warned_of(model: nn.Module, warned: bool) -> None:
    modes = [module.training for module in model.modules()]
    with evaluating(model) as was_training:
        assert was_training is warned
        assert not any(module.training for module in model.modules())
    assert modes == [module.training for module in model.modules()]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X.to_sparse(), Y), r"is sparse; pass a dense one"),
        ((X, Y.to_sparse()), r"is sparse"),
        ((X.to("meta"), Y), r"has no values \(meta device\)"),
        ({"x": X, "y": Y}, r"a dict is no data set of images: pass the pair \(x, y\).*keys: x, y"),
        ({}, r"keys: none"),
    ],
)
def test_data(data: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        audit(Net(), data)


@pytest.mark.parametrize("name", ["Bool", "Int", "leaves", "endless"])
def test_what_is_no_factory(name: str, tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("Bool, Int = bool, int\ndef leaves(): raise SystemExit(3)\ndef endless(): return endless()\n")
    with pytest.raises(UserError, match=rf"m\.py:{name}"):
        cw.load_model(f"{file}:{name}", num_classes=3)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("resnet:width=99999999", r"resnet\.width must be at least 1 and at most 1000000, got 99999999"),
        ("resnet:width=90000", r"resnet would have .* parameters"),
        ("wideresnet-4000000-10", r"wideresnet\.depth must be at least 1 and at most 2000"),
        ("resnet:blocks=1-99999-1", r"resnet\.blocks must be at least 1 and at most 2000"),
        ("smallcnn:dropout=5", r"smallcnn\.dropout must be at least 0 and below 1, got 5"),
    ],
)
def test_networks_that_fit_no_machine(spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        cw.load_model(spec, num_classes=3)


def test_an_array_that_is_no_archive(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))
    (tmp_path / "a.npy").rename(tmp_path / "a.npz")
    with pytest.raises(UserError, match=r"cannot read images from .*a\.npz: it holds a single array"):
        load_data(f"arrays:file={tmp_path / 'a.npz'}")
    with pytest.raises(UserError, match=r"pseudo-labelled images from .*a\.npz: it holds a single array"):
        read_pseudo(tmp_path / "a.npz", load_data("digits").subset(2))


@pytest.mark.parametrize(
    "images", [np.full((3, 1, 8, 8), "a"), np.full((3, 1, 8, 8), np.nan), np.zeros((3, 1, 8, 8), int)]
)
def test_pseudo_labelled_images_are_images(images: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", images=images, labels=np.arange(3))
    with pytest.raises(UserError, match=r"p\.npz holds images of .* expected uint8"):
        read_pseudo(tmp_path / "p.npz", load_data("digits").subset(2))


def test_a_black_box_labels_images_too(tmp_path: Path) -> None:
    file = tmp_path / "score.py"
    file.write_text("import numpy as np\ndef score(x): return np.eye(10)[x.reshape(len(x), -1).argmax(1) % 10]\n")
    app(
        ["pseudo-label", "--model", f"callable:{file}:score", "--data", "digits", "--limit", "20", "--out",
         str(tmp_path / "p.npz")], standalone_mode=False,
    )  # fmt: skip
    assert len(read_pseudo(tmp_path / "p.npz", load_data("digits").subset(20))) == 20
