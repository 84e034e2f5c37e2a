"""AutoAttack's standard version on the same model and images: classwise and the reference implementation.

Both run APGD-CE, APGD-T, FAB-T and Square with their published constants, each on the survivors of the ones before.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

import classwise as cw
from bench.markdown import bullets, paragraph, percent, table
from bench.setting import EPS, SPEC, Setting
from bench.throughput import Floor
from classwise import attacks as attack_files
from classwise.core.spec import number
from classwise.studies.runner.cost import passes

TITLE = "AutoAttack compared with the reference"

COUNT = 200
ATTACKS = ("apgd_ce", "apgd_t", "fab_t", "square")
_ALL = "all four"
_SHARE = 3  # one round for this many of the other benchmarks: each takes minutes
_HEADER = (
    "attack",
    "classwise, s",
    "min–max",
    "reference, s",
    "min–max",
    "ratio",
    "classwise robust",
    "reference robust",
)
_NOTES = (
    "The reference is the public code of AutoAttack as packaged in `pyautoattack`, used as its documentation shows: "
    "all images in one batch (its default is 250), and a model whose parameters ask for no gradient.",
    "classwise: `cw.audit(model, (x, y), 'autoattack')`, with all it does by default; the seconds of an attack contain "
    "the verification of what it found.",
    "Both are run with seed 0 in every round; classwise draws random numbers per example, so they differ.",
)
_ROBUST = "A robust image goes through every step of every attack, in any program. In passes of the model alone that is"


@dataclass
class Evaluation:
    """How many images survive each attack, which survive in the end, and what each attack took, round by round."""

    survivors: dict[str, int] = field(default_factory=dict)
    robust: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def took(self, attack: str, seconds: float) -> None:
        self.seconds.setdefault(attack, []).append(seconds)


def run_classwise(model: nn.Module, x: Tensor, y: Tensor, into: Evaluation) -> None:
    begin = time.perf_counter()
    audit = cw.audit(model, (x, y), "autoattack", eps=EPS, progress=False)
    into.took(_ALL, time.perf_counter() - begin)
    for name, attack in zip(ATTACKS, audit.attacks, strict=True):
        into.survivors[name] = int(audit.rows(attack).correct.sum())
        into.took(name, audit.timing["attacks"][attack]["seconds"])
    into.robust = audit.rows().correct


def run_reference(model: nn.Module, x: Tensor, y: Tensor, into: Evaluation) -> None:
    from pyautoattack import AutoAttack

    suite = AutoAttack(model, norm="Linf", eps=number(EPS), version="standard", seed=0)
    parts = (suite.apgd, suite.apgd_targeted, suite.fab, suite.square)
    for name, attack in zip(ATTACKS, parts, strict=True):
        attack.perturb = _watched(attack.perturb, model, name, into)
    begin = time.perf_counter()
    x_adv, _ = suite.run_standard_evaluation(x, y)
    into.took(_ALL, time.perf_counter() - begin)
    with torch.no_grad():
        into.robust = (model(x_adv).argmax(1) == y).numpy()


def _watched(attack: Callable[..., Tensor], model: nn.Module, name: str, into: Evaluation) -> Callable[..., Tensor]:
    """The attack, with its time and how many survive it noted; all images come in one batch."""

    def perturb(x: Tensor, y: Tensor) -> Tensor:
        begin = time.perf_counter()
        x_adv = attack(x, y)
        into.took(name, time.perf_counter() - begin)
        into.survivors[name] = int((model(x_adv).argmax(1) == y).sum())
        return x_adv

    return perturb


SIDES: dict[str, Callable[[nn.Module, Tensor, Tensor, Evaluation], None]] = {
    "classwise": run_classwise,
    "reference": run_reference,
}


def run(setting: Setting) -> str:
    images = setting.images(COUNT)
    x, y = images.batch(np.arange(len(images)))
    model = setting.model().requires_grad_(False)
    found = {side: Evaluation() for side in SIDES}
    rounds = max(setting.rounds // _SHARE, 1)
    for turn in range(rounds):
        for side in SIDES if turn % 2 else reversed(SIDES):
            gc.collect()
            SIDES[side](model, x, y, found[side])
            print(f"  round {turn + 1} of {rounds}: {side} {found[side].seconds[_ALL][-1]:.1f} s", file=sys.stderr)
    forward = sum(passes(attack) for attack in attack_files.parse(["autoattack"]).values())
    floor = Floor.measure(model, x, forward * int(found["reference"].robust.sum()))
    return _section(setting, found["classwise"], found["reference"], len(y), floor)


def _section(setting: Setting, ours: Evaluation, theirs: Evaluation, count: int, floor: Floor) -> str:
    rounds = len(ours.seconds[_ALL])
    differing = int((ours.robust != theirs.robust).sum())
    return "\n\n".join(
        [
            paragraph(
                f"Model: `{SPEC}`, {setting.about}. Data: the first {count} images of the {setting.data}.",
                f"AutoAttack standard, linf {EPS}; {torch.get_num_threads()} threads for both. In one process,",
                "in turns, once." if rounds == 1 else f"in turns, median of {rounds} rounds.",
            ),
            table(_HEADER, [_row(name, ours, theirs) for name in (*ATTACKS, _ALL)]),
            f"Robust accuracy: classwise {percent(ours.robust.mean())}, reference {percent(theirs.robust.mean())}; "
            f"the verdict differs on {differing} of {count} images.",
            bullets(*_NOTES, f"{_ROBUST} {floor.note(statistics.median(theirs.seconds[_ALL]), 'the reference')}"),
        ]
    )


def _row(attack: str, ours: Evaluation, theirs: Evaluation) -> list[str]:
    last = ATTACKS[-1] if attack == _ALL else attack
    cells = [attack]
    for side in (ours, theirs):
        seconds = side.seconds[attack]
        cells += [f"{statistics.median(seconds):.1f}", f"{min(seconds):.1f}–{max(seconds):.1f}"]
    ratio = statistics.median(theirs.seconds[attack]) / statistics.median(ours.seconds[attack])
    return [*cells, f"{ratio:.2f}", str(ours.survivors[last]), str(theirs.survivors[last])]
