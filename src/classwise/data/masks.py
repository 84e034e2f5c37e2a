"""Masks: which pixels of an image are its foreground, matched to the images by the examples' index.

Read from a file of your own, made by GrabCut (the study `background` has it), or independent of the image, as controls:
`blobs` have exactly the area of the image's own mask but any position and shape, `shuffled` have the position and shape
of a real mask but of another image.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from scipy import ndimage

from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.storage import atomic_write
from classwise.data.decoding import opened
from classwise.data.images import IntArray

BoolArray = npt.NDArray[np.bool_]

_BLOB_STREAM, _ORDER_STREAM = 0x626C6F62, 0x6F72646572  # apart from what attacks draw for the same example
_CHUNK = 512  # masks drawn at once


@dataclass(frozen=True)
class Masks:
    """`array[k]`, H×W and true on the foreground, is of the example whose index is `index[k]` (by default k).

    converged: whether the segmentation of each converged, where that is known.
    """

    array: BoolArray
    index: IntArray | None = None
    converged: BoolArray | None = None
    name: str = "masks"

    def __post_init__(self) -> None:
        array = _truth(np.asarray(self.array), self.name)
        index = np.arange(len(array)) if self.index is None else np.asarray(self.index, dtype=np.int64)
        if index.shape != array.shape[:1]:
            raise UserError(f"{self.name} has {len(array)} masks but {index.size} indices; give one index per mask.")
        values, counts = np.unique(index, return_counts=True)
        if (counts > 1).any():
            raise UserError(f"{self.name} has {counts.max()} masks for example {values[counts.argmax()]}; leave one.")
        object.__setattr__(self, "array", array)
        object.__setattr__(self, "index", index)

    def __len__(self) -> int:
        return len(self.array)

    @property
    def positions(self) -> IntArray:
        assert self.index is not None
        return self.index

    def of(self, index: IntArray) -> BoolArray:
        """The masks of the examples with these indices, in their order."""
        return self.array[self._rows(index)]

    def convergence_of(self, index: IntArray) -> BoolArray | None:
        """Whether the segmentations of these examples converged, None where it is not known."""
        return None if self.converged is None else self.converged[self._rows(index)]

    def _rows(self, index: IntArray) -> IntArray:
        order = np.argsort(self.positions)
        place = np.searchsorted(self.positions, index, sorter=order).clip(max=len(self) - 1)
        rows: IntArray = order[place]
        if (missing := self.positions[rows] != index).any():
            first = index[missing][0]
            raise UserError(
                f"{self.name} has no mask for example {first} ({missing.sum()} of {len(index)} missing; it has "
                f"{len(self)}, for {self.positions.min()}…{self.positions.max()}). Masks go by the example's index in "
                "its data set; make the missing ones or leave their examples out."
            )
        return rows


def read(path: str | Path) -> Masks:
    """Masks from a file or a folder.

    .npy: N×H×W, true (or 1, or 255) on the foreground, in the order of the data set.
    .npz: the same as `masks`, with the examples' `index` where they are not all, as `write` makes it.
    A folder: one ``<index>.png`` per example, light on the foreground.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        return _read_folder(path)
    if path.suffix not in (".npy", ".npz"):
        raise UserError(f"cannot read masks from {path}: give a .npy or .npz file, or a folder of <index>.png.")
    try:
        with path.open("rb") as handle:
            loaded = np.load(handle, allow_pickle=False)
            if path.suffix == ".npy":
                return Masks(loaded, name=path.name)
            held = {key: loaded[key] for key in loaded.files}
    except UserError:
        raise
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise UserError(f"cannot read the masks of {path}: {error}") from error
    if "masks" not in held:
        raise UserError(f"{path} holds {', '.join(held) or 'nothing'}; masks must be stored under the name masks.")
    return Masks(held["masks"], held.get("index"), held.get("converged"), path.name)


def write(masks: Masks, path: str | Path) -> None:
    """Store masks as .npz, whole or not at all, to be read again by `read`."""
    path = Path(path).expanduser()
    if path.suffix != ".npz":
        raise UserError(f"masks are written as .npz, got {path}.")
    known = {} if masks.converged is None else {"converged": masks.converged}
    with atomic_write(path) as handle:
        np.savez_compressed(handle, masks=masks.array, index=masks.positions, **known)  # type: ignore[arg-type]


def blobs(masks: Masks, smoothness: float = 1 / 8, seed: int = 0) -> Masks:
    """A random smooth shape for each mask, of exactly its area, by the seed and the example's index.

    The k highest pixels of Gaussian noise blurred by σ = `smoothness` times the sides, k being the mask's area.
    """
    if not smoothness > 0:
        raise UserError(f"smoothness must be more than 0, got {smoothness}.")
    height, width = masks.array.shape[1:]
    drawn = np.empty_like(masks.array)
    for start in range(0, len(masks), _CHUNK):
        part = slice(start, start + _CHUNK)
        keys = rng.keys(seed, torch.from_numpy(masks.positions[part]), _BLOB_STREAM)
        noise = rng.normal(keys, (height, width)).numpy()
        field = ndimage.gaussian_filter(noise, (0, smoothness * height, smoothness * width), mode="nearest")
        rank = np.argsort(np.argsort(-field.reshape(len(field), -1), axis=1), axis=1).reshape(field.shape)
        drawn[part] = rank < masks.array[part].sum((1, 2), keepdims=True)
    return Masks(drawn, masks.positions, name=f"blobs like {masks.name}")


def shuffled(masks: Masks, seed: int = 0) -> Masks:
    """Each example with the mask of another one: their areas, places and shapes, but no image its own."""
    if len(masks) < 2:
        raise UserError(f"{masks.name} has {len(masks)} mask; shuffling takes two or more.")
    keys = rng.keys(seed, torch.from_numpy(masks.positions), _ORDER_STREAM)
    order = np.argsort(keys.numpy())
    given = np.empty_like(masks.array)
    given[order] = masks.array[np.roll(order, 1)]  # each from the one before it in a random circle, never from itself
    return Masks(given, masks.positions, name=f"shuffled {masks.name}")


def _truth(array: npt.NDArray[np.generic], name: str) -> BoolArray:
    if array.ndim != 3 or not array.size:
        raise UserError(f"{name} has the shape {array.shape}; masks are N×H×W, one per example.")
    if array.dtype == np.bool_:
        return array.astype(np.bool_, copy=False)
    found = set(np.unique(array)[:3].tolist())
    if not (found <= {0, 1} or found <= {0, 255}):
        raise UserError(
            f"{name} holds {array.dtype} from {array.min()} to {array.max()}; masks are true and false, 0 and 1, "
            "or 0 and 255. Compare with a threshold first."
        )
    return array.astype(np.bool_)


def _read_folder(folder: Path) -> Masks:
    paths = sorted(folder.glob("*.png"))
    if not paths:
        raise UserError(f"there is no .png in {folder}; masks in a folder are one <index>.png per example.")
    index = [_number(path) for path in paths]
    images = [_light(path) for path in paths]
    for path, image in zip(paths, images, strict=True):
        if image.shape != images[0].shape:
            raise UserError(f"the masks differ in size: {path} is {image.shape}, others {images[0].shape}.")
    return Masks(np.stack(images), np.asarray(index, dtype=np.int64), name=folder.name)


def _number(path: Path) -> int:
    if not path.stem.isdigit():
        raise UserError(f"{path} is not named after an example; masks in a folder are <index>.png, such as 3634.png.")
    return int(path.stem)


def _light(path: Path) -> BoolArray:
    with opened(path, refusal="cannot read the mask") as image:
        light: BoolArray = np.asarray(image.convert("L")) >= 128
    return light
