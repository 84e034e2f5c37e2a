"""What an evaluation has to do, and how the work is cut up."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from classwise import attacks as attack_files
from classwise.attacks.rows import Attack, Model, evaluations, needs_gradient, value_and_gradient
from classwise.datasets.images import Images
from classwise.evaluation.speed import Fast, channels_last
from classwise.records import CLEAN, Array, AttackInfo, Coverage, Meta, Protocol
from classwise.threat import Norm

_SECONDS_PER_PART = 20.0  # about how much work a kill may cost
_MOST_SECONDS = 300.0  # of a part that is made longer to fill the batches
FEWEST = 8  # examples that are worth a worker of their own


@dataclass(frozen=True)
class Plan:
    """How the work is cut up. Kept in the run folder, so that a resumed run makes the same batches."""

    batch: int
    part: int
    workers: int = 1


@dataclass(frozen=True)
class Job:
    """Everything an evaluation needs; `fast` proposes, `model` decides.

    eps: one radius per example, for the attacks that have none of their own in `radii`.
    after: the attack whose broken examples an attack starts from, because they are broken for it too: the same attack
        at a smaller radius. Others start from what is misclassified already.
    """

    model: nn.Module | Model
    fast: Fast
    images: Images
    attacks: Mapping[str, Attack]
    norm: Norm
    eps: Array
    meta: Meta
    plan: Plan
    device: torch.device
    protocol: Protocol = "any"
    eot: int = 1
    probs: bool = True
    radii: Mapping[str, Array] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    save_adversarial: bool = False
    folder: Path | None = None
    report: Callable[[str, int], None] = field(default=lambda attack, finished: None)

    def standing(self, attack: str) -> bool:
        """Whether the attack sees only what no earlier one has broken."""
        return attack != CLEAN and self.meta.attacks[attack].coverage == "standing"


def plan(fast: Model, example: Tensor, count: int, attacks: Mapping[str, Attack], batch: int, workers: int) -> Plan:
    """Parts of about twenty seconds each, by the measured time of a pass; at least two rounds of batches, unless those
    take minutes."""
    x = channels_last(example)
    differentiate = any(needs_gradient(attack) for attack in attacks.values())

    def one_pass() -> None:
        if differentiate:
            value_and_gradient(fast, x, torch.Tensor.sum)
        else:
            with torch.no_grad():
                fast(x)

    one_pass()  # the first pays for set-up
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        one_pass()
        times.append(time.perf_counter() - begin)
    seconds = min(times) / len(x)  # the quickest is the least disturbed
    whole = max((a.steps * a.restarts * evaluations(a) for a in attacks.values()), default=0)
    passes = whole / 2 + 1  # some examples break early
    at_once = batch * workers
    usual, most = (int(limit / (seconds * passes)) for limit in (_SECONDS_PER_PART, _MOST_SECONDS))
    two_rounds = min(2 * at_once, max(most, 2 * FEWEST * workers))
    return Plan(batch, min(max(usual // at_once * at_once, two_rounds), count), workers)


def along(job: Job, curve: Mapping[str, float]) -> Job:
    """The job with every attack at every radius of the curve, the smallest radius first.

    What was broken at a smaller radius is broken at a larger one, so each attack goes on from its predecessor.
    """
    attacks: dict[str, Attack] = {}
    infos = {CLEAN: job.meta.attacks[CLEAN]}
    radii: dict[str, Array] = {}
    after: dict[str, str] = {}
    smaller: str | None = None
    for text, eps in curve.items():
        for name, attack in job.attacks.items():
            own = f"{name}@{text}"
            attacks[own], radii[own] = attack, np.full(len(job.images), eps)
            infos[own] = dataclasses.replace(job.meta.attacks[name], eps=eps, family=name)
            if smaller is not None:
                after[own] = f"{name}@{smaller}"
        smaller = text
    meta = dataclasses.replace(job.meta, attacks=infos)
    return dataclasses.replace(job, attacks=attacks, meta=meta, radii=radii, after=after)


def attack_infos(attacks: Mapping[str, Attack], protocol: Protocol, coverage: Coverage) -> dict[str, AttackInfo]:
    """The metadata of a run's attacks, clean first."""
    infos = {CLEAN: AttackInfo({}, protocol, "all")}
    for name, attack in attacks.items():
        own = json.loads(json.dumps(attack_files.settings(attack), default=str))  # a field may hold any object
        infos[name] = AttackInfo({"name": type(attack).__module__.rpartition(".")[2], **own}, protocol, coverage)
    return infos
