"""Every setting of a repair, stated once; those of model, data, threat and resources are those of an audit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from classwise.auditing.config import AuditConfig, CommonSettings
from classwise.auditing.parts import (
    AttackPart,
    AuditedData,
    AuditedModel,
    ConfidencePart,
    OutputPart,
    ResourcesPart,
    StatisticsPart,
    ThreatPart,
)
from classwise.core.errors import UserError
from classwise.core.settings import Config, Part, setting
from classwise.core.spec import Bounds, Count, Fraction, OpenShare, Positive, number

if TYPE_CHECKING:
    from classwise.data.images import Images

KnobName = Literal["bias", "norms", "bias+norms", "last_layer", "decosam"]
GoalName = Literal["worst", "tail"]

_Tau = Annotated[float, Bounds(least=0, most=2, note="0 leaves the weights as they are, 1 makes their norms equal.")]

# fmt: off
# One setting a line: what it is, its default, what it means, and what is special about its option.


@dataclass(frozen=True, kw_only=True)
class RepairAttacks(AttackPart):
    """The attack that the change is fitted against, again in every round."""

    attacks: Any = setting(None, "Attack that the change is fitted against; by default apgd_t:iterations=10, and square:queries=500 where the model has no gradient; repeatable.", also="Or an attack object, or a list.", option="--attack -a", takes=list[str])


@dataclass(frozen=True, kw_only=True)
class KnobPart(Part):
    """What is changed of the model, and how far it is moved."""

    knob: KnobName = setting("bias", "What is changed: bias (of the logits), norms (of the last layer's rows), bias+norms, last_layer (all of it, trained), decosam (its weights, trained with SAM).")
    rounds: Count = setting(8, "Changes tried at most, each attacked from scratch; of a bias three, on the path that one attack predicts.")
    step_size: Positive = setting(1.5, "First step of the bias, in standard deviations of the logit margin for a difference of 100 percentage points.")
    tau: _Tau | None = setting(None, "Exponent of the norms; by default chosen on the calibration images.")
    lr: Positive = setting(0.1, "Learning rate of last_layer and decosam.")


@dataclass(frozen=True, kw_only=True)
class GoalPart(Part):
    """Which of the changes tried is taken."""

    goal: GoalName = setting("worst", "What is to be highest on the calibration images: the worst class, or the tail, the mean of the worst fifth of the classes.")
    keep_average: Fraction | None = setting(None, "Lose at most this much of the average, e.g. 0.01 for one percentage point.")
    keep_each: Fraction | None = setting(None, "Lose at most this much of any class, e.g. 0.05 for five percentage points.")
    min: Any = setting((), "A class and the robust accuracy it must reach, cat=0.2, at the least cost of the average; repeatable.", also='Or a mapping, {"cat": 0.2}.', takes=list[str])
    front: bool = setting(False, "Also try changes in between, and show the worst class against the average.")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "min", _minimums(self.min))


@dataclass(frozen=True, kw_only=True)
class JudgePart(Part):
    """The images and attacks that decide what the change is worth."""

    judge_attacks: Any = setting(None, "Attack on the judging images, before and after; by default that of --attack; repeatable.", also="Or an attack object, or a list.", option="--judge-attack", takes=list[str])
    judge_share: OpenShare = setting(0.5, "Share of each class's images held back to judge; the change is fitted on the others.")
    calibrate: Any = setting(None, "Fit the change on this split of the data set, e.g. train, and judge on all images given.", also="Or on all of these images.")

# fmt: on


@dataclass(frozen=True, kw_only=True)
class RepairConfig(Config):
    """What a repair was asked for."""

    called = "a repair"

    model: AuditedModel
    data: AuditedData
    threat: ThreatPart = field(default_factory=ThreatPart)
    attacks: RepairAttacks = field(default_factory=RepairAttacks)
    knob: KnobPart = field(default_factory=KnobPart)
    goal: GoalPart = field(default_factory=GoalPart)
    judging: JudgePart = field(default_factory=JudgePart)
    statistics: ConfidencePart = field(default_factory=ConfidencePart)
    resources: ResourcesPart = field(default_factory=ResourcesPart)
    output: OutputPart = field(default_factory=OutputPart)

    @property
    def folder(self) -> Path | None:
        """The run folder."""
        return None if self.output.out is None else Path(self.output.out)

    def audit(self, data: AuditedData | None = None, **changes: Any) -> AuditConfig:
        """The config of an audit of this model under this threat; by default on the examples given."""
        # Other processes work for the repair as a whole, not for each of its audits.
        here = dataclasses.replace(self.resources, engine="local", jobs=None, cpus=None, gpus=0.0, devices=None)
        parts: dict[str, Any] = {"model": self.model, "threat": self.threat, "resources": here}
        return AuditConfig(**{**parts, "data": self.data if data is None else data, **changes})

    def attacked(
        self, images: Images, attacks: Any, folder: Path | None = None, model: AuditedModel | None = None
    ) -> AuditConfig:
        """The config of an audit of these images; of several attacks each sees what those before it did not break."""
        several = isinstance(attacks, Sequence) and not isinstance(attacks, str) and len(attacks) > 1
        wanted = AttackPart(
            attacks=attacks,
            eot=self.attacks.eot,
            seed=self.attacks.seed,
            coverage="survivors" if several else None,
        )
        return self.audit(
            AuditedData(name=images),
            model=model or self.model,
            attacks=wanted,
            statistics=StatisticsPart(confidence=self.statistics.confidence),
            output=OutputPart(out=folder, progress=self.output.progress),
        )


class RepairSettings(CommonSettings, total=False):
    """The settings of `repair`, as editors and type checkers are to know them."""

    knob: KnobName
    rounds: int
    step_size: float
    tau: float | None
    lr: float
    goal: GoalName
    keep_average: float | None
    keep_each: float | None
    min: Mapping[str, float] | Sequence[str]
    front: bool
    judge_attacks: Any
    judge_share: float
    calibrate: Any


def _minimums(given: Any) -> Any:
    """The accuracies that classes must reach, as pairs of a class and a number."""
    if not isinstance(given, (Mapping, Sequence)):
        raise UserError(f'min takes classes and accuracies, such as ["cat=0.2"] or {{"cat": 0.2}}; got {given!r}.')
    pairs = given.items() if isinstance(given, Mapping) else [str(text).rpartition("=")[::2] for text in given]
    made = []
    for name, value in pairs:
        if not str(name):
            raise UserError(
                f"min takes a class and the robust accuracy it must reach, such as cat=0.2 (--min cat=0.2); got {value!r}."
            )
        least = number(value)
        if not 0 < least <= 1:
            raise UserError(f"min of {name!r} must lie in (0, 1], such as 0.2 for 20%; got {least:g}.")
        made.append((str(name), least))
    return tuple(made)
