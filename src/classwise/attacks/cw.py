"""Carlini and Wagner's L∞ attack (S&P 2017): the nearest adversarial point, by Adam in tanh space and binary search.

    x(w) = (tanh w + 1)/2,   w₀ = artanh(0.999999·(2x − 1)),   x̂ = x(w₀)
    min_w  Σ_i max(|x(w) − x̂|_i − τ, 0)  +  c · max(0, z_y − max_{j≠y} z_j)

The sum charges only pixels that moved by more than τ. Three loops, one inside the other:

    iterations   Adam on w. One tenth of the iterations without progress ends them early.
    τ levels     misclassified on the way: τ ← 0.9·min(τ, ‖x(w) − x̂‖∞), and on from there; down to 1/256. If not, the
                 next constant begins at this τ, and this constant passes for good if it got below its own first τ.
    constants    good: it becomes the upper bound, else the lower; c ← 10c until there is an upper one, then the middle.

The answer is the misclassified point nearest to x of all that were ever evaluated, so an example is broken as soon as
one lies in the ball. Settings and details are those of Carmon et al. (NeurIPS 2019), whose code the CW∞ figures of
adversarial training come from.

Departures: every example of a batch is in loops of its own. The label attacked is the true one; the code takes the
model's answer, and attacks only where the two agree. From ten constants on the code tries the upper bound last; here
the search continues.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from classwise.attacks.attack import Attack, Model, Rows, possibly, value_and_gradient
from classwise.core.losses import margin
from classwise.core.spec import OpenShare, Positive, Steps
from classwise.core.threat import LINF, Ball, choose, wide

PAPERS = ("carlini2017", "carmon2019")

_EDGE = 0.999999  # keeps artanh finite at pixels of 0 and 1
_SMALLEST_TAU = 1 / 256
_PROGRESS = 1e-4  # what the loss must fall by between two checks
_CHECKS = 10
_BETA1, _BETA2, _TINY = 0.9, 0.999, 1e-7  # Adam's


@dataclass(frozen=True)
class Cw(Attack):
    """Fields: iterations of each minimisation; constants tried; Adam's rate; the first constant; the factor of τ.

    abort_early: end a minimisation that makes no progress, as published.
    minimal: search on for the nearest point after one in the ball has been found.
    """

    iterations: Steps = 1000
    binary_steps: Steps = 5
    lr: Positive = 0.005
    const: Positive = 0.01
    tau_decay: OpenShare = 0.9
    abort_early: bool = True
    minimal: bool = False

    supports = ("linf",)
    slow = True

    @property
    def steps(self) -> int:
        """At most; most examples are done long before."""
        levels = math.ceil(math.log(_SMALLEST_TAU) / math.log(self.tau_decay))
        return self.binary_steps * levels * self.iterations

    @property
    def seeks_distance(self) -> bool:
        return self.minimal

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        one, never = torch.ones_like(rows["eps"]), torch.full_like(rows["eps"], torch.inf)
        result = {"best": never, "x_best": rows["x"], "done": torch.zeros_like(rows["t"], dtype=torch.bool)}
        search = {"const": self.const * one, "lower": 0 * one, "upper": never, "constants": torch.zeros_like(rows["t"])}
        rows = _new_level(rows | result | search | {"start_tau": one}, _tanh_space(rows["x"]), tau=one)
        return rows | {"x_adv": _pixels(rows["w"])}

    def advance(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        y, const = rows["y"], rows["const"]
        z, pull = value_and_gradient(model, rows["x_adv"], lambda z: const * _hinge(z, y))
        loss, push = _excess(rows)
        moved = self._descend(_note(rows, z), pull + push)
        ended, checked = self._stops(rows, loss + const * _hinge(z, y))
        moved |= {"checked": checked, "iteration": rows["iteration"] + 1}
        if possibly(ended):
            moved = self._next_level(moved, ended)
        moved |= {"x_adv": _pixels(moved["w"])}
        if possibly(rows["done"]):
            moved = _where(rows["done"], rows, moved)
        return moved | {"logits": z, "t": rows["t"] + 1}

    def _descend(self, rows: Rows, gradient: Tensor) -> Rows:
        """One step of Adam on w; dx/dw = (1 − tanh² w)/2 = 2x(1 − x)."""
        x, count = rows["x_adv"], rows["iteration"].to(rows["eps"].dtype) + 1
        g = gradient * (2 * x * (1 - x))
        m = rows["m"].lerp(g, 1 - _BETA1)
        v = (_BETA2 * rows["v"]).addcmul_(g, g, value=1 - _BETA2)
        m_hat = m / wide(1 - _BETA1**count, x)
        v_hat = v / wide(1 - _BETA2**count, x)
        return rows | {"w": rows["w"].addcdiv(m_hat, v_hat.sqrt_().add_(_TINY), value=-self.lr), "m": m, "v": v}

    def _stops(self, rows: Rows, loss: Tensor) -> tuple[Tensor, Tensor]:
        """Whose minimisation is over, and the loss at everyone's last check."""
        last = rows["iteration"] + 1 >= self.iterations
        if not self.abort_early:
            return last, rows["checked"]
        now = rows["iteration"] % math.ceil(self.iterations / _CHECKS) == 0
        stalled = ~(rows["checked"] - loss > _PROGRESS)
        return last | (now & stalled), torch.where(now, loss, rows["checked"])

    def _next_level(self, rows: Rows, ended: Tensor) -> Rows:
        """The rows that have `ended` a minimisation continue: with a smaller τ if they found a point, else with another
        constant, and in both cases with a new Adam."""
        found, tau, x = rows["found"], rows["tau"], _pixels(rows["w"])
        smaller = self.tau_decay * torch.minimum(tau, LINF.norm(x - _reconstructed(rows["x"])))
        through = ~found | (smaller <= _SMALLEST_TAU)
        good = found | (tau < rows["start_tau"])
        start_tau = torch.where(found, rows["start_tau"], tau)
        lowered = _new_level(rows, _tanh_space(x), smaller)
        replaced = _new_level(self._next_constant(rows, good, start_tau), _tanh_space(rows["x"]), start_tau)
        return _where(ended, _where(through, replaced, lowered), rows)

    def _next_constant(self, rows: Rows, good: Tensor, start_tau: Tensor) -> Rows:
        """Every row with its next constant, chosen by whether the last one was `good`."""
        const, constants = rows["const"], rows["constants"] + 1
        upper = torch.where(good, const, rows["upper"])
        lower = torch.where(good, rows["lower"], const)
        const = torch.where(upper.isinf(), 10 * const, (lower + upper) / 2)
        rows = rows | {"const": const, "lower": lower, "upper": upper, "start_tau": start_tau}
        return rows | {"constants": constants, "done": constants >= self.binary_steps}


def _new_level(rows: Rows, w: Tensor, tau: Tensor) -> Rows:
    """Every row at the beginning of a minimisation: at `w`, with a new Adam and nothing found yet."""
    adam = {"m": torch.zeros_like(w), "v": torch.zeros_like(w), "iteration": torch.zeros_like(rows["t"])}
    seen = {"checked": torch.full_like(tau, torch.inf), "found": torch.zeros_like(rows["done"])}
    return rows | {"w": w, "tau": tau} | adam | seen


def _note(rows: Rows, z: Tensor) -> Rows:
    """Remember the nearest misclassified point, and that this minimisation has met one."""
    wrong = z.argmax(1) != rows["y"]
    distance = LINF.norm(rows["x_adv"] - rows["x"])
    nearer = wrong & (distance < rows["best"])
    rows = rows | {"found": rows["found"] | wrong}
    return _where(nearer, rows | {"best": distance, "x_best": rows["x_adv"]}, rows) if possibly(nearer) else rows


def _excess(rows: Rows) -> tuple[Tensor, Tensor]:
    """Σ max(|x' − x̂| − τ, 0), and its gradient in x'."""
    change = rows["x_adv"] - _reconstructed(rows["x"])
    beyond = change.abs() - wide(rows["tau"], change)
    return beyond.clamp_min(0).flatten(1).sum(1), change.sign() * (beyond > 0)


def _hinge(z: Tensor, y: Tensor) -> Tensor:
    """max(0, z_y − max_{j≠y} z_j)."""
    return (-margin(z, y)).clamp_min(0)


def _tanh_space(x: Tensor) -> Tensor:
    return torch.atanh(_EDGE * (2 * x - 1))


def _pixels(w: Tensor) -> Tensor:
    return (torch.tanh(w) + 1) / 2


def _reconstructed(x: Tensor) -> Tensor:
    """x̂ = x(w₀)."""
    return (_EDGE * (2 * x - 1) + 1) / 2


def _where(mask: Tensor, these: Rows, those: Rows) -> Rows:
    """`these` where the mask holds, `those` elsewhere, column by column; columns they share are left alone."""
    return {
        name: column if column is those[name] else choose(mask, column, those[name]) for name, column in these.items()
    }
