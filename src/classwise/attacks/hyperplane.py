"""The nearest point of a hyperplane inside the pixel box, in linf and l2.

Given a(z) = value + ⟨w, z − x⟩, the shortest step d with a(x + d) = 0 and x + d in [0,1]. Every pixel moves the way
that brings a towards zero, at the rate r_i (1 for linf, |w_i| for l2) until it meets the box:

    |d_i| = min(λ r_i, room_i)      with the λ that solves      g(λ) = Σ_i |w_i| min(λ r_i, room_i) = |value|

g is increasing, concave and piecewise linear, so Newton's method from λ = 0 never overshoots and ends on the exact
piece; in each step the residual or the slope at least halves (Radzik 1992), so it ends soon: after four or five steps
usually. On a GPU, where asking whether it has ended would wait, it makes sixteen. There is nothing to sort, unlike in
Croce and Hein's own projection (ICML 2020). Where the plane does not meet the box every pixel that counts
moves to the end of its room; where w is zero nothing moves.
"""

from __future__ import annotations

import torch
from torch import Tensor

from classwise.attacks.attack import PROMPT
from classwise.core.threat import Ball, wide

_STEPS_UNSEEN = 16
_MOST_STEPS = 100  # never met, except by inputs that are not numbers


def nearest_step(x: Tensor, value: Tensor, w: Tensor, ball: Ball) -> Tensor:
    """The step from each x of the box [0,1] to the nearest zero of value + ⟨w, · − x⟩ in the box; `value` is (B,)."""
    value = wide(value, x)
    largest = w.abs().amax(_pixels(w), keepdim=True).clamp_min(torch.finfo(w.dtype).tiny)
    weight = w.abs() / largest  # scaled, because the square of a tiny gradient would underflow
    away = (w * value.sign()).sign()  # the way that a grows in size
    room = ((1 - away) / 2 - x).abs_()  # to 0 or to 1; where w is zero it does not matter
    rate = {"linf": weight.new_ones(()), "l2": weight}[ball.name]
    pace = _pace(value.abs() / largest, weight, rate, room)
    return torch.minimum(pace * rate, room).mul_(away).neg_()


def _pace(distance: Tensor, weight: Tensor, rate: Tensor, room: Tensor) -> Tensor:
    """λ with Σ weight · min(λ · rate, room) = distance, by Newton's method; very large where there is none."""
    slope, reach = weight * rate, weight * room
    end = room / rate  # the λ at which a pixel meets the box; not a number, and so never met, where nothing moves
    part = torch.empty_like(room)  # one buffer for all sums: new memory costs more than they do
    endless = torch.full_like(distance, torch.finfo(distance.dtype).max)
    pace = torch.zeros_like(distance)
    prompt = pace.device.type in PROMPT
    for _ in range(_MOST_STEPS if prompt else _STEPS_UNSEEN):
        speed = torch.gt(end, pace, out=part).mul_(slope).sum(_pixels(part), keepdim=True)
        ahead = distance - torch.le(end, pace, out=part).mul_(reach).sum(_pixels(part), keepdim=True)
        further = torch.where(speed > 0, ahead / speed, endless).clamp(pace, endless)
        # Whoever has arrived stays, so that others in the batch make no difference.
        if prompt and torch.equal(further, pace):
            break
        pace = further
    return pace


def _pixels(x: Tensor) -> tuple[int, ...]:
    return tuple(range(1, x.ndim))
