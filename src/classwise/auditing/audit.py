"""`audit`: the front door. Model, data and attacks in; an `Audit` out."""

from __future__ import annotations

import dataclasses
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from classwise import attacks as attack_files
from classwise.attacks.attack import Attack
from classwise.auditing import sanity
from classwise.auditing.asked import Asked, in_folder
from classwise.auditing.inputs import (
    Eps,
    attacks_of,
    device_of,
    grid,
    images_of,
    module_of,
    radii,
    with_names,
    with_surrogates,
)
from classwise.auditing.landscape import landscape as loss_slices
from classwise.core.arguments import checked
from classwise.core.errors import UserError, unknown
from classwise.core.meta import Coverage, Meta, Protocol
from classwise.core.records import CLEAN, MOST_PROBS
from classwise.core.run_folder import AuditFolder
from classwise.core.run_lock import one_writer
from classwise.core.spec import Count, OpenShare, Seed, validate_fields
from classwise.core.threat import Norm
from classwise.core.trust import trusting
from classwise.core.version import __version__
from classwise.data.images import Images
from classwise.engine import evaluation, run
from classwise.engine.attack_copy import AMP, AttackCopy, accelerate
from classwise.engine.batch_size import at_most, choose_batch, choose_workers
from classwise.models import check_model
from classwise.results import findings as rules
from classwise.results.audit_result import Audit
from classwise.results.finding import Finding
from classwise.show.terminal import progress_bar


@checked
@one_writer
def audit(
    model: nn.Module | str | Path | Any,
    data: Any,
    attacks: str | Attack | Sequence[str | Attack] = "pgd-20",
    eps: Eps = "8/255",
    *,
    norm: Norm = "linf",
    protocol: Protocol = "any",
    coverage: Coverage | None = None,
    eps_grid: int | None = None,
    distances: bool = False,
    save_adversarial: bool = False,
    landscape: int | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    seed: int = 0,
    confidence: float = 0.95,
    weights: str | Path | None = None,
    normalize: Any = None,
    root: str | Path | None = None,
    split: str = "test",
    download: bool = False,
    limit: int | None = None,
    per_class: int | None = None,
    classes: Sequence[str | int] | None = None,
    num_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    device: str | torch.device | None = None,
    amp: str | None = None,
    eot: int = 1,
    probs: bool | None = None,
    fold: bool = True,
    force: bool = False,
    trust: bool = False,
    progress: bool | None = None,
) -> Audit:
    """Attack every example and report robustness class by class.

    model: an `nn.Module` that takes images in [0,1] and returns logits, or a spec (see `load_model`); or a black box: a
        function of numpy images, a scikit-learn estimator, `BlackBox`.
    data: tensors (x, y), a Dataset, a DataLoader, `Images`, or the name of a data set (then `root`, `split`).
    attacks: specs such as "pgd-20" or "pgd:steps=20,step=2/255,restarts=5", or attack objects.
    eps: the radius ("8/255"), one per class ({"cat": "4/255", "*": "8/255"}, "*" being all others), or one per example.
        Several, "2/255,4/255,8/255", give a curve: every attack at each, from the smallest on; so does `eps_grid`,
        which divides one radius into that many steps. What a smaller radius breaks is broken at every larger one.
    protocol: "any" (an example is robust if no point tried breaks it; what is broken leaves at once) or "final"
        (all steps on all examples, the last iterate is judged, as the papers' tables do).
    coverage: "all" runs every attack on every example; "standing" only on those that no earlier attack broke. The
        default is "all", except for a suite such as AutoAttack, which is meant as the other.
    distances: attacks that look for the nearest adversarial point go on after they have found one in the ball, and
        record its distance: robustness at any radius from one run.
    save_adversarial: keep the points found, exact and rounded to 8 bits, in the run folder.
    landscape: write a slice of the loss around this many images into the run folder.
    out: a run folder. Killed and started again with the same call, the audit resumes.
    amp: "float16" or "bfloat16" for the gradient passes, never on a CPU. The judging model is always float32.
    force: go on although the model's inputs are out of range.
    trust: load files that run code: programs, and checkpoints whose model a Python file makes (see `load_model`).
    """
    given = dict(locals())
    begin = time.perf_counter()
    coverage = coverage or ("standing" if attack_files.has_suite(attacks) else "all")
    settings = Settings(
        norm, protocol, coverage, seed, confidence, batch_size, workers, amp, eot, probs, fold, force, save_adversarial
    )
    for name, wanted in (("save_adversarial", save_adversarial), ("landscape", landscape)):
        if wanted and out is None:
            raise UserError(f"{name} writes into the run folder: give out=… (--out).")
    named = attacks_of(attacks, eot=eot if eot > 1 else None, minimal=distances or None)
    curve = grid(eps, eps_grid, norm)
    images = images_of(data, root, split, download, num_classes, class_names).subset(limit, per_class, classes, seed)
    with trusting(trust):
        module = module_of(model, weights, normalize, images, num_classes, device)
    folder = None if out is None else Path(out)
    with trusting(trust), evaluating(module) as was_training:
        job, findings = prepare(module, images, named, eps, curve, settings, was_training)
        if folder is not None:
            asked = Asked.of(audit, given, images, module)
            job = in_folder(job, folder, asked, coverage, amp, confidence, overwrite)
        with progress_bar(len(images), [CLEAN, *job.attacks], progress) as report:
            records = run.evaluate(dataclasses.replace(job, report=report))
        if landscape and folder is not None:
            exact = dataclasses.replace(job.fast, amp=None)
            slices = loss_slices(exact, job.images, landscape, job.threat, seed=seed, device=job.device)
            AuditFolder(folder).write_table("landscape", slices)
    findings += [_acceleration(note) for note in job.fast.notes]
    timing = _timing(records.meta.stats, time.perf_counter() - begin, job)
    result = Audit(
        records,
        findings=tuple(findings),
        timing=timing,
        config={} if folder is None else AuditFolder(folder).config(),
        folder=folder,
        confidence=confidence,
        adversarially_trained=getattr(module, "adversarially_trained", None),
    )
    result = dataclasses.replace(result, findings=tuple(rules.of_audit(result)))
    if folder is not None:
        result.save(folder)
    return result


@dataclass(frozen=True)
class Settings:
    """How an audit is run, apart from model, data and attacks; see `audit` for what each means."""

    norm: Norm
    protocol: Protocol
    coverage: Coverage
    seed: Seed
    confidence: OpenShare
    batch_size: Count | None
    workers: Count | None
    amp: str | None
    eot: Count
    probs: bool | None
    fold: bool
    force: bool
    save_adversarial: bool

    def __post_init__(self) -> None:
        if self.amp is not None and self.amp not in AMP:
            raise unknown("amp", self.amp, AMP)
        validate_fields(self)


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


def prepare(
    model: nn.Module,
    images: Images,
    attacks: Mapping[str, Attack],
    eps: Eps,
    curve: Mapping[str, float],
    settings: Settings,
    was_training: bool,
) -> tuple[evaluation.Evaluation, list[Finding]]:
    """Check model and data against each other, look for findings, and decide how the work is done."""
    device = device_of(model)
    if settings.amp and device.type == "cpu":
        raise UserError(
            f"amp={settings.amp} is for GPUs: reduced precision on a CPU is slow and on some CPUs unsupported."
        )
    example = images.batch(np.arange(min(8, len(images))))[0].to(device)
    images = with_names(images, check_model(model, example))
    attacks = with_surrogates(attacks, images, device)
    attacks = {name: attack.for_classes(images.num_classes) for name, attack in attacks.items()}
    black_box = getattr(model, "black_box", False)
    if black_box:
        _require_gradient_free(attacks)
    threat, base = radii(max(curve.values()) if curve else eps, images, settings.norm)
    sample = sanity.draw_sample(model, images, device, settings.seed)
    findings = sanity.inspect(model, sample, attacks, threat, was_training, settings.eot)
    _stop_if_hopeless(findings, settings.force)
    randomised = any(finding.code == "randomised" for finding in findings)
    fast = AttackCopy(model, 0, ()) if black_box else accelerate(model, example, fold=settings.fold and not randomised)
    alone = randomised or fast.model is model  # a model that cannot be copied cannot serve several threads
    workers = 1 if alone else settings.workers or choose_workers(device)
    room = settings.batch_size or choose_batch(model, example, workers)
    batch = settings.batch_size or at_most(room, len(images))
    if not black_box:  # those have a batch size of their own
        fast = dataclasses.replace(fast, most=room, amp=settings.amp)
    infos = evaluation.attack_infos(attacks, settings.protocol, settings.coverage)
    job = evaluation.Evaluation(
        model,
        fast,
        images,
        attacks,
        threat,
        base,
        Meta(
            class_names=images.class_names,
            superclasses=images.superclasses,
            norm=settings.norm,
            eps=threat.eps,
            seed=settings.seed,
            attacks=infos,
            versions=_versions(),
        ),
        evaluation.BatchPlan(batch, len(images), workers),
        device,
        settings.protocol,
        settings.eot,
        settings.probs if settings.probs is not None else images.num_classes <= MOST_PROBS,
        save_adversarial=settings.save_adversarial,
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


def _stop_if_hopeless(findings: Sequence[Finding], force: bool) -> None:
    for finding in findings:
        if finding.code == "input_range" and not force:
            raise UserError(f"{finding.what} {finding.remedy} (force=True or --force audits it all the same.)")


def _versions() -> dict[str, str]:
    return {
        "classwise": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _acceleration(note: str) -> Finding:
    remedy = "Results are unaffected; the audit is only slower."
    return Finding("not_folded", "info", f"Acceleration: {note}.", remedy)


def _timing(stats: Mapping[str, Mapping[str, float]], wall: float, job: evaluation.Evaluation) -> dict[str, Any]:
    """Seconds, passes and counts per attack over the whole run, and the wall time of this call."""
    return {
        "wall_seconds": round(wall, 3),
        "attacks": {name: {key: round(value, 3) for key, value in cost.items()} for name, cost in stats.items()},
        **dataclasses.asdict(job.plan),
        "threads": torch.get_num_threads(),
        "device": str(job.device),
        "folded_batch_norms": job.fast.folded,
    }
