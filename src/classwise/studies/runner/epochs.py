"""The model of a given epoch instead of the best one, and of every epoch that a training keeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from classwise.core.errors import UserError, unknown
from classwise.models.zoo import run_of
from classwise.studies.runner.models_under_study import ModelUnderStudy
from classwise.training.recipe import load


def at_epoch(model: ModelUnderStudy, epoch: int | None) -> ModelUnderStudy:
    """The model after an epoch, counted from 1; a training that would not keep it is changed to. None: as it is."""
    if epoch is None:
        return model
    if model.training is None:
        path = run_of(model.checkpoint).checkpoint(epoch)
        return dataclasses.replace(model, checkpoint=str(path))
    training = model.training
    train = load(training.recipe, training.changes).train
    if not 1 <= epoch <= train.epochs:
        raise UserError(f"epoch {epoch} of {model.name}: its recipe trains epochs 1 to {train.epochs}.")
    if not train.keeps(epoch):
        keep = epoch if train.keep == "best" else "all"  # what the recipe keeps must stay
        training = dataclasses.replace(training, changes=(*training.changes, f"train.keep={keep}"))
    return dataclasses.replace(model, checkpoint=training.folder.epoch(epoch).as_posix(), training=training)


def chosen_epochs(models: Sequence[ModelUnderStudy], wanted: Sequence[str]) -> list[ModelUnderStudy]:
    """Each model after the epoch wanted of it: ``75`` of all, ``imagenet-fast=14`` of the one of that name."""
    pairs = [text.rpartition("=")[::2] for text in wanted]
    for name, number in pairs:
        if not number.isdecimal():
            raise UserError(f"--epoch {number!r} is no number of an epoch; give 75, or NAME=75 for one of the models.")
        if name and name not in [model.name for model in models]:
            raise unknown("model of --epoch", name, [model.name for model in models])
    epochs = {name: int(number) for name, number in pairs}
    return [at_epoch(model, epochs.get(model.name, epochs.get(""))) for model in models]


def kept(model: ModelUnderStudy) -> Iterator[tuple[int, ModelUnderStudy]]:
    """Each kept epoch of a model's training with the model after it; nothing where no epoch is kept."""
    if model.training is None:
        numbers = run_of(model.checkpoint).kept_epochs()
    else:
        train = load(model.training.recipe, model.training.changes).train
        numbers = [epoch for epoch in range(1, train.epochs + 1) if train.keeps(epoch)]
    yield from ((epoch, at_epoch(model, epoch)) for epoch in numbers)
