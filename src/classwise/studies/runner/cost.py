"""The cost of jobs in floating-point operations, so that a whole paper can be estimated without running anything.

    forward pass of one image                        F, counted layer by layer (`engine.operations`)
    a step of a gradient attack                      2 F (forward, and backward to the image)
    the outer loss of a training step                3 F for each pass (forward, backward to image and weights)

The count is divided by the speed of this machine at a convolution, measured in a fifth of a second. The estimate is
good to a factor of about two. Where any iterate counts, an audit is estimated as if half of the examples were broken at
once: of robust networks between a third (CIFAR-10) and nine tenths (MNIST) are attacked to the end.
"""

from __future__ import annotations

import functools
import time

import torch
from torch import nn

from classwise import attacks as attack_files
from classwise.attacks import Attack
from classwise.attacks.fab import Boundary
from classwise.core.user_files import IN_FILE
from classwise.data import size
from classwise.engine.operations import operations
from classwise.models import load_model
from classwise.studies.runner.graph import AuditJob, Graph, StudyJob, TrainJob
from classwise.training import recipe

_SMALL = (
    5_000_000  # parameters of a network that is sooner run than followed: the latter makes torch import its compiler
)
_UNBROKEN = 0.5  # share of the examples that an attack works on to its end, where it stops at the first that breaks one
_CRAFTED = 40  # passes of an attack crafted on another model: twenty steps of PGD


def of_jobs(graph: Graph) -> dict[str, float | None]:
    """Floating-point operations of each job; None where they cannot be counted beforehand."""
    return {job.name: _operations(job, graph) for job in graph}


def seconds(graph: Graph) -> dict[str, float | None]:
    """About how long each job takes on this machine; None where it cannot be counted."""
    return {job.name: seconds_of(job, graph) for job in graph}


def seconds_of(job: StudyJob, graph: Graph) -> float | None:
    """About how long a job takes on this machine; None where it cannot be counted."""
    count = _operations(job, graph)
    return None if count is None else count / operations_per_second()


@functools.cache
def operations_per_second() -> float:
    """How fast this machine is at the convolutions of a small residual network, forward and backward, at its best: what
    else runs on it now need not run later."""
    layer, x = nn.Conv2d(64, 64, 3, padding=1), torch.ones(32, 64, 16, 16, requires_grad=True)
    begin, each = time.perf_counter(), list[float]()
    while time.perf_counter() - begin < 0.2 or len(each) < 3:
        before = time.perf_counter()
        layer(x).sum().backward()
        each.append(time.perf_counter() - before)
    return 3 * 2 * 64 * 64 * 9 * 16 * 16 * 32 / min(each)


@functools.cache
def forward(model: str, shape: tuple[int, ...], num_classes: int) -> float:
    """Operations of the forward pass of one image."""
    with torch.device("meta"):  # layers without memory: only the shapes count
        network = load_model(model, num_classes=num_classes, in_channels=shape[0]).eval()
    for layer in list(network.modules()):
        for name, child in layer.named_children():
            if isinstance(child, nn.BatchNorm2d):  # nothing is counted in it, and torch is slow to follow its shapes
                setattr(layer, name, nn.Identity())
    small = sum(weight.numel() for weight in network.parameters()) < _SMALL
    where = "cpu" if small else "meta"
    return operations(network.to_empty(device=where), torch.zeros(1, *shape, device=where))


def passes(attack: Attack) -> float:
    """The work of an attack on one image, in forward passes."""
    each = attack.evaluations * (2 if attack.needs_gradient else 1) + isinstance(attack, Boundary)  # where it led
    return attack.steps * attack.restarts * each


@functools.cache
def _passes(text: str) -> float:
    return sum(passes(attack) for attack in attack_files.parse(text).values())


def _operations(job: StudyJob, graph: Graph) -> float | None:
    return _train(job) if isinstance(job, TrainJob) else _audit(job, graph)


def _train(job: TrainJob) -> float | None:
    chosen = recipe.load(job.recipe, job.changes)
    found = size(chosen.data.name)
    if found is None or IN_FILE.match(chosen.model.spec):  # a network of the user's may not be made without memory
        return None
    classes = found.classes - len(chosen.data.exclude)
    each = chosen.data.per_class or found.train / found.classes
    held_out = chosen.data.validation or 0
    one = forward(chosen.model.spec, found.shape, classes)
    inner = 2 * int(getattr(chosen.method, "steps", 0))
    validation = sum(map(_passes, chosen.validate.attack))
    return chosen.train.epochs * classes * one * ((each - held_out) * (inner + 6) + held_out * validation)


def _audit(job: StudyJob, graph: Graph) -> float | None:
    if not isinstance(job, AuditJob) or (found := size(job.data)) is None:
        return None
    source = graph.training_of(job.model)
    if source is None or IN_FILE.match(model := recipe.load(source.recipe, source.changes).model.spec):
        return None
    per_class = job.options.get("per_class")
    images = min(found.test, per_class * found.classes) if per_class else found.test
    spent = sum(_CRAFTED if "{" in attack else _passes(attack) for attack in job.attacks)
    attacked = 1.0 if job.options.get("protocol") == "final" else _UNBROKEN
    return images * forward(model, found.shape, found.classes) * (1 + attacked * spent)
