"""Tiny ImageNet: 200 classes of ImageNet, 64×64 colour, 100,000 train and 10,000 val; read file by file.

Reads ``root/tiny-imagenet-200/``: ``train/<wnid>/images/``, and ``val/`` with ``val_annotations.txt`` or already sorted
into ``val/<wnid>/``. Classes are numbered by sorted WordNet id, as folder-based loaders do; ``words.txt`` names them.
The official test labels were never released, so the split "test" means "val".
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from classwise.core.errors import UserError
from classwise.data import wordnet
from classwise.data.download import Remote, damaged, locate
from classwise.data.files import FilePixels, image_files, labelled
from classwise.data.images import Images, IntArray, Size, check_split

PAPERS = ("le2015",)
FLIPS = True
SIZE = Size((3, 64, 64), 200, 100_000, 10_000)
ARCHIVE = Remote("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "md5:90528d7ca1a48142e341f4ef8d21d0de")
_FOLDERS = {"train": "train", "val": "val", "test": "val"}


def load(root: str | Path, split: str = "test", download: bool = False) -> Images:
    """The split "train" or "val" (also called "test"); files are decoded batch by batch."""
    check_split("tiny_imagenet", split, _FOLDERS)
    root = Path(root).expanduser()
    ids = locate("tiny_imagenet", [root / "tiny-imagenet-200" / "wnids.txt"], ARCHIVE, root, download)
    wnids = sorted(ids.read_text(encoding="utf-8").split())
    folder = ids.parent / _FOLDERS[split]
    annotations = folder / "val_annotations.txt"
    paths, labels = _annotated(annotations, wnids) if annotations.is_file() else labelled(folder, wnids)
    if not paths:
        raise UserError(
            f"tiny_imagenet: no image under {folder}. Delete {ids.parent} and pass download=True (--download)."
        )
    words = ids.with_name("words.txt")
    names = wordnet.class_names(wnids, wordnet.read_words(words) if words.is_file() else {})
    return Images(FilePixels(paths), labels, names, "tiny_imagenet")


def _annotated(annotations: Path, wnids: list[str]) -> tuple[list[str], IntArray]:
    """The files and class numbers of lines such as ``val_0.JPEG <tab> n03444034 <tab> (box)``."""
    number = {wnid: label for label, wnid in enumerate(wnids)}
    present = {Path(path).name: path for path in image_files(annotations.parent / "images")}
    paths, labels = [], []
    for line in annotations.read_text(encoding="utf-8").splitlines():
        file, wnid = [*line.split("\t"), ""][:2]
        if file not in present or wnid not in number:
            raise damaged(annotations.parent, f"{annotations.name} says {line!r}, but that file or class is not there")
        paths.append(present[file])
        labels.append(number[wnid])
    return paths, np.asarray(labels, dtype=np.int64)
