"""What an evaluation has to do, and how the work is cut up."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from classwise import attacks as attack_files
from classwise.attacks.attack import Attack, Model
from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo, Coverage, Meta, Protocol
from classwise.core.records import CLEAN, Array
from classwise.core.run_folder import AuditFolder
from classwise.core.threat import Threat
from classwise.data.images import Images, IntArray
from classwise.engine.attack_copy import AttackCopy, channels_last
from classwise.engine.operations import operations

_SECONDS_PER_PART = 20.0  # about how much work a kill may cost
_MOST_SECONDS = 300.0  # of a part that is made longer to fill the batches
_CPU_RATE, _GPU_RATE = 3e10, 3e12  # floating-point operations a second, of one CPU thread and of a GPU
_LEAST_SECONDS = 2e-5  # of one image, however small the model
_PER_PARAMETER = 50.0  # operations, as in usual convolutional networks
_UNSEEN_SECONDS = 2e-3  # of one image, where the work is done elsewhere: a black box
FEWEST = 8  # examples that are worth a worker of their own


@dataclass(frozen=True)
class BatchPlan:
    """How the work is cut up. Kept in the run folder, so that a resumed run makes the same batches.

    part: the most examples of a part. parts: how many parts there are, each with about as many examples of every class
    as any other; 0 for consecutive examples, as in the folders of earlier versions.
    """

    batch: int
    part: int
    workers: int = 1
    parts: int = 0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = 0 if name == "parts" else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise UserError(f"{name} of a plan must be a whole number of at least {least}, got {value!r}.")

    def count(self, examples: int) -> int:
        """The number of parts."""
        return self.parts or -(-examples // self.part)

    def rows(self, number: int, labels: IntArray) -> IntArray:
        """The examples of a part, in their order: of all examples, class by class, every n-th for n parts.

        So of a class two parts differ by one example at most, however the data are sorted, and cost about the same.
        """
        if not self.parts:
            return np.arange(number * self.part, min((number + 1) * self.part, len(labels)))
        return np.sort(np.argsort(labels, kind="stable")[number :: self.parts])


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Everything an evaluation needs; `attack_copy` proposes, `model` decides.

    threat: the norm, and the largest radius.
    eps: one radius per example, for the attacks that have none of their own in `radii`.
    after: the attack whose broken examples an attack starts from, because they are broken for it too: the same attack
        at a smaller radius. Others start from what is misclassified already.
    """

    model: nn.Module | Model
    attack_copy: AttackCopy
    images: Images
    attacks: Mapping[str, Attack]
    threat: Threat
    eps: Array
    meta: Meta
    plan: BatchPlan
    device: torch.device
    protocol: Protocol = "any"
    eot: int = 1
    probs: bool = True
    radii: Mapping[str, Array] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    save_adversarial: bool = False
    folder: AuditFolder | None = None
    report: Callable[[str, int], None] = field(default=lambda attack, finished: None)

    def __post_init__(self) -> None:
        for attack in self.attacks.values():
            attack.require_norm(self.threat.norm)

    @property
    def parts(self) -> range:
        """The numbers of its parts."""
        return range(self.plan.count(len(self.images)))

    def only_survivors(self, attack: str) -> bool:
        """Whether the attack sees only what no earlier one has broken."""
        return attack != CLEAN and self.meta.attacks[attack].coverage == "survivors"

    def workload(self) -> tuple[dict[str, int], dict[str, float]]:
        """How many examples each attack has to do, clean first, and about how many times it asks the model for one."""
        costs = {name: float(max(evaluations(attack), 1)) for name, attack in self.attacks.items()}
        return dict.fromkeys((CLEAN, *self.attacks), len(self.images)), {CLEAN: 1.0, **costs}


def evaluations(attack: Attack) -> int:
    """About how many times the attack asks the model for an example that it cannot break."""
    return attack.steps * attack.restarts * attack.evaluations


def plan(
    model: Model,
    example: Tensor,
    count: int,
    attacks: Mapping[str, Attack],
    batch: int,
    workers: int,
    shares: int = 1,
) -> BatchPlan:
    """Parts of about twenty seconds each; at least two rounds of batches, unless those take minutes.

    shares: a multiple of this many parts, where there are as many examples: one or more for each process.

    By the arithmetic of a pass and not by its measured time, so that two runs of one command cut the data alike and
    their records are equal to the last bit.
    """
    gradient = any(attack.needs_gradient for attack in attacks.values())
    seconds = pass_seconds(model, example, gradient)
    whole = max(map(evaluations, attacks.values()), default=0)
    passes = whole / 2 + 1  # some examples break early
    at_once = batch * workers
    usual, most = (int(limit / (seconds * passes)) for limit in (_SECONDS_PER_PART, _MOST_SECONDS))
    two_rounds = min(2 * at_once, max(most, 2 * FEWEST * workers))
    part = min(max(usual // at_once * at_once, two_rounds), count)
    parts = min(-(-count // (part * shares)) * shares, count)
    return BatchPlan(batch, -(-count // parts), workers, parts)


def pass_seconds(model: Model, example: Tensor, gradient: bool) -> float:
    """About how long one image takes on usual hardware, from the number of its floating-point operations.

    A gradient costs a second pass, backwards. A model whose layers cannot be seen, a program or a black box, counts by
    its parameters, and as a slow one if there are none.
    """
    module = model.model if isinstance(model, AttackCopy) else model
    if not isinstance(module, nn.Module):
        return _UNSEEN_SECONDS
    count = operations(module, channels_last(example)) or _PER_PARAMETER * sum(p.numel() for p in module.parameters())
    if not count:
        return _UNSEEN_SECONDS
    rate = _CPU_RATE * torch.get_num_threads() if example.device.type == "cpu" else _GPU_RATE
    return max((1 + gradient) * count / rate, _LEAST_SECONDS)


def along(evaluation: Evaluation, curve: Mapping[str, float]) -> Evaluation:
    """The evaluation with every attack at every radius of the curve, the smallest radius first.

    What was broken at a smaller radius is broken at a larger one, so each attack continues from its predecessor.
    """
    attacks: dict[str, Attack] = {}
    infos = {CLEAN: evaluation.meta.attacks[CLEAN]}
    radii: dict[str, Array] = {}
    after: dict[str, str] = {}
    smaller: str | None = None
    for text, eps in curve.items():
        for name, attack in evaluation.attacks.items():
            own = f"{name}@{text}"
            attacks[own], radii[own] = attack, np.full(len(evaluation.images), eps)
            infos[own] = dataclasses.replace(evaluation.meta.attacks[name], eps=eps, family=name)
            if smaller is not None:
                after[own] = f"{name}@{smaller}"
        smaller = text
    meta = dataclasses.replace(evaluation.meta, attacks=infos)
    return dataclasses.replace(evaluation, attacks=attacks, meta=meta, radii=radii, after=after)


def attack_infos(attacks: Mapping[str, Attack], protocol: Protocol, coverage: Coverage) -> dict[str, AttackInfo]:
    """The metadata of a run's attacks, clean first."""
    infos = {CLEAN: AttackInfo(settings={}, protocol=protocol, coverage="all", needs_gradient=False)}
    for name, attack in attacks.items():
        own = json.loads(json.dumps(attack_files.settings(attack), default=str))  # a field may hold any object
        infos[name] = AttackInfo(
            settings={"name": attack_files.name_of(attack), **own},
            protocol=protocol,
            coverage=coverage,
            needs_gradient=attack.needs_gradient,
        )
    return infos
