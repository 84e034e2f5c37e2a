"""Foreground masks by GrabCut (Rother, Kolmogorov, Blake, SIGGRAPH 2004), from a centred rectangle alone.

    min_α  Σ_n −log p(z_n | α_n)  +  γ Σ_{(m,n)} [α_m ≠ α_n] exp(−β ‖z_m − z_n‖²) / |m − n|

z: colours; α: 1 on the foreground; p: a mixture of five Gaussians for either side; β = 1 / (2 mean ‖z_m − z_n‖²), pairs
among eight neighbours. Outside the rectangle is background for sure. In turns: pixels to components, components from
their pixels, and the minimum cut between the two sides, until no pixel changes side.

Departures. γ grows with the image: the paper's 50, OpenCV's constant, suits photographs some 500 pixels wide; the first
sum is an area and the second a length, so on 32×32 images 50 makes the empty mask the best one for most. Here it is a
tenth of the shorter side. The cut uses a mixture's whole likelihood, not its best component's, and components begin as
fifths along the main axis of the colours instead of random clusters, so that there is no chance in it. Pixels beside
the border are never foreground: an object that runs out of the image is cut off at the rectangle.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from classwise.core.errors import UserError
from classwise.data.images import Images, IntArray
from classwise.data.masks import BoolArray, Masks

FloatArray = npt.NDArray[np.float64]

_COMPONENTS = 5
_NOISE = 0.01**2  # added to each variance: a flat colour is still a distribution
_GAMMA_PER_PIXEL = 50 / 500
_MOST_FLOW = 2**30  # the cut is computed in whole numbers of 32 bits
_CHUNK = 256


@dataclass(frozen=True)
class _Mixture:
    """Gaussians over colours: means K×C, precisions K×C×C, and log π − ½ log|Σ| of each."""

    means: FloatArray
    precisions: FloatArray
    offsets: FloatArray

    @classmethod
    def fit(cls, colours: FloatArray, component: IntArray) -> _Mixture:
        """From pixels that belong to one component each; components without a pixel are left out."""
        parts = [colours[component == k] for k in np.unique(component)]
        noise = _NOISE * np.eye(colours.shape[1])
        spreads: FloatArray = np.stack([np.atleast_2d(np.cov(part.T, bias=True)) + noise for part in parts])
        weights = np.array([len(part) for part in parts]) / len(colours)
        offsets = np.log(weights) - 0.5 * np.linalg.slogdet(spreads)[1]
        return cls(np.stack([part.mean(0) for part in parts]), np.linalg.inv(spreads).astype(np.float64), offsets)

    def log_likelihoods(self, colours: FloatArray) -> FloatArray:
        """log π_k N(z; μ_k, Σ_k) of each pixel and component, up to what all have in common."""
        off = colours[:, None] - self.means
        distances: FloatArray = np.einsum("nki,kij,nkj->nk", off, self.precisions, off)
        return self.offsets - 0.5 * distances


@dataclass(frozen=True)
class _Grid:
    """The pairs of neighbouring pixels of an image, and how far apart they are."""

    one: IntArray
    other: IntArray
    distance: FloatArray


def grabcut(images: Images, margin: float = 1 / 16, gamma: float | None = None, steps: int = 20) -> Masks:
    """The foreground of each image. The same image has the same mask, whatever it is read with.

    margin: how far the rectangle is from each border, as a share of the side.
    gamma: how much a boundary costs; by default a tenth of the shorter side.
    steps: cuts at most; `Masks.converged` says where fewer were enough.
    """
    if not 0 < margin < 0.5:
        raise UserError(f"margin must be more than 0 and less than 0.5 of the side, got {margin}.")
    if (gamma is not None and not gamma > 0) or steps < 1:
        raise UserError(f"gamma must be more than 0 and steps at least 1, got gamma={gamma}, steps={steps}.")
    found = []
    for start in range(0, len(images), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(images)))
        for image in images.batch(rows)[0].permute(0, 2, 3, 1).double().cpu().numpy():
            found.append(_segment(image, margin, gamma or _GAMMA_PER_PIXEL * min(image.shape[:2]), steps))
    masks, converged = (np.stack(part) for part in zip(*found, strict=True))
    return Masks(masks, images.positions, converged, f"GrabCut of {images.name}")


def _segment(image: FloatArray, margin: float, gamma: float, steps: int) -> tuple[BoolArray, np.bool_]:
    """The mask of one image, H×W×C, and whether it came to rest; an empty one stays empty."""
    inside = _rectangle(image.shape[:2], margin).ravel()
    colours = image.reshape(-1, image.shape[2])
    grid = _grid(*image.shape[:2])
    apart = ((colours[grid.one] - colours[grid.other]) ** 2).sum(1)
    ties = gamma * np.exp(-apart / (2 * apart.mean() or 1)) / grid.distance
    foreground = inside
    sides = (_fit_first(colours[~foreground]), _fit_first(colours[foreground]))
    for _ in range(steps):
        behind, front = (np.logaddexp.reduce(side.log_likelihoods(colours), axis=1) for side in sides)
        before, foreground = foreground, _cut(np.where(inside, front - behind, -np.inf), ties, gamma, grid)
        if not foreground.any() or (foreground == before).all():
            return foreground.reshape(image.shape[:2]), np.True_
        sides = (_refit(sides[0], colours[~foreground]), _refit(sides[1], colours[foreground]))
    return foreground.reshape(image.shape[:2]), np.False_


def _rectangle(size: tuple[int, ...], margin: float) -> BoolArray:
    down, across = (max(1, round(margin * side)) for side in size)
    inside = np.zeros(size, dtype=np.bool_)
    inside[down : size[0] - down, across : size[1] - across] = True
    if not inside.any():
        raise UserError(f"images of {size[0]}×{size[1]} pixels are too small for GrabCut with a margin of {margin}.")
    return inside


@functools.cache
def _grid(height: int, width: int) -> _Grid:
    n = np.arange(height * width).reshape(height, width)
    straight = [(n[:, :-1], n[:, 1:]), (n[:-1], n[1:])]
    slanted = [(n[:-1, :-1], n[1:, 1:]), (n[:-1, 1:], n[1:, :-1])]
    one, other = (np.concatenate([pair[end].ravel() for pair in straight + slanted]) for end in (0, 1))
    near = sum(pair[0].size for pair in straight)
    return _Grid(one, other, np.where(np.arange(len(one)) < near, 1.0, np.sqrt(2.0)))


def _fit_first(colours: FloatArray) -> _Mixture:
    """Components of equally many pixels, along the axis on which the colours vary most."""
    off = colours - colours.mean(0)
    along = off @ np.linalg.eigh(off.T @ off)[1][:, -1]
    rank = np.argsort(np.argsort(along, kind="stable"), kind="stable")
    return _Mixture.fit(colours, rank * _COMPONENTS // len(colours))


def _refit(mixture: _Mixture, colours: FloatArray) -> _Mixture:
    return _Mixture.fit(colours, mixture.log_likelihoods(colours).argmax(1))


def _cut(evidence: FloatArray, ties: FloatArray, gamma: float, grid: _Grid) -> BoolArray:
    """The pixels on the foreground's side of the minimum cut, given log p(z|front) − log p(z|behind) of each."""
    # No pixel's ties come to 8γ, so evidence beyond that decides alone and need not be told more exactly.
    sure, count = 8 * gamma, len(evidence)
    clipped = evidence.clip(-sure, sure)
    pixel, front, behind = np.arange(count), np.full(count, count), np.full(count, count + 1)
    start = np.concatenate([front, pixel, grid.one, grid.other])
    end = np.concatenate([pixel, behind, grid.other, grid.one])
    capacity = np.concatenate([clipped.clip(min=0), (-clipped).clip(min=0), ties, ties])
    whole = np.rint(capacity * (_MOST_FLOW / (sure * count))).astype(np.int32)
    graph: Any = sparse.csr_matrix((whole, (start, end)), shape=(count + 2, count + 2))
    left = graph - maximum_flow(graph, count, count + 1).flow
    left.data[left.data < 0] = 0
    left.eliminate_zeros()
    reached = np.zeros(count + 2, dtype=np.bool_)
    reached[breadth_first_order(left, count, return_predecessors=False)] = True
    return reached[:count]
