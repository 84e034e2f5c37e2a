"""Sy-FAR (Najjar et al., USENIX Security 2026, arXiv 2509.12939): confusions between two classes are made symmetric.

    K_ij = mean of p_j(x') over class i in the batch
    P    = Σ_{i<j} |K_ij − K_ji| (K_ij + K_ji) / (K_ij + K_ji + 0.1)
    min_θ  (1/B) Σ w_y [ 0.1 CE(z(x), y) + CE(z(x'), y) + 10 P ]

The weights are the official code's defaults; its README has 10 for the adversarial term. They belong to its learning
rate of 0.001: on the digits, from scratch at 0.02 or 0.2, the network comes to predict one class, and the recipes have
0.1 instead of 10. The aim is symmetry, not the worst class. That code trains face recognition against occlusions; PGD
on CE and the settings for other images are ours. A class that is absent from the batch has K_i = 0 in that code, which
makes its pairs look asymmetric: `pairs="all"`; the default counts the pairs of classes in the batch. That code also
leaves the network in eval mode after its first attack; here both passes are in train mode. With several processes K is
that of the whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from classwise.core.losses import cross_entropy
from classwise.core.spec import NonNegative, Positive
from classwise.methods.batch_classes import of_class_means
from classwise.methods.madry import Madry
from classwise.methods.method import Batch, Loss, State, both_logits

PAPERS = ("najjar2026",)


@dataclass(frozen=True, kw_only=True)
class SyFar(Madry):
    """Fields of madry; clean, adversarial, symmetry: the weights of the three terms; floor: the 0.1 in P; pairs:
    which pairs of classes are in P."""

    clean: NonNegative = 0.1
    adversarial: NonNegative = 1.0
    symmetry: NonNegative = 10.0
    floor: Positive = 0.1
    pairs: Literal["present", "all"] = "present"

    batch_wise: ClassVar[bool] = True

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        z, z_adv = both_logits(model, batch, state)
        natural, robust = (cross_entropy(logits, batch.y, smoothing=batch.smoothing) for logits in (z, z_adv))
        penalty = of_class_means(self._asymmetry, z_adv.softmax(1), batch, z_adv.shape[1])
        value = self.clean * natural + self.adversarial * robust + self.symmetry * penalty
        return Loss(state["weight"][batch.y] * value, z_adv)

    def _asymmetry(self, k: Tensor, counts: Tensor) -> Tensor:
        """P of the soft confusion matrix."""
        if self.pairs == "present":
            seen = counts > 0
            k = k[seen][:, seen]
        both = k + k.T
        return ((k - k.T).abs() * both / (both + self.floor)).triu(1).sum()
