"""`audit`: the front door. Model, data and attacks in; an `Audit` out."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from classwise.attacks.attack import Attack
from classwise.auditing import examples, several
from classwise.auditing.config import AuditConfig, AuditSettings
from classwise.auditing.inputs import Eps, attacks_of, expanded
from classwise.auditing.landscape import landscape
from classwise.auditing.prepare import prepared
from classwise.core.arguments import checked
from classwise.core.errors import UserError
from classwise.core.mirror import mirrored, url_of
from classwise.core.run_folder import AuditFolder
from classwise.core.run_lock import writing
from classwise.core.settings import with_settings
from classwise.core.shard import Shard
from classwise.engine import evaluation, run
from classwise.results.audit_result import Audit
from classwise.results.finding import Finding
from classwise.results.merging import Checks, assemble, finish
from classwise.show.progress import progress_bar
from classwise.show.run_progress import watching

if TYPE_CHECKING:
    from typing_extensions import Unpack


@checked
@with_settings(AuditConfig, AuditSettings)
def audit(
    model: Any,
    data: Any,
    attacks: str | Attack | Sequence[str | Attack] = "pgd-20",
    eps: Eps = "8/255",
    **settings: Unpack[AuditSettings],
) -> Audit:
    """Attack every example and report robustness class by class."""
    return audit_by(AuditConfig.of(model=model, data=data, attacks=attacks, eps=eps, **settings))


def audit_by(config: AuditConfig, loaded: nn.Module | None = None, others: several.Crew | None = None) -> Audit:
    """The audit that a config asks for. loaded: its model, if it is loaded already. others: processes that compute."""
    begin, folder = time.perf_counter(), config.folder
    for name in ("save_adversarial", "landscape"):
        if getattr(config.output, name) and folder is None:
            raise UserError(f"{name} writes into the run folder: give out=… (--out).")
    if url_of(config.output.out) is not None:
        with mirrored(config.output.out) as here:
            return audit_by(config.in_folder(here), loaded)
    if config.resources.several and config.shard is None:
        return _by_several(config)
    with prepared(config, loaded, 1 if others is None else others.parts) as (job, findings):
        checks = _checks(config, job, findings)
        if folder is not None:
            checks.write(AuditFolder(folder))
        if config.shard is not None:
            return _share(config, job, config.shard)
        if others is not None:
            with watching(AuditFolder(folder), job.workload()[1], config.output.progress) if folder else nullcontext():
                others.finish(job)
        with progress_bar(*job.workload(), False if others else config.output.progress) as report:
            records = run.evaluate(dataclasses.replace(job, report=report))
        _write_landscape(config, job)
        return _with_examples(config, job, assemble(records, checks, time.perf_counter() - begin, folder))


def _share(config: AuditConfig, job: evaluation.Evaluation, shard: Shard) -> Audit:
    """Compute the parts of a shard, and write the summary if those of all others are there."""
    assert job.folder is not None
    mine = [number for number in job.parts if shard.has(number)]
    others_show = shard.number > 1 and Shard.of_environment() is not None  # they write on the same terminal
    with watching(job.folder, job.workload()[1], False if others_show else config.output.progress):
        for number in mine:
            run.evaluate_part(job, number)
    if shard.number == 1:
        _write_landscape(config, job)
    return _with_examples(config, job, finish(job.folder, config.statistics.confidence))


def _by_several(config: AuditConfig) -> Audit:
    """The audit whose parts other processes compute: Ray the parts one by one, other engines a shard in each."""
    begin, folder = time.perf_counter(), several.folder_of(config)
    with several.opened(config) as crew:
        if not crew.dynamic:
            several.clear(config)
            with watching(AuditFolder(folder), _costs(config), config.output.progress):
                crew.shards()
            return finish(AuditFolder(folder), config.statistics.confidence)
        with writing(folder), prepared(config, shares=crew.parts) as (job, findings):
            checks = _checks(config, job, findings)
            checks.write(AuditFolder(folder))
            with watching(AuditFolder(folder), job.workload()[1], config.output.progress):
                crew.finish(job)
            records = run.evaluate(job)
            _write_landscape(config, job)
            return _with_examples(config, job, assemble(records, checks, time.perf_counter() - begin, folder))


def _costs(config: AuditConfig) -> dict[str, float]:
    attacks = attacks_of(expanded(config.attacks.attacks))
    return {name: float(max(evaluation.evaluations(attack), 1)) for name, attack in attacks.items()}


def _with_examples(config: AuditConfig, job: evaluation.Evaluation, result: Audit) -> Audit:
    if job.folder is not None and config.output.save_adversarial:
        examples.keep(result, job.images, job.folder.path)
    return result


def _write_landscape(config: AuditConfig, job: evaluation.Evaluation) -> None:
    if config.output.landscape and job.folder is not None:
        exact, seed = dataclasses.replace(job.attack_copy, amp=None), config.attacks.seed
        slices = landscape(exact, job.images, config.output.landscape, job.threat, seed=seed, device=job.device)
        job.folder.write_table("landscape", slices)


def _checks(config: AuditConfig, job: evaluation.Evaluation, findings: Sequence[Finding]) -> Checks:
    slower = "Results are unaffected; the audit is only slower."
    notes = [Finding("not_folded", "info", f"Acceleration: {note}.", slower) for note in job.attack_copy.notes]
    return Checks(
        confidence=config.statistics.confidence,
        findings=(*findings, *notes),
        timing={
            **dataclasses.asdict(job.plan),
            "threads": torch.get_num_threads(),
            "device": str(job.device),
            "folded_batch_norms": job.attack_copy.folded,
        },
        adversarially_trained=getattr(job.model, "adversarially_trained", None),
    )
