"""PGD-20 on the same model and images: classwise, torchattacks, Foolbox and ART.

Each library is used as its documentation shows: accuracy on clean images, the attack on all of them, accuracy on what
comes out. Measured in one process, in turns: every round runs every library once, beginning with another one each
time; the first round only warms up (and counts the passes). So a slow moment of the machine falls on all of them.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

import classwise as cw
from bench.markdown import bullets, median_and_range, paragraph, percent, table
from bench.setting import EPS, SPEC, Setting
from bench.throughput import Floor
from classwise.core.meta import Protocol
from classwise.core.spec import number

TITLE = "PGD-20 compared with other libraries"

COUNT, STEPS = 1000, 20
_STEP = "2/255"
_REFERENCE = "classwise"

_HEADER = (
    "library",
    "seconds",
    "min–max",
    "times classwise",
    "clean",
    "robust",
    "worst class",
    "gradient passes",
    "forward passes",
)
_NOTES = (
    "classwise: `cw.audit(model, (x, y))`, in memory, with all it does by default: findings about the model, the clean "
    "pass, folding, the attack on what is not misclassified already, each example until it breaks, and verification "
    "of every example on the untouched model. Robust means that no point tried breaks the example.",
    "classwise, protocol final: all steps on all examples and the last iterate judged, as the other libraries do.",
    "The others: clean accuracy, attack and robust accuracy as their documentation shows. The model's parameters "
    "require gradients, as after any training, and Foolbox and ART compute those too. ART evaluates its examples once "
    "more by itself.",
    "Passes are of single images: forward with backward to the input, and forward only.",
)

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Task:
    """The model as it comes out of training (in eval mode, its parameters requiring gradients), and the images."""

    model: nn.Module
    x: Tensor
    y: Tensor
    num_classes: int
    batch: int

    def correct(self, x: Tensor) -> Flags:
        """Which of the images the model gets right, in batches."""
        with torch.no_grad():
            predictions = [self.model(part).argmax(1) for part in torch.split(x, self.batch)]
        flags: Flags = (torch.cat(predictions) == self.y).numpy()
        return flags

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(torch.split(self.x, self.batch), torch.split(self.y, self.batch), strict=True)


@dataclass(frozen=True)
class Verdict:
    """Which images are right when clean and under attack; gradient passes that a copy of the model made."""

    clean: Flags
    robust: Flags
    on_copy: int = 0


def run_classwise(task: Task, protocol: Protocol = "any") -> Verdict:
    """All that `audit` does by default, its own choice of batch included."""
    attacks = f"pgd:steps={STEPS},step={_STEP}"
    audit = cw.audit(task.model, (task.x, task.y), attacks, eps=EPS, protocol=protocol, progress=False)
    attack = audit.attacks[0]
    return Verdict(
        audit.rows("clean").correct, audit.rows(attack).correct, int(audit.timing["attacks"][attack]["passes"])
    )


def run_classwise_final(task: Task) -> Verdict:
    """All steps on all examples, the last iterate judged: the same protocol as the other libraries."""
    return run_classwise(task, "final")


def run_torchattacks(task: Task) -> Verdict:
    import torchattacks

    attack = torchattacks.PGD(task.model, eps=number(EPS), alpha=number(_STEP), steps=STEPS, random_start=True)
    clean = task.correct(task.x)
    return Verdict(clean, task.correct(torch.cat([attack(x, y) for x, y in task.batches()])))


def run_foolbox(task: Task) -> Verdict:
    """Foolbox judges what it finds itself, so its own word is taken for the robust accuracy."""
    import foolbox

    wrapped = foolbox.PyTorchModel(task.model, bounds=(0, 1))
    attack = foolbox.attacks.LinfPGD(abs_stepsize=number(_STEP), steps=STEPS, random_start=True)
    clean = task.correct(task.x)
    broken = [attack(wrapped, x, y, epsilons=number(EPS))[2] for x, y in task.batches()]
    return Verdict(clean, ~torch.cat(broken).numpy())


def run_art(task: Task) -> Verdict:
    from art.attacks.evasion import ProjectedGradientDescentPyTorch
    from art.estimators.classification import PyTorchClassifier

    classifier = PyTorchClassifier(
        task.model,
        loss=nn.CrossEntropyLoss(),
        input_shape=tuple(task.x.shape[1:]),
        nb_classes=task.num_classes,
        clip_values=(0.0, 1.0),
        device_type="cpu",
    )
    attack = ProjectedGradientDescentPyTorch(
        classifier,
        norm=np.inf,
        eps=number(EPS),
        eps_step=number(_STEP),
        max_iter=STEPS,
        num_random_init=1,
        batch_size=task.batch,
        verbose=False,
    )
    x, y = task.x.numpy(), task.y.numpy()
    clean = classifier.predict(x, batch_size=task.batch).argmax(1) == y
    robust = classifier.predict(attack.generate(x, y), batch_size=task.batch).argmax(1) == y
    return Verdict(clean, robust)


LIBRARIES: dict[str, Callable[[Task], Verdict]] = {
    _REFERENCE: run_classwise,
    "classwise, protocol final": run_classwise_final,
    "torchattacks": run_torchattacks,
    "Foolbox": run_foolbox,
    "ART": run_art,
}


@dataclass
class Result:
    """What a library took and found. Passes are of single images, counted in the warm-up round."""

    seconds: list[float] = field(default_factory=list)
    verdict: Verdict | None = None
    gradient_passes: int = 0
    forward_passes: int = 0


def run(setting: Setting) -> str:
    images = setting.images(COUNT)
    x, y = images.batch(np.arange(len(images)))
    task = Task(setting.model(), x, y, images.num_classes, setting.batch)
    results = measure(task, setting.rounds)
    own = results[_REFERENCE]
    floor = Floor.measure(task.model, x, 2 * own.gradient_passes + own.forward_passes)
    return _section(setting, images.class_names, task, results, floor)


def measure(task: Task, rounds: int) -> dict[str, Result]:
    """Every library once per round, after a round that is not timed."""
    results = {name: Result() for name in LIBRARIES}
    for name in LIBRARIES:
        with _calls(task.model) as calls:
            verdict = _once(name, task)[0]
        results[name].gradient_passes = sum(size for size, needs_gradient in calls if needs_gradient) + verdict.on_copy
        results[name].forward_passes = sum(size for size, needs_gradient in calls if not needs_gradient)
    for turn in range(rounds):
        names = list(LIBRARIES)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            results[name].verdict, seconds = _once(name, task)
            results[name].seconds.append(seconds)
            print(f"  round {turn + 1} of {rounds}: {name} {seconds:.2f} s", file=sys.stderr)
    return results


def _once(name: str, task: Task) -> tuple[Verdict, float]:
    torch.manual_seed(0)  # the other libraries draw their random starts from the global generators
    np.random.seed(0)  # noqa: NPY002
    gc.collect()
    begin = time.perf_counter()
    verdict = LIBRARIES[name](task)
    return verdict, time.perf_counter() - begin


@contextmanager
def _calls(model: nn.Module) -> Iterator[list[tuple[int, bool]]]:
    """A list that grows with every call of `model`: number of images, and whether their gradient is wanted.

    Copies of the model keep the hook and count too, but for gradient passes: those on copies classwise counts itself.
    """
    calls: list[tuple[int, bool]] = []

    def note(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        if module is model or not args[0].requires_grad:
            calls.append((len(args[0]), args[0].requires_grad))

    handle = model.register_forward_pre_hook(note)
    try:
        yield calls
    finally:
        handle.remove()


def _section(
    setting: Setting, class_names: tuple[str, ...], task: Task, results: dict[str, Result], floor: Floor
) -> str:
    labels = task.y.numpy()
    others = {name: result for name, result in results.items() if not name.startswith(_REFERENCE)}
    fastest = min(others, key=lambda name: statistics.median(others[name].seconds))
    limit = floor.note(statistics.median(others[fastest].seconds), fastest)
    reference = statistics.median(results[_REFERENCE].seconds)
    accuracies = [result.verdict.robust.mean() for result in results.values() if result.verdict is not None]
    return "\n\n".join(
        [
            paragraph(
                f"Model: `{SPEC}`, {setting.about}. Data: the first {len(labels)} images of the {setting.data}.",
                f"Attack: PGD, {STEPS} steps of {_STEP} from a random start, linf {EPS}.",
                f"Batches of {setting.batch} in the other libraries, its own choice in classwise;",
                f"{torch.get_num_threads()} threads for all. Median of {setting.rounds} rounds in one process,",
                "in turns, after a round that only warms up.",
            ),
            table(_HEADER, [_row(name, result, reference, labels, class_names) for name, result in results.items()]),
            f"Robust accuracies differ by at most {100 * (max(accuracies) - min(accuracies)):.1f} points.",
            bullets(*_NOTES, f"The passes that classwise makes, and nothing else, are {limit}"),
        ]
    )


def _row(
    name: str, result: Result, reference: float, labels: npt.NDArray[np.int64], class_names: tuple[str, ...]
) -> list[str]:
    assert result.verdict is not None
    robust = result.verdict.robust
    present = [label for label in range(len(class_names)) if (labels == label).any()]
    worst = min(present, key=lambda label: robust[labels == label].mean())
    return [
        name,
        *median_and_range(result.seconds),
        f"{statistics.median(result.seconds) / reference:.2f}",
        percent(result.verdict.clean.mean()),
        percent(robust.mean()),
        f"{class_names[worst]} {percent(robust[labels == worst].mean())}",
        f"{result.gradient_passes:,}",
        f"{result.forward_passes:,}",
    ]
