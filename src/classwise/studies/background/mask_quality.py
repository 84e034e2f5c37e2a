"""The quality of masks: measures of each, a table by class, and the rule by which one is refused.

    share         of the image that is foreground
    components    connected parts of the foreground, neighbours across corners included
    border        whether the foreground touches the image's border
    edge          mean gradient of the image along the mask's outline / mean gradient of the image; a mask that is
                  independent of the image has about 1 (compare `masks.blobs`), one that follows contours more;
                  a segmentation seeks contours, so this shows that it found some, not that they are the object's
    converged     1 if the segmentation converged, 0 if not, NaN if it is not known

A mask is refused when it is empty, smaller than `smallest` or larger than `largest` of the image: then hardly anything
is left of the object or of the background. The paper (Tian et al., KDD 2021, §6.2), whose masks were made by hand for
one image and in a way it does not say for the others, uses all 1000; the bounds are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import ndimage

from classwise.core.errors import UserError
from classwise.data.images import Images, IntArray
from classwise.data.masks import BoolArray, Masks

SMALLEST, LARGEST = 0.05, 0.75

_EIGHT = np.ones((3, 3), dtype=np.bool_)
_FOUR = ndimage.generate_binary_structure(2, 1)
_CHUNK = 512


def measure(images: Images, masks: Masks, smallest: float = SMALLEST, largest: float = LARGEST) -> pd.DataFrame:
    """One row per image, in their order: index, label, the measures, and `refused`, why or empty where usable."""
    if not 0 <= smallest < largest <= 1:
        raise UserError(f"smallest and largest are shares with smallest < largest, got {smallest} and {largest}.")
    foreground = masks.of(images.positions)
    share = foreground.mean((1, 2))
    too = [share == 0, share < smallest, share > largest]
    rested = masks.convergence_of(images.positions)
    return pd.DataFrame(
        {
            "index": images.positions,
            "label": images.labels,
            "share": share,
            "components": [int(ndimage.label(mask, _EIGHT)[1]) for mask in foreground],
            "border": foreground[:, [0, -1]].any((1, 2)) | foreground[:, :, [0, -1]].any((1, 2)),
            "edge": _edge_agreement(images, foreground),
            "converged": np.nan if rested is None else rested.astype(np.float64),
            "refused": np.select(too, ["empty", "too small", "too large"], default=""),
        }
    )


def usable(measures: pd.DataFrame) -> IntArray:
    """The places of the images whose masks are not refused, for `Images.take`."""
    return np.flatnonzero(measures["refused"] == "")


def by_class(measures: pd.DataFrame, class_names: Sequence[str]) -> pd.DataFrame:
    """One row per class: images, medians of share, components and edge, and the shares of masks that touch the border,
    converged, and were refused, by reason and in all. A class without an image stays, with images = 0."""
    rows = []
    for label, name in enumerate(class_names):
        own = measures[measures["label"] == label]
        medians = {column: own[column].median() for column in ("share", "components", "edge")}
        shares = {column: own[column].mean() for column in ("border", "converged")}
        reasons = {why: (own["refused"] == why).mean() for why in ("empty", "too small", "too large")}
        every = {"refused": (own["refused"] != "").mean()}
        rows.append({"class": name, "images": len(own), **medians, **shares, **reasons, **every})
    return pd.DataFrame(rows)


def _edge_agreement(images: Images, foreground: BoolArray) -> npt.NDArray[np.float64]:
    """Undefined, NaN, where the mask has no outline or the image no gradient."""
    found: list[Any] = []
    for start in range(0, len(images), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(images)))
        x = images.batch(rows)[0].double().cpu().numpy()
        down, across = np.gradient(x, axis=(2, 3))
        slope = np.sqrt((down**2 + across**2).sum(1))
        for gradient, mask in zip(slope, foreground[rows], strict=True):
            outline = ndimage.binary_dilation(mask, _FOUR) & ~ndimage.binary_erosion(mask, _FOUR, border_value=1)
            known = outline.any() and gradient.any()
            found.append(gradient[outline].mean() / gradient.mean() if known else np.nan)
    return np.asarray(found, dtype=np.float64)
