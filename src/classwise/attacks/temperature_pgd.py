"""Temperature-PGD (Tian et al., KDD 2021): PGD whose loss sees sharpened probabilities.

    x_{t+1} = Π(x_t + α · sign ∇ CE(softmax(z(x_t) / T), y))

Only the direction of the gradient matters: 1/T changes how the classes' gradients are mixed. Predictions use the
ordinary logits (argmax does not depend on T).

In float32 the papers' loss loses its gradient when the scaled gap (z_y − z_j)/T is large: the true class's part
from about 17, everything from about 104, and the image then stays where it is. `sound=true` ascends the log-odds
instead (classwise.core.losses.log_odds): the same direction in exact arithmetic, but one that cannot underflow.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from classwise.attacks.pgd import Pgd
from classwise.core.losses import cross_entropy, log_odds
from classwise.core.spec import Positive

PAPERS = ("tian2021",)


@dataclass(frozen=True)
class TemperaturePgd(Pgd):
    """Fields of pgd, 1/T, and `sound` for the variant that rounding cannot stop."""

    inv_temperature: Positive = 5.0
    sound: bool = False

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        return (log_odds if self.sound else cross_entropy)(z, y, self.inv_temperature)
