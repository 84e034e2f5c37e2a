"""The training loop: for every epoch, batches through the method's attack and loss, a validation, an update of the
class-wise state, a row of history, a checkpoint.

`fit` has no way to see test data. Random numbers belong to examples and steps (classwise.core.rng), never to a process
or to the global generators, so a run that is killed and resumed, or divided among processes, computes the same.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from classwise.attacks.attack import craft
from classwise.attacks.pgd import Pgd
from classwise.auditing.prepare import evaluating
from classwise.core.format import percent
from classwise.core.records import Records
from classwise.core.stopping import Interrupted
from classwise.data.images import IntArray
from classwise.engine.attack_copy import follow
from classwise.metrics import accuracy
from classwise.training import history
from classwise.training.augment import Augment
from classwise.training.averaging import Averaging, averaged, estimate_batch_norm
from classwise.training.batches import Examples, Source
from classwise.training.checkpoint import Checkpoints
from classwise.training.epoch_records import EpochRecords, meta_of, to_records
from classwise.training.interrupt import StopRequest, interruptible
from classwise.training.progress_display import ProgressDisplay
from classwise.training.state import TrainingState
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


@dataclass(frozen=True, kw_only=True)
class Training:
    """All that a training needs besides its `TrainingState`."""

    train_step: TrainStep
    phases: Sequence[PhaseData]
    validation: Validation | None
    averaging: Averaging | None
    checkpoints: Checkpoints

    @property
    def seed(self) -> int:
        return self.train_step.recipe.train.seed

    @property
    def attacks(self) -> tuple[str, ...]:
        """The recipe's validation attacks, by name; none where nothing is held out."""
        return () if self.validation is None else tuple(self.validation.attacks)


def fit(training: Training, state: TrainingState, display: ProgressDisplay) -> TrainingState:
    """Train the model in place, from `state` to the last epoch of the recipe."""
    train_step, recipe = training.train_step, training.train_step.recipe
    method, epochs, profile = recipe.method, recipe.train.epochs, train_step.profile
    with interruptible() as stop:
        if recipe.validates_first and state.epoch == state.step == 0:
            state.method_state = method.update(
                state.method_state, None, _validate(training, train_step.model, display), 0
            )
        while state.epoch < epochs and state.stopped is None:
            begin = time.perf_counter() - state.seconds
            phase = next(phase for phase in training.phases if state.epoch < phase.until)
            if method.surveys and state.step == 0:
                with profile.part("survey"):
                    surveyed = _survey(training, phase, state, display)
                state.method_state = method.before_epoch(state.method_state, surveyed, state.epoch)
                _align(training, state)
            columns = _epoch(training, phase, state, display, stop, begin)

            train = _records(training, phase, columns)
            with profile.part("validation"):
                shown = _averaged(training, phase, state, display)
                due = (state.epoch + 1) % recipe.validate.every == 0 or state.epoch + 1 == epochs
                valid = _validate(training, shown, display) if due else None
            row = history.row(state.epoch + 1, train, valid, training.attacks, state.method_state)
            row |= {"lr": train_step.optimizer.param_groups[0]["lr"], "train_loss": float(columns["objective"].mean())}

            with profile.part("state"):
                state.method_state = method.update(state.method_state, train, valid, state.epoch + 1)
                _align(training, state)
            state.epoch, state.step, state.seconds, state.columns = state.epoch + 1, 0, 0.0, {}
            if recipe.train.stop_drop is not None:
                with profile.part("validation"):
                    _check_overfitting(training, phase, state, recipe.train.stop_drop)
            state.history.append({**row, "seconds": round(time.perf_counter() - begin, 3), **profile.take()})
            _save(training, state, shown, valid)
            display.epoch(state, valid)
            if train_step.processes.any(stop.asked, train_step.device):
                raise Interrupted(stop.number)
    return state


def _align(training: Training, state: TrainingState) -> None:
    """The first process's weights and class-wise state everywhere: they are equal already where all processes compute
    alike, and different machines may round differently."""
    processes = training.train_step.processes
    processes.same_model(training.train_step.model)
    state.method_state = processes.same_state(state.method_state)
    processes.same(state.average.values())


def _epoch(
    training: Training,
    phase: PhaseData,
    state: TrainingState,
    display: ProgressDisplay,
    stop: StopRequest,
    begin: float,
) -> dict[str, Tensor]:
    """The batches of an epoch from `state.step` on; returns the columns of its training records."""
    train_step, processes, train = training.train_step, training.train_step.processes, training.train_step.recipe.train
    batches = train_step.batches(phase.source, state.epoch, phase.batch)
    before = [state.columns] if state.columns and processes.first else []
    records = EpochRecords(before, train_step.recipe.method.reads_probs)
    saved = time.perf_counter()

    def wishes() -> tuple[bool, bool]:
        return stop.asked, processes.first and time.perf_counter() - saved > 60 * train.save_minutes

    display.begin_epoch(state.epoch, len(batches), state.step)
    for examples in train_step.profile.each("data", _examples(training, phase, state, batches)):
        done, count = state.step / len(batches), len(batches[state.step])
        batch, loss, state.method_state, (stopping, late) = train_step(
            examples, phase.augment, state.method_state, state.epoch, done, count, wishes
        )
        stopping |= stop.asked and processes.world == 1  # since then; several processes hear of it at the next step
        records.add(state.step, torch.from_numpy(examples.index), batch.y, loss, batch.columns)
        state.step += 1
        if training.averaging is not None:
            t = state.epoch + state.step / len(batches)
            state.average = training.averaging.after_step(state.average, train_step.model, t)
        display.step(loss.value)
        if stopping or late:
            state.columns, state.seconds = records.columns(processes), time.perf_counter() - begin
            _save_last(training, state)
            saved = time.perf_counter()
            if stopping:
                raise Interrupted(stop.number)
    return records.columns(processes)


def _examples(
    training: Training, phase: PhaseData, state: TrainingState, batches: list[IntArray]
) -> Iterator[Examples]:
    """This process's share of each batch from `state.step` on. Where the method samples classes, the batch of a step
    has the size it would have otherwise, and is drawn when the step begins, by the state of then."""
    method, processes, seed = training.train_step.recipe.method, training.train_step.processes, training.seed
    share = processes.share
    if method.sampling(state.method_state) is None:
        yield from phase.source.stream([rows[share] for rows in batches[state.step :]])
        return
    while state.step < len(batches):
        if (wanted := method.sampling(state.method_state)) is None:
            raise TypeError(f"{type(method).__name__}.sampling gave probabilities before and gives none now.")
        count = len(batches[state.step])
        rows = phase.source.draw(wanted.cpu().double().numpy(), count, seed, state.epoch, state.step)
        draws = state.step * phase.batch + np.arange(count)
        yield dataclasses.replace(phase.source.read(rows[share]), draw=draws[share])


def _survey(training: Training, phase: PhaseData, state: TrainingState, display: ProgressDisplay) -> Records:
    """The method's records of all labelled training images before an epoch."""
    train_step, processes, source = training.train_step, training.train_step.processes, phase.source
    records = EpochRecords(probs=train_step.recipe.method.reads_probs)
    rows = np.arange(processes.rank, len(source.train), processes.world)
    batches = [rows[begin : begin + phase.batch] for begin in range(0, len(rows), phase.batch)]
    with display.validating(len(rows), "survey of the") as report:
        for number, examples in enumerate(source.stream(batches)):
            batch, loss = train_step.survey(examples, phase.augment, state.method_state, state.epoch)
            records.add(number, torch.from_numpy(examples.index), batch.y, loss)
            report("training images", len(batch.y))
    return _records(training, phase, records.columns(processes))


def _records(training: Training, phase: PhaseData, columns: dict[str, Tensor]) -> Records:
    """The columns of training images as records."""
    threat, names = training.train_step.recipe.threat, phase.source.train.class_names
    return to_records(columns, meta_of(names, threat, training.seed))


def _validate(training: Training, model: nn.Module, display: ProgressDisplay) -> Records | None:
    """The validation records of the model, or of its average; None where nothing is held out."""
    train_step, validation = training.train_step, training.validation
    if validation is None:
        return None
    with evaluating(model), display.validating(len(validation.images)) as report:
        synced_copy = train_step.synced_copy
        if model is not train_step.model:
            example = validation.images.first()
            synced_copy = follow(model, example.to(train_step.device), fold=train_step.recipe.train.fold != "no")
        synced_copy.refresh()
        return validation(model, synced_copy, report)


def _averaged(training: Training, phase: PhaseData, state: TrainingState, display: ProgressDisplay) -> nn.Module:
    """The model to validate and save for this epoch: with averaged weights where there is an average."""
    averaging, model = training.averaging, training.train_step.model
    if averaging is None:
        return model
    worst = None
    if averaging.validates and (valid := _validate(training, model, display)) is not None:
        worst = float(np.nanmin(accuracy.compute(history.robust_rows(valid, training.attacks)).values))
    state.average = averaging.after_epoch(state.average, model, state.epoch + 1, worst)
    if not state.average:
        return model
    shown = averaged(model, state.average)
    if averaging.estimate:
        train_step, processes = training.train_step, training.train_step.processes
        batches = [rows[processes.share] for rows in train_step.batches(phase.source, state.epoch, phase.batch)]
        images = (examples.x.to(train_step.device) for examples in phase.source.stream(batches))
        with train_step.randomness(state.epoch, 1.0), train_step.synced(shown):
            estimate_batch_norm(shown, images)
        processes.same_buffers(shown, train_step.sync_norm)
        state.average |= {name: value.detach().clone() for name, value in shown.state_dict().items()}
    return shown


def _check_overfitting(training: Training, phase: PhaseData, state: TrainingState, drop: float) -> None:
    """Stop, with the weights of an epoch ago, where PGD accuracy on the epoch's first batch has fallen by `drop`."""
    train_step, processes = training.train_step, training.train_step.processes
    rows = train_step.batches(phase.source, state.epoch - 1, phase.batch)[0]
    batch = train_step.prepare(phase.source.read(rows[processes.share]), phase.augment, state.epoch - 1, 0.0)
    x_adv = craft(_CHECK, batch.fast, batch.x, batch.y, batch.threat, eps=batch.eps, key=batch.key)
    with torch.no_grad():
        correct = (batch.fast(x_adv).argmax(1) == batch.y).sum()
    now = float(processes.total(correct)) / len(rows)  # the same number, so the same verdict, in every process
    if state.pgd_accuracy is not None and now < state.pgd_accuracy - drop:
        train_step.model.load_state_dict(state.previous_weights)
        state.stopped = (
            "catastrophic overfitting: PGD-5 accuracy on a training batch fell from "
            f"{percent(state.pgd_accuracy)} to {percent(now)} in epoch {state.epoch}; the "
            "weights are those of the epoch before"
        )
        return
    state.pgd_accuracy = now
    state.previous_weights = {name: value.detach().clone() for name, value in train_step.model.state_dict().items()}


def _save(training: Training, state: TrainingState, shown: nn.Module, valid: Records | None) -> None:
    """best.pt where this epoch is the best so far by the recipe's rule, the epoch's own checkpoint where it is kept,
    then last.pt and history.csv: what a kill prevents is written when the training resumes."""
    recipe, folder = training.train_step.recipe, training.checkpoints.folder
    if state.stopped is None and (valid is not None or recipe.validate.select == "last"):
        losses = state.method_state.get("loss")
        score = history.score(recipe.validate.select, state.epoch, valid, training.attacks, losses)
        if state.best is None or score > state.best:
            state.best, state.best_epoch = score, state.epoch
            _save_as(folder.best, training, state, shown)
    elif state.stopped is not None and state.best is None:  # stopped before the first validation
        _save_as(folder.best, training, state, shown)
    if state.best_epoch:
        state.history[-1]["best_epoch"] = state.best_epoch
    if state.stopped is None and recipe.train.keeps(state.epoch):
        _save_as(folder.epoch(state.epoch), training, state, shown)
    _save_last(training, state)


def _save_as(path: Path, training: Training, state: TrainingState, shown: nn.Module) -> None:
    processes = training.train_step.processes
    with processes.failing_together():
        if processes.first:
            training.checkpoints.save(path, shown, state)


def _save_last(training: Training, state: TrainingState) -> None:
    train_step = training.train_step
    with train_step.processes.failing_together():
        if train_step.processes.first:
            training.checkpoints.save_last(train_step.model, state, train_step.state_dict())
