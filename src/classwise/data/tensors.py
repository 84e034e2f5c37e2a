"""Data a caller already has: arrays, a torch `Dataset` or a `DataLoader`, as `Images`.

Pixels are (N, C, H, W), uint8 or floating point. Values outside [0,1] pass here, because an audit reports them as a
finding about the model's input; what no audit could use (NaN, a wrong shape, labels that are not class numbers) does
not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from classwise.core.errors import UserError
from classwise.data.images import ArrayPixels, Images, IntArray, Pixels

_MANY, _AHEAD = 64, 16  # items for each process from which starting it pays, and how many it reads ahead
_COLOURS = (1, 3, 4)  # the channel counts by which (H, W, C) is told from (C, H, W)


def from_user(data: Any, num_classes: int | None = None, class_names: Sequence[str] | None = None) -> Images:
    """`Images` from what a caller has.

    data: `Images`, returned as they are; a pair ``(x, y)`` of tensors or arrays; a map-style `Dataset` of
        ``(image, label)`` items, read when asked for; an `IterableDataset`, read into memory once; or a `DataLoader`,
        whose data set is read in the data set's order (a shuffling loader would give an example a new index each
        time) by its `num_workers` processes, restricted to the sampler's indices where it has some. A loader's own
        `collate_fn` is used only where its data set is iterable.
    num_classes: by default the number of class names, else the largest label + 1.
    class_names: by default the data set's `.classes`, else "0", "1", ….
    """
    if isinstance(data, Images):
        return _unchanged(data, num_classes, class_names)
    rows, workers = None, 0
    if isinstance(data, DataLoader) and not isinstance(data.dataset, IterableDataset):
        rows, workers = getattr(data.sampler, "indices", None), data.num_workers
        data = data.dataset
    pixels, labels = _pixels_and_labels(data, workers)
    names = _class_names(labels, num_classes, class_names, declared_classes(data))
    images = Images(pixels, labels, names)
    return images if rows is None else images.take(np.sort(np.asarray(rows, dtype=np.int64)))


def _pixels_and_labels(data: Any, workers: int) -> tuple[Pixels, IntArray]:
    if isinstance(data, (IterableDataset, DataLoader)):
        return _from_arrays(*collect(data))
    if _is_pair(data):
        return _from_arrays(*data)
    if isinstance(data, Mapping):
        raise UserError(
            f"a {type(data).__name__} is no data set of images: pass the pair (x, y) of its tensors or arrays "
            f"(its keys: {', '.join(map(str, list(data)[:8])) or 'none'})."
        )
    listed = hasattr(data, "__getitem__") and hasattr(data, "__len__") and getattr(data, "ndim", 1) != 0
    if isinstance(data, Dataset) or listed:
        return from_dataset(data, workers)
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
    return ArrayPixels(images), class_numbers(y)


def _check_layout(shape: tuple[int, ...]) -> None:
    if len(shape) != 4:
        raise UserError(f"images must have the shape (N, C, H, W), got {shape}.")
    if 0 in shape:
        raise UserError(f"there is no pixel to read: the images have the shape {shape}.")
    check_channels_first(shape, "images")


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


# ---- the items of a torch data set, and its labels without reading the images if possible --------------------------


@dataclass(frozen=True)
class ItemPixels:
    """The images of a map-style data set of ``(image, label)`` items, read when asked for, many of them by several
    processes if the data set came in a loader that has these."""

    dataset: Any
    workers: int = 0

    def __len__(self) -> int:
        return len(self.dataset)

    def read(self, rows: IntArray) -> Tensor:
        images = [_image(x, f"item {row}") for row, (x, _) in zip(rows, self.items(rows), strict=True)]
        for row, image in zip(rows, images, strict=True):
            if image.shape != images[0].shape:
                raise UserError(
                    f"item {rows[0]} has the shape {tuple(images[0].shape)}, item {row} {tuple(image.shape)}; "
                    "resize them to one size in the data set's transform."
                )
        batch = torch.stack(images)
        return batch.float().div_(255) if batch.dtype == torch.uint8 else batch.float()

    def items(self, rows: IntArray) -> Iterator[tuple[Any, Any]]:
        """Image and label of each row."""
        wanted = rows.tolist()
        if self.workers < 2 or len(wanted) < _MANY * self.workers:  # starting processes takes longer
            yield from (_pair(self.dataset[row]) for row in wanted)
            return
        order: Dataset[Any] = Subset(self.dataset, wanted)
        with torch.random.fork_rng(devices=[]):  # a loader draws a seed for its workers from the global generator
            yield from map(_pair, DataLoader(order, batch_size=None, num_workers=self.workers, prefetch_factor=_AHEAD))


def from_dataset(dataset: Any, workers: int = 0) -> tuple[Pixels, IntArray]:
    """The images and labels of a map-style data set; its first item is read to check both."""
    if not len(dataset):
        raise UserError("the data set is empty: there is no image to read.")
    image, label = _pair(dataset[0])
    _image(image, "item 0")
    first = _class_number(label)
    labels = _stored_labels(dataset)
    # A list that does not match the items (raw, remapped or of another task) is not the labels.
    if labels is None or labels[0] != first:
        items = ItemPixels(dataset, workers).items(np.arange(len(dataset)))
        labels = np.asarray([_class_number(label) for _, label in items], dtype=np.int64)
    return ItemPixels(dataset, workers), labels


def collect(data: Iterable[Any]) -> tuple[Tensor, IntArray]:
    """Every image and label of an iterable data set, or of a loader around one, in the order they come."""
    batched = isinstance(data, DataLoader) and data.batch_size is not None
    images: list[Tensor] = []
    labels: list[IntArray] = []
    with torch.random.fork_rng(devices=[]):  # a loader draws a seed for its workers from the global generator
        for place, item in enumerate(data):
            x, y = _pair(item)
            images.append(torch.as_tensor(x) if batched else _image(x, f"item {place}")[None])
            labels.append(class_numbers(y if batched else [_class_number(y)]))
    if not images:
        raise UserError("the data set yields nothing: there is no image to read.")
    if len({(tuple(image.shape[1:]), image.dtype) for image in images}) > 1:
        raise UserError("the data set yields images of several shapes or types; give them one in its transform.")
    return torch.cat(images), np.concatenate(labels)


def check_channels_first(shape: Sequence[int], what: str) -> None:
    """Raise if the last three dimensions look like (H, W, C) rather than (C, H, W)."""
    channels, _, last = shape[-3:]
    if last in _COLOURS and channels not in _COLOURS:
        raise UserError(
            f"the shape {tuple(shape)} of {what} seems to have the channels last; classwise reads NCHW, channels "
            "first. Pass x.permute(0, 3, 1, 2) of a batch, x.permute(2, 0, 1) of one image."
        )


def class_numbers(y: Any) -> IntArray:
    """A vector of integer labels as int64."""
    labels = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if labels.ndim != 1:
        remedy = " For one-hot rows pass y.argmax(1)." if labels.ndim == 2 and labels.shape[1] > 1 else ""
        raise UserError(
            f"labels must be a vector with one class number per image, got the shape {labels.shape}.{remedy}"
        )
    if not np.issubdtype(labels.dtype, np.integer):
        raise UserError(
            f"labels are {labels.dtype}; pass integer class numbers, counted from 0 (y.long() of a tensor)."
        )
    return labels.astype(np.int64)


def declared_classes(dataset: Any) -> tuple[str, ...] | None:
    """The class names a data set (or the one behind a subset or loader) declares as `.classes`."""
    if isinstance(dataset, (Subset, DataLoader)):
        return declared_classes(dataset.dataset)
    classes = getattr(dataset, "classes", None)
    named = isinstance(classes, (list, tuple)) and classes and all(isinstance(name, str) for name in classes)
    return tuple(classes) if named else None  # type: ignore[arg-type]


def _stored_labels(dataset: Any) -> IntArray | None:
    """The labels a data set keeps as `.targets`, `.labels` or its second tensor; None if it keeps none to trust."""
    if isinstance(dataset, Subset):
        labels = _stored_labels(dataset.dataset)
        return None if labels is None else labels[np.asarray(dataset.indices, dtype=np.int64)]
    if isinstance(dataset, TensorDataset):
        return class_numbers(dataset.tensors[1]) if len(dataset.tensors) > 1 else None
    if getattr(dataset, "target_transform", None) is not None:
        return None
    for attribute in ("targets", "labels"):
        try:
            labels = class_numbers(getattr(dataset, attribute))
        except (AttributeError, UserError, ValueError, TypeError):
            continue
        if len(labels) == len(dataset):
            return labels
    return None


def _pair(item: Any) -> tuple[Any, Any]:
    if not isinstance(item, (tuple, list)) or len(item) < 2:
        raise UserError(f"the data set must give (image, label) pairs, got a {type(item).__name__}.")
    return item[0], item[1]


def _class_number(label: Any) -> int:
    value = np.asarray(label.detach().cpu() if isinstance(label, Tensor) else label)
    if value.size != 1 or not np.issubdtype(value.dtype, np.integer):
        raise UserError(f"a label must be one integer class number, counted from 0; got {label!r}.")
    return int(value.reshape(()))


def _image(image: Any, where: str) -> Tensor:
    """One image as a (C, H, W) tensor, uint8 or floating point, of finite pixels."""
    if isinstance(image, Image.Image):
        # 32-bit and 16-bit pixels are left as they are, to be refused below: converting would clip them.
        pixels = np.array(image if image.mode in ("L", "RGB", "I", "I;16", "F") else image.convert("RGB"))
        image = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    tensor = image.detach() if isinstance(image, Tensor) else torch.from_numpy(np.array(image))
    if tensor.ndim != 3:
        raise UserError(f"{where} of the data set has the shape {tuple(tensor.shape)}, expected (C, H, W).")
    check_channels_first(tensor.shape, where)
    if not tensor.is_floating_point() and tensor.dtype != torch.uint8:
        raise UserError(f"{where} of the data set is {tensor.dtype}; give uint8 in 0…255, or floating point in [0,1].")
    if not torch.isfinite(tensor).all():
        raise UserError(f"{where} of the data set holds NaN or infinite pixels; clean the data first.")
    return tensor
