"""`load_model`: every way of naming a model, the checkpoints classwise writes, and the check of a model."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from classwise.core.errors import UserError
from classwise.models import check_model, load_model, read_checkpoint, save_checkpoint
from classwise.models.normalize import normalization_of

SPEC = "resnet:width=2,blocks=1-1"
X = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def same(one: nn.Module, other: nn.Module) -> bool:
    with torch.no_grad():
        return torch.allclose(one(X), other(X), atol=1e-6)


class TestCheckpoint:
    @pytest.mark.parametrize("normalize", [None, "cifar10", ((0.5,), (0.25,))])
    def test_goes_and_comes_back_whole(self, tmp_path: Path, normalize: object) -> None:
        model = load_model(SPEC, num_classes=5, normalize=normalize, seed=3)  # type: ignore[arg-type]
        save_checkpoint(tmp_path / "run" / "best.pt", model, SPEC, 5, 3, epoch=7, state={"weights": torch.ones(5)})
        again = load_model(tmp_path / "run" / "best.pt")
        assert same(model, again)
        assert not again.training
        assert normalization_of(model) == normalization_of(again)
        extra = read_checkpoint(tmp_path / "run" / "best.pt")["classwise"]["extra"]
        assert extra["epoch"] == 7
        assert extra["state"]["weights"].sum() == 5
        assert [path.name for path in (tmp_path / "run").iterdir()] == ["best.pt"]

    def test_as_weights_of_a_named_model(self, tmp_path: Path) -> None:
        model = load_model(SPEC, num_classes=5, normalize="cifar10", seed=3)
        save_checkpoint(tmp_path / "a.pt", model, SPEC, 5, 3)
        assert same(model, load_model(SPEC, tmp_path / "a.pt", num_classes=5, normalize="cifar10"))
        with pytest.raises(UserError, match="saved with a layer that normalises"):
            load_model(SPEC, tmp_path / "a.pt", num_classes=5)

    def test_a_checkpoint_of_a_checkpoint_names_the_network(self, tmp_path: Path) -> None:
        save_checkpoint(tmp_path / "a.pt", load_model(SPEC, num_classes=5), SPEC, 5, 3)
        tuned = load_model(tmp_path / "a.pt")
        nn.init.ones_(tuned.head.weight)
        save_checkpoint(tmp_path / "b.pt", tuned, str(tmp_path / "a.pt"), 5, 3)
        (tmp_path / "a.pt").unlink()
        assert same(tuned, load_model(tmp_path / "b.pt"))

    def test_a_failed_write_leaves_the_old_file(self, tmp_path: Path) -> None:
        model = load_model(SPEC, num_classes=5)
        save_checkpoint(tmp_path / "a.pt", model, SPEC, 5, 3)
        before = (tmp_path / "a.pt").read_bytes()
        with pytest.raises(TypeError, match=r"extra\['best'\]\[0\] is a float64"):
            save_checkpoint(tmp_path / "a.pt", model, SPEC, 5, 3, best=[np.float64(0.5)])
        assert (tmp_path / "a.pt").read_bytes() == before

    def test_weights_alone_are_no_model(self, tmp_path: Path) -> None:
        torch.save(load_model(SPEC, num_classes=5).state_dict(), tmp_path / "w.pt")
        with pytest.raises(UserError, match=r"holds weights but not which model .* --weights"):
            load_model(tmp_path / "w.pt")

    def test_what_contradicts_it_is_an_error(self, tmp_path: Path) -> None:
        save_checkpoint(tmp_path / "a.pt", load_model(SPEC, num_classes=5), SPEC, 5, 3)
        with pytest.raises(UserError, match="model of 5 classes, but 6 are asked for"):
            load_model(tmp_path / "a.pt", num_classes=6)
        with pytest.raises(UserError, match="leave normalize out"):
            load_model(tmp_path / "a.pt", normalize="cifar10")

    def test_a_newer_format(self, tmp_path: Path) -> None:
        torch.save({"classwise": {"format": 99}, "state_dict": {}}, tmp_path / "a.pt")
        with pytest.raises(UserError, match="newer classwise"):
            load_model(tmp_path / "a.pt")


class TestPrograms:
    def test_torchscript(self, tmp_path: Path) -> None:
        model = load_model(SPEC, num_classes=5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.save(torch.jit.trace(model, X), tmp_path / "net.pt")
        again = load_model(tmp_path / "net.pt", trust=True)
        assert same(model, again)
        assert same(
            load_model(model, normalize="cifar10"), load_model(f"program:{tmp_path}/net.pt", normalize="cifar10")
        )
        with pytest.raises(UserError, match="is a saved program, not weights"):
            load_model(SPEC, weights=tmp_path / "net.pt", num_classes=5)

    @pytest.mark.slow
    def test_exported(self, tmp_path: Path) -> None:
        model = load_model(SPEC, num_classes=5)
        program = torch.export.export(model, (X[:2],), dynamic_shapes=({0: torch.export.Dim("batch")},))
        torch.export.save(program, tmp_path / "net.pt2")
        again = load_model(tmp_path / "net.pt2", device="cpu", trust=True)
        assert same(model, again)
        assert again.eval() is again
        x = X[:1].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(again(x)[0, 0], x)
        assert gradient.abs().sum() > 0

    @pytest.mark.slow
    def test_exported_for_one_batch_size(self, tmp_path: Path) -> None:
        program = torch.export.export(load_model("lenet", num_classes=5), (torch.rand(4, 3, 32, 32),))
        torch.export.save(program, tmp_path / "net.pt2")
        with pytest.raises(UserError, match=r"batches of exactly 4.*Dim"):
            load_model(f"program:{tmp_path}/net.pt2")


FILE = """
from __future__ import annotations
from dataclasses import dataclass
from torch import nn
from neighbour import width
@dataclass
class Setting:
    width: int = width
def make(num_classes, in_channels=3):
    return nn.Sequential(nn.Conv2d(in_channels, Setting().width, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(Setting().width, num_classes))
class Net(nn.Flatten):
    pass
def needy(num_classes, depth): ...
def wrong(): return 3
def broken(): raise KeyError("boom")
ready = nn.Flatten()
"""


class TestFactory:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        (tmp_path / "net.py").write_text(FILE)
        (tmp_path / "neighbour.py").write_text("width = 6")
        return tmp_path / "net.py"

    def test_a_function_gets_the_classes_and_channels_it_names(self, file: Path) -> None:
        path = list(sys.path)
        model = load_model(f"{file}:make", num_classes=4, in_channels=1)
        assert model(torch.rand(2, 1, 8, 8)).shape == (2, 4)
        assert model[0].out_channels == 6
        assert not model.training
        assert sys.path == path
        assert "neighbour" not in sys.modules

    def test_two_code_bases_with_modules_of_the_same_name(self, file: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        (other / "net.py").write_text(FILE)
        (other / "neighbour.py").write_text("width = 9")
        widths = [load_model(f"{place}:make", num_classes=4)[0].out_channels for place in (file, other / "net.py")]
        assert widths == [6, 9]

    def test_a_class_or_a_module(self, file: Path) -> None:
        assert load_model(f"{file}:Net", num_classes=4)(torch.rand(2, 1, 2, 2)).shape == (2, 4)
        assert load_model(f"{file}:ready")(torch.rand(2, 1, 2, 2)).shape == (2, 4)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("mak", "unknown function or class of net.py 'mak'; did you mean 'make'"),
            ("needy", "net.py:needy needs depth"),
            ("wrong", "returned a int, expected a torch.nn.Module"),
            ("broken", "net.py:broken failed: KeyError: 'boom'"),
        ],
    )
    def test_errors(self, file: Path, name: str, message: str) -> None:
        with pytest.raises(UserError, match=message):
            load_model(f"{file}:{name}", num_classes=4)

    def test_a_file_without_a_name_and_a_missing_file(self, file: Path) -> None:
        with pytest.raises(UserError, match=r"name the function or class .*net.py:NAME"):
            load_model(file)
        with pytest.raises(UserError, match="no Python file"):
            load_model(f"{file.parent / 'absent.py'}:make")


def test_a_module_is_taken_as_it_is() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).train()
    assert load_model(module) is module
    assert not module.training


def test_a_missing_file_is_not_read_as_a_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no model file .*absent.pt"):
        load_model(tmp_path / "absent.pt")


@pytest.mark.parametrize("library", ["torchvision", "timm", "robustbench"])
def test_a_missing_library_says_how_to_get_it(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UserError, match=rf'pip install "classwise\[{library}\]"'):
        load_model(f"{library}:cifar10/Linf/Standard", num_classes=10)


class Returns(nn.Module):
    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: Tensor) -> object:
        return self.value


class TestCheckModel:
    def test_tells_the_number_of_classes(self) -> None:
        model = load_model(SPEC, num_classes=5)
        assert check_model(model, X) == 5
        with pytest.raises(UserError, match=r"the model has 5 classes but the data has 7.*num_classes=7"):
            check_model(model, X, num_classes=7)

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            (torch.full((3, 5), float("nan")), "NaN or infinite logits"),
            (torch.zeros(3, 5, 1), r"returned shape \(3, 5, 1\), expected \(3, classes\)"),
            (torch.zeros(2, 5), r"returned shape \(2, 5\)"),
            ((torch.zeros(3, 5), None), "returned a tuple, expected a tensor of logits"),
        ],
    )
    def test_what_is_no_classifier(self, value: object, message: str) -> None:
        with pytest.raises(UserError, match=message):
            check_model(Returns(value), X)

    def test_wrong_channels(self) -> None:
        with pytest.raises(UserError, match=r"expects images of 3 channels but the data has 1.*in_channels=1"):
            check_model(load_model(SPEC, num_classes=5), X[:, :1])

    def test_another_failure_keeps_its_reason(self) -> None:
        with pytest.raises(UserError, match="failed on a batch of 3×3×16×16 images: RuntimeError"):
            check_model(nn.Sequential(nn.Flatten(), nn.Linear(5, 2)), X)


def test_a_folder_does_not_hide_a_built_in_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lenet").mkdir()
    (tmp_path / "runs").mkdir()
    assert load_model("lenet", num_classes=3).head.out_features == 3
    with pytest.raises(UserError, match="'runs' is a folder"):
        load_model("runs")
