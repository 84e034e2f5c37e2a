"""Augmentation of image batches, each example by its own random numbers.

    crop:padding=4,fill=zero                            pad, then cut out the old size anywhere
    flip                                                left and right, half of the time
    colour:brightness=.25,contrast=.25,saturation=.25   each by a factor in 1 ± the number, in this order
    rotate:degrees=2                                    by an angle in ± so many degrees
    resized_crop:size=128,scale=[.08, 1]                a random part of the image, resized (Szegedy et al., CVPR 2015)

    augment = parse(["crop:padding=4", "flip"]);  x = augment(x, key)

Keys are those of classwise.core.rng, so the images of an epoch do not depend on how they were batched or sharded. The
streams used lie far from those of attacks, which may draw from the same key.
Departure from torchvision, which applies the three changes of colour in random order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from classwise.core import rng, spec
from classwise.core.errors import UserError
from classwise.core.spec import Bounds, Pixels, Positive, PositiveShare, Share
from classwise.core.threat import wide
from classwise.training.choice import choose

_STREAM = 1 << 16  # the first transform's; attacks use the small ones
_TRIES = 10
_LUMA = (0.299, 0.587, 0.114)  # ITU-R 601


@dataclass(frozen=True)
class Transform:
    """A frozen dataclass whose `apply` is a function of the images and of `numbers` uniforms for each of them."""

    numbers: ClassVar[int]

    def __post_init__(self) -> None:
        spec.validate_fields(self)

    def apply(self, x: Tensor, u: Tensor) -> Tensor:
        """x (B, C, H, W) in [0, 1], changed according to u (B, numbers) in (0, 1)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Crop(Transform):
    """padding: pixels added on each side, zeros or reflections, before the old size is cut out anywhere."""

    padding: Annotated[int, Bounds(least=0, most=8192)] = 4
    fill: Literal["zero", "reflect"] = "zero"

    numbers: ClassVar[int] = 2

    def apply(self, x: Tensor, u: Tensor) -> Tensor:
        height, width = x.shape[2:]
        if self.fill == "reflect" and self.padding >= min(height, width):
            raise UserError(f"{height}×{width} images can reflect at most {min(height, width) - 1} pixels of padding.")
        padded = F.pad(x, (self.padding,) * 4, mode="constant" if self.fill == "zero" else "reflect")
        top, left = (u * (2 * self.padding + 1)).long().unbind(1)
        windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # a view: (B, C, tops, lefts, H, W)
        return windows[torch.arange(len(x), device=x.device), :, top, left]


@dataclass(frozen=True)
class Flip(Transform):
    """chance: how often an image is mirrored."""

    chance: Share = 0.5

    numbers: ClassVar[int] = 1

    def apply(self, x: Tensor, u: Tensor) -> Tensor:
        return torch.where(wide(u[:, 0] < self.chance, x), x.flip(3), x)


@dataclass(frozen=True)
class Colour(Transform):
    """With f uniform in 1 ± the field: brightness f·x; contrast f·x + (1−f)·mean luma; saturation f·x + (1−f)·luma."""

    brightness: Share = 0.25
    contrast: Share = 0.25
    saturation: Share = 0.25

    numbers: ClassVar[int] = 3

    def apply(self, x: Tensor, u: Tensor) -> Tensor:
        spread = u.new_tensor([self.brightness, self.contrast, self.saturation])
        factors = (1 + spread * (2 * u - 1)).to(x.dtype)
        brightness, contrast, saturation = (wide(f, x) for f in factors.unbind(1))
        x = (brightness * x).clamp(0, 1)
        x = (contrast * x + (1 - contrast) * _luma(x).mean((2, 3), keepdim=True)).clamp(0, 1)
        return (saturation * x + (1 - saturation) * _luma(x)).clamp(0, 1) if x.shape[1] == 3 else x


@dataclass(frozen=True)
class Rotate(Transform):
    """By up to so many degrees about the middle; corners that come from outside are black."""

    degrees: Annotated[float, Bounds(least=0, most=180)] = 2.0
    mode: Literal["nearest", "bilinear"] = "nearest"

    numbers: ClassVar[int] = 1

    def apply(self, x: Tensor, u: Tensor) -> Tensor:
        angle = (2 * u[:, 0] - 1) * math.radians(self.degrees)
        cos, sin, zero, aspect = angle.cos(), angle.sin(), torch.zeros_like(angle), x.shape[3] / x.shape[2]
        # The grid's coordinates go from −1 to 1 along both sides, however long they are.
        turn = torch.stack([cos, -sin / aspect, zero, sin * aspect, cos, zero], 1).reshape(-1, 2, 3).to(x.dtype)
        grid = F.affine_grid(turn, list(x.shape), align_corners=False)
        turned = F.grid_sample(x, grid, mode=self.mode, padding_mode="zeros", align_corners=False)
        return torch.where(wide(angle == 0, x), x, turned)


@dataclass(frozen=True)
class ResizedCrop(Transform):
    """A part of the image with a share of its area in `scale` and sides in a proportion (width/height) in `ratio`.

    As torchvision does: of ten random boxes the first that fits, else the largest there is; resized to size × size
    bilinearly with anti-aliasing.
    """

    size: Pixels = 224
    scale: tuple[PositiveShare, ...] = (0.08, 1.0)
    ratio: tuple[Positive, ...] = (3 / 4, 4 / 3)

    numbers: ClassVar[int] = 2 * _TRIES + 2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, bounds in (("scale", self.scale), ("ratio", self.ratio)):
            if len(bounds) != 2 or bounds[0] > bounds[1]:
                raise UserError(f"{name} must be two increasing numbers such as 0.08|1, got {bounds}.")

    def apply(self, x: Tensor, u: Tensor) -> Tensor:
        height, width = self.boxes(x.shape[2], x.shape[3], u[:, :-2])
        top = (u[:, -2] * (x.shape[2] - height + 1)).floor()
        left = (u[:, -1] * (x.shape[3] - width + 1)).floor()
        rows = resize_matrix(top, height, x.shape[2], self.size).to(x.dtype)
        columns = resize_matrix(left, width, x.shape[3], self.size).to(x.dtype)
        return rows[:, None] @ x @ columns.mT[:, None]

    def boxes(self, height: int, width: int, u: Tensor) -> tuple[Tensor, Tensor]:
        """Heights and widths, (B,), whole numbers."""
        share = self.scale[0] + (self.scale[1] - self.scale[0]) * u[:, :_TRIES]
        low, high = (math.log(bound) for bound in self.ratio)
        ratio = (low + (high - low) * u[:, _TRIES:]).exp()
        h, w = (height * width * share / ratio).sqrt().round(), (height * width * share * ratio).sqrt().round()
        fits = (h >= 1) & (h <= height) & (w >= 1) & (w <= width)
        first = fits.int().argmax(1, keepdim=True)  # of equals, argmax takes the first
        proportion = min(max(width / height, self.ratio[0]), self.ratio[1])
        largest = round(min(height, width / proportion)), round(min(width, height * proportion))
        h, w, found = h.gather(1, first)[:, 0], w.gather(1, first)[:, 0], fits.any(1)
        return torch.where(found, h, largest[0]), torch.where(found, w, largest[1])


KINDS: dict[str, type[Transform]] = {
    "crop": Crop,
    "flip": Flip,
    "colour": Colour,
    "rotate": Rotate,
    "resized_crop": ResizedCrop,
}


@dataclass(frozen=True)
class Augment:
    """Transforms one after the other; none leaves the images as they are."""

    transforms: tuple[Transform, ...] = ()

    def __call__(self, x: Tensor, key: Tensor) -> Tensor:
        for place, transform in enumerate(self.transforms):
            x = transform.apply(x, rng.uniform(key, (transform.numbers,), _STREAM + place))
        return x


def parse(wanted: str | Transform | Sequence[str | Mapping[str, Any] | Transform]) -> Augment:
    """The transforms of one or several specs or tables, in order."""
    several = [wanted] if isinstance(wanted, (str, Transform)) else wanted
    return Augment(tuple(choose(KINDS, item, "augmentation") for item in several))


def resize_matrix(start: Tensor, length: Tensor, total: int, size: int) -> Tensor:
    """(B, size, total): rows that weigh the pixels start … start+length−1 of `total` into `size` new ones.

    A triangle about the new pixel's centre, two pixels wide, or wider by the factor of shrinking; each row sums to 1.
    """
    step = length / size
    centre = start[:, None] + (torch.arange(size, device=start.device) + 0.5) * step[:, None]
    pixel = torch.arange(total, device=start.device) + 0.5
    distance = (pixel - centre[..., None]).abs() / step.clamp_min(1)[:, None, None]
    inside = (pixel > start[:, None]) & (pixel < (start + length)[:, None])
    weight = (1 - distance).clamp_min(0) * inside[:, None]
    return weight / weight.sum(2, keepdim=True)


def _luma(x: Tensor) -> Tensor:
    """(B, 1, H, W)."""
    if x.shape[1] == 1:
        return x
    if x.shape[1] != 3:
        raise UserError(f"colour can be changed in images of 1 or 3 channels, not {x.shape[1]}.")
    return torch.einsum("bchw,c->bhw", x, x.new_tensor(_LUMA))[:, None]
