"""The untouched model's word on what an attack found, in float32 without shortcuts: only what it confirms counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from classwise.attacks.attack import Model, possibly
from classwise.core.errors import UserError
from classwise.core.records import Array
from classwise.core.threat import Ball, choose


@dataclass(frozen=True)
class Verifier:
    """The untouched model's word on a point, and a check of the point itself. Softmax is averaged over `eot` calls."""

    model: Model
    ball: Ball
    eot: int = 1

    def __call__(self, tried: Tensor, x: Tensor, y: Tensor, eps: Tensor) -> dict[str, Tensor]:
        """Per-example columns of the records for the points `tried`; one that is not allowed is replaced by `x`."""
        found = self.columns(tried, x, y, eps)
        require_finite(found["finite"])
        return found

    @torch.inference_mode()
    def columns(self, tried: Tensor, x: Tensor, y: Tensor, eps: Tensor) -> dict[str, Tensor]:
        """The same, with a column `finite` in the place of an error where the model's output is not a number, so that
        nothing waits for the device."""
        distance = self.ball.norm(tried - x)
        outside = (distance > eps * (1 + 1e-5) + 1e-6) | (tried.flatten(1).amin(1) < 0) | (tried.flatten(1).amax(1) > 1)
        outside |= ~torch.isfinite(distance)
        # The clean image is always allowed, even where the data itself leaves [0,1]: that is a finding, not a break.
        outside &= distance != 0
        allowed = choose(outside, x, tried) if possibly(outside) else tried
        with tf32(False):
            answers = [self.model(allowed) for _ in range(self.eot)]
        p = torch.stack([softmax_of(z) for z in answers]).mean(0)
        confidence, prediction = p.max(1)
        true_prob = p.gather(1, y[:, None])[:, 0]
        return {
            "prediction": prediction,
            "confidence": confidence,
            "true_prob": true_prob,
            "loss": -true_prob.clamp_min(torch.finfo(p.dtype).tiny).log(),
            "distance": torch.where(outside, 0.0, distance),
            "probs": p,
            "outside": outside,
            "finite": torch.stack([torch.isfinite(z).all(1) for z in answers]).all(0),
            "point": allowed,
        }


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Whether products of float32 may be rounded to TensorFloat-32, on GPUs that have it: gradients may, for an error
    there is found by the verifier; the verifier's own may not."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def softmax_of(logits: Tensor) -> Tensor:
    """Probabilities in double precision, where the device has it."""
    return logits.to(precise(logits.device)).softmax(1)


def precise(device: torch.device) -> torch.dtype:
    """The device's most precise type."""
    return torch.float32 if device.type == "mps" else torch.float64


def require_finite(finite: Tensor | Array) -> None:
    """Stop where the model's output was not a number; `finite` says of each image whether it was."""
    if not finite.all():
        raise UserError(
            f"the model returned NaN or infinite logits for {int((~finite).sum())} of {len(finite)} images. "
            "Check its weights and its normalisation; an audit of such outputs means nothing."
        )
