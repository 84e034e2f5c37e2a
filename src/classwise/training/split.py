"""Which examples train, and which are held out of training for validation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from classwise.datasets.images import Images
from classwise.errors import UserError


def hold_out(images: Images, per_class: int, which: str = "last", seed: int = 0) -> tuple[Images, Images | None]:
    """(training, validation): `per_class` examples of every class held out, the last, the first or random ones."""
    if not per_class:
        return images, None
    held = np.zeros(len(images), bool)
    shuffled = np.random.default_rng(seed).permutation(len(images))
    for label in np.unique(images.labels).tolist():
        members = np.flatnonzero(images.labels == label)
        if which == "random":
            members = shuffled[images.labels[shuffled] == label]
        if len(members) <= per_class:
            raise UserError(
                f"data.validation = {per_class} would leave no {images.class_names[label]!r} to train on: "
                f"{images.name} has {len(members)} of it. Hold out fewer."
            )
        held[members[:per_class] if which == "first" else members[-per_class:]] = True
    return images.take(np.flatnonzero(~held)), images.take(np.flatnonzero(held))


def without(images: Images, classes: Sequence[str | int]) -> Images:
    """The images of all other classes, numbered anew in the same order."""
    if not classes:
        return images
    gone = {images.class_number(name) for name in classes}
    kept = [number for number in range(images.num_classes) if number not in gone]
    if len(kept) < 2:
        raise UserError(f"data.exclude leaves {len(kept)} of {images.num_classes} classes; at least 2 are needed.")
    rows = np.flatnonzero(np.isin(images.labels, kept))
    new = np.full(images.num_classes, -1)
    new[kept] = np.arange(len(kept))
    groups = images.superclasses and {
        name: left
        for name, members in images.superclasses.items()
        if (left := tuple(m for m in members if images.class_number(m) not in gone))
    }
    names = tuple(images.class_names[number] for number in kept)
    return dataclasses.replace(
        images, labels=new[images.labels[rows]], index=images.positions[rows], class_names=names, superclasses=groups
    )
