"""An iterative attack is its rows: a dict of tensors whose first dimension is the example.

The framework makes the first columns, an attack adds its own (`x_adv` always, perhaps a step size or a best loss):

    x, y       the clean image and its label          eps    the example's radius
    key        its random numbers (classwise.core.rng)   t      steps done so far
    logits     what the model said of the `x_adv` that the last `advance` was given
    restart    number of the restart, from 0 on

Columns that an attack may add and the engine understands:

    x_best     the point to judge at the end, where that is not the last `x_adv`
    best       ‖x_best − x‖: the attack looks for the nearest adversarial point and may leave the ball on the way;
               infinite until it has found one. The example is broken when best ≤ eps
    done       true once there is nothing left to try, before all steps are made
    queries    model evaluations spent so far, where a step is not exactly one

So the engine can retire an example in the middle of an attack, let a fresh one take its place, cut a batch in two
or move it, and no attack needs to know.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.losses import cross_entropy
from classwise.core.registry import name_of
from classwise.core.spec import validate_fields
from classwise.core.threat import BALLS, Ball, Norm, Radius, Threat, choose

Rows: TypeAlias = "dict[str, Tensor]"
Model: TypeAlias = Callable[[Tensor], Tensor]


class Attack(ABC):
    """A frozen dataclass: its fields are the settings, its file's name is the attack's name.

    What the engine asks of an attack is here, with what is usual; a subclass says what is different, in a field with a
    default (`steps: int = 20`), a property, or a line of its class (`needs_gradient = False`).
    """

    #: The norms that it has a form for.
    supports: tuple[Norm, ...] = tuple(BALLS)

    #: Whether it takes so long that studies run it on fewer images.
    slow: bool = False

    def __post_init__(self) -> None:
        validate_fields(self)

    @property
    @abstractmethod
    def steps(self) -> int:
        """How many times `advance` is called after `begin`, at most."""

    @property
    def restarts(self) -> int:
        """How many times the whole attack is tried, each from another random start or towards another target."""
        return 1

    @property
    def needs_gradient(self) -> bool:
        """Whether it differentiates the model; one that only reads the model's answers may attack a black box."""
        return True

    @property
    def evaluations(self) -> int:
        """About how many times a step asks the model."""
        return 1

    @property
    def seeks_distance(self) -> bool:
        """Whether it is asked for the nearest adversarial point that it can find, not just for one in the ball."""
        return False

    @property
    def short_name(self) -> str | None:
        """What tables call it, where that is not its name and its first field."""
        return None

    @property
    def spec(self) -> str | None:
        """The spec it was made from, where that is not its name and its fields."""
        return None

    @abstractmethod
    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        """Add `x_adv`, the first point to try, and whatever else the attack remembers."""

    @abstractmethod
    def advance(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        """Ask the model about `x_adv` (its answer becomes `logits`) and move to the next point."""

    def for_classes(self, num_classes: int) -> Attack:
        """The attack fitted to so many classes, where its restarts are targets."""
        return self

    def require_norm(self, norm: Norm) -> None:
        """Raise where the attack has no form for the norm."""
        if norm not in self.supports:
            raise UserError(f"{name_of(self)} has no {norm} form; use norm {' or '.join(self.supports)} with it.")


class OneShot(Attack):
    """An attack that is a single call: no steps, one point for every example."""

    steps = 0

    @abstractmethod
    def points(self, model: Model, rows: Rows, ball: Ball) -> Tensor:
        """The point to try for every example."""

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        return {**rows, "x_adv": self.points(model, rows, ball)}

    def advance(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        raise AssertionError(f"{type(self).__name__} is a single call and has no step to take")


class Suite(ABC):
    """Several attacks under one name, each on what those before it left: a frozen dataclass like an attack."""

    @abstractmethod
    def members(self) -> list[Attack]:
        """The attacks, in the order in which they run."""


def initial_rows(x: Tensor, y: Tensor, eps: Radius, key: Tensor, restart: Tensor | int = 0) -> Rows:
    """The columns every attack starts from."""
    radius = eps if isinstance(eps, Tensor) and eps.ndim else torch.full((len(x),), float(eps), dtype=x.dtype)
    zeros = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    return {"x": x, "y": y, "eps": radius.to(x.device, x.dtype), "key": key, "t": zeros, "restart": zeros + restart}


def finished(rows: Rows, steps: int) -> Tensor:
    """Whose attack has come to its end."""
    ended = rows["t"] >= steps
    return ended | rows["done"] if "done" in rows else ended


def final_point(rows: Rows, seeking: bool = False) -> Tensor:
    """The point an attack gives for each example: `x_best` if it keeps one, else the last `x_adv`.

    An attack that looks for the nearest point gives the clean image where it found none in the ball; when `seeking`
    the distance itself, where it found none at all.
    """
    if "best" not in rows:
        return rows.get("x_best", rows["x_adv"])
    found = rows["best"] <= rows["eps"]
    if seeking:
        found = torch.isfinite(rows["best"])
    return choose(found, rows["x_best"], rows["x"])


def run(
    attack: Attack,
    model: Model,
    rows: Rows,
    ball: Ball,
    observe: Callable[[Rows], None] | None = None,
    everywhere: Callable[[Tensor], bool] = bool,
) -> Rows:
    """The rows at the end of the attack. observe: called with them after every step. everywhere: see `craft`."""
    rows = attack.begin(model, rows, ball)
    for _ in range(attack.steps):
        if "done" in rows and everywhere(finished(rows, attack.steps).all()):
            break
        rows = attack.advance(model, rows, ball)
        if observe is not None:
            observe(rows)
    return rows


def select(rows: Rows, mask: Tensor) -> Rows:
    """The rows where `mask` holds."""
    return take(rows, mask.nonzero()[:, 0])


def take(rows: Rows, index: Tensor) -> Rows:
    """The rows at the given places: one index for all columns, where a mask would be counted for each."""
    return {name: column.index_select(0, index) for name, column in rows.items()}


#: Kinds of device whose values can be looked at at once. Elsewhere that waits for all the work given to the device.
PROMPT = {"cpu"}


def possibly(mask: Tensor) -> bool:
    """Whether `mask` may hold anywhere: looked up on a CPU, where work is saved if it does not, assumed on a GPU."""
    return mask.device.type not in PROMPT or bool(mask.any())


@functools.lru_cache(maxsize=64)
def device_table(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Constants on a device, copied there once."""
    return torch.tensor(values, device=device)


def join(parts: list[Rows]) -> Rows:
    """Several sets of rows below one another; columns that not all of them have are dropped."""
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: torch.cat([part[name] for part in parts]) for name in names}


def value_and_gradient(
    model: Model, x: Tensor, objective: Callable[[Tensor], Tensor], eot: int = 1
) -> tuple[Tensor, Tensor]:
    """The logits at `x` and ∇_x of the summed per-example objective; both averaged over `eot` calls.

    Averaging is the expectation over a randomised model's own draws (Athalye et al. 2018); 1 for ordinary models.
    """
    logits, gradient = torch.zeros(()), torch.zeros(())
    for _ in range(eot):
        with torch.enable_grad():
            point = x.detach().requires_grad_()
            z = model(point)
            g = gradient_of(objective(z), point)
        logits = logits.to(z.device) + z.detach() / eot
        gradient = gradient.to(g.device) + g / eot
    return logits, gradient


def gradient_of(value: Tensor, x: Tensor, keep: bool = False) -> Tensor:
    """∇_x of the summed value. keep: the graph, for another gradient."""
    g = torch.autograd.grad(value.sum(), x, retain_graph=keep, allow_unused=True)[0] if value.requires_grad else None
    if g is None:
        raise UserError(
            "the model's output has no gradient with respect to its input: it runs under no_grad, detaches it or "
            "thresholds it. Let the gradient through, or use an attack that needs none, such as noise."
        )
    return g


def craft(
    attack: Attack,
    model: Model,
    x: Tensor,
    y: Tensor,
    threat: Threat,
    *,
    eps: Radius | None = None,
    generator: torch.Generator | None = None,
    key: Tensor | None = None,
    columns: Rows | None = None,
    observe: Callable[[Rows], None] | None = None,
    everywhere: Callable[[Tensor], bool] = bool,
) -> Tensor:
    """The plain call: adversarial examples for one batch, the point the attack ends with for every example.

    eps: one radius per example, instead of the threat's. Random numbers come from each example's `key` where keys are
    given, else from the generator. columns: what else the attack is to know of each example, such as pgd's `target`.
    observe: called with the rows after every step; their `logits` are those of the point that the step began at.
    everywhere: whether something holds for all batches that are attacked side by side and end together.

    Of several restarts the one kept is a misclassified one if there is any, and among those the one of largest
    cross entropy. The model's train/eval mode is the caller's business.
    """
    attack.require_norm(threat.norm)
    x, ball, radius = x.detach(), threat.ball, threat.eps if eps is None else eps
    best, best_broken = x, torch.zeros(len(x), dtype=torch.bool, device=x.device)
    best_loss = torch.full((len(x),), float("-inf"), device=x.device)
    for restart in range(attack.restarts):
        keys = rng.keys_from(generator, len(x), x.device) if key is None else rng.keys(restart, key)
        rows = {**initial_rows(x, y, radius, keys, restart), **(columns or {})}
        point = final_point(run(attack, model, rows, ball, observe, everywhere))
        if attack.restarts == 1:
            return point
        with torch.no_grad():
            z = model(point)
        loss, broken = cross_entropy(z, y), z.argmax(1) != y
        better = (broken & ~best_broken) | ((broken == best_broken) & (loss > best_loss))
        best = choose(better, point, best)
        best_loss = torch.where(better, loss, best_loss)
        best_broken |= broken
    return best
