"""Findings that have to be asked of the model itself, on a few images, before an audit spends its time.

After Carlini et al., "On Evaluating Adversarial Robustness" (2019), and AutoAttack's checks of the defence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from classwise.attacks.attack import Attack, Rows, final_point, initial_rows, select
from classwise.attacks.pgd import Pgd
from classwise.core import rng
from classwise.core.format import percent
from classwise.core.losses import cross_entropy
from classwise.core.spec import exact
from classwise.core.threat import LINF, Ball, Threat
from classwise.data.images import Images
from classwise.models.normalize import Normalize
from classwise.results.finding import Finding

_PER_CLASS, _MOST = 4, 64  # images looked at
_FEW = 16  # of them, where an attack is tried out, and in one pass: large images with gradients fill the memory
_STEPS = 5  # of the attack whose loss is watched, at most
_UNBOUNDED = Pgd(steps=40, step=0.1)  # with a radius of 1 it reaches every image there is, several times over
_MAY_SURVIVE = 0.05  # of the images, and never a single one, before we speak up
_TRAINED_OTHERWISE = (_NormBase, _DropoutNd, nn.RReLU, nn.RNNBase, nn.MultiheadAttention)  # than they evaluate


@dataclass(frozen=True)
class Sample:
    """A few images of every class, and what the model says of them."""

    x: Tensor
    y: Tensor
    logits: Tensor
    class_names: tuple[str, ...]


def draw_sample(model: nn.Module, images: Images, device: torch.device, seed: int) -> Sample:
    some = images.subset(limit=_MOST, per_class=_PER_CLASS, seed=seed)
    x, y = (part.to(device) for part in some.batch(np.arange(len(some))))
    return Sample(x, y, _answers(model, x), images.class_names)


def _answers(model: nn.Module, x: Tensor) -> Tensor:
    """The model's logits, a few images at a time."""
    with torch.no_grad():
        return torch.cat([model(few) for few in _pieces(x)])


def _pieces(rows: Tensor) -> list[Tensor]:
    return [rows[begin : begin + _FEW] for begin in range(0, len(rows), _FEW)]


def inspect(
    model: nn.Module, sample: Sample, attacks: Mapping[str, Attack], threat: Threat, was_training: bool, eot: int
) -> list[Finding]:
    """Every finding about the model on the sample, and about the first attack, with the (largest) radius of the audit.

    `model` is in eval mode; `was_training` says how it came.
    """
    randomised = list(_randomised(model, sample, eot))
    findings = [*_train_mode(was_training), *_range(model, sample), *_probabilities(sample)]
    findings += [*_other_threat(model, threat), *randomised]
    gradient = None if getattr(model, "black_box", False) else _gradient(model, sample)
    if gradient is not None:
        findings += _zero_gradients(gradient, sample)
    attack = next(iter(attacks.values()), None)
    if attack is None or randomised or eot > 1:
        return findings
    findings += _zero_radius(model, sample, attack, threat.ball)
    if gradient is None or not gradient.any():
        return findings
    if any(each.needs_gradient for each in attacks.values()):
        findings += _unbounded(model, sample)
    if attack.needs_gradient:
        findings += _loss(model, sample, attack, threat)
    return findings


def mode_counts(module: nn.Module) -> bool:
    """Whether a module may answer differently in train mode: not a container, whose parts say so themselves, and of
    torch's own only what is known to."""
    if next(module.children(), None) is not None or isinstance(module, Normalize):
        return False
    own = type(module).__module__.partition(".")[0] == "torch"
    return isinstance(module, _TRAINED_OTHERWISE) or not own or not type(module).__module__.startswith("torch.nn.")


def _train_mode(was_training: bool) -> Iterator[Finding]:
    if was_training:
        yield Finding(
            "train_mode",
            "warning",
            "The model was in train mode: batch-norm and dropout would have made its answers depend on the batch.",
            "It was audited in eval mode and put back afterwards; call model.eval() yourself to silence this.",
        )


def _other_threat(model: nn.Module, threat: Threat) -> Iterator[Finding]:
    trained = getattr(model, "trained_threat", None)
    if trained is not None and trained != (threat.norm, threat.eps):
        wanted = f"--eps {exact(trained[1])} --norm {trained[0]}"
        yield Finding(
            "other_threat",
            "warning",
            f"The model was trained against {trained[0]} perturbations of at most {exact(trained[1])} and is audited "
            f"against {threat.norm} perturbations of at most {exact(threat.eps)}.",
            f"Where that is not what you want, audit it as it was trained: {wanted}.",
        )


def _range(model: nn.Module, sample: Sample) -> Iterator[Finding]:
    low, high = float(sample.x.min()), float(sample.x.max())
    if low < -1e-4 or high > 1 + 1e-4:
        twice = any(isinstance(module, Normalize) for module in model.modules())
        looks = "They look normalised twice: the model normalises too. " if twice else ""
        looks = "They look like 0…255: divide by 255. " if high > 10 and low >= 0 else looks
        yield Finding(
            "input_range",
            "error",
            f"Inputs run from {low:.3g} to {high:.3g}; an audit needs pixels in [0,1].",
            f"{looks}Take the normalisation out of the data and put it into the model (normalize=…).",
        )
    elif 0 < high < 2 / 255:
        yield Finding(
            "input_range",
            "error",
            f"The brightest pixel of the sample is {high:.3g}: the images look divided by 255 twice.",
            "Give uint8 images, or floats in [0,1].",
        )


def _probabilities(sample: Sample) -> Iterator[Finding]:
    z = sample.logits
    if bool((z >= 0).all()) and bool(((z.sum(1) - 1).abs() < 1e-3).all()):
        yield Finding(
            "probabilities",
            "error",
            "The model's outputs look like probabilities (non-negative, summing to one), not logits.",
            "Remove the final softmax: a loss on its output has a vanishing gradient and makes attacks look weak.",
        )


def _randomised(model: nn.Module, sample: Sample, eot: int) -> Iterator[Finding]:
    again = _answers(model, sample.x)
    if bool((again - sample.logits).abs().amax() > 1e-3 * sample.logits.abs().amax().clamp_min(1.0)):
        changed = float((again.argmax(1) != sample.logits.argmax(1)).float().mean())
        remedy = "Attack its expectation over draws: --eot 20 (eot=20), and report several seeds."
        yield Finding(
            "randomised",
            "info" if eot > 1 else "error",
            f"Two calls on the same images differ (predictions of {percent(changed, 0)} of them): the model is "
            "randomised.",
            remedy if eot == 1 else f"Attacks and judgement average over {eot} draws; report several seeds.",
        )


def _zero_gradients(gradient: Tensor, sample: Sample) -> Iterator[Finding]:
    dead = (gradient.flatten(1).abs().amax(1) == 0).cpu().numpy()
    if not dead.any():
        return
    shares = pd.Series(dead).groupby(sample.y.cpu().numpy()).mean().sort_values(ascending=False, kind="stable")
    most = [(sample.class_names[label], shares[label]) for label in shares.index.tolist()[:3] if shares[label]]
    worst = ", ".join(f"{name} {percent(share, 0)}" for name, share in most)
    yield Finding(
        "zero_gradient",
        "error",
        f"The gradient is exactly zero for {percent(float(dead.mean()), 0)} of the sampled images (most: {worst}).",
        "A gradient attack cannot move those: add temperature_pgd:sound=true or margin_pgd, and compare with noise.",
    )


def _gradient(model: nn.Module, sample: Sample) -> Tensor:
    """∇_x CE on the sample; zero where the output does not depend on the input as autograd sees it."""
    pieces = zip(_pieces(sample.x), _pieces(sample.y), strict=True)
    return torch.cat([_gradient_of(model, x, y) for x, y in pieces])


def _gradient_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        loss = cross_entropy(model(x), y).sum()
    if not loss.requires_grad:
        return torch.zeros_like(x)
    return torch.autograd.grad(loss, x, allow_unused=True, materialize_grads=True)[0]


def _zero_radius(model: nn.Module, sample: Sample, attack: Attack, ball: Ball) -> Iterator[Finding]:
    rows = _begun(attack, model, sample, slice(_FEW), 0.0, ball)
    if attack.steps:
        rows = attack.advance(model, rows, ball)
    x_adv = final_point(rows)
    with torch.no_grad():
        differing = model(x_adv).argmax(1) != sample.logits[:_FEW].argmax(1)
    if differing.any():
        yield Finding(
            "zero_radius",
            "error",
            "With eps = 0 the attack changes the prediction of "
            f"{percent(float(differing.float().mean()), 0)} of the images.",
            "Inputs leave [0,1], or the model keeps state between calls: mend that first, nothing else is reliable.",
        )


def _unbounded(model: nn.Module, sample: Sample) -> Iterator[Finding]:
    """With no bound but the pixel range every image can be turned into any other, so nothing may survive."""
    right = sample.logits.argmax(1) == sample.y
    if not right.any():
        return
    survive, tried = 0, int(right.sum())
    for few in _pieces(torch.nonzero(right).flatten()):
        rows = _begun(_UNBOUNDED, model, sample, few, 1.0, LINF)
        while len(rows["y"]) and int(rows["t"].max()) < _UNBOUNDED.steps:
            rows = _UNBOUNDED.advance(model, rows, LINF)
            rows = select(rows, rows["logits"].argmax(1) == rows["y"])  # what is broken is done with
        survive += len(rows["y"])
    if survive > max(_MAY_SURVIVE * tried, 1):
        yield Finding(
            "unbounded_survives",
            "error",
            f"With eps = 1, where any image can become any other, {survive} of {tried} images still survive "
            f"{_UNBOUNDED.steps} steps of PGD.",
            "The gradient does not lead to errors that are surely there (masked, saturated or shattered): robust "
            "accuracy from gradient attacks is overestimated. Add margin_pgd and an attack without gradients.",
        )


def _loss(model: nn.Module, sample: Sample, attack: Attack, threat: Threat) -> Iterator[Finding]:
    """Whether cross entropy is higher where the attack ends than where it begins."""
    rows = _begun(attack, model, sample, slice(_FEW), threat.eps, threat.ball)
    if "best" in rows:  # it looks for the nearest error, not for the largest loss
        return
    first = rows["x_adv"]
    for _ in range(min(attack.steps, _STEPS)):
        rows = attack.advance(model, rows, threat.ball)
    with torch.no_grad():
        begin, end = (float(cross_entropy(model(x), rows["y"]).mean()) for x in (first, final_point(rows)))
    if end < begin:
        yield Finding(
            "loss_falls",
            "error",
            f"The mean loss of {len(rows['y'])} images falls from {begin:.3g} to {end:.3g} along the attack's steps.",
            "An attack should raise it: the step size is too large for this model, or the gradient points the wrong "
            "way. Try smaller steps, more of them, or margin_pgd.",
        )


def _begun(attack: Attack, model: nn.Module, sample: Sample, which: Tensor | slice, eps: float, ball: Ball) -> Rows:
    """The attack's rows for some images of the sample, before the first step."""
    x, y = sample.x[which], sample.y[which]
    keys = rng.keys_from(torch.Generator().manual_seed(0), len(x), x.device)
    return attack.begin(model, initial_rows(x, y, eps, keys), ball)
