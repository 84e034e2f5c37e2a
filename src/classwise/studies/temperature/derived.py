"""What `temperature` derives: where the float32 gradient vanishes, and one image's confidences during an attack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from classwise.attacks import parse
from classwise.attacks.attack import Rows, initial_rows, value_and_gradient
from classwise.auditing.inputs import device_of, module_of
from classwise.core import rng, spec
from classwise.core.csv_files import write_csv
from classwise.core.errors import UserError
from classwise.core.losses import cross_entropy
from classwise.core.records import Records
from classwise.core.threat import Norm, Threat
from classwise.data import load
from classwise.data.images import Images
from classwise.results.audit_result import Audit
from classwise.studies.runner.work import Environment
from classwise.studies.shared.temperature_sweep import Sweep, specs

PGD = "PGD"
_BATCH = 256


def gradients(
    folder: Path,
    environment: Environment,
    model: str,
    data: str,
    eps: str | float,
    attack: str,
    inv_temperature: Sequence[float],
    seed: int,
    per_class: int | None,
    norm: Norm = "linf",
) -> None:
    """gradients.csv, inv_temperature, class, n, zero: how many float32 gradients are exactly 0 where PGD starts."""
    images, module = _loaded(environment, model, data)
    images = images.subset(per_class=per_class, seed=seed)
    size, threat = images.num_classes, Threat(norm, spec.number(eps))
    zero = np.zeros((len(inv_temperature), size), dtype=np.int64)
    for begin in range(0, len(images), _BATCH):
        rows = _started(attack, module, images.take(np.arange(begin, min(begin + _BATCH, len(images)))), threat, seed)
        for number, t in enumerate(inv_temperature):
            zero[number] += np.bincount(_without_gradient(module, rows, t), minlength=size)
    n = np.bincount(images.labels, minlength=size)
    frame = pd.concat(
        pd.DataFrame({"inv_temperature": t, "class": images.class_names, "n": n, "zero": zero[number]})
        for number, t in enumerate(inv_temperature)
    )
    write_csv(folder / "gradients.csv", frame)


def _without_gradient(module: nn.Module, rows: Rows, inv_temperature: float) -> Any:
    """The labels of the images at which the gradient is exactly zero."""
    y = rows["y"]
    _, g = value_and_gradient(module, rows["x_adv"], lambda z: cross_entropy(z, y, inv_temperature))
    return y[g.flatten(1).abs().amax(1) == 0].cpu().numpy()


def path(
    folder: Path,
    environment: Environment,
    model: str,
    data: str,
    eps: str | float,
    attack: str,
    inv_temperature: Sequence[float],
    seed: int,
    audit: str,
    image: int | None,
    norm: Norm = "linf",
    followed: float | None = None,
) -> None:
    """path.csv: one image's probabilities after each step of PGD and of Temperature-PGD in float32, at the 1/T
    `followed`, by default the best.

    Columns: step, class, probability, attack, image, true_class.
    """
    own = Sweep.of(Audit.load(audit), attack, inv_temperature)
    best = own.best(False, own.others) if followed is None else followed
    chosen = _most_affected(own.pgd, own.rows[best, False]) if image is None else image
    images, module = _loaded(environment, model, data)
    at = np.flatnonzero(images.positions == chosen)
    if not at.size:
        raise UserError(f"{data} has no test image {chosen}; give --image an index such as {images.positions[0]}.")
    one, parts, threat = images.take(at[:1]), [], Threat(norm, spec.number(eps))
    for t, title in ((1.0, PGD), (best, f"Temperature-PGD, 1/T = {best:g}")):
        probabilities = _followed(specs(attack, [t])[t, False], module, one, threat, seed)
        for step, p in enumerate(probabilities):
            parts.append(pd.DataFrame({"step": step, "class": one.class_names, "probability": p, "attack": title}))
    frame = pd.concat(parts).assign(image=chosen, true_class=one.class_names[one.labels[0]])
    write_csv(folder / "path.csv", frame)


def _followed(attack: str, module: nn.Module, image: Images, threat: Threat, seed: int) -> list[list[float]]:
    """The probabilities of one image at the start and after every step."""
    (own,) = parse(attack).values()
    rows, found = _started(attack, module, image, threat, seed), []
    for step in range(own.steps + 1):
        rows = own.advance(module, rows, threat.ball) if step else rows
        with torch.no_grad():
            found.append(module(rows["x_adv"])[0].softmax(0).tolist())
    return found


def _most_affected(pgd: Records, other: Records) -> int:
    """The first image that survives PGD and is broken by the other attack; else one that survives, else any."""
    right, broken = pgd.correct, ~other.correct  # both ordered by image
    return int(pgd.index[np.lexsort((pgd.index, ~right, ~(right & broken)))[0]])


def _loaded(environment: Environment, model: str, data: str) -> tuple[Images, nn.Module]:
    """The test images and the model, as an audit loads them."""
    images = load(data, environment.root, download=environment.download)
    return images, module_of(model, images, device=environment.device).requires_grad_(False)


def _started(attack: str, module: nn.Module, images: Images, threat: Threat, seed: int) -> Rows:
    """The rows of a PGD at its start: the same random start as in an audit with this seed."""
    device = device_of(module)
    x, y = (part.to(device) for part in images.batch(np.arange(len(images))))
    index = torch.from_numpy(images.positions)
    key = rng.keys(seed, index, 0) + rng.keys(seed, torch.zeros_like(index), 1)
    (own,) = parse(attack).values()
    return own.begin(module, initial_rows(x, y, threat.eps, key.to(device)), threat.ball)
