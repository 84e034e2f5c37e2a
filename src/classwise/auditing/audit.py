"""`audit`: the front door. Model, data and attacks in; an `Audit` out."""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Mapping, Sequence
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
from classwise.engine import evaluation, run
from classwise.results import findings as rules
from classwise.results.audit_result import Audit
from classwise.results.finding import Finding
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
        with progress_bar(*job.workload(), config.output.progress) as report:
            records = run.evaluate(dataclasses.replace(job, report=report))
        if config.output.landscape and folder is not None:
            exact, seed = dataclasses.replace(job.attack_copy, amp=None), config.attacks.seed
            slices = landscape(exact, job.images, config.output.landscape, job.threat, seed=seed, device=job.device)
            AuditFolder(folder).write_table("landscape", slices)
        slower = "Results are unaffected; the audit is only slower."
        findings += [Finding("not_folded", "info", f"Acceleration: {n}.", slower) for n in job.attack_copy.notes]
        result = Audit(
            records,
            findings=tuple(findings),
            timing=_timing(records.meta.stats, time.perf_counter() - begin, job),
            config={} if folder is None else AuditFolder(folder).config(),
            folder=folder,
            confidence=config.statistics.confidence,
            adversarially_trained=getattr(job.model, "adversarially_trained", None),
        )
        result = dataclasses.replace(result, findings=tuple(rules.of_audit(result)))
        if folder is not None:
            result.save(folder)
            if config.output.save_adversarial:
                examples.keep(result, job.images, folder)
    return result


def _timing(stats: Mapping[str, Mapping[str, float]], wall: float, job: evaluation.Evaluation) -> dict[str, Any]:
    """Seconds, passes and counts per attack over the whole run, and the wall time of this call."""
    return {
        "wall_seconds": round(wall, 3),
        "finished": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "attacks": {name: {key: round(value, 3) for key, value in cost.items()} for name, cost in stats.items()},
        **dataclasses.asdict(job.plan),
        "threads": torch.get_num_threads(),
        "device": str(job.device),
        "folded_batch_norms": job.attack_copy.folded,
    }
