"""The parts of a recipe: frozen dataclasses whose fields are the keys of a TOML table, with their bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from classwise import attacks
from classwise.auditing.parts import DataPart, ModelPart
from classwise.core.errors import UserError
from classwise.core.settings import Part
from classwise.core.spec import Count, Fraction, Natural, NonNegative, OpenShare, Positive, Seed, Share


@dataclass(frozen=True, kw_only=True)
class TrainingData(DataPart):
    """The data to train on.

    name: a data set's spec. split: the one to train on. limit, per_class: at most this many examples, drawn by the
    seed. exclude: without these classes; the others are renumbered. validation: examples of each class held out of the
    split, 0 for none; held_out: which ones, the last of each class (FRL, WAT), the first (CFA), or random ones.
    augment: in this order. extra: a file of pseudo-labelled images (`classwise pseudo-label`), extra_fraction of every
    batch; epoch_size: examples in an epoch, where that is not the size of the data.
    """

    name: str = "cifar10"
    split: str = "train"
    exclude: tuple[str, ...] = ()
    validation: Natural = 0
    held_out: Literal["last", "first", "random"] = "last"
    augment: tuple[str, ...] = ()
    extra: str | None = None
    extra_fraction: Fraction = 0.5
    epoch_size: Count | None = None


@dataclass(frozen=True, kw_only=True)
class TrainedModel(ModelPart):
    """The network's spec; weights to start from, for methods that fine-tune; a normalising first layer."""

    spec: str = "resnet-18"
    normalize: str | None = None


@dataclass(frozen=True, kw_only=True)
class TeacherPart(ModelPart):
    """A trained network to distil: its spec, which may be left out where classwise wrote the checkpoint; its weights; a
    normalising first layer."""

    spec: str | None = None
    normalize: str | None = None


@dataclass(frozen=True, kw_only=True)
class Phase(Part):
    """Consecutive epochs with other data, augmentation or batch size.

    until: the epoch it ends with; a number below 1 is a fraction of all epochs, so that the phases scale with them;
    None: to the end of the training.
    """

    until: Count | OpenShare | None = None
    batch: Count | None = None
    data: str | None = None
    augment: tuple[str, ...] | None = None

    def end(self, epochs: int) -> int:
        """The epoch it ends with, in a training of so many epochs."""
        return epochs if self.until is None else round(self.until * epochs) if self.until < 1 else int(self.until)


@dataclass(frozen=True, kw_only=True)
class TrainPart(Part):
    """How the loss is minimised.

    joint: clean and adversarial images in one pass, so that batch-norm sees both together. averaging: "ema:decay=…",
    "swa:start=…", "fawa:…". awp: "awp:gamma=0.005". fold: attack a copy with batch-norm folded ("auto": where there
    is any). sync_norm: with several processes, batch-norm sees the whole batch, as in one process; else each sees its
    share, and running statistics are averaged. amp: "float16" or "bfloat16", on a GPU. stop_drop: stop, with the
    weights of the epoch before, when PGD-5 accuracy on a training batch drops by more than this from one epoch to the
    next (catastrophic overfitting). save_minutes: also write a checkpoint within an epoch, this often. keep: which
    epochs' models are kept in the run folder as epochs/0014.pt, besides best.pt and last.pt: "best" (none), "all", or
    every n-th and the last one.
    """

    epochs: Count = 100
    batch: Count = 128
    optimizer: str = "sgd:lr=0.1"
    schedule: str = "constant"
    clip: Positive | None = None
    smoothing: Fraction = 0.0
    joint: bool = False
    averaging: str | None = None
    awp: str | None = None
    fold: Literal["auto", "yes", "no"] = "auto"
    sync_norm: bool = True
    amp: Literal["float16", "bfloat16"] | None = None
    stop_drop: Share | None = None
    save_minutes: NonNegative = 10.0
    keep: Literal["best", "all"] | Count = "best"
    seed: Seed = 0
    phases: tuple[Phase, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stop_drop is not None and self.averaging is not None:
            raise UserError("train.stop_drop restores earlier weights, and an average cannot go back: leave one out.")
        untils = [self.epochs if phase.until is None else phase.until for phase in self.phases]
        ends, given = self.ends(), [until for until in untils if until >= 1]
        in_order = ends == sorted(ends) and given == sorted(set(given)) and all(until > 0 for until in untils)
        if ends and not (in_order and ends[-1] == self.epochs):
            raise UserError(
                f"phases must end one after the other, the last at epoch {self.epochs}; got {untils}. An end below 1 "
                "is a fraction of all epochs, and the last phase needs none."
            )

    def keeps(self, epoch: int) -> bool:
        """Whether the model of this epoch, counted from 1, is kept in the run folder as a checkpoint of its own."""
        if isinstance(self.keep, int):
            return epoch % self.keep == 0 or epoch == self.epochs
        return self.keep == "all"

    def ends(self) -> list[int]:
        """The epoch that each phase ends with."""
        return [phase.end(self.epochs) for phase in self.phases]


@dataclass(frozen=True, kw_only=True)
class ValidatePart(Part):
    """The validation after an epoch, and the rule that selects the best checkpoint.

    first: also validate before the first epoch, so that a method whose class-wise state comes from records has it from
    the start: for fine-tuning, where a model that was just initialised would say nothing. select: "worst" (class robust
    accuracy, then the average), "average", "minimax" (the smallest of the largest class losses, as WAT's analysis), or
    "last".
    """

    attack: tuple[str, ...] = ("pgd-10",)
    eps: Positive | None = None
    protocol: Literal["any", "final"] = "final"
    every: Count = 1
    first: bool = False
    select: Literal["worst", "average", "minimax", "last"] = "worst"

    def __post_init__(self) -> None:
        super().__post_init__()
        attacks.parse(list(self.attack))  # an error for an unknown one
