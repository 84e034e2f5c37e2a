"""Fewer pixels, and JPEG: both Pillow's, image by image."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
from PIL import Image

from classwise.data.corruptions.chance import Bytes, Chance


def pixelate(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """Shrunk to ⌊c·side⌋ by a box filter, and enlarged again by one."""
    factor = (0.95, 0.9, 0.85, 0.75, 0.65)[severity - 1]

    def shrink(image: Image.Image) -> Image.Image:
        few = (int(image.width * factor), int(image.height * factor))
        return image.resize(few, Image.Resampling.BOX).resize(image.size, Image.Resampling.BOX)

    return _each(images, shrink)


def jpeg_compression(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """Through JPEG of the given quality, with Pillow's chroma subsampling."""
    quality = (80, 65, 58, 50, 40)[severity - 1]

    def compress(image: Image.Image) -> Image.Image:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        return Image.open(buffer)

    return _each(images, compress)


def _each(images: Bytes, change: Callable[[Image.Image], Image.Image]) -> Bytes:
    pictures = images[..., 0] if images.shape[-1] == 1 else images
    return np.stack([np.asarray(change(Image.fromarray(picture))) for picture in pictures]).reshape(images.shape)
