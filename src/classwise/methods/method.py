"""What a training method is: an inner maximisation, an outer loss, and a rule that updates its class-wise state.

    x'_i = attack(x_i)       min_θ  (1/B) Σ_i loss_i(θ; x_i, x'_i, y_i, state)       state ← update(state, records)

Whatever differs between classes (weights, radii, β, temperatures) is a vector in the state, one value per class, looked
up by each example's label. So a class-wise variant of a method is the method with another vector, and the state is in
every checkpoint.

A method of your own is a frozen dataclass derived from `Method` or from another method, in any file:
``method.name = "hard.py:Hard"``. Its hooks, in the order they are called; only `loss` has no default.

    class_wise                                   class attribute: the fields with a value for each class
    fine_tunes, validates_first, reads_probs …   class attributes: what the training must provide
    init(class_names)                            once: the state before the first epoch
    validation(), needs_validation()             once: attacks on the held-out images, whether any must be held out
    needs_teacher()                              once: the trained networks it distils, parts of the recipe
    balances()                                   once: whether unequal classes count the same without weights
    idle_epochs()                                once: how long the method waits, for a warning where that is too long
    survey(batch, state)                         before every epoch, where it surveys: logits of the training images
    before_epoch(state, train, epoch)            then: the state of the epoch, from the records of the survey
    sampling(state)                              before every step: how likely each class is drawn, where it is by class
    attack(model, batch, state)                  every step: the images to train on
    loss(model, batch, state)                    every step: a loss for each example
    after_step(model, batch, state, loss)        every step, the weights having moved: the next state
    update(state, train, valid, epoch)           after every epoch: the next state, from records
    remarks(state)                               at the end: sentences for the user
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from classwise import attacks
from classwise.attacks.attack import Attack, Model, Rows
from classwise.core import spec
from classwise.core.errors import UserError, index_of
from classwise.core.records import CLEAN, WORST_CASE, Records
from classwise.core.registry import name_of
from classwise.core.spec import NonNegative, Positive
from classwise.core.threat import Threat

State: TypeAlias = dict[str, Tensor]

#: One value for all classes, one for each, or some by name ({"dog": 0.5}; "*" is every other class).
ClassValues: TypeAlias = NonNegative | tuple[NonNegative, ...] | Mapping[str, NonNegative]
PositiveClassValues: TypeAlias = Positive | tuple[Positive, ...] | Mapping[str, Positive]

#: A robust teacher, and a second one for clean images: the parts of a recipe, and the fields of a batch.
TeacherName: TypeAlias = Literal["teacher", "teacher_clean"]


class Loss(NamedTuple):
    """Per-example losses, (B,), to be averaged and minimised; and the logits the training records are made from:
    those of the adversarial images where there are any. columns: further numbers for each example, (B,), which become
    columns of those records by their names."""

    value: Tensor
    logits: Tensor
    columns: Mapping[str, Tensor] = MappingProxyType({})


def _no_teacher(x: Tensor) -> Tensor:
    raise UserError("the method distils a teacher, and the batch has none: say so in its needs_teacher().")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch as a method sees it.

    key: each example's random numbers (classwise.core.rng), new in every epoch.
    eps: each example's radius, before the class's margin. threat: its norm, and the radius of all.
    fast: the current weights in eval mode, batch-norm folded, without parameter gradients: for attacks.
    epoch: epochs done so far, the fraction of the current one included. epochs: how many there will be.
    x_adv: what `attack` returned.
    joint: clean and adversarial images go through the network together, so batch-norm sees them as one batch.
    average: the mean over the whole batch, from the mean over this process's examples of it.
    total: the sum over all processes that share the batch. normed_together: the sum over those whose examples
    batch-norm sees as one batch: all of them with train.sync_norm, else this one.
    teacher, teacher_clean: logits of the frozen networks that `needs_teacher` names, without gradients; those of the
    same tensor are computed once. columns: numbers for each example that `attack` leaves for the training records, as
    `Loss.columns` does. observe: called with the inner attack's rows after every step (classwise.attacks.craft).
    """

    x: Tensor
    y: Tensor
    key: Tensor
    eps: Tensor
    fast: Model
    threat: Threat = field(default_factory=Threat)
    epoch: float = 0.0
    epochs: int = 1
    x_adv: Tensor | None = None
    joint: bool = False
    smoothing: float = 0.0
    average: Callable[[Tensor], Tensor] = lambda value: value
    total: Callable[[Tensor], Tensor] = lambda value: value
    normed_together: Callable[[Tensor], Tensor] = lambda value: value
    teacher: Model = _no_teacher
    teacher_clean: Model = _no_teacher
    columns: dict[str, Tensor] = field(default_factory=dict)
    observe: Callable[[Rows], None] | None = None

    def everywhere(self, here: Tensor) -> bool:
        """Whether something holds in all processes that share the batch."""
        return float(self.total((~here).float())) == 0

    @property
    def adversarial(self) -> Tensor:
        return self.x if self.x_adv is None else self.x_adv

    def take(self, mask: Tensor) -> Batch:
        """Some of its examples, to attack them or to pass them through a network by themselves."""
        x, y, key, eps = (column[mask] for column in (self.x, self.y, self.key, self.eps))
        x_adv = None if self.x_adv is None else self.x_adv[mask]
        return dataclasses.replace(self, x=x, y=y, key=key, eps=eps, x_adv=x_adv)


@dataclass(frozen=True, kw_only=True)
class Method:
    """The base class of all methods: the fields are the settings; see above for the hooks.

    weight: w_y multiplies an example's loss. margin: its radius is margin_y · ε. temperature: its logits are divided by
    T_y, in the attack and in the loss.
    """

    weight: ClassValues = 1.0
    margin: ClassValues = 1.0
    temperature: PositiveClassValues = 1.0

    #: The fields that are one value or one for each class; `init` makes a vector of each.
    class_wise: ClassVar[tuple[str, ...]] = ("weight", "margin", "temperature")

    #: Whether it starts from a robust model: the recipe must then give model.weights.
    fine_tunes: ClassVar[bool] = False

    #: Whether `update` reads the probabilities of the training records; those of many classes are not kept otherwise.
    reads_probs: ClassVar[bool] = False

    #: Whether an example's loss depends on the other examples of its batch, of all processes that share it.
    batch_wise: ClassVar[bool] = False

    @property
    def validates_first(self) -> bool:
        """Whether `update` wants validation records before the first epoch: methods that fine-tune do."""
        return False

    @property
    def surveys(self) -> bool:
        """Whether the training images go through `survey` before every epoch, for `before_epoch`."""
        return False

    def __post_init__(self) -> None:
        spec.validate_fields(self)

    def validation(self) -> Mapping[str, Attack]:
        """Attacks, besides the recipe's, whose validation records `update` needs; judged at their last iterate."""
        return {}

    def needs_validation(self) -> bool:
        """Whether `update` needs validation records after every epoch."""
        return bool(self.validation()) or self.validates_first

    def needs_teacher(self) -> tuple[TeacherName, ...]:
        """The trained networks it distils: the recipe must give their weights."""
        return ()

    def idle_epochs(self) -> int:
        """How many epochs the method trains like its base method before its class-wise part begins."""
        return 0

    def init(self, class_names: Sequence[str]) -> State:
        """The state before the first epoch: the class-wise fields; classes missing in a mapping have the default."""
        defaults = {name: getattr(type(self), name) for name in self.class_wise}
        return {name: by_class(getattr(self, name), class_names, name, defaults[name]) for name in self.class_wise}

    def survey(self, batch: Batch, state: State) -> Tensor:
        """Logits of a batch of training images, augmented as in training, that the records before an epoch are made
        from: such as ``batch.fast`` of attacked ones."""
        raise NotImplementedError

    def before_epoch(self, state: State, train: Records, epoch: int) -> State:
        """The state for the epoch that begins, from the records of the survey (`epoch` of them are done by now)."""
        return state

    def balances(self) -> bool:
        """Whether all classes count the same in its loss, however many images they have."""
        return False

    def sampling(self, state: State) -> Tensor | None:
        """The probability of each class, for batches drawn with replacement: a class, then one of its images, all
        equally likely. None, always or never, where an epoch is a permutation of the images. An epoch has as many
        draws as there are training images; the batch of a step is drawn by the state when the step begins."""
        return None

    def attack(self, model: nn.Module, batch: Batch, state: State) -> Tensor:
        """x', the images to train on. The model is in train mode and must stay so; `batch.fast` is in eval mode."""
        return batch.x

    def loss(self, model: nn.Module, batch: Batch, state: State) -> Loss:
        """The loss of every example at the current weights; weights and temperatures applied."""
        raise NotImplementedError

    def after_step(self, model: nn.Module, batch: Batch, state: State, loss: Loss) -> State:
        """The state after the optimiser's step on a batch; the next batch is trained with it.

        The model has its new weights and is in train mode, so that a pass through it moves batch-norm's running
        statistics; `batch.fast` still has the weights the attack saw. The state must come out the same in every
        process: what is counted in a batch is `batch.total(…)`, what is averaged over it `batch.average(…)`.
        """
        return state

    def remarks(self, state: State) -> tuple[str, ...]:
        """Sentences for the user about the state at the end of a training."""
        return ()

    def update(self, state: State, train: Records | None, valid: Records | None, epoch: int) -> State:
        """The state for the next epoch, from the records of the one just done (`epoch` of them are done by now).

        train: one row per training example, attack "train". valid: the recipe's validation attacks and the method's
        own. Before the first epoch there is no `train`; where nothing is held out there is no `valid`.
        """
        return state


def by_class(values: ClassValues, class_names: Sequence[str], where: str, otherwise: float = 1.0) -> Tensor:
    """One value per class, float32. Classes that a mapping leaves out get its "*", else `otherwise`."""
    count = len(class_names)
    if isinstance(values, Mapping):
        others = spec.number(values.get("*", otherwise))
        full = torch.full((count,), others)
        for name, value in values.items():
            if name != "*":
                full[index_of(name, class_names, f"class in {where}")] = spec.number(value)
        return full
    if isinstance(values, (tuple, list)):
        if len(values) != count:
            raise UserError(f"{where} has {len(values)} values, but there are {count} classes: give one each, or one.")
        return torch.tensor([spec.number(value) for value in values])
    return torch.full((count,), spec.number(values))


def require_validation(valid: Records | None, method: Method, remedy: str = "") -> Records:
    """The validation records, for a method that needs them; an error with the remedy where there are none."""
    if valid is None:
        raise UserError(
            f"{name_of(method)} sets its class weights from validation images, and none are held out: set "
            f"data.validation to a number of images per class, such as 300{remedy}."
        )
    return valid


def attacked_rows(valid: Records) -> Records:
    """The rows of the validation attack; of the worst case where there are several."""
    attacks = [name for name in valid.attacks if name != CLEAN]
    return valid.of(attacks[0] if len(attacks) == 1 else WORST_CASE)


def latest_records(train: Records | None, valid: Records | None) -> Records | None:
    """The training records; before the first epoch, where there are none, those of the attacked held-out images."""
    return attacked_rows(valid) if train is None and valid is not None else train


def craft(
    attack: Attack,
    model: Model,
    batch: Batch,
    state: State,
    scale: Tensor | float = 1.0,
    eps: Tensor | None = None,
    columns: Rows | None = None,
) -> Tensor:
    """The attack's images for the batch: radius margin_y·ε (or `eps`, one for each example), logits times scale/T_y.

    columns: of the attack's rows, besides the usual ones: pgd's `target` is a class for each example, such as
    `draw_target(batch.key, batch.y, probabilities)` of classwise.attacks.pgd gives, or −1 for an untargeted attack.
    """
    factor = (scale / state["temperature"][batch.y])[:, None]
    radius = state["margin"][batch.y] * batch.eps if eps is None else eps
    return attacks.craft(
        attack,
        lambda x: model(x) * factor,
        batch.x,
        batch.y,
        batch.threat,
        eps=radius,
        key=batch.key,
        columns=columns,
        observe=batch.observe,
        everywhere=batch.everywhere,
    )


def logits(model: Model, x: Tensor, batch: Batch, state: State) -> Tensor:
    """z(x)/T_y."""
    z: Tensor = model(x) / state["temperature"][batch.y][:, None]
    return z


def both_logits(
    model: nn.Module, batch: Batch, state: State, first: Literal["clean", "adversarial"] = "clean"
) -> tuple[Tensor, Tensor]:
    """z(x)/T_y and z(x')/T_y: two passes in this order, which batch-norm's running statistics depend on, or a joint
    one."""
    if not batch.joint:
        images = {"clean": batch.x, "adversarial": batch.adversarial}
        order = images if first == "clean" else reversed(images)
        found = {name: logits(model, images[name], batch, state) for name in order}
        return found["clean"], found["adversarial"]
    z, z_adv = model(torch.cat([batch.x, batch.adversarial])).chunk(2)
    inv_temperature = 1 / state["temperature"][batch.y][:, None]
    return z * inv_temperature, z_adv * inv_temperature
