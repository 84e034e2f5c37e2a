"""A checkpoint with a flipped bit is an error or the same weights, never other ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from classwise.core.errors import UserError
from classwise.models import load_model, read_checkpoint, read_state, save_checkpoint
from classwise.models.checkpoint import digest

FLIPS = 200
SPEC = "resnet:width=1,blocks=1-1"


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    return bool(one == other)


def survivors(path: Path, read: Callable[[Path], Any], seed: int) -> list[Any]:
    """What is read from the file with one bit flipped, wherever that is no error."""
    whole, rng, found = path.read_bytes(), np.random.default_rng(seed), []
    for place in rng.integers(0, 8 * len(whole), FLIPS):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        try:
            found.append(read(path))
        except UserError:
            continue
    path.write_bytes(whole)
    return found


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    model = load_model(SPEC, num_classes=3, in_channels=1)
    extra = {
        "optimizer": {"state": {0: {"momentum": torch.rand(40)}}},
        "state": {"weight": torch.rand(3)},
        "rows": "[1]",
    }
    save_checkpoint(tmp_path / "m.pt", model, SPEC, 3, 1, training=extra)
    return tmp_path / "m.pt"


@pytest.mark.slow
def test_ours(ours: Path) -> None:
    expected = read_checkpoint(ours)
    found = survivors(ours, read_checkpoint, 0)
    assert len(found) < FLIPS / 2
    assert all(equal(content, expected) for content in found)


@pytest.mark.slow
def test_weights_of_others(tmp_path: Path) -> None:
    path, state = tmp_path / "w.pth", load_model(SPEC, num_classes=3, in_channels=1).state_dict()
    torch.save({"state_dict": state, "epoch": 3}, path)
    expected = read_state(path)
    found = survivors(path, read_state, 1)
    assert len(found) < FLIPS / 2
    assert all(equal(content, expected) for content in found)


def test_weights_written_without_checksums_are_read(tmp_path: Path) -> None:
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.arange(5)}, tmp_path / "w.pt")
    finally:
        torch.serialization.set_crc32_options(before)
    assert torch.equal(read_state(tmp_path / "w.pt")["a"], torch.arange(5))


def rewritten(path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """The checkpoint with other content in a file that is whole."""
    content = torch.load(path, weights_only=True)
    change(content)
    torch.save(content, path)
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["state_dict"]["linear.bias"].add_(1e-7),
        lambda content: content["classwise"]["extra"]["training"]["state"]["weight"].mul_(2),
        lambda content: content["classwise"]["extra"]["training"]["optimizer"]["state"][0]["momentum"].neg_(),
        lambda content: content["classwise"].update(num_classes=4),
        lambda content: content["classwise"].update(digest="0" * 64),
    ],
)
def test_the_digest_covers_all(ours: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    with pytest.raises(UserError, match=r"m\.pt is damaged: .*digest differs"):
        read_checkpoint(rewritten(ours, change))


def test_one_from_before_there_were_digests(ours: Path) -> None:
    model = load_model(ours)
    old = load_model(rewritten(ours, lambda content: content["classwise"].pop("digest")))
    assert equal(dict(model.state_dict()), dict(old.state_dict()))


@pytest.mark.parametrize("name", ["model", "num_classes", "in_channels", "state_dict", "normalize"])
@pytest.mark.parametrize("value", [None, "absent", [1], {}, -1])
def test_an_incomplete_one_is_an_error(ours: Path, name: str, value: Any) -> None:
    def change(content: dict[str, Any]) -> None:
        tree = content if name == "state_dict" else content["classwise"]
        content["classwise"].pop("digest")
        tree.pop(name) if value == "absent" else tree.update({name: value})

    rewritten(ours, change)
    if name == "normalize" and value in (None, "absent"):
        load_model(ours)
        return
    with pytest.raises(UserError):
        load_model(ours)


def test_two_contents_never_look_alike() -> None:
    alike = [{"a": [1, 2]}, {"a": [[1], 2]}, {"a": "12"}, {"a": torch.tensor([1, 2])}, {"a": {"b": 1}}, {"ab": 1}, {}]
    assert len({digest(header, {}) for header in alike}) == len(alike)
    assert digest({}, {"a": torch.zeros(2, 3)}) != digest({}, {"a": torch.zeros(3, 2)})
    channels_last = torch.rand(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    assert digest({}, {"a": channels_last}) == digest({}, {"a": channels_last.contiguous()})
