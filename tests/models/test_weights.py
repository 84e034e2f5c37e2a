"""Weights: every format, wrapper and naming that published checkpoints come in, and the errors for the rest."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from classwise.core.errors import UserError
from classwise.models import load_model, load_weights, read_state
from classwise.models.weights import load_state

SPEC = "resnet:width=2,blocks=1-1"
State = dict[str, torch.Tensor]


@pytest.fixture
def state() -> State:
    """Weights that no fresh model has."""
    return load_model(SPEC, num_classes=4, seed=99).state_dict()


def loads(path: Path, state: State, **arguments: Any) -> bool:
    model = load_model(SPEC, weights=path, num_classes=4, **arguments)
    own = getattr(model, "body", model).state_dict()
    return own.keys() == state.keys() and all(torch.equal(own[key], state[key]) for key in state)


def prefixed(state: State, prefix: str) -> State:
    return {prefix + key: value for key, value in state.items()}


class TestFormats:
    @pytest.mark.parametrize("new", [True, False])
    def test_torch_files_new_and_old(self, tmp_path: Path, state: State, new: bool) -> None:
        torch.save(state, tmp_path / "w.pt", _use_new_zipfile_serialization=new)
        assert loads(tmp_path / "w.pt", state)

    def test_safetensors(self, tmp_path: Path, state: State) -> None:
        save_file(state, tmp_path / "w.safetensors")
        assert loads(tmp_path / "w.safetensors", state)

    @pytest.mark.parametrize("key", ["state_dict", "model", "net", "model_state_dict", "ema", "state_dict_ema"])
    def test_training_checkpoints(self, tmp_path: Path, state: State, key: str) -> None:
        torch.save({"epoch": 3, "best": torch.tensor(0.5), "optimizer": {"lr": 0.1}, key: state}, tmp_path / "w.pt")
        assert loads(tmp_path / "w.pt", state)

    def test_trained_weights_go_before_their_average(self, tmp_path: Path, state: State) -> None:
        average = {key: torch.zeros_like(value) for key, value in state.items()}
        torch.save({"ema": average, "model": {"state_dict": state}}, tmp_path / "w.pt")
        assert loads(tmp_path / "w.pt", state)

    def test_a_checkpoint_without_weights_says_what_it_holds(self, tmp_path: Path) -> None:
        torch.save({"epoch": 3, "last": {"a": 1}}, tmp_path / "w.pt")
        with pytest.raises(UserError, match=r"no weights found in .*'epoch', 'last'"):
            read_state(tmp_path / "w.pt")


class TestNames:
    @pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "net.", "1.", "module.model.1.", "body."])
    def test_prefix_of_a_wrapper(self, tmp_path: Path, state: State, prefix: str) -> None:
        torch.save(prefixed(state, prefix), tmp_path / "w.pt")
        assert loads(tmp_path / "w.pt", state)
        assert loads(tmp_path / "w.pt", state, normalize="cifar10")

    def test_prefix_on_both_sides(self, state: State) -> None:
        model = nn.Sequential(nn.Identity(), load_model(SPEC, num_classes=4))
        load_state(model, prefixed(state, "module."))
        assert torch.equal(model[1].state_dict()["linear.weight"], state["linear.weight"])

    def test_torchvision_names(self, state: State) -> None:
        theirs = {k.replace("shortcut", "downsample").replace("linear.", "fc."): v for k, v in state.items()}
        assert theirs.keys() != state.keys()
        model = load_model(SPEC, num_classes=4)
        load_state(model, theirs)
        assert torch.equal(model.head.weight, state["linear.weight"])
        assert torch.equal(model.layer2[0].shortcut[0].weight, state["layer2.0.shortcut.0.weight"])

    def test_an_ambiguous_head_is_not_guessed(self, state: State) -> None:
        theirs = {key.replace("linear.", "fc."): value for key, value in state.items()}
        theirs["classifier.weight"] = theirs["fc.weight"]
        with pytest.raises(UserError, match=r"missing from the file: linear.weight, linear.bias"):
            load_state(load_model(SPEC, num_classes=4), theirs)

    def test_old_files_have_no_batch_counts(self, state: State) -> None:
        old = {key: value for key, value in state.items() if "num_batches_tracked" not in key}
        assert len(old) < len(state)
        load_state(load_model(SPEC, num_classes=4), old)

    def test_unused_block_of_the_trades_family(self) -> None:
        state = load_model("wideresnet-10-1", num_classes=4, seed=5).state_dict()
        unused = {key.replace("block1", "sub_block1"): value for key, value in state.items() if "block1" in key}
        assert unused
        model = load_model("wideresnet-10-1", num_classes=4)
        load_state(model, prefixed({**state, **unused}, "module."))
        assert torch.equal(model.fc.weight, state["fc.weight"])


class TestNormalisationInTheFile:
    @pytest.fixture
    def file(self, tmp_path: Path, state: State) -> Path:
        layer = {"0.mean": torch.tensor([0.5, 0.4, 0.3]), "0.std": torch.tensor([0.2, 0.2, 0.1]).reshape(1, 3, 1, 1)}
        torch.save({**layer, **prefixed(state, "1.")}, tmp_path / "w.pt")
        return tmp_path / "w.pt"

    def test_a_model_without_it_is_refused(self, file: Path, state: State) -> None:
        with pytest.raises(UserError, match=r"normalize='mean=\[0.5, 0.4, 0.3\],std=\[0.2, 0.2, 0.1\]'"):
            loads(file, state)

    def test_another_one_is_refused(self, file: Path, state: State) -> None:
        with pytest.raises(UserError, match=r"normalises with mean=\[0.5, 0.4, 0.3\].* the model does not"):
            loads(file, state, normalize="cifar10")

    def test_the_same_one_loads(self, file: Path, state: State) -> None:
        assert loads(file, state, normalize="mean=[0.5, 0.4, 0.3],std=[0.2, 0.2, 0.1]")


class TestMismatch:
    def test_a_mean_without_a_std_is_not_dropped(self, state: State) -> None:
        with pytest.raises(UserError, match=r"1 unexpected in the file: input.mean"):
            load_state(load_model(SPEC, num_classes=4), {**state, "input.mean": torch.zeros(3)})

    def test_lists_both_sides_with_counts(self, state: State) -> None:
        with pytest.raises(UserError) as caught:
            load_state(load_model("lenet", num_classes=4), state, "w.pt")
        text = str(caught.value)
        assert "weights in w.pt do not fit" in text
        assert "9 missing from the file: conv1.bias" in text
        assert "… and 1 more" in text
        assert "unexpected in the file: bn1.weight" in text
        assert "conv1.weight (file (2, 3, 3, 3), model (6, 3, 5, 5))" in text

    @pytest.mark.parametrize("head", ["linear.", "fc."])
    def test_another_number_of_classes(self, state: State, head: str) -> None:
        theirs = {key.replace("linear.", head): value for key, value in state.items()}
        with pytest.raises(UserError, match="has 4 classes and the model 6: pass num_classes=4"):
            load_state(load_model(SPEC, num_classes=6), theirs)

    def test_nothing_is_loaded_when_something_does_not_fit(self, state: State) -> None:
        model = load_model(SPEC, num_classes=4)
        before = model.conv1.weight.clone()
        del state["linear.bias"]
        with pytest.raises(UserError, match=r"1 missing from the file: linear.bias"):
            load_state(model, state)
        assert torch.equal(model.conv1.weight, before)


class Touch:
    """Unpickling this creates a file: the harmless form of an attack."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.target),)


class TestFilesThatAreRefused:
    @pytest.mark.parametrize("new", [True, False])
    def test_code_is_never_run(self, tmp_path: Path, new: bool) -> None:
        target = tmp_path / "pwned"
        evil = {"state_dict": {"conv1.weight": torch.zeros(1), "x": Touch(target)}}
        torch.save(evil, tmp_path / "evil.pt", _use_new_zipfile_serialization=new)
        with pytest.raises(UserError, match=r"holds the Python object \w+\.mkdir.* would run code"):
            read_state(tmp_path / "evil.pt")
        with pytest.raises(UserError, match="would run code"):
            load_model(tmp_path / "evil.pt")
        assert not target.exists()

    @pytest.mark.parametrize("protocol", [2, 4])
    def test_a_plain_pickle_is_never_run(self, tmp_path: Path, protocol: int) -> None:
        target = tmp_path / "pwned"
        (tmp_path / "evil.pt").write_bytes(pickle.dumps({"a": Touch(target)}, protocol=protocol))
        with pytest.raises(UserError):
            read_state(tmp_path / "evil.pt")
        assert not target.exists()

    def test_a_whole_pickled_module(self, tmp_path: Path) -> None:
        torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
        with pytest.raises(UserError, match=r"Python object torch.nn.modules.linear.Linear.*model.state_dict\(\)"):
            read_state(tmp_path / "module.pt")

    @pytest.mark.parametrize("new", [True, False])
    @pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.99])
    def test_truncated(self, tmp_path: Path, state: State, new: bool, keep: float) -> None:
        torch.save(state, tmp_path / "w.pt", _use_new_zipfile_serialization=new)
        content = (tmp_path / "w.pt").read_bytes()
        (tmp_path / "w.pt").write_bytes(content[: int(len(content) * keep)])
        with pytest.raises(
            UserError, match=r"cannot read weights .*w.pt: the file is cut short, damaged or not a weights file"
        ):
            load_weights(load_model(SPEC, num_classes=4), tmp_path / "w.pt")

    @pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
    def test_not_weights_at_all(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(b"<html>404 not found</html>" * 9)
        with pytest.raises(UserError, match="not a weights file"):
            read_state(tmp_path / name)

    def test_no_such_file(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="no weights file"):
            read_state(tmp_path / "absent.pt")
