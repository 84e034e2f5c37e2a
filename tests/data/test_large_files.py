"""Parquet, Arrow and tar files of images: the same images and labels as a folder of them, and errors that say why."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pooch
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from classwise.core.errors import UserError
from classwise.data import Images, listing_cache, load
from classwise.data.files import image_files

NAMES = ["cat", "dog", "owl"]
LABELS = [2, 0, 1, 1, 0, 2, 0]


def png(number: int, size: int = 6) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (size, size, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "png")
    return buffer.getvalue()


def expected() -> torch.Tensor:
    arrays = [np.asarray(Image.open(io.BytesIO(png(row)))).transpose(2, 0, 1) for row in range(len(LABELS))]
    return torch.from_numpy(np.stack(arrays)).float() / 255


def table(rows: range, labels: list[Any] | None = None, names: bool = True) -> pa.Table:
    """Rows as `datasets` writes them."""
    images = pa.array([{"bytes": png(row), "path": None} for row in rows])
    labels = LABELS if labels is None else labels
    found = pa.table({"image": images, "label": pa.array([labels[row] for row in rows])})
    feature = {"names": NAMES, "_type": "ClassLabel"} if names else {"dtype": "int64", "_type": "Value"}
    about = {"info": {"features": {"image": {"_type": "Image"}, "label": feature}}}
    return found.replace_schema_metadata({"huggingface": json.dumps(about)})


def write_parquet(root: Path) -> None:
    (root / "data").mkdir(parents=True)
    pq.write_table(table(range(4)), root / "data" / "validation-00000-of-00002.parquet", row_group_size=3)
    pq.write_table(table(range(4, 7)), root / "data" / "validation-00001-of-00002.parquet")
    pq.write_table(table(range(2)), root / "data" / "train-00000-of-00001.parquet")


def write_arrow(root: Path) -> None:
    (root / "test").mkdir(parents=True)
    made = table(range(7))
    path = str(root / "test" / "data-00000-of-00001.arrow")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, made.schema) as writer:
        writer.write_table(made, max_chunksize=2)


def write_tars(
    root: Path, label: Callable[[int], tuple[str, bytes]] = lambda row: (".cls", b"%d" % LABELS[row])
) -> None:
    root.mkdir(parents=True)
    for name, rows in (("val-0000", range(4)), ("val-0001", range(4, 7)), ("train-0000", range(2))):
        with tarfile.open(root / f"{name}.tar", "w") as archive:
            for row in rows:
                ending, text = label(row)
                for file, content in ((f"{row:04}.png", png(row)), (f"{row:04}{ending}", text)):
                    info = tarfile.TarInfo(file)
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))


def check(images: Images, names: list[str]) -> None:
    assert images.labels.tolist() == LABELS
    assert list(images.class_names) == names
    x, y = images.batch(np.arange(7))
    assert torch.equal(x, expected())
    assert y.tolist() == LABELS
    rows = np.array([6, 0, 3, 3])
    assert torch.equal(images.batch(rows)[0], expected()[rows])


@pytest.mark.parametrize(
    ("write", "spec", "names"),
    [
        (write_parquet, "parquet", NAMES),
        (write_arrow, "parquet", NAMES),
        (write_tars, "webdataset", ["0", "1", "2"]),
    ],
)
def test_every_image_and_label_is_read(
    write: Callable[[Path], None], spec: str, names: list[str], tmp_path: Path
) -> None:
    write(tmp_path / "d")
    check(load(spec, tmp_path / "d"), names)
    if write is not write_arrow:
        assert load(spec, tmp_path / "d", split="train").labels.tolist() == LABELS[:2]
    with pytest.raises(UserError, match="unknown split"):
        load(spec, tmp_path / "d", split="tset")
    (tmp_path / "d" / "classes.txt").write_text("a\nb\nc\n")
    check(load(f"{spec}:names=classes.txt", tmp_path / "d"), ["a", "b", "c"])
    assert load(f"{spec}:resize=4,channels=1", tmp_path / "d").batch(np.arange(2))[0].shape == (2, 1, 4, 4)


def test_labels_of_a_sample_as_text_or_in_json(tmp_path: Path) -> None:
    write_tars(tmp_path / "text", lambda row: (".txt", NAMES[LABELS[row]].encode()))
    check(load("webdataset:label=txt", tmp_path / "text"), NAMES)
    write_tars(tmp_path / "json", lambda row: (".json", json.dumps({"kind": LABELS[row]}).encode()))
    check(load("webdataset:label=json.kind", tmp_path / "json"), ["0", "1", "2"])
    with pytest.raises(UserError, match=r"there is no 0000\.cls"):
        load("webdataset", tmp_path / "json")
    with pytest.raises(UserError, match="has no name"):
        load("webdataset:label=json.name", tmp_path / "json")


def test_a_class_that_a_split_lacks_keeps_its_number(tmp_path: Path) -> None:
    pq.write_table(table(range(2), [2, 0], names=False), tmp_path / "test-0.parquet")
    found = load("parquet", tmp_path)
    assert found.labels.tolist() == [2, 0]
    assert found.class_names == ("0", "1", "2")


@pytest.mark.parametrize(
    ("labels", "spec", "said"),
    [
        ([0, None, 1], "parquet", "1 of 3 rows of test have no label"),
        ([0, -1, 1], "parquet", "a label is -1"),
        ([0, 7, 1], "parquet", "its files name 3 classes"),
        ([0, 1, 2], "parquet:label=kind", "unknown column"),
        ([0, 1, 2], "parquet:image=label", "no encoded image but int"),
    ],
)
def test_what_cannot_be_used_is_said(labels: list[Any], spec: str, said: str, tmp_path: Path) -> None:
    pq.write_table(table(range(3), labels), tmp_path / "test.parquet")
    with pytest.raises(UserError, match=said):
        load(spec, tmp_path)


def test_damaged_files_and_images_of_several_sizes(tmp_path: Path) -> None:
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "test.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match="cannot read"):
        load("parquet", tmp_path / "cut")
    sizes = pa.table({"image": [png(0), png(1, 8)], "label": [0, 1]})
    (tmp_path / "sizes").mkdir()
    pq.write_table(sizes, tmp_path / "sizes" / "test.parquet")
    with pytest.raises(UserError, match="differ in size: row 0 of group 0"):
        load("parquet", tmp_path / "sizes")
    with tarfile.open(tmp_path / "sizes" / "test.tar", "w:gz"):
        pass
    with pytest.raises(UserError, match="Compressed tar files"):
        load("webdataset", tmp_path / "sizes")
    with pytest.raises(UserError, match=r"no \.tar file"):
        load("webdataset", tmp_path / "cut")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(listing_cache, "_LARGE", 2)
    return tmp_path / "cache"


def age(path: Path) -> None:
    """Make a path look as if it had changed a minute ago."""
    state = path.stat()
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns - 60_000_000_000))


def test_a_folder_is_listed_again_only_where_it_has_changed(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/1.png", "a/b/2.png", "c/3.png", "c/.hidden.png", "c/notes.txt"):
        (tmp_path / "pictures" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pictures" / name).write_bytes(png(0))
    names = ["a/1.png", "a/b/2.png", "c/3.png"]
    assert image_files(tmp_path / "pictures") == [str(tmp_path / "pictures" / name) for name in names]
    assert not cache.exists()  # it has just changed, so that a further change might go unseen
    for folder in (".", "a", "a/b", "c"):
        age(tmp_path / "pictures" / folder)
    image_files(tmp_path / "pictures")
    assert len(list(cache.rglob("*.json"))) == 1
    walks: list[Any] = []
    walk = os.walk
    monkeypatch.setattr(listing_cache.os, "walk", lambda folder: (walks.append(folder), walk(folder))[1])
    assert len(image_files(tmp_path / "pictures")) == 3
    assert not walks
    (tmp_path / "pictures" / "a" / "b" / "4.png").write_bytes(png(1))
    assert len(image_files(tmp_path / "pictures")) == 4
    assert len(walks) == 1


def test_a_tar_file_is_scanned_again_only_where_it_has_changed(cache: Path, tmp_path: Path) -> None:
    write_tars(tmp_path / "d")
    for path in (tmp_path / "d").iterdir():
        age(path)
    check(load("webdataset", tmp_path / "d"), ["0", "1", "2"])
    kept = list(cache.rglob("*.json"))
    assert len(kept) == 2
    check(load("webdataset", tmp_path / "d"), ["0", "1", "2"])
    kept[0].write_text("{")  # a damaged cache is no cache
    check(load("webdataset", tmp_path / "d"), ["0", "1", "2"])
