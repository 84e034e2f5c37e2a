"""Coloured: a grey data set in RGB with a colour behind the images of each class (`of`, `colours`).

    x̃ = m + (1 − m) b          m: the grey image, b: a colour of the image's class; strokes stay white, edges soft

Tian et al. (KDD 2021, §6.2, Figure 5) add "two sets of background colors to the training set and test set of each
class" and train and attack at ε = 0.5: adversarial errors then stay among classes that share a background. The text
says no more than that 2 and 3 share a background and 2 and 5 do not; which colours, which other classes, and whether an
image has a colour of one set or there are two colours in all, only Figure 5(a) shows. So the readings that agree with
the text have names, and are meant to be compared:

    pairs      first set: one colour for 0 and 1, one for 2 and 3, …
    shifted    second set: one colour for 1 and 2, one for 3 and 4, …, one for the last and 0. Not the paper's pairing:
               a control. If errors follow the background, they move when the pairs do.
    both       each image has its class's colour of the first or of the second set, by its index: every class shares
               one colour with each neighbour
    halves     two colours in all: one for the first half of the classes, one for the second
    random     a colour of the first set whatever the class, by the image's index: colour without meaning
    black      the images as they are, in three channels

The first set's colours are corners of the RGB cube, so that any two differ by 1 in some channel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from classwise.core import rng, spec
from classwise.core.errors import UserError, lookup
from classwise.data.background import rgb
from classwise.data.images import Images, IntArray, Pixels

PAPERS = ("tian2021",)
IN_COLOUR = True  # grey images become colour images
FIRST = ("red", "lime", "blue", "yellow", "magenta", "cyan")
SECOND = ("orange", "springgreen", "blueviolet", "deeppink", "chartreuse", "deepskyblue")

_STREAM = 0x636F6C6F7572  # apart from what attacks draw for the same example

#: The colours of class c out of n, any of which an image of it may have.
_ASSIGNMENTS: dict[str, Callable[[int, int], tuple[str, ...]]] = {
    "pairs": lambda c, n: (FIRST[c // 2],),
    "shifted": lambda c, n: (SECOND[(c + 1) % n // 2],),
    "both": lambda c, n: (FIRST[c // 2], SECOND[(c + 1) % n // 2]),
    "halves": lambda c, n: (FIRST[2 * c // n],),
    "random": lambda c, n: FIRST[: (n + 1) // 2],
    "black": lambda c, n: ("black",),
}


@dataclass(frozen=True)
class ColouredPixels:
    """Grey images in front of a colour each, as RGB. `number`: each image's place in `colours`, by position."""

    source: Pixels
    colours: Tensor
    number: IntArray

    def __len__(self) -> int:
        return len(self.source)

    def read(self, rows: IntArray) -> Tensor:
        grey = self.source.read(rows)
        behind = self.colours[torch.from_numpy(self.number[rows])].to(grey.device)[:, :, None, None]
        return grey + (1 - grey) * behind


def load(
    root: str | Path,
    split: str = "test",
    download: bool = False,
    of: str = "mnist",
    colours: str = "pairs",
    seed: int = 0,
) -> Images:
    """A split of the data set `of`; `colours` is pairs, shifted, both, halves, random or black."""
    from classwise.data import load as load_data

    return coloured(load_data(spec.nested(of), root, split, download), colours, seed)


def assignments() -> list[str]:
    """The names by which `coloured` knows how classes and colours go together."""
    return list(_ASSIGNMENTS)


def colours_of(class_names: Sequence[str], assignment: str = "pairs") -> dict[str, tuple[str, ...]]:
    """The colours of each class; where it has several, each of its images has one of them."""
    colours = lookup("assignment of background colours", assignment, _ASSIGNMENTS)
    count = len(class_names)
    if count > 2 * len(FIRST):
        raise UserError(
            f"background colours are named for at most {2 * len(FIRST)} classes, here are {count}; "
            "give the colours of each class as a mapping."
        )
    return {name: colours(number, count) for number, name in enumerate(class_names)}


def coloured(images: Images, colours: str | Mapping[str, Sequence[str]] = "pairs", seed: int = 0) -> Images:
    """Grey images as RGB in front of their class's colour, read when asked for; indices, labels and classes stay.

    colours: how classes and colours go together, by name, or your own as {class: colours}.
    seed: for an image whose class has several colours, which one it is, together with the image's index.
    """
    if (channels := images.batch(np.arange(1))[0].shape[1]) != 1:
        raise UserError(
            f"coloured takes grey images, light on black, but those of {images.name} have {channels} channels; "
            "for other images replace the background by masks."
        )
    described = colours if isinstance(colours, str) else "its own"
    by_class = colours_of(images.class_names, colours) if isinstance(colours, str) else dict(colours)
    if bare := [name for name in images.class_names if not by_class.get(name)]:
        raise UserError(f"no background colour for the class {', '.join(bare)}; give every class one or more.")
    palette = list(dict.fromkeys(name for names in by_class.values() for name in names))
    number = np.zeros(len(images.pixels), dtype=np.int64)
    place = drawn(images.labels, images.positions, [len(by_class[name]) for name in images.class_names], seed)
    for label, name in enumerate(images.class_names):
        own = np.asarray([palette.index(colour) for colour in by_class[name]])
        rows = np.flatnonzero(images.labels == label)
        number[images.positions[rows]] = own[place[rows]]
    pixels = ColouredPixels(images.pixels, torch.tensor([rgb(name) for name in palette]), number)
    return dataclasses.replace(images, pixels=pixels, name=f"{images.name} on {described} colours")


def drawn(labels: IntArray, index: IntArray, counts: Sequence[int], seed: int = 0) -> IntArray:
    """Which of its class's colours each image has, `counts` being how many each class has."""
    keys = rng.keys(seed, torch.from_numpy(np.array(index, dtype=np.int64)), _STREAM)
    place = np.zeros(len(labels), dtype=np.int64)
    for label, count in enumerate(counts):
        rows = np.flatnonzero(labels == label)
        place[rows] = rng.integer(keys[torch.from_numpy(rows)], count).numpy()
    return place
