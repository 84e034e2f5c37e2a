"""Folder: your own images, one sub-folder per class; read file by file.

Reads ``root/<class>/…`` or ``root/{train,val,test}/<class>/…``; a folder called train, val or test is a split when it
holds sub-folders. Classes are the sub-folders in alphabetical order, those of all splits together; an empty one is
a class with no example. `resize` makes the shorter side that long and keeps the central square (of `crop` pixels, if
given); `crop` alone cuts the centre out; `channels` is 3 or 1.
"""

from __future__ import annotations

from pathlib import Path

from classwise.core.errors import UserError, unknown
from classwise.data.files import FilePixels, class_folders, labelled
from classwise.data.images import Images

_SPLITS = ("train", "val", "test")


def load(
    root: str | Path,
    split: str = "test",
    download: bool = False,
    resize: int | None = None,
    crop: int | None = None,
    channels: int = 3,
) -> Images:
    """The images of a split, or of the whole folder if it has no splits. There is nothing to download."""
    root = Path(root).expanduser()
    if not root.is_dir():
        raise UserError(f"folder: there is no folder {root}. Give the root that holds one sub-folder per class.")
    splits = [name for name in _SPLITS if (root / name).is_dir() and class_folders(root / name)]
    chosen = _choose(root, split, splits)
    classes = sorted({name for part in splits or ["."] for name in class_folders(root / part)})
    if not classes:
        raise UserError(f"folder: {root} has no sub-folders; put the images of each class into one named after it.")
    paths, labels = labelled(chosen, classes)
    if not paths:
        raise UserError(f"folder: no image in the {len(classes)} class folder(s) of {chosen}.")
    pixels = FilePixels(paths, resize, resize if crop is None else crop, channels)
    pixels.check_sizes()
    return Images(pixels, labels, tuple(classes), root.resolve().name)


def _choose(root: Path, split: str, splits: list[str]) -> Path:
    """The folder of the split. Without splits only "test" is served, so nobody trains on what they audit by mistake."""
    if split in splits:
        return root / split
    if splits:
        raise unknown(f"split of {root}", split, splits)
    if split != "test":
        raise UserError(f"folder: {root} has no split {split!r}; make {root}/train/<class>/ and {root}/test/<class>/.")
    return root
