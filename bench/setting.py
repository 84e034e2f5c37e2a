"""What is measured: a model, a data set in CIFAR-10's layout, and how often. The same for every benchmark."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

import classwise as cw
from bench import fitting, standin
from classwise.core.errors import UserError
from classwise.core.spec import number
from classwise.data import cifar10
from classwise.data.images import Images

SPEC = "resnet:width=16,blocks=1-1-1-1"
EPS = "8/255"


@dataclass(frozen=True)
class Setting:
    """`root` and `weights` always exist, and `data` and `about` say in words what they are."""

    root: Path
    weights: Path
    class_names: tuple[str, ...]
    data: str
    about: str
    batch: int
    rounds: int

    def images(self, count: int | None = None) -> Images:
        """The first `count` test images, or all."""
        images = dataclasses.replace(cw.load_data("cifar10", root=self.root), class_names=self.class_names)
        return images if count is None else images.take(np.arange(min(count, len(images))))

    def model(self) -> nn.Module:
        return cw.load_model(SPEC, weights=self.weights, num_classes=len(self.class_names))


def prepare(
    root: Path, weights: Path | None, about: str | None, batch: int, rounds: int, scratch: Path, seed: int = 0
) -> Setting:
    """The setting for what there is; data and weights that are not there are made in the folder `scratch`."""
    names: tuple[str, ...] = cifar10.CLASS_NAMES
    data = "CIFAR-10 test set"
    if not (root / "cifar-10-batches-py" / "test_batch").is_file():
        if weights is not None:
            raise UserError(
                f"weights are given, but {root} holds no CIFAR-10 (cifar-10-batches-py) to use them on. Give the "
                "folder that holds it (--root, BENCH_ROOT), or leave the weights out to run on a stand-in."
            )
        root, data = scratch, standin.NAME
        names = standin.write(root, seed)
    if weights is None:
        weights = scratch / "fitted.pt"
        about = f"fitted on the spot (FGSM-RS at {EPS}, {fitting.STEPS} steps of {fitting.BATCH})"
        model = cw.load_model(SPEC, num_classes=len(names), seed=seed)
        fitting.fit(model, cw.load_data("cifar10", root=root, split="train"), number(EPS), seed)
        torch.save(model.state_dict(), weights)
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()[:12]
    return Setting(root, weights, names, data, f"{about or 'given weights'}; sha256 {digest}…", batch, rounds)
