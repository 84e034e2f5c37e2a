"""From a recipe to what the loop needs: training and held-out examples, the network, the step, the checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from classwise import attacks as attack_files
from classwise import methods
from classwise.core.errors import UserError
from classwise.core.run_folder import TrainingFolder
from classwise.core.threat import Threat
from classwise.data import from_user
from classwise.data import load as load_data
from classwise.data.images import Images
from classwise.engine.attack_copy import follow, trains_channels_last
from classwise.methods.method import Method, TeacherName
from classwise.models import check_model, load_model
from classwise.models.check import move_to
from classwise.training import averaging, optimizer, schedule, split
from classwise.training.augment import parse as parse_augment
from classwise.training.awp import parse as parse_awp
from classwise.training.batches import Source
from classwise.training.checkpoint import Checkpoints
from classwise.training.loop import PhaseData, Training
from classwise.training.parts import Phase
from classwise.training.processes import Processes
from classwise.training.profile import Profile
from classwise.training.pseudo import read_pseudo
from classwise.training.recipe import Recipe
from classwise.training.state import TrainingState
from classwise.training.step import TrainStep
from classwise.training.validation import Validation


def examples(chosen: Recipe, root: str | Path | None, download: bool, data: Any) -> Images:
    """All training examples the recipe allows, before any is held out."""
    part = chosen.data
    loaded = load_data(part.name, root, part.split, download) if data is None else from_user(data)
    images = loaded.without(part.exclude)
    if part.limit is None and part.per_class is None:
        return images
    return images.subset(part.limit, part.per_class, None, chosen.train.seed)


def split_off(chosen: Recipe, images: Images) -> tuple[Images, Images | None]:
    """The examples to train on, and those held out for validation."""
    part = chosen.data
    return split.hold_out(images, part.validation, part.held_out, chosen.train.seed)


def network_of(chosen: Recipe, given: nn.Module | None, images: Images, device: torch.device) -> nn.Module:
    """The model to train, on its device, checked against the data."""
    x = images.first(2)
    part = chosen.model
    network = given
    if network is None:
        if chosen.method.fine_tunes and part.weights is None:
            raise UserError(
                f"{methods.name_of(chosen.method)} fine-tunes a robust model: give its checkpoint as model.weights "
                "(--weights runs/trades/best.pt)."
            )
        network = load_model(
            part.spec,
            weights=part.weights,
            num_classes=images.num_classes,
            in_channels=x.shape[1],
            normalize=part.normalize,
            seed=chosen.train.seed,
            class_names=images.class_names,
        )
    network = move_to(network, device)
    if trains_channels_last(network, device):
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    check_model(network.eval(), x.to(device), images.num_classes)
    return network.requires_grad_(True)


def prepare(
    chosen: Recipe,
    network: nn.Module,
    kept: Images,
    held_out: Images | None,
    *,
    teachers: Mapping[TeacherName, nn.Module],
    folder: Path,
    processes: Processes,
    root: str | Path | None,
    download: bool,
    profile: bool = False,
) -> tuple[Training, TrainingState]:
    """All the loop needs, and its first state; raises where the recipe does not fit data or model. Writes nothing."""
    part, method, device = chosen.train, chosen.method, next(network.parameters()).device
    averages = None if part.averaging is None else averaging.parse(part.averaging)
    _check_held_out(chosen, averages, held_out)
    example = kept.first().to(device)
    synced_copy = follow(network, example, fold=part.fold != "no")
    if part.fold == "yes" and not synced_copy.attack_copy.folded:
        raise UserError(
            f"train.fold = yes, but nothing in {chosen.model.spec} can be folded: it has no batch-norm behind a "
            "convolution. Leave fold at auto."
        )
    chosen_optimizer = optimizer.parse(part.optimizer)
    train_step = TrainStep(
        recipe=chosen,
        model=network,
        optimizer=chosen_optimizer.build(network),
        lr=chosen_optimizer.lr,
        schedule=schedule.parse(part.schedule),
        awp=None if part.awp is None else parse_awp(part.awp),
        synced_copy=dataclasses.replace(
            synced_copy, attack_copy=dataclasses.replace(synced_copy.attack_copy, multiple=1)
        ),
        scaler=torch.amp.GradScaler(device.type, enabled=part.amp == "float16"),
        processes=processes,
        profile=Profile(device, profile),
        folder=TrainingFolder(folder),
        teachers=teachers,
    )
    checkpoints = Checkpoints(
        folder=TrainingFolder(folder),
        spec=chosen.model.spec,
        num_classes=kept.num_classes,
        in_channels=example.shape[1],
        method={"name": methods.name_of(method), **methods.settings(method)},
        threat=dataclasses.asdict(chosen.threat) if type(method).attack is not Method.attack else {},
    )
    state = {name: value.to(device) for name, value in method.init(kept.class_names).items()}
    if method.sampling(state) is not None and chosen.data.extra is not None:
        raise UserError(
            f"{methods.name_of(method)} draws its images by class, and images of data.extra = {chosen.data.extra} may "
            "have none: leave data.extra out."
        )
    phases = _phases(chosen, kept, root, download)
    for phase in phases:
        train_step.batches(phase.source, 0, phase.batch)
    training = Training(
        train_step=train_step,
        phases=phases,
        validation=_validation(chosen, held_out, processes),
        averaging=averages,
        checkpoints=checkpoints,
    )
    return training, TrainingState(method_state=state)


def _check_held_out(chosen: Recipe, averages: averaging.Averaging | None, held_out: Images | None) -> None:
    """Raise where the method or the averaging uses validation images and would have none after some epoch."""
    remedy = "set data.validation to a number of images per class, such as 300"
    if chosen.method.needs_validation():
        who = f"{methods.name_of(chosen.method)} uses validation images after every epoch"
        if held_out is None:
            raise UserError(f"{who}, and none are held out: {remedy}.")
        if chosen.validate.every > 1:
            raise UserError(f"{who}, but validate.every = {chosen.validate.every}: set it to 1.")
    if chosen.validate.first and held_out is None:
        raise UserError(f"validate.first is set, and no images are held out: {remedy}.")
    if averages is not None and averages.validates and held_out is None:
        raise UserError(
            f"train.averaging = {chosen.train.averaging} uses validation images, and none are held out: {remedy}."
        )


def _phases(chosen: Recipe, kept: Images, root: str | Path | None, download: bool) -> list[PhaseData]:
    part, data = chosen.train, chosen.data
    extra = None if data.extra is None else read_pseudo(data.extra, kept)
    source = Source(kept, extra, data.extra_fraction if extra else 0.0, data.epoch_size)
    phases = []
    for phase in part.phases or (Phase(),):
        images = kept
        if phase.data is not None:  # the same examples, read at another size
            whole = load_data(phase.data, root, data.split, download)
            images = dataclasses.replace(kept, pixels=whole.pixels)
        augment = parse_augment(list(data.augment if phase.augment is None else phase.augment))
        own = dataclasses.replace(source, train=images)
        phases.append(PhaseData(phase.end(part.epochs), own, phase.batch or part.batch, augment))
    return phases


def _validation(chosen: Recipe, held_out: Images | None, processes: Processes) -> Validation | None:
    if held_out is None:
        return None
    part, threat = chosen.validate, chosen.threat
    named = attack_files.parse(list(part.attack))
    own = {name: attack for name, attack in chosen.method.validation().items() if named.get(name) != attack}
    return Validation(
        images=held_out,
        attacks=named,
        own=own,
        protocol=part.protocol,
        threat=threat if part.eps is None else Threat(threat.norm, part.eps),
        seed=chosen.train.seed,
        processes=processes,
    )
