"""`audit`: the front door. Model, data and attacks in; an `Audit` out."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from classwise.attacks.attack import Attack
from classwise.auditing import examples
from classwise.auditing.config import AuditConfig, AuditSettings
from classwise.auditing.inputs import Eps
from classwise.auditing.landscape import landscape
from classwise.auditing.prepare import prepared
from classwise.core.arguments import checked
from classwise.core.errors import UserError
from classwise.core.run_folder import AuditFolder
from classwise.core.settings import with_settings
from classwise.core.shard import Shard
from classwise.engine import evaluation, run
from classwise.results.audit_result import Audit
from classwise.results.finding import Finding
from classwise.results.merging import Checks, assemble, finish
from classwise.show.progress import progress_bar

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


def audit_by(config: AuditConfig, loaded: nn.Module | None = None) -> Audit:
    """The audit that a config asks for. loaded: its model, where it is loaded already."""
    begin, folder = time.perf_counter(), config.folder
    for name in ("save_adversarial", "landscape"):
        if getattr(config.output, name) and folder is None:
            raise UserError(f"{name} writes into the run folder: give out=… (--out).")
    with prepared(config, loaded) as (job, findings):
        checks = _checks(config, job, findings)
        if folder is not None:
            checks.write(AuditFolder(folder))
        if config.shard is not None:
            return _share(config, job, config.shard)
        with progress_bar(*job.workload(), config.output.progress) as report:
            records = run.evaluate(dataclasses.replace(job, report=report))
        _write_landscape(config, job)
        return _with_examples(config, job, assemble(records, checks, time.perf_counter() - begin, folder))


def _share(config: AuditConfig, job: evaluation.Evaluation, shard: Shard) -> Audit:
    """Compute the parts of a shard, and write the summary if those of all others are there."""
    assert job.folder is not None
    mine = [number for number in job.parts if shard.has(number)]
    share = sum(len(job.plan.rows(number, job.images.labels)) for number in mine)
    totals, costs = job.workload()
    with progress_bar(dict.fromkeys(totals, share), costs, config.output.progress) as report:
        for number in mine:
            run.evaluate_part(dataclasses.replace(job, report=report), number)
    if shard.number == 1:
        _write_landscape(config, job)
    return _with_examples(config, job, finish(job.folder, config.statistics.confidence))


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
