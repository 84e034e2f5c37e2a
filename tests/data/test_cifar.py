"""CIFAR-10 and CIFAR-100: layout, names, and pickles that must not run."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from classwise.core.errors import UserError
from classwise.data import cifar10, cifar100
from classwise.data.cifar_files import read_pickle


def batch(labels: list[int], key: str = "labels", first: int = 0) -> dict[str, Any]:
    data = np.arange(first, first + len(labels) * 3072).reshape(-1, 3072) % 251
    return {"data": data.astype(np.uint8), key: labels, "filenames": ["a.png"] * len(labels)}


def write(path: Path, content: object, protocol: int = 2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_cifar10_test(tmp_path: Path, protocol: int) -> None:
    write(tmp_path / "cifar-10-batches-py" / "test_batch", batch([3, 9]), protocol)
    images = cifar10.load(tmp_path)
    assert images.labels.tolist() == [3, 9]
    assert images.class_names[3] == "cat"
    assert images.pixels.array.dtype == np.uint8, "no float copy of the data is held"
    x, _ = images.batch(np.array([1]))
    assert x.shape == (1, 3, 32, 32)
    # The red, green and blue planes follow one another, each row by row.
    assert x[0, 1, 2, 3].item() * 255 == pytest.approx((3072 + 1024 + 2 * 32 + 3) % 251, abs=1e-4)


def test_cifar10_train_joins_five_files_in_order(tmp_path: Path) -> None:
    for part in range(1, 6):
        write(tmp_path / "cifar-10-batches-py" / f"data_batch_{part}", batch([part, part], first=part))
    images = cifar10.load(tmp_path, "train")
    assert images.labels.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    first_pixels = images.batch(np.arange(0, 10, 2))[0][:, 0, 0, 0] * 255
    np.testing.assert_allclose(first_pixels, [1, 2, 3, 4, 5], atol=1e-4)


def test_cifar10_train_names_the_file_that_is_missing(tmp_path: Path) -> None:
    write(tmp_path / "cifar-10-batches-py" / "data_batch_1", batch([1]))
    with pytest.raises(UserError, match=r"there is no .*data_batch_2"):
        cifar10.load(tmp_path, "train")


def test_cifar100_needs_only_the_split_asked_for(tmp_path: Path) -> None:
    content = {**batch([0, 99, 47], "fine_labels"), "coarse_labels": [4, 13, 17]}
    write(tmp_path / "cifar-100-python" / "test", content)
    images = cifar100.load(tmp_path)
    assert images.labels.tolist() == [0, 99, 47]
    assert [images.class_names[label] for label in images.labels] == ["apple", "worm", "maple_tree"]
    groups = {member: group for group, members in cifar100.SUPERCLASSES.items() for member in members}
    names = sorted(cifar100.SUPERCLASSES)
    # The coarse labels are numbered alphabetically too.
    assert [names.index(groups[images.class_names[label]]) for label in images.labels] == content["coarse_labels"]


def test_cifar100_has_twenty_groups_of_five() -> None:
    assert len(cifar100.CLASS_NAMES) == 100
    assert [len(members) for members in cifar100.SUPERCLASSES.values()] == [5] * 20


class Malicious:
    """Unpickles by making a folder: proof that it ran."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.system, (f"mkdir {self.proof}",)


def test_a_malicious_pickle_does_not_run(tmp_path: Path) -> None:
    proof = tmp_path / "it_ran"
    path = write(tmp_path / "cifar-10-batches-py" / "test_batch", {**batch([0]), "extra": Malicious(proof)})
    with pytest.raises(UserError, match=r"test_batch asks to call (posix|nt)\.system.*not called.*download it again"):
        cifar10.load(tmp_path)
    assert not proof.exists()
    pickle.loads(path.read_bytes())
    assert proof.exists(), "the pickle would have run elsewhere, so the refusal above means something"


@pytest.mark.parametrize(
    "forbidden",
    [
        b"cbuiltins\neval\n.",
        b"cnumpy\nload\n.",
        b"cnumpy.core.multiarray\nscalar\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x12ndarray.__reduce__\x93.",  # a dotted name reaches into what is allowed
    ],
)
def test_only_what_arrays_need_is_found(tmp_path: Path, forbidden: bytes) -> None:
    path = tmp_path / "batch"
    path.write_bytes(forbidden)
    with pytest.raises(UserError, match="asks to call"):
        read_pickle(path)


@pytest.mark.parametrize("kept", [0, 1, 20, 3000])
def test_a_cut_file_is_named(tmp_path: Path, kept: int) -> None:
    path = write(tmp_path / "cifar-10-batches-py" / "test_batch", batch([1, 2]))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match=r"test_batch is damaged: .*[^.]\. Delete it and download it again"):
        cifar10.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([1, 2], "holds a list"),
        ({"labels": [1]}, "'data' is not rows of 32×32"),
        ({"data": np.zeros((1, 3072)), "labels": [1]}, "'data' is not rows of 32×32"),
        ({"data": np.zeros((1, 3000), np.uint8), "labels": [1]}, "'data' is not rows of 32×32"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, "one of 'labels' for each of its 2 images"),
        ({"data": np.zeros((1, 3072), np.uint8), "fine_labels": [1]}, "one of 'labels'"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": ["cat"]}, "one of 'labels'"),
    ],
)
def test_a_wrong_content_is_named(tmp_path: Path, content: object, why: str) -> None:
    write(tmp_path / "cifar-10-batches-py" / "test_batch", content)
    with pytest.raises(UserError, match=f"test_batch is damaged: .*{why}"):
        cifar10.load(tmp_path)
