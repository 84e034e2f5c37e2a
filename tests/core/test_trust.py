"""A file that looks like data runs no code, unless somebody says that it may."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import classwise as cw
from classwise.cli.main import app
from classwise.core.errors import UserError
from classwise.models import load_model, read_checkpoint, save_checkpoint
from classwise.models.loading import names_code
from classwise.training.pseudo import read_pseudo

CODE = """
from pathlib import Path
from torch import nn
(Path(__file__).parent / "ran").write_text("")
def make(num_classes, in_channels=1):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))
"""


@pytest.fixture
def ran(tmp_path: Path) -> Callable[[], bool]:
    """Whether the code was run since last asked."""

    def found() -> bool:
        mark = tmp_path / "ran"
        there = mark.exists()
        mark.unlink(missing_ok=True)
        return there

    return found


@pytest.fixture
def checkpoint(tmp_path: Path, ran: Callable[[], bool]) -> Path:
    """A checkpoint whose header names a Python file."""
    code = tmp_path / "evil.py"
    code.write_text(CODE)
    model = load_model(f"{code}:make", num_classes=10, in_channels=1)
    save_checkpoint(tmp_path / "m.pt", model, f"{code}:make", 10, 1)
    assert ran()
    return tmp_path / "m.pt"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)).eval()
    made = torch.export.export(net, (torch.rand(2, 1, 8, 8),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(made, tmp_path / "exported.pt")
    return tmp_path / "exported.pt"


def test_a_checkpoint_that_names_a_python_file(checkpoint: Path, ran: Callable[[], bool]) -> None:
    with pytest.raises(UserError, match=r"evil\.py:make.*would run that.*--trust.*--weights .*m\.pt"):
        load_model(checkpoint)
    assert not ran()
    assert load_model(checkpoint, trust=True)(torch.zeros(1, 1, 8, 8)).shape == (1, 10)
    assert ran()
    spec = read_checkpoint(checkpoint)["classwise"]["model"]
    load_model(spec, weights=checkpoint, num_classes=10)  # code that is named is run
    assert ran()


def test_trust_ends_with_the_call(checkpoint: Path, ran: Callable[[], bool]) -> None:
    load_model(checkpoint, trust=True)
    assert ran()
    with pytest.raises(UserError, match="--trust"):
        load_model(checkpoint)
    assert not ran()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["audit", "find-worst", "transfer", "pseudo-label", "train", "study"])
def test_every_command_asks_first(
    command: str, checkpoint: Path, ran: Callable[[], bool], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--data", "digits", "--limit", "20"]
    audit = ["audit", "--model", str(checkpoint), "-a", "pgd-1", "--eps", "0.1", "--no-progress", *few]
    recipe = {"data.name": "digits", "data.validation": 2, "train.epochs": 1, "method.steps": 1, "data.per_class": 6}
    changes = [f"--set={key}={value}" for key, value in recipe.items()]
    arguments = {
        "audit": audit,
        "find-worst": [*audit, "--find-worst"],
        "transfer": ["audit", "--model", "own", "-a", f"transfer:model={checkpoint},attack=pgd-1", *few],
        "pseudo-label": ["pseudo-label", "--model", str(checkpoint), *few, "--out", str(tmp_path / "p.npz")],
        "train": ["train", "desk/digits/trades", "--out", str(tmp_path / "t"), f"--set=model.spec={checkpoint}",
                  "--no-progress", *changes],
        "study": ["study", "weight-norm", "--model", str(checkpoint), "--data", "digits", "--eps", "0.1", "--norm",
                  "linf", "--attack", "pgd-1", "--per-class", "2", "--out", str(tmp_path / "s"), "--no-progress"],
    }[command]  # fmt: skip
    if command == "transfer":  # a model that takes small grey images
        arguments[2] = str(tmp_path / "own.py") + ":make"
        (tmp_path / "own.py").write_text(CODE.replace('"ran"', '"own"'))
    with pytest.raises(UserError, match="would run that"):
        app(arguments, standalone_mode=False)
    assert not ran()
    app([*arguments, "--trust"], standalone_mode=False)
    assert ran()


@pytest.mark.slow
def test_an_exported_program_is_not_unpickled(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.export, "load", lambda *args, **kwargs: pytest.fail("loaded"))
    for load in (lambda: load_model(program), lambda: cw.audit(program, "digits", "pgd-1", 0.1)):
        with pytest.raises(UserError, match=r"exported\.pt is a program \(exported\).*--trust.*program:.*exported\.pt"):
            load()


@pytest.mark.slow
def test_a_program_that_is_named_or_trusted_is_loaded(program: Path) -> None:
    x = torch.rand(3, 1, 8, 8)
    assert torch.equal(load_model(f"program:{program}")(x), load_model(program, trust=True)(x))
    with pytest.raises(UserError, match="no program"):
        load_model("program:nowhere.pt")


@pytest.mark.parametrize(
    "spec",
    ["evil.py:make", "callable:evil.py:f", "sklearn:evil.py:f", "program:x.pt", "https://host/x", "net.onnx", "m.pt",
     "timm:resnet18,checkpoint_path=evil.pth", "timm:resnet18,pretrained_cfg={'file':'evil'}", "../evil", ""],
)  # fmt: skip
def test_a_header_names_code_or_a_network(spec: str, tmp_path: Path) -> None:
    assert names_code(spec)
    save_checkpoint(tmp_path / "m.pt", torch.nn.Linear(2, 2), spec, 2, 1)
    with pytest.raises(UserError, match="would run that"):
        load_model(tmp_path / "m.pt")


@pytest.mark.parametrize(
    "spec", ["resnet-18", "lenet:in_channels=1", "torchvision:resnet50,weights=DEFAULT", "timm:vit"]
)
def test_networks_that_are_installed_need_no_trust(spec: str) -> None:
    assert not names_code(spec)


def test_a_checkpoint_that_names_itself(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    save_checkpoint(path, torch.nn.Linear(2, 2), "lenet", 2, 1)
    content = torch.load(path, weights_only=True)
    content["classwise"] |= {"model": str(path), "digest": ""}
    torch.save(content, path)
    for trust in (False, True):
        with pytest.raises(UserError, match=r"m\.pt"):
            load_model(path, trust=trust)


class Evil:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.write_text, (self.mark, "")


@pytest.mark.parametrize("name", ["m.pt", "m.pth", "m.ckpt", "m.pkl", "m.bin", "m.safetensors", "p.npz", "p.npy"])
def test_no_file_is_unpickled(name: str, tmp_path: Path, ran: Callable[[], bool]) -> None:
    import numpy as np

    evil, path = Evil(tmp_path / "ran"), tmp_path / name
    if name.startswith("p"):
        np.savez(tmp_path / "p.npz", images=np.array([evil], object), labels=np.array([0]))
        np.save(tmp_path / "p.npy", np.array([evil], object), allow_pickle=True)
        with pytest.raises(UserError, match="cannot read pseudo-labelled images"):
            read_pseudo(path, cw.load_data("digits").subset(2))
    else:
        torch.save({"a": evil}, path)
        for form in (path.read_bytes(), pickle.dumps({"a": evil})):
            path.write_bytes(form)
            with pytest.raises(UserError):
                load_model("lenet", weights=path, num_classes=10, trust=True)
            with pytest.raises(UserError):
                load_model(path, trust=True)
    assert not ran()
