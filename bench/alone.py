"""AutoAttack's attacks one by one on all images: what classwise and the reference break, over several seeds.

Not part of every benchmark: it takes the better part of an hour. ``make bench BENCH_ARGS="--only alone"`` runs it; what
came of it is in ``docs/results/attacks.md``.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

import classwise as cw
from bench.autoattack import COUNT
from bench.markdown import paragraph, table
from bench.setting import EPS, SPEC, Setting
from classwise.core.spec import number

TITLE = "AutoAttack's attacks alone"

ATTACKS = {"apgd_ce": "apgd-ce", "apgd_t": "apgd-t", "fab_t": "fab-t", "square": "square"}
SEEDS = (0, 1, 2)

Flags = npt.NDArray[np.bool_]


def by_classwise(model: nn.Module, x: Tensor, y: Tensor, attack: str, seed: int) -> Flags:
    """Which images survive."""
    return cw.audit(model, (x, y), attack, eps=EPS, seed=seed, progress=False).rows().correct


def by_reference(model: nn.Module, x: Tensor, y: Tensor, attack: str, seed: int) -> Flags:
    """Which images survive; restarts and targets are those of the standard version."""
    from pyautoattack import AutoAttack

    suite = AutoAttack(model, norm="Linf", eps=number(EPS), version="standard", seed=seed)
    suite.attacks_to_run = [ATTACKS[attack]]
    x_adv, _ = suite.run_standard_evaluation(x, y)
    with torch.no_grad():
        flags: Flags = (model(x_adv).argmax(1) == y).numpy()
    return flags


def run(setting: Setting) -> str:
    images = setting.images(COUNT)
    x, y = images.batch(np.arange(len(images)))
    model = setting.model().requires_grad_(False)
    rows = []
    for attack in ATTACKS:
        for seed in SEEDS:
            ours, theirs = (side(model, x, y, attack, seed) for side in (by_classwise, by_reference))
            cells = [attack, seed, (~ours).sum(), (~theirs).sum(), (ours & ~theirs).sum(), (~ours & theirs).sum()]
            rows.append([str(cell) for cell in cells])
            print(f"  {', '.join(rows[-1])}", file=sys.stderr)
    with torch.no_grad():
        wrong = int((model(x).argmax(1) != y).sum())
    header = ("attack", "seed", "classwise breaks", "reference breaks", "only reference", "only classwise")
    about = paragraph(
        f"Model: `{SPEC}`, {setting.about}. Data: the first {len(y)} images of the {setting.data}, {wrong} of them",
        f"misclassified when clean and counted as broken. Linf {EPS}; every attack on all images.",
    )
    return f"{about}\n\n{table(header, rows)}"
