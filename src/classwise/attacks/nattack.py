"""N Attack (Li et al., ICML 2019): learns a distribution of perturbations from the model's probabilities alone.

Natural evolution strategies on the mean m of a Gaussian in tanh space, u = artanh((2x − 1)(1 − 10⁻⁶)):

    x_i = Π(½ tanh(u + m + σN_i) + ½),   N_i ~ N(0, I),   i = 1…population
    J_i = max(0, log p_y(x_i) − max_{j≠y} log p_j(x_i)),   probabilities with 10⁻³⁰ added
    A_i = (R_i − mean R) / (std R + 10⁻⁷),   R_i = −J_i/2
    m  ← m + lr/(population·σ) · Σ_i A_i N_i

m starts at 0.001·N(0, I). The point of m itself is tested after the first round and after every `check` rounds from
there. Settings are those of the authors' code with lr = 0.02. It has one maximum over j for the whole population,
that of its first member, so that only log p_y counts: here, as in the paper, every member has its own. Other
departures: m has the image's own resolution; Π clips the perturbation as the code does for linf, and for l2, which
the code has not, scales it; the start is tested too, one query more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from classwise.attacks.attack import Attack, Model, Rows, take
from classwise.core import rng
from classwise.core.losses import margin
from classwise.core.spec import Bounds, Count, Positive, Steps
from classwise.core.threat import Ball, choose

PAPERS = ("li2019nattack",)

_START, _NOISE = 0, 1  # streams of an example's random numbers
_LOG_FLOOR = math.log(1e-30)
_AT_ONCE = 2**20  # pixel values given to the model in one call: 341 images of CIFAR-10, 6 of ImageNet


@dataclass(frozen=True)
class Nattack(Attack):
    """Fields: rounds; samples (model evaluations) of each round; the Gaussian's width σ; step size; how many rounds
    from one test of the mean to the next; restarts."""

    rounds: Steps = 500
    population: Annotated[int, Bounds(least=2, most=10**7)] = 300
    sigma: Positive = 0.1
    lr: Positive = 0.02
    check: Count = 10
    restarts: Count = 1

    needs_gradient = False
    slow = True

    @property
    def steps(self) -> int:
        return self.rounds

    @property
    def evaluations(self) -> int:
        return self.population

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        x = rows["x"]
        rows = {**rows, "mean": 0.001 * rng.normal(rows["key"], x.shape[1:], _START).to(x.dtype)}
        x_adv = _image(_centre(rows), x, rows["eps"], ball)
        with torch.no_grad():  # here, as later rounds hand on the last test's answer
            z = model(x_adv)
        return {**rows, "x_adv": x_adv, "logits": z, "queries": torch.ones_like(rows["t"])}

    def advance(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        due, logits = self._tested(rows["t"]), rows["logits"]
        if due.any():
            with torch.no_grad():
                logits = logits.clone()
                logits[due] = model(rows["x_adv"][due]).to(logits.dtype)
        found = (due | (rows["t"] == 0)) & (logits.argmax(1) != rows["y"])  # nothing to spend a round on
        mean = self._learnt(model, rows, ~found, ball)
        queries = rows["queries"] + due + self.population * ~found
        rows = {**rows, "mean": mean, "logits": logits, "t": rows["t"] + 1, "queries": queries}
        # Between tests x_adv stays where the answer at hand was given.
        shown = self._tested(rows["t"]) | (rows["t"] >= self.rounds)
        current = _image(_centre(rows), rows["x"], rows["eps"], ball)
        return {**rows, "x_adv": choose(shown, current, rows["x_adv"])}

    def _tested(self, t: Tensor) -> Tensor:
        """Whether the mean of `t` rounds is tested before the next."""
        return (t > 0) & ((t - 1) % self.check == 0)

    def _learnt(self, model: Model, rows: Rows, which: Tensor, ball: Ball) -> Tensor:
        """m after one more round of `which`, so many at a time as fit into one call of the model."""
        mean, places = rows["mean"].clone(), which.nonzero()[:, 0]
        together = max(_AT_ONCE // (self.population * mean[0].numel()), 1)
        for begin in range(0, len(places), together):
            part = places[begin : begin + together]
            mean[part] += self.lr / self.sigma * self._direction(model, take(rows, part), ball)
        return mean

    @torch.no_grad()
    def _direction(self, model: Model, rows: Rows, ball: Ball) -> Tensor:
        """Σ_i A_i N_i / population."""
        x, size = rows["x"], self.population
        noise = _noise(rows, size)
        u = (_centre(rows)[:, None] + self.sigma * noise).flatten(0, 1)
        images = _image(u, x.repeat_interleave(size, 0), rows["eps"].repeat_interleave(size), ball)
        z = torch.cat([model(part) for part in torch.split(images, max(_AT_ONCE // x[0].numel(), 1))])
        reward = -_advantage_of_truth(z, rows["y"].repeat_interleave(size)).reshape(-1, size) / 2
        std, mean = torch.std_mean(reward, 1, correction=0, keepdim=True)
        weights = ((reward - mean) / (std + 1e-7)).to(x.dtype)
        return torch.einsum("bn,bn...->b...", weights, noise) / size


def _advantage_of_truth(z: Tensor, y: Tensor) -> Tensor:
    """J: how far the true class's log-probability is above all others'; 0 where it is not."""
    log_p = torch.logaddexp(z.log_softmax(1), z.new_tensor(_LOG_FLOOR))
    return -margin(log_p, y).clamp_max(0)


def _centre(rows: Rows) -> Tensor:
    """u + m: where the Gaussian lies in tanh space."""
    return torch.atanh((2 * rows["x"].clamp(0, 1) - 1) * (1 - 1e-6)) + rows["mean"]


def _image(u: Tensor, x: Tensor, eps: Tensor, ball: Ball) -> Tensor:
    """From tanh space to the pixels, and into the ball."""
    return ball.project(u.tanh() / 2 + 0.5, x, eps)


def _noise(rows: Rows, size: int) -> Tensor:
    """N(0,1) of shape (B, size, …), from the example's key and its round.

    `rng.normal` would take longer than the model: here each example has torch's generator, seeded by its key and
    round. On the CPU, so that every device sees the same numbers.
    """
    x = rows["x"]
    seeds = rng.keys(0, rng.keys(0, rows["key"], _NOISE) + rows["t"]).tolist()
    generator = torch.Generator()
    drawn = [torch.randn(size, *x.shape[1:], generator=generator.manual_seed(seed)) for seed in seeds]
    return torch.stack(drawn).to(x.device, x.dtype)
