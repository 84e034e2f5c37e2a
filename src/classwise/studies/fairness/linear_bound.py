"""WAT's bound on the worst class's robust error of linear classifiers (Li & Liu 2023, Theorem 3), on a real one.

For f_W(x) = Wx with K classes, |S| training images, as many of each class, the L∞ ball of radius ε, 1/p + 1/q = 1, any
fixed γ > 0 and a bound W ≥ ‖w_k‖_p for all k: with probability at least 1 − δ

    1 − Acc_wc ≤ (K/|S|) Σ_i E_i + 2WK³U/(γ|S|) + 2WεK²d^{1/q}/(γ√|S|) + 3 √(K log(2/δ) / (2|S|))
    E_i = 1(⟨w_{y_i}, x_i⟩ ≤ γ + max_{y'≠y_i} (⟨w_{y'}, x_i⟩ + ε‖w_{y'} − w_{y_i}‖₁))
    U   = max_k E‖Σ_{i∈S_k} σ_i x_i‖_q

(σ_i random signs; of the U in the paper only the terms y = k are not zero). The first term is K times the *average*
margin error, not the worst class's. The step before that in the proof, with the terms it drops kept, is

    max_k Ê_k + (2WK/γ) (U/n + ε√K d^{1/q}/√n) + 3 √(log(2K/δ) / (2n)),    n = |S|/K,

where K in the last logarithm is ours: the paper takes a maximum over K events of probability 1 − δ each without a union
bound. Both are computed, with W that of the classifier and γ its median training margin of the robust images or, if
that is better, the best of a grid. The theorem requires both to be fixed beforehand, so this favours the bound: if it
is vacuous even so, it is vacuous. A γ beyond all margins, where the first term is largest, means that no margin helps.

The classifier minimises mean_i log Σ_{y'} exp(⟨w_{y'} − w_{y_i}, x_i⟩ + ε‖w_{y'} − w_{y_i}‖₁), which is convex; every
exponent is exact, the largest change that the ball allows. So are its robust errors: no attack is needed. As in the
theorem, pixels may leave [0,1], and there is no bias.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from classwise.core.csv_files import write_csv
from classwise.core.spec import number
from classwise.data import load as load_data
from classwise.data.images import Images
from classwise.metrics import worst
from classwise.stats import intervals
from classwise.stats.intervals import Array
from classwise.studies.runner.work import Environment

DELTA = 0.05
_BATCH = 256
_RATE = 0.01
_SIGNS = 64  # draws of random signs for the expectation in U
_GAMMAS = 200
_TINY = 1e-12


@dataclass(frozen=True, kw_only=True)
class Size:
    """What the bound grows with: W, the radius, the number of pixels d, q, and U."""

    norm: float
    eps: float
    pixels: int
    q: float
    spread: float


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The bound at some γ, term by term."""

    gamma: float
    error: float
    complexity: float
    radius: float
    chance: float

    @property
    def total(self) -> float:
        return self.error + self.complexity + self.radius + self.chance


def linear(folder: Path, environment: Environment, data: str, eps: str | float, epochs: int, seed: int) -> None:
    """bound.csv: both forms of the bound for p = 1 and 2; classes.csv: each class's robust error, training and test."""
    train, test = (load_data(data, environment.root, split, environment.download) for split in ("train", "test"))
    present = np.bincount(train.labels, minlength=train.num_classes)
    train = train.subset(per_class=int(present[present > 0].min()), seed=seed)  # the theorem's classes are equal
    radius = number(eps)
    weight = fit(train, radius, epochs, seed)
    margins = {split: robust_margins(weight, images, radius) for split, images in (("train", train), ("test", test))}
    classes = pd.concat([_errors(train, margins["train"], "train"), _errors(test, margins["test"], "test")])
    write_csv(folder / "classes.csv", classes)
    held = classes[(classes["split"] == "test") & (classes["n"] > 0)]
    low, high = worst.bounds((held["n"] - held["wrong"]).to_numpy(), held["n"].to_numpy())
    measured = {"measured": held["error"].max(), "measured_low": 1 - float(high), "measured_high": 1 - float(low)}
    rows = []
    for p in (1, 2):
        q = math.inf if p == 1 else 2.0
        largest = float(torch.linalg.vector_norm(weight, p, dim=1).max())
        spread = rademacher(train, q, seed)
        size = Size(norm=largest, eps=radius, pixels=weight.shape[1], q=q, spread=spread)
        for form, choice in itertools.product(("as stated", "tightened"), ("median margin", "best")):
            gammas = _grid(margins["train"]) if choice == "best" else [_median(margins["train"])]
            found = bound(margins["train"], train.labels, size, gammas, form == "as stated")
            terms = {key: getattr(found, key) for key in ("gamma", "error", "complexity", "radius", "chance", "total")}
            rows.append({"form": form, "p": p, "gamma_is": choice, "largest_norm": largest, **terms, **measured})
    write_csv(folder / "bound.csv", pd.DataFrame(rows))


def fit(images: Images, eps: float, epochs: int, seed: int) -> Tensor:
    """W of shape (K, d), by Adam with a learning rate that decays to 0; reproducible, without global random numbers."""
    generator = torch.Generator().manual_seed(seed)
    pixels = images.batch(np.arange(1))[0].numel()
    weight = torch.zeros(images.num_classes, pixels, requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=_RATE)
    steps = epochs * math.ceil(len(images) / _BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(images), generator=generator), _BATCH):
            x, y = images.batch(rows.numpy())
            optimizer.zero_grad()
            loss: Tensor = worst_gaps(weight, x.flatten(1), y, eps).logsumexp(1).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return weight.detach()


def worst_gaps(weight: Tensor, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """max over the ball of ⟨w_{y'} − w_y, x'⟩, for every class y': ⟨w_{y'} − w_y, x⟩ + ε‖w_{y'} − w_y‖₁; 0 for y."""
    z = x @ weight.T
    apart = torch.cdist(weight[None], weight[None], p=1)[0]
    return z - z.gather(1, y[:, None]) + eps * apart[y]


@torch.no_grad()
def robust_margins(weight: Tensor, images: Images, eps: float) -> Array:
    """−max_{y'≠y} of the worst gaps, of each image: it is robust exactly if this is positive."""
    found = []
    for rows in np.array_split(np.arange(len(images)), math.ceil(len(images) / _BATCH)):
        x, y = images.batch(rows)
        gaps = worst_gaps(weight, x.flatten(1), y, eps)
        found.append(-gaps.scatter(1, y[:, None], -math.inf).amax(1))
    return np.asarray(torch.cat(found).double().numpy())


def rademacher(images: Images, q: float, seed: int) -> float:
    """U = max_k E‖Σ_{i∈S_k} σ_i x_i‖_q, the expectation by random signs."""
    generator = torch.Generator().manual_seed(seed)
    norms = []
    for label in np.unique(images.labels):
        own = np.flatnonzero(images.labels == label)
        total = torch.zeros(())
        for rows in np.array_split(own, math.ceil(len(own) / _BATCH)):
            signs = 2.0 * torch.randint(2, (_SIGNS, len(rows)), generator=generator) - 1
            total = total + signs @ images.batch(rows)[0].flatten(1)
        norms.append(float(torch.linalg.vector_norm(total, q, dim=1).mean()))
    return max(norms)


def bound(
    margins: Array, labels: Array, size: Size, gammas: Sequence[float], stated: bool, delta: float = DELTA
) -> Terms:
    """The bound, as stated or tightened, at the best of these γ; margins and labels are of the training images."""
    present = np.unique(labels)
    k, images = len(present), len(labels)
    n, root = images / k, size.pixels ** (1 / size.q)
    if stated:
        error = k * np.array([(margins <= gamma).mean() for gamma in gammas])
        complexity = 2 * size.norm * k**3 * size.spread / images
        radius = 2 * size.norm * size.eps * k**2 * root / math.sqrt(images)
        chance = 3 * math.sqrt(k * math.log(2 / delta) / (2 * images))
    else:
        error = np.array([max((margins[labels == c] <= gamma).mean() for c in present) for gamma in gammas])
        complexity = 2 * size.norm * k * size.spread / n
        radius = 2 * size.norm * k * size.eps * math.sqrt(k) * root / math.sqrt(n)
        chance = 3 * math.sqrt(math.log(2 * k / delta) / (2 * n))
    at = int((error + (complexity + radius) / np.array(gammas)).argmin())
    gamma, least = float(gammas[at]), float(error[at])
    return Terms(gamma=gamma, error=least, complexity=complexity / gamma, radius=radius / gamma, chance=chance)


def _grid(margins: Array) -> list[float]:
    """γ from a thousandth of the largest margin to a thousand times it."""
    largest = max(float(np.abs(margins).max()), _TINY)
    return [float(gamma) for gamma in np.geomspace(1e-3 * largest, 1e3 * largest, _GAMMAS)]


def _median(margins: Array) -> float:
    robust = margins[margins > 0]
    return float(np.median(robust)) if robust.size else _TINY


def _errors(images: Images, margins: Array, split: str) -> pd.DataFrame:
    """Images and robust errors of each class; an image on the boundary is not robust."""
    size = images.num_classes
    n = np.bincount(images.labels, minlength=size)
    wrong = np.bincount(images.labels[margins <= 0], minlength=size)
    error = intervals.ratio(wrong, n)
    return pd.DataFrame({"split": split, "class": images.class_names, "n": n, "wrong": wrong, "error": error})
