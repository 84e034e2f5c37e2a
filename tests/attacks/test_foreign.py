"""Attacks that are not ours: a function of the user's, and a library put in the place of a real one."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import classwise as cw
from classwise import attacks
from classwise.attacks import foreign
from classwise.attacks.attack import Attack, initial_rows
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.threat import LINF
from classwise.engine.attack_copy import accelerate

SOURCE = """
import torch
from neighbour import SIZE

def shift(model, x, y, eps, norm="?", up=1.0):
    assert not model.training and next(model.parameters()).device == x.device and norm == "linf"
    return x + up * eps

def gradient(model, x, y):
    x = x.clone().requires_grad_()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    assert x.grad.is_contiguous()
    return x.detach() + SIZE * x.grad.view(len(x), -1).sign().view(x.shape)

def noise(model, x, y, eps):
    return x + eps * torch.rand_like(x)

def wrong_shape(model, x, y):
    return x[:, :1]

def failing(model, x, y):
    raise KeyError("no such layer")

def search(model, x, y, eps):
    draws = torch.stack([x + eps * (2 * torch.rand_like(x) - 1) for _ in range(5)]).clamp(0, 1)
    wrong = torch.stack([model(draw).argmax(1) != y for draw in draws])
    return draws[wrong.float().argmax(0), torch.arange(len(x))]

search.needs_gradient = False

def out_of_memory(model, x, y):
    raise RuntimeError("CUDA out of memory")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("SIZE = 0.05\n")
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def network(channels: int = 3) -> nn.Module:
    """A small network with a batch-norm to fold."""
    net = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))
    generator = torch.Generator().manual_seed(0)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator)
    return net.eval()


def black_box(x: np.ndarray) -> np.ndarray:
    scores: np.ndarray = x.reshape(len(x), -1)[:, :3]
    return scores


def images(count: int = 6) -> tuple[Tensor, Tensor]:
    x = torch.rand(count, 3, 5, 5, generator=torch.Generator().manual_seed(1))
    return x, torch.arange(count) % 3


def points(attack: Attack, model: Any, eps: float | Tensor = 0.1, seed: int = 0, count: int = 6) -> Tensor:
    x, y = images(count)
    return attack.begin(model, initial_rows(x, y, eps, rng.keys(seed, torch.arange(count))), LINF)["x_adv"]


def test_a_function_gets_model_images_labels_and_radius(file: Path) -> None:
    x, _ = images()
    eps = torch.tensor([0.1, 0.2, 0.1, 0.0, 0.3, 0.2])
    found = points(foreign.load(f"{file}:shift"), network(), eps)
    assert torch.allclose(found, x + eps[:, None, None, None])  # not clamped: that is the judge's business
    assert torch.allclose(points(foreign.load(f"{file}:shift,up=-1"), network(), 0.1), x - 0.1)
    assert torch.allclose(points(foreign.load(f"{file}:shift,eps=8/255"), network(), 0.1), x + 8 / 255)


@pytest.mark.parametrize("folded", [False, True])
def test_gradients_work_and_leave_nothing_behind(folded: bool, file: Path) -> None:
    net = network()
    x, y = images()
    model = accelerate(net, x) if folded else net
    found = points(foreign.load(f"{file}:gradient"), model)
    leaf = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(nn.functional.cross_entropy(net(leaf), y), leaf)
    assert torch.allclose(found, x + 0.05 * g.sign())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in net.parameters())
    assert "neighbour" not in sys.modules


def test_random_numbers_are_the_keys_and_the_global_states_are_left_alone(file: Path) -> None:
    attack, net = foreign.load(f"{file}:noise"), network()
    before = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    first = points(attack, net)
    torch.rand(3, generator=torch.Generator().manual_seed(9))
    assert torch.equal(points(attack, net), first)
    assert not torch.equal(points(attack, net, seed=1), first)
    after = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_the_judge_counts_what_it_refuses(file: Path) -> None:
    net = network()
    x, _ = images(40)
    with torch.no_grad():
        y = net(x).argmax(1)
    attack = foreign.load(f"{file}:shift,eps=0.5")
    audit = cw.audit(net, (x, y), attack, 0.1, num_classes=3, progress=False)
    (stats,) = (stats for name, stats in audit.records.meta.stats.items() if name != "clean")
    assert stats["outside"] == 40
    assert (audit.records.frame["prediction"] == audit.records.frame["label"]).all()


def test_the_name_in_tables(file: Path) -> None:
    attack = foreign.load(f" {file}:shift, up=2 ")
    assert isinstance(attack, foreign.ForeignAttack)
    assert attack.short_name == "mine.py:shift"
    assert attack == foreign.load(f"{file}:shift,up=2")
    assert hash(attack) == hash(foreign.load(f"{file}:shift,up=2"))
    assert attacks.settings(attack) == {"source": str(file), "attack": "shift", "options": "up=2"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("torchattacks:PGDL2,eps_for_division=1e-8", True),
        ("foolbox:L2PGD", True),
        ("art:SquareAttack,max_iter=3", True),
        ("some/where/file.py:function", True),
        ("pgd-20", False),
        ("pgd:steps=3", False),
        ("transfer:model=net.py:make,weights=a.pt", False),
    ],
)
def test_which_specs_are_foreign(spec: str, expected: bool) -> None:
    assert foreign.is_foreign(spec) == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (":shift,upp=2", "unknown setting of mine.py:shift 'upp'; did you mean 'up'"),
        (":shift,up", "'up' is not of the form key=value"),
        (":shif", "unknown attack in mine.py 'shif'; did you mean 'shift'"),
        (":", "names no attack; write .*mine.py:NAME"),
        ("x.py:shift", "no Python file"),
    ],
)
def test_a_bad_spec_is_refused_when_it_is_read(spec: str, message: str, file: Path) -> None:
    with pytest.raises(UserError, match=message):
        foreign.load(f"{file}{spec}" if spec.startswith(":") else spec)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("wrong_shape", UserError, r"mine.py:wrong_shape gave points of shape \(6, 1, 5, 5\), expected \(6, 3, 5, 5\)"),
        ("failing", UserError, "mine.py:failing failed: KeyError: 'no such layer'"),
        ("out_of_memory", RuntimeError, "CUDA out of memory"),  # the engine halves the batch
    ],
)
def test_what_goes_wrong_in_it(name: str, kind: type[Exception], message: str, file: Path) -> None:
    with pytest.raises(kind, match=message) as caught:
        points(foreign.load(f"{file}:{name}"), network())
    assert caught.type is kind


def test_a_file_that_does_not_run(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nowhere_to_be_found\n")
    with pytest.raises(UserError, match=r"broken\.py failed: ModuleNotFoundError"):
        foreign.load(f"{tmp_path / 'broken.py'}:attack")


def test_neither_a_library_nor_a_file() -> None:
    with pytest.raises(UserError, match="'pgd-20' is no attack of torchattacks, foolbox, art"):
        foreign.load("pgd-20")


class TestNeedsGradient:
    def test_a_function_says_so_itself_or_the_spec_does(self, file: Path) -> None:
        assert foreign.load(f"{file}:noise").needs_gradient
        assert not foreign.load(f"{file}:search").needs_gradient
        assert not foreign.load(f"{file}:noise,needs_gradient=false").needs_gradient
        assert foreign.load(f"{file}:search,needs_gradient=true").needs_gradient
        with pytest.raises(UserError, match=r"needs_gradient of .*:search is true or false, got 'maybe'"):
            foreign.load(f"{file}:search,needs_gradient=maybe")

    @pytest.mark.parametrize("name", ["search", "noise,needs_gradient=false"])
    def test_one_that_needs_none_attacks_a_black_box(self, file: Path, name: str) -> None:
        x, y = images()
        audit = cw.audit(black_box, (x, y), f"{file}:{name}", eps=0.1, num_classes=3, progress=False)
        info = list(audit.records.meta.attacks.values())[-1]
        assert not info.needs_gradient
        with pytest.raises(UserError, match="needs the gradient of the model, and a black box has none"):
            cw.audit(black_box, (x, y), f"{file}:gradient", eps=0.1, num_classes=3, progress=False)

    def test_of_the_libraries_it_is_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def called(name: str, **attributes: Any) -> type:
            return type(name, (), {"__init__": lambda self, model=None: None, **attributes})

        class LossGradientsMixin: ...

        libraries = {
            "torchattacks": {"PGD": True, "Square": False, "SPSA": False},
            "foolbox.attacks": {"L2PGD": True, "HopSkipJumpAttack": False, "L2AdditiveGaussianNoiseAttack": False},
            "art.attacks.evasion": {"ProjectedGradientDescent": True, "HopSkipJump": False, "AutoAttack": True},
        }
        for path, attacks_there in libraries.items():
            library = path.partition(".")[0]
            module = ModuleType(path)
            for name, needs in attacks_there.items():
                mixins = (LossGradientsMixin,) if needs and name != "AutoAttack" else ()
                setattr(module, name, called(name, _estimator_requirements=(object, *mixins)))
            monkeypatch.setitem(sys.modules, library, ModuleType(library))
            monkeypatch.setitem(sys.modules, path, module)
            for name, needs in attacks_there.items():
                assert foreign.load(f"{library}:{name}").needs_gradient is needs, name


class TestLibraries:
    @pytest.fixture
    def torchattacks(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        """A library of one attack, in the form of torchattacks'; what its constructor was given."""
        seen: dict[str, Any] = {}

        class Shift:
            def __init__(self, model: nn.Module, norm: str = "?", eps: float = 9.0, steps: int = 1) -> None:
                seen.update(classes=model(torch.rand(1, 3, 5, 5)).shape[1], norm=norm, eps=eps, steps=steps)
                self.eps = eps

            def __call__(self, x: Tensor, y: Tensor) -> Tensor:
                return x + self.eps

        module = ModuleType("torchattacks")
        module.Shift = Shift  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "torchattacks", module)
        return seen

    def test_radius_and_norm_are_filled_in_and_settings_passed_on(self, torchattacks: dict[str, Any]) -> None:
        found = points(foreign.load("torchattacks:Shift,steps=3"), network(), 0.1)
        assert torch.allclose(found, images()[0] + 0.1)
        assert torchattacks == {"classes": 3, "norm": "Linf", "eps": pytest.approx(0.1), "steps": 3}
        points(foreign.load("torchattacks:Shift,norm=L2,eps=0.5"), network(), 0.1)
        assert (torchattacks["norm"], torchattacks["eps"]) == ("L2", 0.5)

    @pytest.mark.parametrize(
        ("text", "value"),
        [("20", 20), ("1e-8", 1e-8), ("8/255", 8 / 255), ("true", True), ("none", None), ("fast", "fast")],
    )
    def test_settings_are_read_as_python_writes_them(self, text: str, value: Any, torchattacks: dict[str, Any]) -> None:
        points(foreign.load(f"torchattacks:Shift,steps={text}"), network())
        assert torchattacks["steps"] == value
        assert type(torchattacks["steps"]) is type(value)

    def test_unknown_names_and_settings(self, torchattacks: dict[str, Any]) -> None:
        with pytest.raises(UserError, match=r"unknown attack of torchattacks 'Shiftt'.* Known: Shift"):
            foreign.load("torchattacks:Shiftt")
        with pytest.raises(UserError, match="unknown setting of torchattacks:Shift 'step'; did you mean 'steps'"):
            foreign.load("torchattacks:Shift,step=2")
        with pytest.raises(UserError, match="unknown setting of torchattacks:Shift 'model'"):
            foreign.load("torchattacks:Shift,model=2")

    @pytest.mark.parametrize("library", ["torchattacks", "foolbox", "art"])
    def test_what_to_install(self, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == library]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(UserError, match=rf'pip install "classwise\[{library}\]"'):
            foreign.load(f"{library}:PGD")
