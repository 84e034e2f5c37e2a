"""Data a caller already has: arrays, a torch `Dataset` or a `DataLoader`, as `Images`.

Pixels are (N, C, H, W), uint8 or floating point. Values outside [0,1] pass here, because an audit reports them as a
finding about the model's input; what no audit could use (NaN, a wrong shape, labels that are not class numbers) does
not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from classwise.core.errors import UserError
from classwise.data import torch_items
from classwise.data.images import ArrayPixels, Images, IntArray, Pixels


def from_user(data: Any, num_classes: int | None = None, class_names: Sequence[str] | None = None) -> Images:
    """`Images` from what a caller has.

    data: `Images`, returned as they are; a pair ``(x, y)`` of tensors or arrays; a map-style `Dataset` of
        ``(image, label)`` items, read when asked for; an `IterableDataset`, read into memory once; or a `DataLoader`,
        whose data set is read in the data set's order (a shuffling loader would give an example a new index each
        time), restricted to the sampler's indices where it has some. A loader's own `collate_fn` is used only
        where its data set is iterable.
    num_classes: by default the number of class names, else the largest label + 1.
    class_names: by default the data set's `.classes`, else "0", "1", ….
    """
    if isinstance(data, Images):
        return _unchanged(data, num_classes, class_names)
    rows = None
    if isinstance(data, DataLoader) and not isinstance(data.dataset, IterableDataset):
        rows = getattr(data.sampler, "indices", None)
        data = data.dataset
    pixels, labels = _pixels_and_labels(data)
    names = _class_names(labels, num_classes, class_names, torch_items.declared_classes(data))
    images = Images(pixels, labels, names)
    return images if rows is None else images.take(np.sort(np.asarray(rows, dtype=np.int64)))


def _pixels_and_labels(data: Any) -> tuple[Pixels, IntArray]:
    if isinstance(data, (IterableDataset, DataLoader)):
        return _from_arrays(*torch_items.collect(data))
    if _is_pair(data):
        return _from_arrays(*data)
    if isinstance(data, Mapping):
        raise UserError(
            f"a {type(data).__name__} is no data set of images: pass the pair (x, y) of its tensors or arrays "
            f"(its keys: {', '.join(map(str, list(data)[:8])) or 'none'})."
        )
    if isinstance(data, Dataset) or (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        return torch_items.from_dataset(data)
    raise UserError(
        f"cannot read images from a {type(data).__name__}. Pass a pair (x, y) of tensors or arrays, a torch Dataset "
        "of (image, label) items, a DataLoader, or classwise Images."
    )


def _is_pair(data: Any) -> bool:
    """Whether this is (x, y); a list of two may also be a data set of two items."""
    return isinstance(data, (tuple, list)) and len(data) == 2 and (isinstance(data, tuple) or hasattr(data[0], "shape"))


def _from_arrays(x: Any, y: Any) -> tuple[Pixels, IntArray]:
    for tensor in (part for part in (x, y) if isinstance(part, Tensor)):
        if tensor.layout is not torch.strided or tensor.is_meta:
            kind = "has no values (meta device)" if tensor.is_meta else "is sparse"
            raise UserError(f"a tensor of the data {kind}; pass a dense one on the CPU or a GPU (x.to_dense()).")
    images = x.detach() if isinstance(x, Tensor) else np.asarray(x)
    _check_layout(tuple(images.shape))
    _check_values(images)
    return ArrayPixels(images), torch_items.class_numbers(y)


def _check_layout(shape: tuple[int, ...]) -> None:
    if len(shape) != 4:
        raise UserError(f"images must have the shape (N, C, H, W), got {shape}.")
    if 0 in shape:
        raise UserError(f"there is no pixel to read: the images have the shape {shape}.")
    torch_items.check_channels_first(shape, "images")


def _check_values(images: Any) -> None:
    if isinstance(images, Tensor):
        floating, byte = images.is_floating_point(), images.dtype == torch.uint8
    else:
        floating, byte = np.issubdtype(images.dtype, np.floating), images.dtype == np.uint8
    if not (floating or byte):
        raise UserError(f"images are {images.dtype}; pass uint8 in 0…255, or floating point in [0,1].")
    if floating and not np.isfinite([float(images.min()), float(images.max())]).all():
        raise UserError("the images hold NaN or infinite pixels; clean the data first.")


def _class_names(
    labels: IntArray, num_classes: int | None, given: Sequence[str] | None, declared: tuple[str, ...] | None
) -> tuple[str, ...]:
    if num_classes is not None and num_classes < 1:
        raise UserError(f"num_classes must be at least 1, got {num_classes}.")
    if given is not None:
        if num_classes not in (None, len(given)):
            raise UserError(f"{len(given)} class names but num_classes={num_classes}; they must agree.")
        return tuple(given)
    if declared is not None and num_classes in (None, len(declared)):
        return declared
    return tuple(str(number) for number in range(num_classes or int(labels.max()) + 1))


def _unchanged(images: Images, num_classes: int | None, class_names: Sequence[str] | None) -> Images:
    if num_classes in (None, images.num_classes) and tuple(class_names or images.class_names) == images.class_names:
        return images
    raise UserError(
        f"these Images already have {images.num_classes} named classes; use dataclasses.replace(images, "
        "class_names=…) instead of num_classes and class_names."
    )
