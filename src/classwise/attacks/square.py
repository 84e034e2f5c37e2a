"""Square attack (Andriushchenko et al., ECCV 2020): random search over squares, guided by the model's scores alone.

    x_0     = Π(x + ε·stripes)                       (l2: a grid of small pyramids)
    x_{i+1} = Π(x_i + δ_i) if that raises max_{j≠y} z_j − z_y, else x_i

δ_i changes one square window of side √(p_i·h·w); p_i starts at `p_init` and is halved at set queries.

    linf    the window becomes x ± ε, one random sign per channel
    l2      a second window is set to zero, and its mass, with what the ball has left, goes into the first one as its
            own direction plus a pair of opposite pyramids η, one random sign per channel

Settings are AutoAttack's, which keeps `rescale_schedule` off: the halvings are then those of 10,000 queries, however
many are made. Departures from its code: window and signs are drawn for each example on its own, not once for the
batch; a window can reach the last row and column; an example that is broken but kept on is pushed further.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from classwise.attacks.attack import Attack, Model, Rows, device_table
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.losses import margin
from classwise.core.spec import Count, PositiveShare, Steps
from classwise.core.threat import L2, Ball, Norm, choose, wide

PAPERS = ("andriushchenko2020",)

_HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # last query before p is halved, of 10,000
_SCHEDULE = 10_000
_GRID = 5  # pyramids along the shorter edge of l2's first point
_START = 0  # stream of the first point; the i-th window's numbers are stream i + 1


@dataclass(frozen=True)
class Square(Attack):
    """Fields: windows tried, one query each after that of the first point; share of the image the first ones cover;
    restarts; whether the schedule of 10,000 queries is compressed into `queries`."""

    queries: Steps = 5000
    p_init: PositiveShare = 0.8
    restarts: Count = 1
    rescale_schedule: bool = False

    needs_gradient = False
    supports = ("linf", "l2")

    @property
    def steps(self) -> int:
        return self.queries + 1

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        shape = tuple(rows["x"].shape[1:])
        if len(shape) != 3:
            raise UserError(f"square needs images of shape (channels, height, width), got {shape}.")
        x_adv = {"linf": _stripes, "l2": _pyramids}[ball.name](rows)
        nothing = torch.full_like(rows["eps"], -torch.inf)
        return {**rows, "x_adv": x_adv, "x_best": x_adv, "margin": nothing}

    def advance(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        with torch.no_grad():
            z = model(rows["x_adv"])
        reached = margin(z, rows["y"]).to(rows["margin"].dtype)
        x_best = choose(reached > rows["margin"], rows["x_adv"], rows["x_best"])
        rows = {**rows, "x_best": x_best, "margin": torch.maximum(reached, rows["margin"]), "logits": z}
        x_adv = {"linf": self._repaint, "l2": self._refill}[ball.name](rows)
        return {**rows, "x_adv": x_adv, "t": rows["t"] + 1}

    def sides(self, height: int, width: int, norm: Norm) -> tuple[int, ...]:
        """The window's side before the first halving of p and after each; l2's are odd and at least 3."""
        areas = [self.p_init * height * width / 2**halvings for halvings in range(len(_HALVINGS) + 1)]
        whole = [max(round(math.sqrt(area)), 1) for area in areas]
        return tuple(min(side if norm == "linf" else max(side, 3) | 1, height, width) for side in whole)

    def halvings(self, t: Tensor) -> Tensor:
        """How often p has been halved when the t-th window, counted from 0, is drawn."""
        at = t * _SCHEDULE // self.queries if self.rescale_schedule else t
        return torch.bucketize(at, device_table(_HALVINGS, t.device))

    def _repaint(self, rows: Rows) -> Tensor:
        """linf's next point: x_best with a window at x ± ε, which is where adding ±2ε and clipping ends too."""
        x = rows["x"]
        channels, height, width = x.shape[1:]
        side = device_table(self.sides(height, width, "linf"), x.device)[self.halvings(rows["t"])]
        u = rng.uniform(rows["key"], (2 + channels,), rows["t"] + 1)
        window = _window(_corner(u[:, :2], side, height, width), side, height, width)
        return torch.where(window, _signed(x, rows["eps"], u[:, 2:, None, None]), rows["x_best"])

    def _refill(self, rows: Rows) -> Tensor:
        """l2's next point: the perturbation with one window emptied and another given its mass."""
        x, t = rows["x"], rows["t"]
        channels, height, width = x.shape[1:]
        sides, level = self.sides(height, width, "l2"), self.halvings(t)
        side = device_table(sides, x.device)[level]
        u = rng.uniform(rows["key"], (5 + channels,), t + 1)
        corner = _corner(u[:, :2], side, height, width)
        into = _window(corner, side, height, width)
        out_of = _window(_corner(u[:, 2:4], side, height, width), side, height, width)
        delta = (rows["x_best"] - x).contiguous()  # windows are laid over channels faster where those lie apart
        square = delta.square()
        taken, own = ((square * window).sum((2, 3)) for window in (into | out_of, into))
        spare = (rows["eps"].square() - square.sum((1, 2, 3))).clamp_min(0) / channels
        eta = _lookup(_table(sides, x.dtype, x.device), level, corner, u[:, 4] < 0.5, height, width)
        fresh = (eta * _sign(u[:, 5:, None, None]).to(x.dtype) + delta / _floored(own.sqrt())) * into
        length = (spare[:, None] + taken).sqrt()[:, :, None, None]
        filled = fresh * (length / _floored(torch.linalg.vector_norm(fresh, dim=(2, 3))))
        return _on_sphere(x, torch.where(into, filled, delta * ~out_of), rows["eps"])


def _stripes(rows: Rows) -> Tensor:
    """x ± ε, one random sign per column and channel."""
    x = rows["x"]
    u = rng.uniform(rows["key"], (x.shape[1], 1, x.shape[3]), _START)
    return _signed(x, rows["eps"], u)


def _pyramids(rows: Rows) -> Tensor:
    """x plus a perturbation of length ε: a grid of η's, each horizontal or vertical and with a sign per channel."""
    x = rows["x"]
    channels, height, width = x.shape[1:]
    side = max(min(height, width) // _GRID, 1)
    down, across = height // side, width // side
    eta = _eta(side).to(x)
    u = rng.uniform(rows["key"], (1 + channels, down, 1, across, 1), _START)
    tiles = torch.where(u[:, :1] < 0.5, eta[:, None, :], eta.T[:, None, :]) * _sign(u[:, 1:]).to(x.dtype)
    grid = tiles.reshape(len(x), channels, down * side, across * side)
    top, left = (height - down * side) // 2, (width - across * side) // 2
    margins = (left, width - across * side - left, top, height - down * side - top)
    return _on_sphere(x, F.pad(grid, margins), rows["eps"])


def _sign(u: Tensor) -> Tensor:
    """A random sign from a uniform number."""
    return torch.where(u < 0.5, -1.0, 1.0)


def _signed(x: Tensor, eps: Tensor, u: Tensor) -> Tensor:
    """x ± ε inside [0,1]; `u`, broadcast over x, decides the sign."""
    return (x + wide(eps, x) * _sign(u).to(x.dtype)).clamp_(0, 1)


def _on_sphere(x: Tensor, delta: Tensor, eps: Tensor) -> Tensor:
    """x + ε·δ/‖δ‖₂, then into [0,1]."""
    return (x + delta * wide(eps / L2.norm(delta).clamp_min(1e-12), x)).clamp_(0, 1)


def _floored(length: Tensor) -> Tensor:
    """One length per example and channel, to divide images by."""
    return length.clamp_min(1e-12)[:, :, None, None]


def _corner(u: Tensor, side: Tensor, height: int, width: int) -> Tensor:
    """First row and column of each example's window, every place equally likely; shape (B, 2)."""
    places = torch.stack([height - side, width - side], 1) + 1
    return torch.minimum((u * places).long(), places - 1)  # rounding could carry u·places up to places


def _window(corner: Tensor, side: Tensor, height: int, width: int) -> Tensor:
    """True inside each example's window; shape (B, 1, height, width)."""
    down, across = _offsets(corner, height, width)
    inside_rows, inside_columns = ((at >= 0) & (at < side[:, None]) for at in (down, across))
    return (inside_rows[:, :, None] & inside_columns[:, None, :])[:, None]


def _offsets(corner: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """How far each row and each column of the image is from the window's first; shapes (B, height), (B, width)."""
    rows, columns = (torch.arange(size, device=corner.device) for size in (height, width))
    return rows - corner[:, :1], columns - corner[:, 1:]


def _lookup(table: Tensor, level: Tensor, corner: Tensor, upright: Tensor, height: int, width: int) -> Tensor:
    """Each example's η laid into its window, transposed unless `upright`; outside the window it means nothing."""
    down, across = (at.clamp(0, table.shape[1] - 1) for at in _offsets(corner, height, width))
    down, across, keep = down[:, :, None], across[:, None, :], upright[:, None, None]
    picked = table[level[:, None, None], torch.where(keep, down, across), torch.where(keep, across, down)]
    return picked[:, None]


@functools.lru_cache(maxsize=8)
def _table(sides: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """η of every side, each in the first corner of a square of the largest."""
    padded = [F.pad(_eta(side), (0, max(sides) - side, 0, max(sides) - side)) for side in sides]
    return torch.stack(padded).to(device, dtype)


def _eta(side: int) -> Tensor:
    """The paper's η: a pyramid in the upper half, its negative in the lower; of length 1."""
    halves = torch.cat([_pyramid(side // 2, side), -_pyramid(side - side // 2, side)])
    return halves / halves.square().sum().sqrt()


def _pyramid(height: int, width: int) -> Tensor:
    """Σ_{k≥d} 1/(k+1)² where d is the distance from the middle in rows or columns, the larger; of length 1."""
    down, across = ((torch.arange(size) - size // 2).abs() for size in (height, width))
    terms = torch.arange(1, max(height, width) // 2 + 2, dtype=torch.float64) ** -2
    steps = terms.flip(0).cumsum(0).flip(0)[torch.maximum(down[:, None], across)]
    return steps / steps.square().sum().sqrt()
