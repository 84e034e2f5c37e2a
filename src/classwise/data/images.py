"""`Images`: labelled images of any origin, read in batches as float32 in [0,1].

Pixels stay as compact as they came (uint8 in memory, files on disk); only the batch asked for becomes float.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from classwise.core.errors import UserError, check_known, index_of
from classwise.core.spec import Count, Seed, convert

IntArray = npt.NDArray[np.int64]


class Pixels(Protocol):
    """Anything that yields images by position, as float32 in [0,1], shape (B, C, H, W)."""

    def __len__(self) -> int: ...

    def read(self, rows: IntArray) -> Tensor: ...


class Size(NamedTuple):
    """What is known of a data set without reading it: the shape of an image, the number of classes, and of images in
    its training and test split. A data set's module says it in `SIZE`."""

    shape: tuple[int, int, int]
    classes: int
    train: int
    test: int


@dataclass(frozen=True)
class ArrayPixels:
    """Images held in memory, (N, C, H, W): uint8 0…255, or floating point already in [0,1]."""

    array: npt.NDArray[Any] | Tensor

    def __len__(self) -> int:
        return len(self.array)

    def read(self, rows: IntArray) -> Tensor:
        if isinstance(self.array, Tensor):
            batch = self.array[torch.as_tensor(rows, device=self.array.device)]
        else:
            batch = torch.from_numpy(np.ascontiguousarray(self.array[rows]))
        return batch.float().div_(255) if batch.dtype == torch.uint8 else batch.float()


@dataclass(frozen=True)
class Images:
    """Labelled images. `index` holds each example's position in `pixels`, so it survives every subset."""

    pixels: Pixels
    labels: IntArray
    class_names: tuple[str, ...]
    name: str = "data"
    _: KW_ONLY
    superclasses: Mapping[str, tuple[str, ...]] | None = None
    index: IntArray | None = None

    def __post_init__(self) -> None:
        labels = np.asarray(self.labels, dtype=np.int64).reshape(-1)
        index = np.arange(len(labels)) if self.index is None else np.asarray(self.index, dtype=np.int64)
        if self.index is None and len(labels) != len(self.pixels):
            raise UserError(f"{len(self.pixels)} images but {len(labels)} labels; there must be one label each.")
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "class_names", tuple(str(name) for name in self.class_names))
        _check_names(self.class_names, self.name)
        outside = labels[(labels < 0) | (labels >= self.num_classes)]
        if outside.size:
            raise UserError(
                f"label {outside[0]} in {self.name} is outside the class range 0…{self.num_classes - 1}. "
                "Check the number of classes, or relabel the data from 0."
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def positions(self) -> IntArray:
        assert self.index is not None
        return self.index

    def batch(self, rows: IntArray) -> tuple[Tensor, Tensor]:
        """Images (float32 in [0,1]) and labels at the given places of this selection."""
        return self.pixels.read(self.positions[rows]), torch.from_numpy(self.labels[rows])

    def first(self, count: int = 8) -> Tensor:
        """The first images, to look at a model with."""
        return self.batch(np.arange(min(count, len(self))))[0]

    def take(self, rows: IntArray) -> Images:
        """The examples at the given places, in the given order; the class list stays whole."""
        return dataclasses.replace(self, labels=self.labels[rows], index=self.positions[rows])

    def subset(
        self,
        limit: int | None = None,
        per_class: int | None = None,
        classes: Sequence[str | int] | None = None,
        seed: int = 0,
    ) -> Images:
        """Some examples, in their original order: of the named classes, at most `per_class` each, `limit` in all.

        Drawn at random by `seed`, so the first 500 of a sorted data set are not 500 of its first class.
        """
        limit, per_class = (
            convert(value, Count | None, key) for key, value in (("limit", limit), ("per_class", per_class))
        )
        seed = convert(seed, Seed, "seed")
        keep = np.ones(len(self), dtype=bool)
        if classes is not None:
            keep = np.isin(self.labels, [self.class_number(name) for name in classes])
        order = np.random.default_rng(seed).permutation(len(self))
        order = order[keep[order]]
        if per_class is not None:
            rank = np.empty(len(order), dtype=np.int64)
            for label in np.unique(self.labels[order]):
                members = self.labels[order] == label
                rank[members] = np.arange(members.sum())
            order = order[rank < per_class]
        rows = np.sort(order if limit is None else order[:limit])
        if not rows.size:
            raise UserError(f"the selection from {self.name} is empty: it has no example of {classes or 'any class'}.")
        return self.take(rows)

    def without(self, classes: Sequence[str | int]) -> Images:
        """The images of all other classes, renumbered in the same order; each keeps its index."""
        if not classes:
            return self
        gone = {self.class_number(name) for name in classes}
        kept = [number for number in range(self.num_classes) if number not in gone]
        if len(kept) < 2:
            raise UserError(f"exclude leaves {len(kept)} of {self.num_classes} classes; at least 2 are needed.")
        rows = np.flatnonzero(np.isin(self.labels, kept))
        groups = self.superclasses and {
            name: left
            for name, members in self.superclasses.items()
            if (left := tuple(member for member in members if self.class_number(member) not in gone))
        }
        return dataclasses.replace(
            self,
            labels=np.searchsorted(kept, self.labels[rows]),
            index=self.positions[rows],
            class_names=tuple(self.class_names[number] for number in kept),
            superclasses=groups,
        )

    def class_number(self, name: str | int) -> int:
        """The number of a class given by name or number."""
        return index_of(name, self.class_names, f"class of {self.name}")


def _check_names(names: Sequence[str], data: str) -> None:
    """Raise where two classes have one name, or a name holds what can be neither read nor written."""
    first: dict[str, int] = {}
    for number, name in enumerate(names):
        if name in first:
            raise UserError(
                f"{name!r} is the name of class {first[name]} and of class {number} of {data}. Every class needs a "
                "name of its own: rename one."
            )
        first[name] = number
        if hidden := [c for c in name if unicodedata.category(c) in ("Cc", "Cs") or c in "\ufffe\uffff"]:
            raise UserError(
                f"the name of class {number} of {data}, {name!r}, holds the control character U+{ord(hidden[0]):04X}. "
                "Rename the class."
            )


def check_split(name: str, split: str, known: Collection[str]) -> None:
    """Raise if the data set `name` has no such split, with the near miss."""
    check_known(f"split of {name}", known, split)
