"""Encoded images (JPEG, PNG, …) decoded when a batch asks for them, several at a time, in the order asked.

Resizing follows torchvision's evaluation transforms: the shorter side to `resize` pixels (bilinear, anti-aliased, as
Pillow does), then the central `crop`×`crop` pixels. `fit` is another way to make a square of an image that is none.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from classwise.core import spec
from classwise.core.errors import UserError
from classwise.core.spec import Pixels
from classwise.data.images import IntArray

#: crop: the central square of the resized image. stretch: both sides resized. pad: the longer side, then black bars.
Fit: TypeAlias = Literal["crop", "stretch", "pad"]

_MODES = {1: "L", 3: "RGB"}
_THREADS = min(16, os.cpu_count() or 1)


class Encoded(NamedTuple):
    """An image file, or the bytes of one. name: what errors call it."""

    name: str
    source: str | bytes


@dataclass(frozen=True)
class Decoder:
    """How an encoded image becomes an array. Without `resize` and `crop` all must have the same size.

    `channels` is 3 (grey is repeated, transparency dropped) or 1 (colour becomes luma).
    """

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

    @classmethod
    def square(cls, resize: int | None, crop: int | None, channels: int, fit: Fit) -> Decoder:
        """The one that data sets of the user's own images have: `crop` is `resize` unless it is given."""
        return cls(resize, resize if crop is None else crop, channels, fit)

    def read(self, rows: IntArray, image: Callable[[int], Encoded]) -> Tensor:
        """The images of some rows, (B, C, H, W) in [0,1]; `image` is called in several threads."""

        def decode(row: int) -> tuple[str, npt.NDArray[np.uint8]]:
            one = image(row)
            return one.name, self._decode(one)

        with ThreadPoolExecutor(_THREADS) as pool:
            found = list(pool.map(decode, rows.tolist()))
        (first, shape), pixels = (found[0][0], found[0][1].shape), [array for _, array in found]
        for name, array in found:
            if array.shape != shape:
                raise _different(first, shape[1:], name, array.shape[1:])
        return torch.from_numpy(np.stack(pixels)).float().div_(255)

    def check_sizes(self, count: int, image: Callable[[int], Encoded]) -> None:
        """Raise, by the images' headers alone, where `read` would: before an audit begins rather than within."""
        if self.resize is not None:
            return
        with ThreadPoolExecutor(_THREADS) as pool:
            sizes = list(pool.map(lambda row: _size(image(row)), range(count)))
        for name, size in sizes:
            if self.crop is not None:
                _require_room(name, size, self.crop)
            elif size != sizes[0][1]:
                raise _different(*sizes[0], name, size)

    def _decode(self, one: Encoded) -> npt.NDArray[np.uint8]:
        """One image as (C, H, W) bytes."""
        with opened(one.source, one.name) as image:
            if image.mode.startswith(("I", "F")):
                raise UserError(f"{one.name} has pixels of more than 8 bits (mode {image.mode}); convert it to 8 bits.")
            image = image.convert(_MODES[self.channels])
            if self.resize is not None:
                image = _RESIZED[self.fit](image, self.resize)
            if self.crop is not None:
                image = _centre(image, self.crop, one.name)
            pixels = np.asarray(image, dtype=np.uint8).reshape(image.height, image.width, self.channels)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))


@contextmanager
def opened(
    source: str | Path | bytes, name: str | None = None, refusal: str = "cannot read the image"
) -> Iterator[Image.Image]:
    """An image file or its bytes, whose pixels may be read; a damaged one is an error that begins with the refusal."""
    try:
        with Image.open(BytesIO(source) if isinstance(source, bytes) else source) as image:
            yield image
    except UserError:
        raise
    except (OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError) as error:
        called = source if name is None else name
        raise UserError(f"{refusal} {called!s}: {error}. Replace or remove it.") from error


def _size(one: Encoded) -> tuple[str, tuple[int, int]]:
    with opened(one.source, one.name) as image:
        return one.name, (image.height, image.width)


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
