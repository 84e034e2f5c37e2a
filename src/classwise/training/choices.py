"""A training without a recipe: the recipe that its options make, and what was chosen for the rest, each with a reason.

From weights (fine-tuning) the defaults are those of a short look at a robust network: two epochs of SGD at the constant
rate 0.01, two inner steps of ε/2. From scratch they are 30 epochs at a rate that rises and falls (0.1, without
normalisation layers 0.01) and the method's own inner steps; few images make short epochs, so there are more of them.
Fine-tuning on few images does not get more: its robust accuracy on held-out images falls after the first epochs.
Nothing that the options, or changes such as ``train.clip=1``, say is chosen. All numbers here are ours.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from classwise import data as data_sets
from classwise import methods
from classwise.core import spec
from classwise.core.errors import UserError
from classwise.core.format import radius
from classwise.data.images import Images
from classwise.methods.method import Method
from classwise.training import optimizer, recipe
from classwise.training.options import Options
from classwise.training.parts import TrainedModel
from classwise.training.recipe import Recipe

_BATCH, _SMALL_BATCH, _FEW = 128, 64, 5000  # the smaller one for fewer images than this
_TUNING_EPOCHS = 2
_EPOCHS, _MOST_EPOCHS, _STEPS = 30, 100, 2000  # from scratch: at least, at most, and steps in all
_MOST_HELD_OUT = 100  # of each class
_UNEQUAL, _RAREST = 1.5, 20  # the largest class is so many times the smallest: weights; at most so many times
_HELD_OUT = 5  # one in so many of the smallest class


@dataclass(frozen=True)
class Choice:
    """A setting that nobody gave: its place in the recipe, its value, and why."""

    part: str
    field: str
    value: Any
    why: str = ""


def begin(source: str | Path | Mapping[str, Any] | Recipe | None, options: Options) -> Recipe:
    """The recipe with what is given besides; without one, what is known of it before the images are read."""
    return draft(options) if source is None else with_options(source, options)


def with_options(source: str | Path | Mapping[str, Any] | Recipe, options: Options) -> Recipe:
    """A recipe in which the options that are given replace its fields; then the changes."""
    tree, lr, method = options.tree(), options.given.get("lr"), options.given.get("method")
    if not tree and lr is None and method is None:
        return recipe.load(source, options.changes)
    whole = recipe.load(source).settings()
    for part, own in tree.items():
        other = part == "method" and own["name"] != whole[part]["name"]  # another method has other fields
        whole[part] = own if other else {**whole.get(part, {}), **own}
    if lr is not None:
        whole["train"]["optimizer"] = with_rate(whole["train"]["optimizer"], lr)
    return _build(recipe.apply(whole, options.changes), method)


def draft(options: Options) -> Recipe:
    """What the options say so far, enough to read the images and build the network; nothing else of it counts."""
    tree = recipe.apply(options.tree(), options.changes)
    _check_enough(tree, options)
    return _build({**tree, "validate": {"select": "last"}}, options.given.get("method"))


def complete(options: Options, images: Images, network: nn.Module) -> tuple[Recipe, list[Choice]]:
    """The whole recipe for these images and this network, and what was chosen."""
    tree = recipe.apply(options.tree(), options.changes)
    made: list[Choice] = []
    for choice in _choices(draft(options), tree, options.given.get("lr"), images, network):
        part = tree.setdefault(choice.part, {})
        if choice.field not in part:
            part[choice.field] = choice.value
            made.append(choice)
    return _build(tree, options.given.get("method")), made


def with_rate(text: Any, lr: float) -> str:
    """The spec of an optimiser with another learning rate."""
    chosen = dataclasses.replace(optimizer.parse(text), lr=lr)
    name = next(name for name, kind in optimizer.KINDS.items() if isinstance(chosen, kind))
    usual = vars(optimizer.KINDS[name]())
    changed = {key: value for key, value in vars(chosen).items() if value != usual[key] or key == "lr"}
    return f"{name}:" + ",".join(f"{key}={spec.written(value)}" for key, value in changed.items())


def _build(tree: Mapping[str, Any], method: Any) -> Recipe:
    """The recipe of these settings, with the method itself where it was given as an object."""
    if not isinstance(method, Method):
        return recipe.build(tree)
    return dataclasses.replace(recipe.build({**tree, "method": {"name": "standard"}}), method=method)


def _check_enough(tree: Mapping[str, Any], options: Options) -> None:
    there = {
        "method": "method" in options.given or "name" in tree.get("method", {}),
        "model": "spec" in tree.get("model", {}),
        "data": "name" in tree.get("data", {}),
    }
    missing = [f"--{name}" for name, known in there.items() if not known]
    if len(missing) == len(there):
        raise UserError(
            "which recipe? Name a file or a shipped one (classwise list recipes), a method with a model and images "
            "(--method trades --model resnet-18 --data folder:resize=32), or --resume FOLDER."
        )
    if missing:
        raise UserError(
            f"without a recipe a training needs --method, --model and --data; give {' and '.join(missing)}."
        )


def _choices(
    so_far: Recipe, tree: Mapping[str, Any], lr: float | None, images: Images, network: nn.Module
) -> Iterator[Choice]:
    tuned = _starts_trained(so_far.model)
    count = np.bincount(images.labels, minlength=images.num_classes)
    held_out, why = _held_out(count, images.class_names)
    held_out = tree.get("data", {}).get("validation", held_out)
    yield Choice("data", "validation", held_out, why)
    left = len(images) - int(held_out) * int((count > 0).sum())
    yield _augment(so_far, images)

    own = tree.get("train", {})
    batch = own.get("batch", _BATCH if left >= _FEW else _SMALL_BATCH)
    yield Choice("train", "batch", batch, "" if left >= _FEW else f"of {left:,} images")
    steps = math.ceil(left / int(batch))
    epochs = _TUNING_EPOCHS if tuned else min(max(_EPOCHS, math.ceil(_STEPS / steps)), _MOST_EPOCHS)
    epochs = int(own.get("epochs", epochs))
    kind = "fine-tuning" if tuned else "from scratch"
    yield Choice("train", "epochs", epochs, f"{kind}; {steps} steps each")
    yield _optimizer(tuned, lr, network)
    yield Choice("train", "schedule", "constant" if tuned else "cyclic")
    attacks = type(so_far.method).attack is not Method.attack
    select = "worst" if attacks and held_out else "last"
    yield Choice("validate", "select", select, {"worst": "the best worst class on the held-out images"}.get(select, ""))
    yield from _inner(so_far, tuned, tree.get("method", {}))
    yield from _balance(so_far.method, np.where(count > 0, count - int(held_out), 0))
    yield from _earlier(so_far.method, epochs)


def _starts_trained(model: TrainedModel) -> bool:
    """Whether the network has trained weights: given beside it, those of a checkpoint, or those of a library."""
    fetched = model.spec.startswith("robustbench:") or re.search(r",(weights|pretrained)=", model.spec)
    return model.weights is not None or Path(model.spec).is_file() or fetched is not None


def _held_out(count: np.ndarray[Any, Any], names: Sequence[str]) -> tuple[int, str]:
    """How many images of each class to hold out: a fifth of the smallest class, at least one, not more than 100."""
    there = np.flatnonzero(count)
    smallest = int(there[np.argmin(count[there])])
    least = int(count[smallest])
    if least < 2:
        return 0, f"{names[smallest]} has only one image"
    wanted = min(max(least // _HELD_OUT, 1), _MOST_HELD_OUT)
    return wanted, f"of each class; {names[smallest]} has {least:,}, the fewest"


def _augment(so_far: Recipe, images: Images) -> Choice:
    """Shifts by up to an eighth of the side, and flips where a mirrored image is known to keep its class."""
    side = min(images.batch(np.arange(1))[0].shape[2:])
    crop, flips = f"crop:padding={max(side // 8, 1)}", data_sets.flips(so_far.data.name)
    if flips:
        return Choice("data", "augment", [crop, "flip"])
    known = "a mirrored image may be of another class" if flips is False else "a flip may change the class"
    return Choice("data", "augment", [crop], f"no flip: {known}")


def _optimizer(tuned: bool, lr: float | None, network: nn.Module) -> Choice:
    normalises = any(isinstance(module, optimizer.NORMS) for module in network.modules())
    usual = 0.01 if tuned or not normalises else 0.1
    why = "" if tuned or normalises or lr is not None else "a network without normalisation layers"
    decay = 2e-4 if tuned else 5e-4
    rate = usual if lr is None else lr
    return Choice("train", "optimizer", f"sgd:lr={spec.written(rate)},momentum=0.9,weight_decay={decay}", why)


def _inner(so_far: Recipe, tuned: bool, given: Mapping[str, Any]) -> Iterator[Choice]:
    """The inner attack of fine-tuning; from scratch it is the method's own."""
    names = {f.name for f in dataclasses.fields(so_far.method)}
    if not tuned or not {"steps", "step"} <= names or {"steps", "step"} & given.keys():
        return
    half = so_far.threat.eps / 2
    yield Choice("method", "steps", 2, "fine-tuning")
    yield Choice("method", "step", spec.exact(half), f"half of eps {radius(so_far.threat.eps)}")


def _balance(method: Method, count: np.ndarray[Any, Any]) -> Iterator[Choice]:
    """Weights by which classes of different sizes count the same: n/(C n_c), the mean over the images being 1.

    Training images may be unequal and what an audit asks is not: without weights a network learns to prefer the classes
    it sees often. A class of less than a twentieth of the largest counts as one of a twentieth.
    """
    there = count > 0
    if count.max() < _UNEQUAL * count[there].min() or method.balances():
        return
    counted = np.maximum(count, count.max() / _RAREST)
    weight = np.where(there, 1 / counted, 0)
    weight = np.where(there, weight * count.sum() / (weight * count).sum(), 1)
    why = f"classes have {count[there].min():,} to {count.max():,} images and are to count the same"
    yield Choice("method", "weight", [round(float(value), 4) for value in weight], why)


def _earlier(method: Method, epochs: int) -> Iterator[Choice]:
    """The field by which the method waits, at half of the epochs, where it would wait until the end."""
    idle = method.idle_epochs()
    if idle < epochs:
        return
    for field in dataclasses.fields(method):
        if getattr(method, field.name) == idle and not isinstance(getattr(method, field.name), bool):
            sooner = dataclasses.replace(method, **{field.name: epochs // 2})
            if sooner.idle_epochs() == epochs // 2:
                why = f"{methods.name_of(method)} waits {idle} epochs by default"
                yield Choice("method", field.name, epochs // 2, why)
                return
