"""Images in files: decoded when a batch asks for them, several at a time, in the order asked.

Resizing follows torchvision's evaluation transforms: the shorter side to `resize` pixels (bilinear, anti-aliased, as
Pillow does), then the central `crop`×`crop` pixels. `fit` is another way to make a square of an image that is none.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from classwise.core import spec
from classwise.core.errors import UserError
from classwise.core.spec import Pixels
from classwise.data.images import IntArray

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".pgm", ".ppm", ".tif", ".tiff", ".webp")

#: crop: the central square of the resized image. stretch: both sides resized. pad: the longer side, then black bars.
Fit: TypeAlias = Literal["crop", "stretch", "pad"]

_MODES = {1: "L", 3: "RGB"}
_THREADS = min(16, os.cpu_count() or 1)


@dataclass(frozen=True)
class FilePixels:
    """Image files by position. Without `resize` and `crop` they must all have the same size.

    `channels` is 3 (grey is repeated, transparency dropped) or 1 (colour becomes luma).
    """

    paths: Sequence[str]
    resize: Pixels | None = None
    crop: Pixels | None = None
    channels: int = 3
    fit: Fit = "crop"

    def __post_init__(self) -> None:
        spec.validate_fields(self)
        if self.fit != "crop" and self.resize is None:
            raise UserError(f"fit={self.fit} makes squares of images: give their side, such as resize=32.")
        if self.channels not in _MODES:
            raise UserError(f"channels must be 1 (grey) or 3 (colour), got {self.channels}.")
        if self.resize is not None and self.crop is not None and self.crop > self.resize:
            raise UserError(
                f"crop={self.crop} does not fit into resize={self.resize}; crop at most what is resized to."
            )

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, rows: IntArray) -> Tensor:
        paths = [self.paths[row] for row in rows]
        with ThreadPoolExecutor(_THREADS) as pool:
            images = list(pool.map(self._decode, paths))
        for path, image in zip(paths, images, strict=True):
            if image.shape != images[0].shape:
                raise _different(paths[0], images[0].shape[1:], path, image.shape[1:])
        return torch.from_numpy(np.stack(images)).float().div_(255)

    def check_sizes(self) -> None:
        """Raise, by the files' headers alone, where `read` would: before an audit begins rather than within."""
        if self.resize is not None:
            return
        with ThreadPoolExecutor(_THREADS) as pool:
            sizes = list(pool.map(_size, self.paths))
        for path, size in zip(self.paths, sizes, strict=True):
            if self.crop is not None:
                _require_room(path, size, self.crop)
            elif size != sizes[0]:
                raise _different(self.paths[0], sizes[0], path, size)

    def _decode(self, path: str) -> npt.NDArray[np.uint8]:
        """One file as (C, H, W) bytes."""
        with opened(path) as image:
            if image.mode.startswith(("I", "F")):
                raise UserError(f"{path} has pixels of more than 8 bits (mode {image.mode}); convert it to 8 bits.")
            image = image.convert(_MODES[self.channels])
            if self.resize is not None:
                image = _RESIZED[self.fit](image, self.resize)
            if self.crop is not None:
                image = _centre(image, self.crop, path)
            pixels = np.asarray(image, dtype=np.uint8).reshape(image.height, image.width, self.channels)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def class_folders(folder: Path) -> list[str]:
    """The names of the sub-folders, sorted; hidden ones are skipped."""
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))


def image_files(folder: Path) -> list[str]:
    """The image files in a folder and below it, sorted."""
    found = (Path(where, file) for where, _, files in os.walk(folder) for file in files if not file.startswith("."))
    return [str(path) for path in sorted(found) if path.suffix.lower() in EXTENSIONS]


def labelled(folder: Path, classes: Iterable[str]) -> tuple[list[str], IntArray]:
    """The image files under ``folder/<class>`` for each class in turn, and the class number of each."""
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        members = image_files(folder / name)
        paths += members
        labels += [label] * len(members)
    return paths, np.asarray(labels, dtype=np.int64)


@contextmanager
def opened(path: str | Path, refusal: str = "cannot read the image") -> Iterator[Image.Image]:
    """An image file, whose pixels may be read; a damaged one is an error that begins with the refusal."""
    try:
        with Image.open(path) as image:
            yield image
    except UserError:
        raise
    except (OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError) as error:
        raise UserError(f"{refusal} {path}: {error}. Replace or remove the file.") from error


def _size(path: str) -> tuple[int, int]:
    with opened(path) as image:
        return image.height, image.width


def _shorter_side_to(image: Image.Image, size: int) -> Image.Image:
    short, long = sorted(image.size)
    longer = int(size * long / short)
    target = (size, longer) if image.width <= image.height else (longer, size)
    return image if target == image.size else image.resize(target, Image.Resampling.BILINEAR)


def _stretched_to(image: Image.Image, size: int) -> Image.Image:
    return image if image.size == (size, size) else image.resize((size, size), Image.Resampling.BILINEAR)


def _padded_to(image: Image.Image, size: int) -> Image.Image:
    """The longer side resized, in the middle of a black square."""
    longer = max(image.size)
    width, height = (max(round(size * side / longer), 1) for side in image.size)
    resized = image if longer == size else image.resize((width, height), Image.Resampling.BILINEAR)
    square = Image.new(image.mode, (size, size))
    square.paste(resized, ((size - width) // 2, (size - height) // 2))
    return square


_RESIZED: dict[Fit, Callable[[Image.Image, int], Image.Image]] = {
    "crop": _shorter_side_to,
    "stretch": _stretched_to,
    "pad": _padded_to,
}


def _centre(image: Image.Image, size: int, path: str) -> Image.Image:
    _require_room(path, (image.height, image.width), size)
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    return image.crop((left, top, left + size, top + size))


def _require_room(path: str, size: tuple[int, int], crop: int) -> None:
    if min(size) < crop:
        raise UserError(
            f"{path} is {size[0]}×{size[1]}, smaller than crop={crop}. Pass resize={crop} or more, or a smaller crop."
        )


def _different(first: str, size: Sequence[int], other: str, other_size: Sequence[int]) -> UserError:
    (height, width), (other_height, other_width) = size, other_size
    side = min(*size, *other_size)
    return UserError(
        f"the images differ in size: {first} is {height}×{width}, {other} is {other_height}×{other_width}. "
        f"Pass resize={side} (the shorter side, then the central square), or the size your model expects."
    )
