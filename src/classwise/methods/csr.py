"""CSR, confusional spectral regularisation (Jin et al., ICLR 2025): errors weighted by the confusion's main direction.

    x' = argmax KL(p(x) ‖ p(x'))
    min_θ  (1/B) Σ w_y [ (1 − α) CE(z(x), y) + β_y KL(p(x) ‖ p(x')) + α W[argmax z(x'), y] CE(z(x'), y) ]

    M_ij = share of class j's images that PGD gets misclassified as i,  0 for i = j          before every epoch
    G = u₁ v₁ᵀ of M's largest singular value;       W = 2 (G − min G) / (max G − min G) + 0.01

The worst class's robust error is the 1-norm of M; its spectral norm, whose gradient is G, is lowered in its place. The
settings are the published code's, which fine-tunes a robust model for two epochs (the recipes do; without model.weights
it trains from scratch): α = 0.3; M is counted on the training images, augmented and attacked by PGD on cross entropy
from a uniform start that is not clamped, in eval mode, the true logit times 0.9 before the argmax (`gamma` = 0.1; 0 for
none). gamma_rule="added" instead adds γ to all other logits, the paper's margin as its reviews quote it. The rest of
the paper's form, a matrix of mean KL terms over the confused images in the place of counts, was not obtained, so there
is none of it here; what was seen of the paper does not mention that G is scaled, either. source="validation" counts on
held-out images, which are fewer but not trained on; their records hold no logits, so that γ must be 0 or added.

Departures: columns of M are divided by the classes' sizes, which changes nothing where they are equal; where nothing is
confused, or G is the same everywhere (the code divides 0 by 0), W stays as it is; the constant W log W of the code's
loss is left out. Weight perturbation (train.awp) ascends this loss; in the code it ascends plain TRADES.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classwise.attacks.attack import Attack
from classwise.attacks.pgd import Pgd
from classwise.core.errors import UserError
from classwise.core.losses import cross_entropy, kl
from classwise.core.records import Array, Records
from classwise.core.spec import Fraction, Share
from classwise.methods.method import Batch, Loss, State, craft, require_validation
from classwise.methods.trades import Trades
from classwise.stats.intervals import ratio

PAPERS = ("jin2025",)

_ATTACK = "csr"  # PGD on cross entropy, on validation images
_SAME = 1e-9  # entries of G closer than this are equal


@dataclass(frozen=True, kw_only=True)
class Csr(Trades):
    """Fields of trades; alpha; source of M; gamma and its rule: see above. State: pair, W[predicted, true]."""

    alpha: Share = 0.3
    source: Literal["train", "validation"] = "train"
    gamma: Fraction = 0.1
    gamma_rule: Literal["factor", "added"] = "factor"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source == "validation" and self.gamma and self.gamma_rule == "factor":
            raise UserError(
                f"gamma = {self.gamma:g} multiplies a logit, which validation records do not hold: with source = "
                "validation set gamma to 0, or gamma_rule to added."
            )

    @property
    def surveys(self) -> bool:
        return self.source == "train"

    @property
    def validates_first(self) -> bool:
        return self.source == "validation"

    def validation(self) -> Mapping[str, Attack]:
        return {_ATTACK: self._pgd()} if self.source == "validation" else {}

    def init(self, class_names: Sequence[str]) -> State:
        return {**super().init(class_names), "pair": torch.ones(len(class_names), len(class_names))}

    def survey(self, batch: Batch, state: State) -> Tensor:
        with torch.no_grad():
            z = batch.fast(craft(self._pgd(), batch.fast, batch, state))
        return with_margin(z, batch.y, self.gamma, self.gamma_rule)

    def before_epoch(self, state: State, train: Records, epoch: int) -> State:
        return self._weighted(state, confusion(train.label, train.prediction, train.num_classes))

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        z, z_adv = self.both_logits(model, batch, state)
        natural, robust = (cross_entropy(logits, batch.y, smoothing=batch.smoothing) for logits in (z, z_adv))
        pair = state["pair"][z_adv.argmax(1), batch.y]
        value = (1 - self.alpha) * natural + state["beta"][batch.y] * kl(z, z_adv) + self.alpha * pair * robust
        return Loss(state["weight"][batch.y] * value, z_adv)

    def update(self, state: State, train: Records | None, valid: Records | None, epoch: int) -> State:
        if self.source == "train":
            return state
        found = require_validation(valid, self, ", or method.source to train").of(_ATTACK)
        prediction = found.prediction
        if self.gamma:
            if found.probs is None:
                raise UserError("csr needs the probabilities of its validation records; write them with probs.")
            log_p = torch.from_numpy(np.log(np.maximum(found.probs.astype(np.float64), np.finfo(np.float64).tiny)))
            z = with_margin(log_p, torch.from_numpy(found.label.astype(np.int64)), self.gamma, self.gamma_rule)
            prediction = z.argmax(1).numpy()
        return self._weighted(state, confusion(found.label, prediction, found.num_classes))

    def _pgd(self) -> Attack:
        """What M is counted under."""
        return self.pgd(Pgd, start="uniform", clamp=False)

    def _weighted(self, state: State, matrix: Array) -> State:
        found = pair_weights(matrix)
        return state if found is None else {**state, "pair": state["pair"].new_tensor(found)}


def with_margin(z: Tensor, y: Tensor, gamma: float, rule: Literal["factor", "added"]) -> Tensor:
    """Logits that favour the other classes: the true one's times 1 − γ, or γ added to all others."""
    own = F.one_hot(y, z.shape[1]).to(z)
    return z * (1 - gamma * own) if rule == "factor" else z + gamma * (1 - own)


def confusion(label: Array, prediction: Array, classes: int) -> Array:
    """M: the share of class j's images that are misclassified as i, at [i, j]; 0 on the diagonal."""
    counts = np.zeros((classes, classes))
    np.add.at(counts, (prediction, label), 1.0)
    shares = np.nan_to_num(ratio(counts, counts.sum(0)))
    np.fill_diagonal(shares, 0.0)
    return shares


def pair_weights(matrix: Array) -> Array | None:
    """W, from 0.01 to 2.01; None where nothing is confused or all pairs are alike."""
    u, s, vt = np.linalg.svd(matrix)
    g = np.outer(u[:, 0], vt[0])
    span = g.max() - g.min()
    return None if s[0] == 0 or span < _SAME else 2 * (g - g.min()) / span + 0.01
