"""The training loop: for every epoch, batches through the method's attack and loss, a validation, an update of the
class-wise state, a line of history, a checkpoint.

`fit` has no way to see test data. Random numbers belong to examples and steps (classwise.core.rng), never to a process
or to the global generators, so a run that was killed and resumed, or shared out over processes, goes the same way.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from classwise.attacks.attack import craft
from classwise.attacks.pgd import Pgd
from classwise.auditing.audit import evaluating
from classwise.core.format import percent
from classwise.core.records import Records
from classwise.engine.attack_copy import follow
from classwise.metrics import accuracy
from classwise.training import history
from classwise.training.augment import Augment
from classwise.training.averaging import Averaging, averaged, estimate_batch_norm
from classwise.training.batches import Source
from classwise.training.checkpoint import BEST, Checkpoints, TrainingState, of_epoch
from classwise.training.epoch_records import EpochRecords, meta_of, to_records
from classwise.training.interrupt import Asked, Interrupted, interruptible
from classwise.training.progress_display import ProgressDisplay
from classwise.training.step import TrainStep
from classwise.training.validation import Validation

_CHECK = Pgd(steps=5)  # steps of ε/4, as Wong et al. (ICLR 2020) look for catastrophic overfitting


@dataclass(frozen=True)
class PhaseData:
    """What is trained on up to an epoch: images, batch size, augmentation."""

    until: int
    source: Source
    batch: int
    augment: Augment


@dataclass(frozen=True)
class Training:
    """All that a training needs besides where it is (`TrainingState`)."""

    stepper: TrainStep
    phases: Sequence[PhaseData]
    validation: Validation | None
    averaging: Averaging | None
    checkpoints: Checkpoints

    @property
    def attacks(self) -> tuple[str, ...]:
        """The recipe's validation attacks, by name; none where nothing is held out."""
        return () if self.validation is None else tuple(self.validation.attacks)


def fit(training: Training, progress: TrainingState, watch: ProgressDisplay) -> TrainingState:
    """Train the model in place, from where `progress` is to the last epoch of the recipe."""
    stepper, recipe = training.stepper, training.stepper.recipe
    method, epochs = recipe.method, recipe.train.epochs
    with interruptible() as stop:
        if method.validates_first and progress.epoch == progress.step == 0:
            progress.state = method.update(progress.state, None, _validate(training, stepper.model, watch), 0)
        while progress.epoch < epochs and progress.stopped is None:
            begin = time.perf_counter() - progress.seconds
            phase = next(phase for phase in training.phases if progress.epoch < phase.until)
            columns = _epoch(training, phase, progress, watch, stop, begin)

            names, threat = phase.source.train.class_names, recipe.threat
            train = to_records(columns, meta_of(names, threat.norm, threat.eps, recipe.train.seed))
            shown = _averaged(training, phase, progress, watch)
            due = (progress.epoch + 1) % recipe.validate.every == 0 or progress.epoch + 1 == epochs
            valid = _validate(training, shown, watch) if due else None
            row = history.row(progress.epoch + 1, train, valid, training.attacks, progress.state)
            row |= {"lr": stepper.optimizer.param_groups[0]["lr"], "train_loss": float(columns["objective"].mean())}

            progress.state = method.update(progress.state, train, valid, progress.epoch + 1)
            progress.epoch, progress.step, progress.seconds, progress.seen = progress.epoch + 1, 0, 0.0, {}
            progress.history.append({**row, "seconds": round(time.perf_counter() - begin, 3)})
            if recipe.train.stop_drop is not None:
                _check_overfitting(training, phase, progress, recipe.train.stop_drop)
            _save(training, progress, shown, valid)
            watch.epoch(progress, valid)
            if stepper.processes.any(stop.asked, stepper.device):
                raise Interrupted(stop.number)
    return progress


def _epoch(
    training: Training, phase: PhaseData, progress: TrainingState, watch: ProgressDisplay, stop: Asked, begin: float
) -> dict[str, Tensor]:
    """The batches of an epoch from `progress.step` on; returns the columns of its training records."""
    stepper, processes, train = training.stepper, training.stepper.processes, training.stepper.recipe.train
    batches = phase.source.batches(progress.epoch, phase.batch, train.seed, least=2 * processes.world)
    shares = [rows[processes.rank :: processes.world] for rows in batches]
    before = [progress.seen] if progress.seen and processes.first else []
    seen = EpochRecords(before, stepper.recipe.method.reads_probs)
    saved = time.perf_counter()
    watch.begin_epoch(progress.epoch, len(batches), progress.step)
    for examples in phase.source.stream(shares[progress.step :]):
        done, count = progress.step / len(batches), len(batches[progress.step])
        batch, loss = stepper(examples, phase.augment, progress.state, progress.epoch, done, count)
        seen.add(progress.step, torch.from_numpy(examples.index), batch.y, loss)
        progress.step += 1
        if training.averaging is not None:
            t = progress.epoch + progress.step / len(batches)
            progress.average = training.averaging.after_step(progress.average, stepper.model, t)
        watch.step(float(loss.value.detach().mean()))
        late = processes.first and time.perf_counter() - saved > 60 * train.save_minutes
        if processes.any(stop.asked or late, stepper.device):
            progress.seen, progress.seconds = seen.columns(processes), time.perf_counter() - begin
            _save_last(training, progress)
            saved = time.perf_counter()
            if processes.any(stop.asked, stepper.device):
                raise Interrupted(stop.number)
    return seen.columns(processes)


def _validate(training: Training, model: nn.Module, watch: ProgressDisplay) -> Records | None:
    """The validation records of the model, or of its average; None where nothing is held out."""
    stepper, validation = training.stepper, training.validation
    if validation is None:
        return None
    with evaluating(model), watch.validating(len(validation.images)) as report:
        synced_copy = stepper.synced_copy
        if model is not stepper.model:
            example = validation.images.batch(np.arange(min(8, len(validation.images))))[0]
            synced_copy = follow(model, example.to(stepper.device), fold=stepper.recipe.train.fold != "no")
        synced_copy.refresh()
        return validation(model, synced_copy, report)


def _averaged(training: Training, phase: PhaseData, progress: TrainingState, watch: ProgressDisplay) -> nn.Module:
    """The model to show for this epoch: the average of its weights where there is one, else itself."""
    averaging, model = training.averaging, training.stepper.model
    if averaging is None:
        return model
    worst = None
    if averaging.validates and (valid := _validate(training, model, watch)) is not None:
        worst = float(np.nanmin(accuracy.compute(history.robust_rows(valid, training.attacks)).values))
    progress.average = averaging.after_epoch(progress.average, model, progress.epoch + 1, worst)
    if not progress.average:
        return model
    shown = averaged(model, progress.average)
    if averaging.estimate:
        train = training.stepper.recipe.train
        batches = phase.source.batches(progress.epoch, phase.batch, train.seed)
        device = training.stepper.device
        with training.stepper.randomness(progress.epoch, 1.0):
            estimate_batch_norm(shown, (examples.x.to(device) for examples in phase.source.stream(batches)))
        progress.average |= {name: value.detach().clone() for name, value in shown.state_dict().items()}
    return shown


def _check_overfitting(training: Training, phase: PhaseData, progress: TrainingState, drop: float) -> None:
    """Stop, with the weights of an epoch ago, where PGD accuracy on the epoch's first batch has fallen by `drop`."""
    stepper, recipe = training.stepper, training.stepper.recipe
    rows = phase.source.batches(progress.epoch - 1, phase.batch, recipe.train.seed)[0]
    batch = stepper.prepare(phase.source.read(rows), phase.augment, progress.epoch - 1, 0.0)
    x_adv = craft(_CHECK, batch.fast, batch.x, batch.y, batch.eps, batch.norm, key=batch.key)
    with torch.no_grad():
        now = float((batch.fast(x_adv).argmax(1) == batch.y).float().mean())
    if progress.pgd is not None and now < progress.pgd - drop:
        stepper.model.load_state_dict(progress.before)
        progress.stopped = (
            "catastrophic overfitting: PGD-5 accuracy on a training batch fell from "
            f"{percent(progress.pgd)} to {percent(now)} in epoch {progress.epoch}; the "
            "weights are those of the epoch before"
        )
        return
    progress.pgd = now
    progress.before = {name: value.detach().clone() for name, value in stepper.model.state_dict().items()}


def _save(training: Training, progress: TrainingState, shown: nn.Module, valid: Records | None) -> None:
    """best.pt where this epoch is the best so far by the recipe's rule, the epoch's own checkpoint where it is kept,
    then last.pt and history.csv: what a kill leaves out is written again when the training resumes."""
    recipe = training.stepper.recipe
    if progress.stopped is None and (valid is not None or recipe.validate.select == "last"):
        losses = progress.state.get("loss")
        score = history.score(recipe.validate.select, progress.epoch, valid, training.attacks, losses)
        if progress.best is None or score > progress.best:
            progress.best, progress.best_epoch = score, progress.epoch
            _save_as(BEST, training, progress, shown)
    elif progress.stopped is not None and progress.best is None:  # stopped before the first validation
        _save_as(BEST, training, progress, shown)
    if progress.stopped is None and recipe.train.keeps(progress.epoch):
        _save_as(of_epoch(progress.epoch), training, progress, shown)
    _save_last(training, progress)


def _save_as(name: str, training: Training, progress: TrainingState, shown: nn.Module) -> None:
    if training.stepper.processes.first:
        training.checkpoints.save(name, shown, progress)


def _save_last(training: Training, progress: TrainingState) -> None:
    stepper = training.stepper
    if stepper.processes.first:
        training.checkpoints.save_last(stepper.model, stepper.optimizer, stepper.scaler.state_dict(), progress)
