"""What jobs cost, counted in floating-point operations, so that a whole paper can be priced without running any of it.

    forward pass of one image                        F, counted by torch on the model itself
    a step of a gradient attack                      2 F (forward, and backward to the image)
    the outer loss of a training step                3 F for each pass (forward, backward to image and weights)

The count is divided by the speed of this machine at a convolution, measured in a second. Such a price is good to a
factor of two or so; ``--dry-run`` measures the jobs themselves. An audit is priced as if no example were ever retired.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from classwise import attacks as attack_files
from classwise import spec
from classwise.attacks import Attack
from classwise.attacks.fab import Boundary
from classwise.attacks.rows import evaluations, needs_gradient
from classwise.models import load_model
from classwise.studies.frame.graph import Audit, Graph, Job, Train
from classwise.training import recipe

#: Shape of an image, number of classes, training and test images, of the data sets the papers use.
DATA = {
    "digits": ((1, 8, 8), 10, 1437, 360),
    "mnist": ((1, 28, 28), 10, 60_000, 10_000),
    "fashion_mnist": ((1, 28, 28), 10, 60_000, 10_000),
    "cifar10": ((3, 32, 32), 10, 50_000, 10_000),
    "cifar100": ((3, 32, 32), 100, 50_000, 10_000),
    "svhn": ((3, 32, 32), 10, 73_257, 26_032),
    "stl10": ((3, 96, 96), 10, 5_000, 8_000),
    "background_mnist": ((1, 28, 28), 10, 60_000, 10_000),
    "imagenet": ((3, 224, 224), 1000, 1_281_167, 50_000),
}

_CRAFTED = 40  # passes of an attack made on another model: twenty steps of PGD
_COLOURED = {"background_mnist", "coloured"}  # grey images become colour images


def operations(graph: Graph) -> dict[str, float | None]:
    """Floating-point operations of each job; None where they cannot be counted beforehand."""
    return {job.name: _train(job) if isinstance(job, Train) else _audit(job, graph.jobs) for job in graph}


@functools.cache
def operations_per_second() -> float:
    """How fast this machine is at the convolutions of a small residual network, forward and backward."""
    layer, x = nn.Conv2d(64, 64, 3, padding=1), torch.ones(32, 64, 16, 16, requires_grad=True)
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < 0.5:
        layer(x).sum().backward()
        done += 1
    return done * 3 * 2 * 64 * 64 * 9 * 16 * 16 * 32 / (time.perf_counter() - begin)


@functools.cache
def forward(model: str, shape: tuple[int, ...], num_classes: int) -> float:
    """Operations of one image's way through a model."""
    network = load_model(model, num_classes=num_classes, in_channels=shape[0]).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.zeros(1, *shape))
    return float(counter.get_total_flops())


def passes(attack: Attack) -> float:
    """Forward passes' worth of work that an attack spends on one image."""
    each = evaluations(attack) * (2 if needs_gradient(attack) else 1) + isinstance(attack, Boundary)  # where it led
    return attack.steps * attack.restarts * each


def _about(data: str) -> tuple[tuple[int, ...], int, int, int] | None:
    """What is known of a data set; of one made of another (``coloured:of=mnist``) what is known of that."""
    name, options = spec.split(data)
    found = DATA.get(spec.split(options["of"].replace(";", ","))[0] if "of" in options else name)
    if found is not None and name in _COLOURED:
        (_, *sides), *rest = found
        return ((3, *sides), *rest)  # type: ignore[return-value]
    return found


def _train(job: Train) -> float | None:
    chosen = recipe.load(job.recipe, job.changes)
    found = _about(chosen.data.name)
    if found is None:
        return None
    shape, classes, images, _ = found
    classes -= len(chosen.data.exclude)
    share = classes / found[1]
    each = chosen.data.per_class or images / found[1]
    held_out = chosen.data.validation or 0
    one = forward(chosen.model.spec, shape, classes)
    inner = 2 * int(getattr(chosen.method, "steps", 0))
    validation = sum(passes(attack) for attack in attack_files.parse(list(chosen.validate.attack)).values())
    return chosen.train.epochs * share * found[1] * one * ((each - held_out) * (inner + 6) + held_out * validation)


def _audit(job: Job, jobs: Mapping[str, Job]) -> float | None:
    if not isinstance(job, Audit):
        return None
    found = _about(job.data)
    source = jobs.get(job.model.partition("}")[0].lstrip("{"))
    if found is None:
        return None
    shape, classes, _, images = found
    per_class = job.options.get("per_class")
    images = min(images, per_class * classes) if per_class else images
    model = recipe.load(source.recipe, source.changes).model.spec if isinstance(source, Train) else job.model
    known = [attack for attack in job.attacks if "{" not in attack]
    spent = sum(passes(attack) for attack in attack_files.parse(known).values()) if known else 0.0
    spent += _CRAFTED * (len(job.attacks) - len(known))
    return images * forward(model, shape, classes) * (1 + spent)
