"""WAT, worst-class adversarial training (Li and Liu, AAAI 2023): TRADES with class weights that an opponent chooses.

    min_θ  Σ_{k=1..K} w_k L_k(θ) + w_0 L_0(θ),      w_k = exp(η Σ_τ V_k^τ) / Σ_{j=0..K} exp(η Σ_τ V_j^τ)        (11, 12)

L_k is the TRADES loss of class k, CE + β KL, L_0 that of all examples; V_k^τ the same on validation images after epoch
τ, attacked as in training. Σ_τ is kept in the state and the quotient is a softmax, so no number of epochs overflows.

protocol="code" (default: it is what the authors published beside their tables, with the same η = 0.1) is that code:
    an example weighs K (w_y + w_0), and 2 in the first epoch. Class terms are sums over the batch divided by B, which
    makes them K times smaller than class means, so that L_0 counts K times more than in (11). V_k is K times the
    class's sum divided by the validation images counted in full batches: ceil(n/B)·B of `valid_batch` = B each.
protocol="paper" is (11): an example weighs w_y/π_y + w_0, where π_y is its class's share of the training set. The
    batch's average is then an unbiased estimate of Σ w_k L_k whichever classes the batch holds; dividing by the class's
    count in the batch instead would lose every class that is absent from it. w starts uniform and π is taken as 1/K
    until the first epoch has counted it, so the first epoch is TRADES.

Departures: a class without validation images is given the overall loss; validation losses are at temperature 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from scipy.special import rel_entr
from torch import Tensor

from classwise.attacks.attack import Attack
from classwise.core.errors import UserError
from classwise.core.records import CLEAN, Array, Records
from classwise.core.spec import Bounds, Count
from classwise.methods.method import State, by_class, require_validation
from classwise.methods.trades import Trades
from classwise.stats.intervals import ratio

PAPERS = ("li2023",)

_ATTACK = "wat"  # the training attack on validation images
DELTA = 0.05  # of Theorem 2: the probability that it fails


@dataclass(frozen=True, kw_only=True)
class Wat(Trades):
    """Fields of trades; η, the step of the game (0.001 to 0.5 in the paper); protocol; valid_batch: see above.

    State: `loss` V of the last epoch, `cost` Σ_τ V and `least` min_τ V of each class, each also over all images
    (`…_all`); `rounds` so far, `played` Σ_τ Σ_k w_k V_k, `largest` V of all; `train_error` and `train_images` of each
    class in the last epoch, under the training attack.
    """

    eta: Annotated[float, Bounds(above=0, note="trades is the method whose weights do not move.")] = 0.1
    protocol: Literal["code", "paper"] = "code"
    valid_batch: Count = 128

    def balances(self) -> bool:
        return self.protocol == "paper"

    def validation(self) -> Mapping[str, Attack]:
        return {_ATTACK: self.inner()}

    def init(self, class_names: Sequence[str]) -> State:
        state = super().init(class_names)
        zeros = torch.zeros(len(class_names) + 1)
        return {
            **state,
            "weight": state["weight"] * (2.0 if self.protocol == "code" else 1.0),
            **_split("loss", zeros),
            **_split("cost", zeros),
            **_split("least", zeros + math.inf),
            **{name: torch.tensor(0.0) for name in ("rounds", "played", "largest")},
            **{name: zeros[:-1].clone() for name in ("train_error", "train_images")},
        }

    def update(self, state: State, train: Records | None, valid: Records | None, epoch: int) -> State:
        valid = require_validation(valid, self)
        loss = torch.from_numpy(self._losses(valid, state["beta"]))
        known = {name: _join(state, name) for name in ("cost", "least")}
        played = state["played"].cpu().double() + hedge(known["cost"], self.eta) @ loss
        cost = known["cost"] + loss
        own = by_class(self.weight, valid.class_names, "weight")
        new = {
            "weight": own * self._example_weights(hedge(cost, self.eta), train),
            **_split("loss", loss),
            **_split("cost", cost),
            **_split("least", torch.minimum(known["least"], loss)),
            "rounds": state["rounds"] + 1,
            "played": played,
            "largest": torch.maximum(state["largest"].cpu().double(), loss.amax()),
            **_train_errors(train),
        }
        return {**state, **{name: value.to(state["weight"]) for name, value in new.items()}}

    def remarks(self, state: State) -> tuple[str, ...]:
        return (*_describe_theorem1(state, self.eta), *_describe_theorem2(state))

    def _example_weights(self, w: Tensor, train: Records | None) -> Tensor:
        """What an example of each class weighs, from w_1 … w_K, w_0."""
        each, overall = w[:-1], w[-1]
        if self.protocol == "code":
            return len(each) * (each + overall)
        count = np.zeros(len(each)) if train is None else np.bincount(train.label, minlength=len(each))
        share = torch.from_numpy(np.where(count > 0, ratio(count, count.sum()), 1 / len(each)))
        return each / share + overall

    def _losses(self, valid: Records, beta: Tensor) -> Array:
        """V_1 … V_K and V_0."""
        label, loss = _trades_losses(valid, beta.cpu().numpy())
        classes = valid.num_classes
        sums, count = np.bincount(label, loss, minlength=classes), np.bincount(label, minlength=classes)
        if self.protocol == "paper":
            overall, each = loss.mean(), ratio(sums, count)
        else:
            rows = math.ceil(len(loss) / self.valid_batch) * self.valid_batch
            overall, each = loss.sum() / rows, sums * classes / rows
        return np.append(np.where(count > 0, each, overall), overall)


def hedge(cost: Tensor, eta: float) -> Tensor:
    """Equation (12): the weights in the game of which `cost` are the losses so far."""
    return torch.softmax(eta * cost, 0)


def theorem1(state: State, eta: float) -> dict[str, float]:
    """Theorem 1's bound on the worst class's loss, from the run's own validation losses; empty before there are any.

        max_k min_t V_k^t  ≤  (1/T) Σ_t Σ_k w_k^t V_k^t  +  log(K+1) / (ηT)
              worst                    average                  regret            bound = average + regret

    The theorem wants losses in [0,1], η ≤ 1/2, and (1/T) Σ_t V_k^t ≥ min_t V_k^t / (1−η) for every k. TRADES losses
    have no upper end. Divided by the largest one seen, M, they lie in [0,1], and the weights are those of a game with
    step ηM (`scaled_eta`); multiplied by M again the bound is the one above, M having cancelled. `holds` is 1 where
    the two other conditions are met for ηM, else 0. `always` needs neither: e^{ηMv} ≤ 1 + v(e^{ηM} − 1) on [0,1] gives

        max_k (1/T) Σ_t V_k^t  ≤  (e^{ηM} − 1)/(ηM) · average + regret
    """
    rounds, classes = float(state["rounds"]), len(state["cost"])
    if rounds == 0:
        return {}
    scaled = eta * float(state["largest"])
    average, regret = float(state["played"]) / rounds, math.log(classes + 1) / (eta * rounds)
    mean, least = _join(state, "cost") / rounds, _join(state, "least")
    holds = scaled <= 0.5 and bool((mean >= least / (1 - scaled)).all())
    return {
        "worst": float(state["least"].amax()),
        "bound": average + regret,
        "average": average,
        "regret": regret,
        "scaled_eta": scaled,
        "holds": float(holds),
        "always": (math.expm1(scaled) / scaled if scaled else 1.0) * average + regret,
    }


def theorem2(state: State, delta: float = DELTA) -> dict[str, float]:
    """Theorem 2 as far as a run determines it, with the 0-1 loss, B = 1; empty before the first epoch is over.

        R_wc  ≤  max_k R̂_k  +  2 max_k ℜ_{S_k}  +  3 √(K log(2/δ) / (2|S|))        with probability at least 1 − δ
                 empirical      complexity               deviation

    R_wc is the worst class's robust error on new images, R̂_k that of class k on the training images S_k: here under
    the training attack, in the last epoch, which is at most the theorem's maximum over the ball. The Rademacher
    complexity ℜ of the attacked loss of a network is not known; `room` is how large it may be before the bound is 1.
    `corrected` is the deviation without the theorem's two simplifications: it maximises over K events of probability
    1 − δ each without a union bound, and assumes balanced classes: 3 √(log(2K/δ) / (2 min_k |S_k|)).
    """
    images = state.get("train_images")
    if images is None or not bool((images > 0).any()):
        return {}
    classes, count = len(images), images.double()
    empirical = float(state["train_error"].double()[count > 0].amax())
    deviation = 3 * math.sqrt(classes * math.log(2 / delta) / (2 * float(count.sum())))
    smallest = float(count[count > 0].amin())
    return {
        "empirical": empirical,
        "deviation": deviation,
        "corrected": 3 * math.sqrt(math.log(2 * classes / delta) / (2 * smallest)),
        "room": (1 - empirical - deviation) / 2,
    }


def _describe_theorem1(state: State, eta: float) -> tuple[str, ...]:
    found = theorem1(state, eta)
    if not found:
        return ()
    met = "its conditions hold" if found["holds"] else f"its conditions do not hold (ηM = {found['scaled_eta']:.2g})"
    return (
        f"Theorem 1 on this run's validation losses: the worst class's loss is {found['worst']:.3f}, the bound "
        f"{found['bound']:.3f} = {found['average']:.3f} + {found['regret']:.3f}; {met}; without them its average "
        f"loss is at most {found['always']:.3f}.",
    )


def _describe_theorem2(state: State) -> tuple[str, ...]:
    found = theorem2(state)
    if not found:
        return ()
    known = found["empirical"] + found["deviation"]
    left = (
        f"it is vacuous once the complexity reaches {found['room']:.3f}"
        if found["room"] > 0
        else "it is vacuous, whatever the complexity"
    )
    return (
        f"Theorem 2 on this run's training images (0-1 loss, δ = {DELTA:g}): the worst class's robust error is at most "
        f"{known:.3f} = {found['empirical']:.3f} + {found['deviation']:.3f}, plus twice the Rademacher complexity of "
        f"the attacked network, which is not computed; {left}. With a union bound over the classes the deviation is "
        f"{found['corrected']:.3f}.",
    )


def _train_errors(train: Records | None) -> State:
    """The share of each class's training images that the training attack broke, and how many they are."""
    if train is None:
        return {}
    wrong = np.bincount(train.label, ~train.correct, minlength=train.num_classes)
    count = np.bincount(train.label, minlength=train.num_classes)
    error = np.where(count > 0, ratio(wrong, count), 0.0)
    return {"train_error": torch.from_numpy(error), "train_images": torch.from_numpy(count.astype(np.float64))}


def _trades_losses(valid: Records, beta: Array) -> tuple[Array, Array]:
    """Each validation image's label, and its CE + β KL from the stored probabilities."""
    clean, moved = valid.of(CLEAN), valid.of(_ATTACK)
    if clean.probs is None or moved.probs is None:
        raise UserError("wat needs the probabilities of its validation records; write them with probs.")
    smallest = np.finfo(np.float32).tiny  # a probability p' that underflows to 0 must not make KL infinite
    divergence = rel_entr(clean.probs.astype(np.float64), np.maximum(moved.probs, smallest)).sum(1)
    return clean.label, clean.frame["loss"].to_numpy(np.float64) + beta[clean.label] * divergence


def _join(state: State, name: str) -> Tensor:
    """The classes' values and, last, the overall one; in double precision."""
    return torch.cat([state[name], state[f"{name}_all"][None]]).cpu().double()


def _split(name: str, values: Tensor) -> State:
    return {name: values[:-1].clone(), f"{name}_all": values[-1].clone()}
