"""From what was asked to what is done: the model loaded and checked, the examples drawn, the run folder opened."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from torch import nn

from classwise import attacks as attack_files
from classwise.attacks.attack import Attack
from classwise.auditing import inputs, normalization, sanity
from classwise.auditing.config import AuditConfig
from classwise.auditing.recorded import in_folder
from classwise.core.errors import UserError
from classwise.core.meta import Coverage, Meta
from classwise.core.records import CLEAN, MOST_PROBS
from classwise.core.run_lock import sharing, writing
from classwise.core.trust import trusting
from classwise.core.version import __version__
from classwise.data import load as load_data
from classwise.data.images import Images
from classwise.data.tensors import from_user
from classwise.engine import evaluation
from classwise.engine.attack_copy import AttackCopy, accelerate, compiled
from classwise.engine.batch_size import at_most, choose_batch, choose_workers
from classwise.models import check_model
from classwise.results.finding import Finding


@contextmanager
def prepared(
    config: AuditConfig, loaded: nn.Module | None = None, shares: int = 1, lock: bool = True
) -> Iterator[tuple[evaluation.Evaluation, list[Finding]]]:
    """The evaluation that a config asks for, and what was found on the way. Meanwhile its model is in eval mode, and no
    other process writes into its run folder.

    loaded: the model of the config, where it is loaded already. shares: into how many shares its parts can be divided.
    lock: False in a process that works for another one, which holds the lock.
    """
    wanted = config.attacks
    config = dataclasses.replace(config, attacks=dataclasses.replace(wanted, attacks=inputs.expanded(wanted.attacks)))
    eot = wanted.eot if wanted.eot > 1 else None
    attacks = inputs.attacks_of(config.attacks.attacks, eot=eot, minimal=wanted.distances or None)
    if config.statistics.find_worst and not attacks:
        raise UserError("the clean images need no search: audit with --attack clean shows the worst class at once.")
    curve = inputs.grid(config.threat.eps, config.threat.eps_grid, config.threat.norm)
    with _opened(config) if lock else nullcontext():
        images = examples(config)
        with trusting(config.model.trust):
            module = module_by(config, images) if loaded is None else loaded
            with evaluating(module) as was_training:
                job, findings = _prepare(config, module, images, attacks, curve, was_training)
                yield job if config.folder is None else in_folder(job, config, coverage_of(config), shares), findings


def _opened(config: AuditConfig) -> AbstractContextManager[None]:
    """The lock of the run folder, or of a share of it."""
    shard, folder = config.shard, config.folder
    if shard is None:
        return writing(config.output.out)
    if folder is None:
        raise UserError(
            f"shard {shard} needs a run folder that all shards share: give out=… (--out), or --shard 1/1 for all."
        )
    if config.output.overwrite:
        raise UserError(f"--overwrite would delete what other shards have written; delete {folder} beforehand instead.")
    return sharing(folder, shard)


def examples(config: AuditConfig) -> Images:
    """The examples that a config asks for."""
    part, names = config.data, config.data.class_names
    if isinstance(part.name, str):
        images = load_data(part.name, part.root, part.split, part.download)
        images = images if names is None else dataclasses.replace(images, class_names=tuple(names))
    else:
        images = from_user(part.name, config.model.num_classes, names)
    return images.subset(part.limit, part.per_class, part.classes, config.attacks.seed)


def module_by(config: AuditConfig, images: Images) -> nn.Module:
    """The model that a config asks for, on its device."""
    part = config.model
    return inputs.module_of(
        part.spec,
        images,
        weights=part.weights,
        normalize=part.normalize,
        num_classes=part.num_classes,
        device=config.resources.device,
    )


def coverage_of(config: AuditConfig) -> Coverage:
    """Suites are meant for what no earlier attack has broken."""
    return config.attacks.coverage or ("survivors" if attack_files.has_suite(config.attacks.attacks) else "all")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[bool]:
    """The model in eval mode; yields whether a part whose mode counts was in train mode, and puts every part back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield any(training and sanity.mode_counts(module) for module, training in modes)
    finally:
        for module, training in modes:
            module.training = training


def _prepare(
    config: AuditConfig,
    model: nn.Module,
    images: Images,
    attacks: Mapping[str, Attack],
    curve: Mapping[str, float],
    was_training: bool,
) -> tuple[evaluation.Evaluation, list[Finding]]:
    """Check model and data against each other, look for findings, and decide how the work is done."""
    resources, seed, eot, norm = config.resources, config.attacks.seed, config.attacks.eot, config.threat.norm
    device = inputs.device_of(model)
    if resources.amp and device.type == "cpu":
        raise UserError(
            f"amp={resources.amp} is for GPUs: reduced precision on a CPU is slow and on some CPUs unsupported."
        )
    example = images.first().to(device)
    images = inputs.with_names(images, check_model(model, example))
    attacks = inputs.with_surrogates(attacks, images, device)
    attacks = {name: attack.for_classes(images.num_classes) for name, attack in attacks.items()}
    black_box = getattr(model, "black_box", False)
    if black_box:
        _require_gradient_free(attacks)
    threat, base = inputs.radii(max(curve.values()) if curve else config.threat.eps, images, norm)
    sample = sanity.draw_sample(model, images, device, seed)
    findings = sanity.inspect(model, sample, attacks, threat, was_training, eot)
    for finding in findings:
        if finding.code == "input_range" and not config.model.force:
            raise UserError(f"{finding.what} {finding.remedy} (force=True or --force audits it all the same.)")
    randomised = any(finding.code == "randomised" for finding in findings)
    if not (black_box or randomised):
        findings += normalization.check(model, images, device, seed)
    attack_copy = (
        AttackCopy(model=model) if black_box else accelerate(model, example, fold=resources.fold and not randomised)
    )
    # A model that cannot be copied cannot serve several threads, and one that is compiled uses them all.
    alone = randomised or attack_copy.model is model or resources.compile
    workers = 1 if alone else resources.workers or choose_workers(device)
    room = resources.batch_size or choose_batch(model, example, workers)
    batch = resources.batch_size or at_most(room, len(images))
    if not black_box:  # those have a batch size of their own
        attack_copy = dataclasses.replace(attack_copy, most=room, amp=resources.amp)
    if resources.compile:
        attack_copy = compiled(attack_copy, device)
    infos = evaluation.attack_infos(attacks, config.attacks.protocol, coverage_of(config))
    if config.statistics.find_worst:  # only some examples are attacked: no audit may resume in the search's run folder
        marked = {name: {**info.settings, "find_worst": True} for name, info in infos.items() if name != CLEAN}
        infos |= {name: dataclasses.replace(infos[name], settings=own) for name, own in marked.items()}
    versions = {"classwise": __version__, "torch": torch.__version__, "numpy": np.__version__}
    versions["python"] = platform.python_version()
    probs = config.output.probs
    job = evaluation.Evaluation(
        model=model,
        attack_copy=attack_copy,
        images=images,
        attacks=attacks,
        threat=threat,
        eps=base,
        meta=Meta(
            class_names=images.class_names,
            superclasses=images.superclasses,
            norm=norm,
            eps=threat.eps,
            seed=seed,
            attacks=infos,
            versions=versions,
        ),
        plan=evaluation.BatchPlan(batch, len(images), workers),
        device=device,
        protocol=config.attacks.protocol,
        eot=eot,
        probs=probs if probs is not None else images.num_classes <= MOST_PROBS,
        save_adversarial=config.output.save_adversarial,
    )
    return evaluation.along(job, curve) if curve else job, findings


def _require_gradient_free(attacks: Mapping[str, Attack]) -> None:
    for name, attack in attacks.items():
        if attack.needs_gradient:
            able = [known for known in attack_files.names() if not attack_files.attack_class(known)().needs_gradient]
            raise UserError(
                f"{name} needs the gradient of the model, and a black box has none. Attacks that need only its "
                f"answers: {', '.join(able)}."
            )
