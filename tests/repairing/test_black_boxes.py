"""Repair of what has no gradient or no last layer to change: a bias outside, in a file that everything can load."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from tilted import EPS, HANDICAP, SCALE, Rows, images

import classwise as cw
from classwise.core.errors import UserError
from classwise.models import load_model, read_checkpoint, save_checkpoint
from classwise.models.biased_file import read_biased, write_biased
from classwise.models.logit_bias import Biased
from classwise.models.serve import Server

pytestmark = pytest.mark.slow  # repairs models

ATTACK = "square:queries=20"
MAKE = f"{Path(__file__).parent / 'tilted.py'}:make"


def score(batch: Any) -> Any:
    """The model of `tilted` in numpy."""
    return SCALE * batch.mean((1, 3)) - np.array([0.0, 0.0, HANDICAP])


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """The same as an ONNX file."""
    weights = [
        numpy_helper.from_array(np.array(SCALE, np.float32), "scale"),
        numpy_helper.from_array(np.array([0.0, 0.0, -HANDICAP], np.float32), "bias"),
    ]
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1, 3], keepdims=0),
        helper.make_node("Mul", ["mean", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "bias"], ["z"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["n", 1, 3, 4]), ("z", ["n", 3]))
    ]
    graph = helper.make_graph(nodes, "rows", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@pytest.fixture
def url() -> Iterator[str]:
    server = Server(score, port=0)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server.url
    server.shutdown()
    server.server_close()


def same_logits(spec: Any, found: cw.RepairResult, **options: Any) -> None:
    x = images().batch(np.arange(20))[0]
    expected = torch.from_numpy(score(x.numpy())).float() + torch.tensor(list(found.bias.values()))
    assert torch.allclose(load_model(spec, **options)(x), expected, atol=1e-5)


def raised(found: cw.RepairResult) -> None:
    assert found.before.worst.name == "bottom"
    assert found.bias["bottom"] > 0.3
    assert found.calibrated()["after"]["worst"] > found.calibrated()["before"]["worst"] + 0.1


def test_an_onnx_file(network: Path, tmp_path: Path) -> None:
    found = cw.repair(str(network), images(), ATTACK, EPS, out=tmp_path / "run", rounds=3)
    raised(found)
    assert found.best == tmp_path / "run" / "best.toml"
    same_logits(found.best, found)
    assert cw.audit(str(found.best), images(), ATTACK, EPS).worst.value > 0.3
    again = cw.repair(str(network), images(), ATTACK, EPS, out=tmp_path / "run", rounds=3)
    assert again.bias == found.bias


def test_a_model_behind_http(url: str, tmp_path: Path) -> None:
    found = cw.repair(f"{url},chunk=128", images(1), ATTACK, EPS, out=tmp_path / "run", rounds=2)
    raised(found)
    with pytest.raises(UserError, match=r"best.toml says that its model is 'http://127.0.0.1.*--trust"):
        load_model(found.best)
    same_logits(found.best, found, trust=True)
    assert "--trust" not in found.command  # images given in Python cannot be named by a command
    assert "best.toml" in found.command


def test_the_default_attack_of_a_black_box_needs_no_gradient() -> None:
    found = cw.repair(score, images(1), eps=EPS, rounds=1, judge_attacks="square:queries=5")
    assert found.settings["attacks"] == ["square-500"]
    assert found.best is None
    same_logits(found.model, found)
    with pytest.raises(UserError, match="pgd-20 needs the gradient"):
        cw.repair(score, images(1), "pgd-20", EPS)
    with pytest.raises(UserError, match="Use --knob bias"):
        cw.repair(score, images(1), ATTACK, EPS, knob="last_layer")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_torchscript_program(tmp_path: Path) -> None:
    x = images().batch(np.arange(20))[0]
    torch.jit.save(torch.jit.trace(Rows(), x), tmp_path / "net.ts")
    found = cw.repair(f"program:{tmp_path / 'net.ts'}", images(), "pgd-5", EPS, out=tmp_path / "run", rounds=3)
    raised(found)
    same_logits(found.best, found, trust=True)
    traced = torch.jit.trace(load_model(found.best, trust=True), x)
    assert torch.allclose(traced(x), found.model(x), atol=1e-5)


def test_a_layer_without_bias_gets_one_outside_that_the_checkpoint_keeps(tmp_path: Path) -> None:
    make = f"{MAKE},bias=false,slant=true"
    found = cw.repair(make, images(), "pgd-5", EPS, out=tmp_path / "run", rounds=3)
    raised(found)
    assert found.best is not None
    content = read_checkpoint(found.best)
    assert list(content["state_dict"]) == ["linear.weight"]
    assert content["classwise"]["logit_bias"] == pytest.approx(list(found.bias.values()))
    model = load_model(found.best, trust=True)
    assert isinstance(model, Biased)
    x = images().batch(np.arange(20))[0]
    assert torch.allclose(model(x), model.body(x) + torch.tensor(list(found.bias.values())), atol=1e-6)
    batch = {0: torch.export.Dim("batch")}
    exported = tmp_path / "net.onnx"
    torch.onnx.export(model, (x[:2],), exported, dynamic_shapes=({**batch},), dynamo=True, verbose=False)
    assert torch.allclose(load_model(exported)(x), model(x), atol=1e-5)
    with pytest.raises(UserError, match="adds a bias to the logits of its network"):
        load_model(make, weights=found.best)
    once_more = cw.repair(str(found.best), images(), "pgd-5", EPS, out=tmp_path / "again", rounds=1, trust=True)
    both = torch.tensor(list(found.bias.values())) + torch.tensor(list(once_more.bias.values()))
    assert torch.allclose(load_model(once_more.best, trust=True)(x), model.body(x) + both, atol=1e-5)


def test_a_damaged_bias_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "bad.pt", Biased(Rows(), [0.0, float("nan"), 0.0]), MAKE, 3, 1)
    with pytest.raises(UserError, match="its logit bias is"):
        read_checkpoint(tmp_path / "bad.pt")
    write_biased(tmp_path / "net.toml", "net.onnx", [1.0, 2.0])
    assert read_biased(tmp_path / "net.toml").model == str(Path("net.onnx").resolve())
    for text in ("", "model = 3\nbias = [1, 2]", 'model = "net.onnx"\nbias = [1]', 'model = "a.onnx"\nbias = [nan, 1]'):
        (tmp_path / "net.toml").write_text(text)
        with pytest.raises(UserError, match=r"net.toml is no model file that a repair has written"):
            load_model(tmp_path / "net.toml")
    write_biased(tmp_path / "net.toml", "resnet-18", [1.0, 2.0])
    with pytest.raises(UserError, match="neither a black box nor a program"):
        load_model(tmp_path / "net.toml")
