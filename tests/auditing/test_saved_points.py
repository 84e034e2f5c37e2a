"""Adversarial images kept in the run folder: exact, rounded, and what rounding does to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import classwise as cw
from classwise.core import adversarial_examples
from classwise.core.errors import UserError


class Threshold(nn.Module):
    """Class 0 where the first pixel is above 100/255; the distances to it are known."""

    def forward(self, x: Tensor) -> Tensor:
        m = x[:, 0, 0, 0] - 100 / 255
        return torch.stack([m, -m], 1)


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    x = torch.full((4, 3, 2, 2), 0.5)
    x[:, 0, 0, 0] = torch.tensor([99.0, 101.0, 103.0, 140.0]) / 255  # misclassified, near, near, far
    return x, torch.zeros(4, dtype=torch.int64)


def audit_of(data: tuple[Tensor, Tensor], out: Path, step: str) -> cw.Audit:
    attack = f"pgd:steps=6,step={step},start=none"
    return cw.audit(Threshold(), data, attack, eps="8/255", class_names=["a", "b"], out=out, save_adversarial=True)


def test_exact_and_rounded_images_with_their_rows(data: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    audit = audit_of(data, tmp_path / "run", "2/255")
    found = cw.Audit.load(tmp_path / "run").adversarial("pgd-6")
    assert found["index"].tolist() == [1, 2]  # not the one that was misclassified anyway, not the robust one
    assert found["label"].tolist() == [0, 0]
    assert found["exact"].shape == (2, 3, 2, 2)
    assert found["rounded"].shape == (2, 2, 2, 3)
    np.testing.assert_allclose(found["exact"][:, 0, 0, 0], [99 / 255, 99 / 255], atol=1e-6)
    assert found["rounded"][:, 0, 0, 0].tolist() == [99, 99]
    np.testing.assert_array_equal(found["clean"], data[0].numpy()[[1, 2]])
    assert found["survives"].all()
    assert audit.timing["attacks"]["pgd-6"]["kept"] == 2
    assert audit.timing["attacks"]["pgd-6"]["survive_rounding"] == 2


def test_an_example_that_rounding_mends_is_counted(data: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    """Steps of 1.3/255 pass the threshold at 99.7/255 and 99.1/255; the first rounds back to exactly 100."""

    class Above(Threshold):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + torch.tensor([1e-4, 0.0])  # 100/255 itself is class 0

    attack = "pgd:steps=6,step=1.3/255,start=none"
    options = {"eps": "8/255", "class_names": ["a", "b"], "out": tmp_path, "save_adversarial": True}
    audit = cw.audit(Above(), data, attack, **options)  # type: ignore[arg-type]
    found = audit.adversarial()
    assert found["index"].tolist() == [1, 2]
    assert found["survives"].tolist() == [False, True]
    assert found["prediction"].tolist() == [0, 1]
    assert audit.timing["attacks"]["pgd-6"]["survive_rounding"] == 1


def test_along_several_radii_an_example_is_kept_where_it_broke(data: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    """101 breaks within 2/255 and is not attacked again at 8/255, where 103 breaks."""
    attack = "pgd:steps=6,step=2/255,start=none"
    options = {"eps": ["2/255", "8/255"], "class_names": ["a", "b"], "out": tmp_path, "save_adversarial": True}
    audit = cw.audit(Threshold(), data, attack, **options)  # type: ignore[arg-type]
    small, large = (audit.adversarial(name) for name in audit.attacks)
    assert small["index"].tolist() == [1]
    assert large["index"].tolist() == [2]
    assert (large["exact"] != large["clean"]).reshape(1, -1).any()
    assert audit.records.of(audit.attacks[1]).correct.tolist() == [False, False, False, True]


@pytest.mark.parametrize("left", [[], ["clean"]])
def test_files_of_earlier_versions_are_still_read(data: tuple[Tensor, Tensor], tmp_path: Path, left: list[str]) -> None:
    """They held the exact and the rounded images, the first of them not the clean ones."""
    audit = audit_of(data, tmp_path, "2/255")
    now = audit.adversarial()
    old = {key: value for key, value in now.items() if key not in left}
    for path in (tmp_path / "adversarial").glob("*.npz"):
        np.savez(path, **old)
    found = audit.adversarial()
    assert found.keys() == old.keys()
    assert all(np.array_equal(found[key], old[key]) for key in old)


def test_what_is_read_is_what_was_written_to_the_bit(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name, clean in {
        "bytes": random.integers(0, 256, (5, 3, 8, 8)).astype(np.float32) / np.float32(255),
        "floats": random.random((5, 3, 8, 8), dtype=np.float32),
    }.items():
        exact = (clean + random.uniform(-0.03, 0.03, clean.shape)).clip(0, 1).astype(np.float32)
        path = tmp_path / name / "adversarial" / "01-fgsm-00000.npz"
        numbers = np.arange(5)
        columns = {"index": numbers, "label": numbers, "prediction": numbers % 2, "exact": exact, "clean": clean}
        digest = adversarial_examples.write(path, "fgsm", **columns)
        assert adversarial_examples.intact(path, digest)
        found = adversarial_examples.read(tmp_path / name, "fgsm")
        assert np.array_equal(found["exact"], exact)
        assert np.array_equal(found["clean"], clean)
        assert found["survives"].tolist() == [False, False, True, True, True]
        with np.load(path) as stored:
            assert stored["clean"].dtype == (np.uint8 if name == "bytes" else np.float32)
            assert 0 < len(stored["at"]) < exact.size / 10  # pixels whose sum is rounded otherwise


def test_they_need_a_run_folder(data: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run folder"):
        cw.audit(Threshold(), data, "fgsm", save_adversarial=True)
    with pytest.raises(UserError, match="save_adversarial=True"):
        cw.audit(Threshold(), data, "fgsm").adversarial()
    with pytest.raises(UserError, match="--save-adversarial"):
        cw.audit(Threshold(), data, "fgsm", out=tmp_path).adversarial("fgsm")


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied", "removed", "no archive"])
def test_a_damaged_file_is_named_and_computed_again(data: tuple[Tensor, Tensor], tmp_path: Path, damage: str) -> None:
    before = audit_of(data, tmp_path, "2/255").adversarial()
    (path,) = (tmp_path / "adversarial").glob("*.npz")
    content = bytearray(path.read_bytes())
    content[content.index(b"difference.npy") + 40] ^= 1
    new = {"flipped": content, "cut": content[:200], "emptied": b"", "no archive": b"\x93NUMPY" + content[:99]}
    path.unlink() if damage == "removed" else path.write_bytes(new[damage])
    problem = "no adversarial images of pgd-6" if damage == "removed" else "cannot read the adversarial images"
    with pytest.raises(UserError, match=problem):
        cw.Audit.load(tmp_path).adversarial()
    again = audit_of(data, tmp_path, "2/255").adversarial()
    assert all((before[key] == again[key]).all() for key in before)
    assert bytes(content) != path.read_bytes()
