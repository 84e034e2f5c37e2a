"""Fewer pixels and JPEG, both Pillow's, image by image; and the elastic transform: a random affine map, then a random
field of small displacements."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from scipy import ndimage
from torch import Tensor
from torch.nn.functional import grid_sample

from classwise.data.corruptions.chance import Bytes, Chance, Doubles, to_bytes


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


def elastic_transform(images: Bytes, chance: Chance, severity: int) -> Bytes:
    """x at A⁻¹(p) and then at p + α·(G_σ ∗ U(−1, 1)), both interpolated linearly.

    A moves three points of the image by U(−a, a) each way. α, σ and a are shares of the side. Towards higher
    severities the affine map weakens and the field roughens, so severity 5 is not the farthest from the original.
    """
    side = images.shape[1]
    shares = ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))[severity - 1]
    alpha, sigma, shift = (side * share for share in shares)
    x = torch.from_numpy(images / 255).permute(0, 3, 1, 2)
    x = _sample(x, _affine(chance, side, shift), mirror_pixel=True)
    field = ndimage.gaussian_filter(
        chance.uniform(2, side, side, low=-1, high=1, stream=1), (0, 0, sigma, sigma), mode="reflect", truncate=3
    )
    x = _sample(x, _grid(side) + alpha * field, mirror_pixel=False)
    return to_bytes(x.permute(0, 2, 3, 1).numpy())


def _grid(side: int) -> Doubles:
    """The place (column, row) of each pixel, (2, side, side)."""
    rows, columns = np.indices((side, side), dtype=np.float64)
    return np.stack([columns, rows])


def _affine(chance: Chance, side: int, shift: float) -> Doubles:
    """Where each pixel comes from, (N, 2, side, side), in steps of 1/32 of a pixel as OpenCV reckons."""
    middle, arm = side // 2, side // 3
    corners = np.array([[middle + arm, middle + arm], [middle + arm, middle - arm], [middle - arm, middle - arm]])
    moved = corners + chance.uniform(3, 2, low=-shift, high=shift)
    back = np.linalg.solve(np.concatenate([moved, np.ones((len(chance), 3, 1))], axis=2), corners.astype(np.float64))
    places = np.einsum("nij,ihw->njhw", back[:, :2], _grid(side)) + back[:, 2, :, None, None]
    whole: Doubles = np.floor(places * 32 + 0.5)
    return whole / 32


def _sample(images: Tensor, places: Doubles, mirror_pixel: bool) -> Tensor:
    """The images at the given places; beyond the border mirrored about the last pixel's centre, or about its edge."""
    side = images.shape[-1]
    unit = 2 * places / (side - 1) - 1 if mirror_pixel else (2 * places + 1) / side - 1
    grid = torch.from_numpy(np.moveaxis(unit, 1, -1))
    return grid_sample(images, grid, padding_mode="reflection", align_corners=mirror_pixel)
