"""Folder: your own images, one sub-folder per class or with labels in a CSV file; read file by file.

Reads ``root/<class>/…`` or ``root/{train,val,test}/<class>/…``; a folder called train, val or test (in any case; also
training, valid, validation, testing) is a split when it holds sub-folders. Classes are the sub-folders in alphabetical
order, those of all splits together; an empty one is a class with no example. Without splits, `test` holds a share of
each class out as the split test, the rest being train: ``folder:test=0.2``.

`labels` is a CSV file with a row for each image instead, its path and its label (`classwise.data.labels`); `names` a
file with the names of the classes. `resize` makes the shorter side that long and keeps the central square (of `crop`
pixels, if given); with ``fit=stretch`` both sides, ignoring their ratio; with ``fit=pad`` the longer side, with black
bars along it. `crop` alone cuts the centre out; `channels` is 3 or 1.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np

from classwise.core.errors import UserError, unknown
from classwise.core.spec import OpenShare
from classwise.data import labels as label_files
from classwise.data.decoding import Decoder, Fit
from classwise.data.files import FilePixels, by_class, class_folders
from classwise.data.images import Images, IntArray
from classwise.data.labels import Labelled

PAPERS = ()  # ours, or common knowledge


def load(
    root: str | Path,
    split: str = "test",
    download: bool = False,
    resize: int | None = None,
    crop: int | None = None,
    channels: int = 3,
    fit: Fit = "crop",
    test: OpenShare | None = None,
    labels: str | None = None,
    file: str | None = None,
    label: str | None = None,
    names: str | None = None,
) -> Images:
    """The images of a split, or of the whole folder if it has no splits. There is nothing to download.

    file, label: the columns of the CSV file, where they have names of their own.
    """
    root = Path(root).expanduser()
    if not root.is_dir():
        raise UserError(
            f"folder: there is no folder {root}. Give the root that holds one sub-folder per class, or the images."
        )
    if labels is None and (file or label):
        raise UserError("folder: file= and label= are columns of a CSV file; give it as labels=FILE.csv.")
    found = _by_folder(root) if labels is None else label_files.read(root, labels, file, label)
    class_names, numbers = label_files.classes(found.classes, root, names)
    rows = _of_split(root, split, found, test)
    if not rows:
        raise UserError(f"folder: no image of the {len(class_names)} classes of {root} is in the split {split}.")
    pixels = FilePixels([str(found.paths[row]) for row in rows], Decoder.square(resize, crop, channels, fit))
    pixels.check_sizes()
    return Images(pixels, np.asarray([numbers[found.labels[row]] for row in rows]), class_names, root.resolve().name)


def _by_folder(root: Path) -> Labelled:
    """All images below the class folders, of every split if there are any."""
    splits: dict[str | None, Path] = {}
    for name in class_folders(root):
        if (known := label_files.split_called(name)) and class_folders(root / name):
            if known in splits:
                raise UserError(f"folder: {splits[known]} and {root / name} are both the split {known}; rename one.")
            splits[known] = root / name
    paths: list[Path] = []
    labels: list[str] = []
    parts: list[str | None] = []
    empty: set[str] = set()
    for part, folder in (splits or {None: root}).items():
        listed = by_class(folder)
        for name in class_folders(folder):
            members = listed.get(name, [])
            paths += map(Path, members)
            labels += [name] * len(members)
            parts += [part] * len(members)
            empty.add(name)
    if not empty:
        raise UserError(
            f"folder: {root} has no sub-folders; put the images of each class into one named after it, or give their "
            "labels: labels=FILE.csv."
        )
    if not paths:
        raise UserError(f"folder: no image in the {len(empty)} class folder(s) of {root}.")
    known_splits = tuple(split for split in splits if split is not None)
    return Labelled(paths=paths, labels=labels, splits=parts, classes=sorted(empty), known_splits=known_splits)


def _of_split(root: Path, split: str, found: Labelled, test: float | None) -> list[int]:
    """The images of the split. Without splits only "test" is served, so nobody trains on what they audit by mistake."""
    if found.known_splits:
        if test is not None:
            raise UserError(f"folder: {root} has the splits {', '.join(found.known_splits)}; leave test={test:g} out.")
        if split not in found.known_splits:
            raise unknown(f"split of {root}", split, found.known_splits)
        return [row for row, part in enumerate(found.splits) if part == split]
    if test is None:
        if split == "test":
            return list(range(len(found.paths)))
        raise UserError(
            f"folder: {root} has no split {split!r}; make {root}/train/<class>/ and {root}/test/<class>/, or hold a "
            "share of every class out: folder:test=0.2."
        )
    if split not in ("train", "test"):
        raise unknown(f"split of {root}", split, ("train", "test"))
    held_out = _held_out(root, found, test)
    return [row for row in range(len(found.paths)) if held_out[row] == (split == "test")]


def _held_out(root: Path, found: Labelled, share: float) -> IntArray:
    """Which images are the test split: of each class the nearest number to that share, but never all and never none of
    two or more, in the order of a hash of their paths, which stays the same on every machine."""
    names = [Path(os.path.relpath(path, root)).as_posix() for path in found.paths]
    marks = [hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest() for name in names]
    chosen = np.zeros(len(marks), bool)
    for name in set(found.labels):
        rows = sorted((row for row, label in enumerate(found.labels) if label == name), key=lambda row: marks[row])
        count = min(max(round(share * len(rows)), 1), len(rows) - 1)
        chosen[rows[:count]] = True
    return chosen
