"""The frozen networks that a method distils: found by the recipe or given in Python, and their logits of a batch."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import torch
from torch import Tensor, nn

from classwise.core.errors import UserError
from classwise.core.registry import name_of
from classwise.data.images import Images
from classwise.engine.attack_copy import trains_channels_last
from classwise.methods.method import TeacherName
from classwise.models import check_model, load_model, registry
from classwise.models.check import move_to
from classwise.training.parts import TeacherPart
from classwise.training.recipe import Recipe

#: What each is, and where its weights may come from.
_ABOUT: dict[TeacherName, tuple[str, str]] = {
    "teacher": ("a robust teacher", "runs/trades/best.pt"),
    "teacher_clean": ("a teacher for clean images", "runs/standard/best.pt"),
}


@dataclass
class Teacher:
    """A frozen network's logits of one batch, without gradients; those of the same tensor are computed once."""

    network: nn.Module
    known: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def __call__(self, x: Tensor) -> Tensor:
        for seen, logits in self.known:
            if seen is x:
                return logits
        with torch.no_grad():
            found: Tensor = self.network(x)
        self.known.append((x, found))
        return found


def teachers_of(
    chosen: Recipe, images: Images, device: torch.device, given: Mapping[TeacherName, nn.Module | None] | None = None
) -> dict[TeacherName, nn.Module]:
    """The networks that the recipe's method distils, checked, on the device and frozen in eval mode. `given` are those
    of the caller's own, which are copied and stay as they are."""
    wanted, own = chosen.method.needs_teacher(), given or {}
    for name in get_args(TeacherName):
        if name not in wanted and (own.get(name) is not None or _part(chosen, name).weights is not None):
            raise UserError(f"{name_of(chosen.method)} distils no {name}: leave it out, or choose another method.")
    return {name: _frozen(_network(chosen, images, name, own.get(name)), images, device, name) for name in wanted}


def _part(chosen: Recipe, name: TeacherName) -> TeacherPart:
    part: TeacherPart = getattr(chosen, name)
    return part


def _network(chosen: Recipe, images: Images, name: TeacherName, given: nn.Module | None) -> nn.Module:
    if given is not None:
        return copy.deepcopy(given)
    part = _part(chosen, name)
    spec = part.weights if part.spec is None else part.spec
    if spec is None or (part.weights is None and registry.knows(str(spec))):
        what, example = _ABOUT[name]
        raise UserError(
            f"{name_of(chosen.method)} distils {what}: give its checkpoint as {name}.weights (--set {name}.weights="
            f"{example}), and its network as {name}.spec unless classwise wrote the checkpoint. In Python a module may "
            f"be given: cw.train(…, {name}=module)."
        )
    return load_model(
        str(spec),
        weights=None if part.spec is None else part.weights,
        num_classes=images.num_classes,
        in_channels=images.batch(np.arange(1))[0].shape[1],
        normalize=part.normalize,
    )


def _frozen(network: nn.Module, images: Images, device: torch.device, name: TeacherName) -> nn.Module:
    network = move_to(network, device)
    if trains_channels_last(network, device):
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = images.first(2).to(device)
    try:
        check_model(network.eval(), x, images.num_classes)
    except UserError as error:
        raise UserError(f"the {name} does not fit the data: {error}") from error
    return network.requires_grad_(False)
