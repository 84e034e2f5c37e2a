"""One TRADES step: classwise's loop and a plain eager implementation of the published algorithm.

Both start from the same weights, on the same batch, with the same random start, and take one step of the optimiser:
ten steps of the inner attack in eval mode, the outer loss in train mode, backward, SGD. The eager one computes the
clean distribution again at every inner step and passes the clean batch through the network twice in the outer loss, as
the authors' code does. Measured in turns in one process; before every turn the weights are set back to the same ones.
"""

from __future__ import annotations

import copy
import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import classwise as cw
from bench.markdown import bullets, median_and_range, paragraph, table
from bench.setting import SPEC, Setting
from classwise.attacks.pgd import random_start
from classwise.core import rng
from classwise.core.threat import LINF, Threat
from classwise.engine.attack_copy import follow
from classwise.methods.trades import Trades
from classwise.training import optimizer, schedule
from classwise.training.augment import parse as parse_augment
from classwise.training.batches import Examples
from classwise.training.parts import TrainPart, ValidatePart
from classwise.training.processes import Processes
from classwise.training.profile import Profile
from classwise.training.recipe import Recipe
from classwise.training.step import TrainStep

TITLE = "One TRADES step compared with a plain implementation"

_CASES = ((SPEC, 128), ("resnet-18", 64))
_STEPS, _STEP, _EPS, _BETA = 10, 0.007, 0.031, 6.0
_WARM_UP = 3  # steps before measuring
_FEW = 8  # images of the comparison in float64, for which a CPU has no fast convolution
_SGD = optimizer.Sgd(lr=0.01, momentum=0.9, weight_decay=2e-4)
_HEADER = (
    "model",
    "batch",
    "classwise, s",
    "min–max",
    "eager, s",
    "min–max",
    "ratio",
    "loss",
    "eager's",
    "difference",
    "eager's own",
    "in float64",
)
_NOTES = (
    "classwise attacks a folded, channels-last copy of the current weights, refreshed at every step (its refresh is in "
    "the time), computes the clean distribution once, and passes clean and adversarial images once each.",
    "The loss is that of the step, at the same weights on the same batch from the same start. In float64, on 8 of the "
    "images, the two agree to many digits: the mathematics is the same. In float32 they differ by rounding, which the "
    "sign of a gradient near zero amplifies, and TRADES begins where the gradient vanishes. Eager's own difference is "
    "between the eager step and the same with its weights in channels-last layout, which sums in another order.",
)


@dataclass(frozen=True)
class Side:
    """A way to make a step: the model and optimiser it moves, and the step, which returns the loss."""

    model: nn.Module
    optimiser: torch.optim.Optimizer
    step: Callable[[], float]


def run(setting: Setting) -> str:
    rows = [_measure(setting, spec, batch) for spec, batch in _CASES]
    return "\n\n".join(
        [
            paragraph(
                f"TRADES: {_STEPS} inner steps of {_STEP} at eps {_EPS}, beta {_BETA:g}, SGD with momentum. Data: the",
                f"first training images belonging to the {setting.data}. Random initial weights,",
                f"trained for {_WARM_UP} steps.",
                f"Median of {setting.rounds} rounds in one process, in turns, after a round that only warms up.",
                f"{torch.get_num_threads()} threads for both.",
            ),
            table(_HEADER, rows),
            bullets(*_NOTES),
        ]
    )


def _measure(setting: Setting, spec: str, size: int) -> list[str]:
    images = cw.load_data("cifar10", root=setting.root, split="train").take(np.arange(size))
    examples = Examples(*images.batch(np.arange(size)), images.positions)
    base = cw.load_model(spec, num_classes=len(setting.class_names))
    ours = _classwise(copy.deepcopy(base), examples)
    for _ in range(_WARM_UP):
        ours.step()
    weights = copy.deepcopy(ours.model.state_dict())
    sides = {"classwise": ours, "eager": _eager(copy.deepcopy(base), examples)}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    losses: dict[str, float] = {}
    for turn in range(setting.rounds + 1):
        names = list(sides)
        for name in names[turn % 2 :] + names[: turn % 2]:
            side = sides[name]
            side.model.load_state_dict(weights)
            gc.collect()
            begin = time.perf_counter()
            losses[name] = side.step()
            if turn:
                seconds[name].append(time.perf_counter() - begin)
        print(f"  {spec}: round {turn} of {setting.rounds}", file=sys.stderr)
    again = _laid_out_otherwise(base, weights, examples)
    ratio = statistics.median(seconds["eager"]) / statistics.median(seconds["classwise"])
    return [
        f"`{spec}`",
        str(size),
        *median_and_range(seconds["classwise"]),
        *median_and_range(seconds["eager"]),
        f"{ratio:.2f}",
        f"{losses['classwise']:.5f}",
        f"{losses['eager']:.5f}",
        f"{abs(losses['classwise'] - losses['eager']):.1e}",
        f"{abs(again - losses['eager']):.1e}",
        f"{_in_double(base, weights, examples):.1e}",
    ]


def _in_double(base: nn.Module, weights: dict[str, Tensor], examples: Examples) -> float:
    """How far the two losses lie apart in float64, on a few images."""
    few = Examples(examples.x[:_FEW].double(), examples.y[:_FEW], examples.index[:_FEW])
    found = []
    for make in (_classwise, _eager):
        side = make(copy.deepcopy(base).double(), few)
        side.model.load_state_dict(weights)
        found.append(side.step())
    return abs(found[0] - found[1])


def _laid_out_otherwise(base: nn.Module, weights: dict[str, Tensor], examples: Examples) -> float:
    """The loss of the eager step with the weights in channels-last layout: the same sums in another order."""
    side = _eager(copy.deepcopy(base).to(memory_format=torch.channels_last), examples)  # type: ignore[call-overload]
    side.model.load_state_dict(weights)
    return side.step()


def _classwise(model: nn.Module, examples: Examples) -> Side:
    """The step of the training loop itself."""
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    method = Trades(steps=_STEPS, step=_STEP, beta=_BETA)
    recipe = Recipe(
        threat=Threat(eps=_EPS), method=method, train=TrainPart(epochs=1), validate=ValidatePart(select="last")
    )
    synced_copy = follow(model.eval(), examples.x[:8])
    optimiser = _SGD.build(model)
    train_step = TrainStep(
        recipe=recipe,
        model=model,
        optimizer=optimiser,
        lr=_SGD.lr,
        schedule=schedule.parse("constant"),
        awp=None,
        synced_copy=replace(synced_copy, attack_copy=replace(synced_copy.attack_copy, multiple=1)),
        scaler=torch.amp.GradScaler("cpu", enabled=False),
        processes=Processes(),
        profile=Profile(torch.device("cpu"), on=False),
    )
    state = method.init([str(k) for k in range(int(model(examples.x[:2]).shape[1]))])

    def step() -> float:
        stepped = train_step(examples, parse_augment([]), state, 0, 0.0, len(examples.y))
        return float(stepped.loss.value.detach().mean())

    return Side(model, optimiser, step)


def _eager(model: nn.Module, examples: Examples) -> Side:
    """TRADES as one writes it down from the paper."""
    optimiser = _SGD.build(model)
    x, y = examples.x, examples.y
    key = rng.keys(0, rng.keys(0, torch.from_numpy(examples.index), stream=1))
    start = random_start(x, torch.full((len(x),), _EPS), key, LINF, "gaussian")

    def divergence(x_adv: Tensor) -> Tensor:
        return F.kl_div(F.log_softmax(model(x_adv), 1), F.softmax(model(x), 1), reduction="sum")

    def step() -> float:
        model.eval()
        x_adv = start
        for _ in range(_STEPS):
            x_adv = x_adv.detach().requires_grad_()
            gradient = torch.autograd.grad(divergence(x_adv), x_adv)[0]
            x_adv = x_adv.detach() + _STEP * gradient.sign()
            x_adv = torch.min(torch.max(x_adv, x - _EPS), x + _EPS).clamp(0, 1)
        model.train()
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x), y) + _BETA / len(x) * divergence(x_adv)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return loss.item()

    return Side(model, optimiser, step)
