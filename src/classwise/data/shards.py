"""Large data sets in a few files: which files a split has, and which class each label is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from classwise.core.errors import UserError, unknown
from classwise.core.format import listed
from classwise.data.decoding import Decoder, Encoded
from classwise.data.images import Images, IntArray, Pixels
from classwise.data.labels import classes, split_called

_PLACES = (".", "data")  # below the root; the second is where the Hugging Face hub puts them


class EncodedPixels(Pixels, Protocol):
    """Images that are encoded where they lie."""

    @property
    def decoder(self) -> Decoder: ...

    def encoded(self, row: int) -> Encoded: ...


def checked_images(pixels: EncodedPixels, labels: IntArray, class_names: tuple[str, ...], root: str | Path) -> Images:
    """The images of a data set called as its folder; an error where their sizes differ."""
    pixels.decoder.check_sizes(len(pixels), pixels.encoded)
    return Images(pixels, labels, class_names, Path(root).expanduser().resolve().name)


def shard_files(root: str | Path, split: str, endings: Sequence[str], name: str) -> list[Path]:
    """The files of a split, sorted: ``{split}-00000-of-00005.parquet`` and the like, or those in a folder called so.
    Where no file names a split all of them are "test", so that nobody trains on what they audit by mistake."""
    root = Path(root).expanduser()
    folders = [root / place for place in _PLACES if (root / place).is_dir()]
    found = {path.resolve(): path for folder in folders for path in _below(folder, endings)}
    if not found:
        raise UserError(f"{name}: there is no {' or '.join(endings)} file in {root}. Give the folder that holds them.")
    splits = {path: _split(path, root) for path in sorted(found.values())}
    known = sorted({own for own in splits.values() if own is not None})
    if not known:
        if split != "test":
            raise UserError(
                f"{name}: no file in {root} names a split, so that all are the split test; got {split!r}. Call them "
                f"{split}-0000{endings[0]} and so on, or put them into a folder {split}."
            )
        return list(splits)
    wanted = split if split in known or split != "test" else "val"  # as of ImageNet
    if wanted not in known:
        raise unknown(f"split of {root}", split, known)
    return [path for path, own in splits.items() if own == wanted]


def _below(folder: Path, endings: Sequence[str]) -> Iterable[Path]:
    return (path for path in (*folder.glob("*"), *folder.glob("*/*")) if path.name.endswith(tuple(endings)))


def _split(path: Path, root: Path) -> str | None:
    """The split that a file's name begins with, or its folder has."""
    for text in (path.name.replace("_", "-").partition("-")[0].partition(".")[0], path.parent.name):
        if (split := split_called(text)) is not None and path.parent != root.parent:
            return split
    return None


def numbered(
    values: Sequence[int | str], declared: Sequence[str] | None, root: str | Path, names: str | None, name: str
) -> tuple[tuple[str, ...], IntArray]:
    """The names of the classes and the class of each label. A label that is a number is the number of its class, also
    where a split lacks some; text is numbered in alphabetical order.

    declared: the names that the files themselves give. names: a file with others.
    """
    root = Path(root).expanduser()
    texts = [str(value) for value in values]
    if all(isinstance(value, int) for value in values):
        labels = np.asarray(values, dtype=np.int64)
        if labels.min() < 0:
            raise UserError(f"{name}: a label is {labels.min()}, which is no class: the split may have no labels.")
        if names is None and declared is not None:
            if labels.max() >= len(declared):
                raise UserError(f"{name}: a label is {labels.max()}, but its files name {len(declared)} classes.")
            return tuple(declared), labels
        in_order = [str(number) for number in range(int(labels.max()) + 1)]
    else:
        in_order = sorted({*texts, *(declared or ())})
        if "" in in_order:
            raise UserError(f"{name}: an image has an empty label; the classes are {listed(in_order[1:])}.")
    class_names, numbers = classes(in_order, root, names)
    return class_names, np.asarray([numbers[text] for text in texts], dtype=np.int64)
