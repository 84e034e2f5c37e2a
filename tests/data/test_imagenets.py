"""ImageNet and Tiny ImageNet: WordNet folders, annotations, readable names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from classwise.core.errors import UserError
from classwise.data import imagenet, tiny_imagenet, wordnet

GOLDFISH, CRANE_BIRD, CRANE_MACHINE = "n01443537", "n02012849", "n03126707"


def write(path: Path, shade: int = 0, size: tuple[int, int] = (64, 64)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (shade, shade, shade)).save(path, format="PNG")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    root = tmp_path / "tiny-imagenet-200"
    root.mkdir()
    (root / "wnids.txt").write_text(f"{CRANE_MACHINE}\n{GOLDFISH}\n{CRANE_BIRD}\n")  # not sorted, as the official
    (root / "words.txt").write_text(
        f"{GOLDFISH}\tgoldfish, Carassius auratus\n{CRANE_BIRD}\tcrane\n{CRANE_MACHINE}\tcrane\n"
    )
    for number, wnid in enumerate((GOLDFISH, CRANE_BIRD)):
        write(root / "train" / wnid / "images" / f"{wnid}_0.JPEG", shade=10 * number)
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("boxes")
    for number, shade in enumerate((5, 6)):
        write(root / "val" / "images" / f"val_{number}.JPEG", shade)
    lines = [f"val_1.JPEG\t{CRANE_MACHINE}\t0\t0\t1\t1", f"val_0.JPEG\t{GOLDFISH}\t0\t0\t1\t1"]
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_tiny_val_follows_its_annotations(tiny: Path) -> None:
    images = tiny_imagenet.load(tiny)
    assert images.class_names == ("goldfish", f"crane ({CRANE_BIRD})", f"crane ({CRANE_MACHINE})")
    assert images.labels.tolist() == [2, 0]
    x, _ = images.batch(np.array([0, 1]))
    assert x.shape == (2, 3, 64, 64)
    assert (x[:, 0, 0, 0] * 255).round().tolist() == [6, 5]


def test_tiny_train(tiny: Path) -> None:
    images = tiny_imagenet.load(tiny, "train")
    assert images.labels.tolist() == [0, 1]
    assert images.num_classes == 3


def test_tiny_val_sorted_into_folders(tiny: Path) -> None:
    val = tiny / "tiny-imagenet-200" / "val"
    (val / "val_annotations.txt").unlink()
    write(val / CRANE_BIRD / "images" / "val_7.JPEG")
    assert tiny_imagenet.load(tiny, "val").labels.tolist() == [1]


def test_tiny_annotations_without_their_file(tiny: Path) -> None:
    (tiny / "tiny-imagenet-200" / "val" / "images" / "val_0.JPEG").unlink()
    with pytest.raises(UserError, match=r"val_annotations.txt says 'val_0.JPEG.*not there"):
        tiny_imagenet.load(tiny)


def test_imagenet_is_resized_and_cropped(tmp_path: Path) -> None:
    write(tmp_path / "val" / GOLDFISH / "a.JPEG", 7, size=(300, 500))
    write(tmp_path / "val" / CRANE_BIRD / "b.JPEG", 8, size=(500, 280))
    images = imagenet.load(tmp_path)
    assert images.class_names == (GOLDFISH, CRANE_BIRD)
    x, y = images.batch(np.array([1, 0]))
    assert x.shape == (2, 3, 224, 224)
    assert y.tolist() == [1, 0]
    assert (x.mean((1, 2, 3)) * 255).round().tolist() == [8, 7]
    assert imagenet.load(tmp_path, resize=40, crop=32).batch(np.array([0]))[0].shape == (1, 3, 32, 32)


@pytest.mark.parametrize("kind", ["mapping", "json"])
def test_imagenet_names_keep_the_numbering_of_missing_classes(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "imagenet" / "val" / CRANE_MACHINE / "a.JPEG", size=(256, 256))
    words = {GOLDFISH: "goldfish, Carassius auratus", CRANE_BIRD: "crane bird", CRANE_MACHINE: "crane"}
    if kind == "mapping":
        text = "".join(f"{wnid} {name}\n" for wnid, name in words.items())
        (tmp_path / "imagenet" / "LOC_synset_mapping.txt").write_text(text)
    else:
        words[GOLDFISH] = "goldfish"
        index = {str(number): [wnid, name.replace(" ", "_")] for number, (wnid, name) in enumerate(words.items())}
        (tmp_path / "imagenet" / "imagenet_class_index.json").write_text(json.dumps(index))
    images = imagenet.load(tmp_path, "val")
    assert images.class_names == ("goldfish", "crane bird", "crane")
    assert images.labels.tolist() == [2]


def test_imagenet_classes_are_those_of_both_splits(tmp_path: Path) -> None:
    write(tmp_path / "train" / GOLDFISH / "a.JPEG")
    write(tmp_path / "val" / CRANE_BIRD / "a.JPEG")
    assert imagenet.load(tmp_path).labels.tolist() == [1]


def test_imagenet_flat_val_is_explained(tmp_path: Path) -> None:
    write(tmp_path / "val" / "ILSVRC2012_val_00000001.JPEG")
    with pytest.raises(UserError, match=r"sort them into .*val/<wnid>/"):
        imagenet.load(tmp_path)


def test_a_wrong_class_index_is_named(tmp_path: Path) -> None:
    path = tmp_path / "imagenet_class_index.json"
    for text in ("[1, 2]", "{", '{"0": 3}'):
        path.write_text(text)
        with pytest.raises(UserError, match=r"imagenet_class_index.json is not of the form"):
            wordnet.read_class_index(path)
