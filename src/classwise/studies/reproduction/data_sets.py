"""The data sets the papers use, as far as a plan can be priced and compared without reading them."""

from __future__ import annotations

from typing import NamedTuple

from classwise.core import spec


class About(NamedTuple):
    """Shape of an image, number of classes, training and test images."""

    shape: tuple[int, ...]
    classes: int
    train: int
    test: int


ABOUT = {
    "digits": About((1, 8, 8), 10, 1437, 360),
    "mnist": About((1, 28, 28), 10, 60_000, 10_000),
    "fashion_mnist": About((1, 28, 28), 10, 60_000, 10_000),
    "cifar10": About((3, 32, 32), 10, 50_000, 10_000),
    "cifar100": About((3, 32, 32), 100, 50_000, 10_000),
    "svhn": About((3, 32, 32), 10, 73_257, 26_032),
    "stl10": About((3, 96, 96), 10, 5_000, 8_000),
    "background_mnist": About((1, 28, 28), 10, 60_000, 10_000),
    "tiny_imagenet": About((3, 64, 64), 200, 100_000, 10_000),
    "imagenet": About((3, 224, 224), 1000, 1_281_167, 50_000),
}

_COLOURED = {"background_mnist", "coloured"}  # grey images become colour images


def about(data: str) -> About | None:
    """What is known of a data set; of one made of another (``coloured:of=mnist``) what is known of that."""
    name, options = spec.split(data)
    found = ABOUT.get(spec.split(spec.nested(options["of"]))[0] if "of" in options else name)
    if found is not None and name in _COLOURED:
        return found._replace(shape=(3, *found.shape[1:]))
    return found
