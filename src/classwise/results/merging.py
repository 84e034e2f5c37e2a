"""From the parts of an audit to its result: what its last step needs besides the records, and merging shards.

An audit is finished by whoever finds all its parts: the process that computed them, the last of several shards, or
``classwise merge RUN``, which needs neither the model nor torch.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from classwise.core.errors import Unfinished, UserError
from classwise.core.mirror import mirror_of, mirrored
from classwise.core.record_parts import RecordParts
from classwise.core.records import Records
from classwise.core.run_config import as_table
from classwise.core.run_folder import AuditFolder, write_json
from classwise.core.run_lock import moment, writing
from classwise.results import findings as rules
from classwise.results.audit_result import Audit
from classwise.results.finding import Finding


@dataclass(frozen=True, kw_only=True)
class Checks:
    """What an audit knows besides its records: what the checks of the model found, and on what it ran."""

    confidence: float
    findings: tuple[Finding, ...] = ()
    timing: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    adversarially_trained: bool | None = None

    def write(self, run: AuditFolder) -> None:
        findings = [finding.to_dict() for finding in self.findings]
        write_json(run.checks_file, {**vars(self), "timing": dict(self.timing), "findings": findings})

    @classmethod
    def read(cls, run: AuditFolder) -> Checks:
        try:
            stored = json.loads(run.checks_file.read_text(encoding="utf-8"))
            findings = tuple(Finding.from_dict(finding) for finding in stored.pop("findings"))
            return cls(findings=findings, **stored)
        except FileNotFoundError:
            raise UserError(
                f"{run.path} has no {run.checks_file.name}: an earlier version of classwise began this audit. Repeat "
                "its command once, which finishes it."
            ) from None
        except Exception as error:  # what a damaged file holds may be anything
            raise UserError(
                f"{run.checks_file} is damaged ({type(error).__name__}: {error}). Repeat the audit's command, which "
                "writes it again."
            ) from error


def assemble(records: Records, checks: Checks, wall_seconds: float, folder: Path | None) -> Audit:
    """The audit of all these records; with a folder it is written there."""
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    costs = {name: {key: round(value, 3) for key, value in cost.items()} for name, cost in records.meta.stats.items()}
    result = Audit(
        records,
        findings=checks.findings,
        timing={"wall_seconds": round(wall_seconds, 3), "finished": today, "attacks": costs, **checks.timing},
        config={} if folder is None else AuditFolder(folder).config(),
        folder=folder,
        confidence=checks.confidence,
        adversarially_trained=checks.adversarially_trained,
    )
    result = dataclasses.replace(result, findings=tuple(rules.of_audit(result)))
    if folder is not None:
        result.save(folder)
    return result


def merge(folder: str | Path) -> Audit:
    """Write the summary of an audit whose shards have all been computed, here or elsewhere."""
    with mirrored(folder) as here:
        assert here is not None
        return _merge(here)


def _merge(folder: Path) -> Audit:
    run = AuditFolder(folder)
    config = run.config()
    if not config:
        raise UserError(f"{folder} is no run folder: it has no {run.config_file.name}.")
    infos = as_table(config.get("attacks")).values()
    if "plan" not in config or any(as_table(info).get("find_worst") for info in infos):
        raise UserError(f"{folder} is not the run folder of an audit: merge puts the shards of one together.")
    with writing(folder):
        check_complete(run)
        return _merged(run)


def finish(run: AuditFolder, confidence: float) -> Audit:
    """What the last of several shards does: write the summary. The first of two that end together writes it, the other
    finds it there."""
    with moment(run.path):
        if (mirror := mirror_of(run.path)) is not None:  # what other machines have written
            mirror.push()
            mirror.pull()
        check_complete(run)
        if (stored := _summarised(run)) is not None and stored.confidence == confidence:
            return stored
        return _merged(run)


def check_complete(run: AuditFolder) -> None:
    """Raise `Unfinished` where parts are not there yet."""
    found = RecordParts(run, run.records, (), run.config())
    absent = found.absent(list(as_table(found.config.get("attacks"))))
    if absent:
        parts = {name.rpartition("-")[2] for name in absent}
        raise Unfinished(
            f"{run.path} has {len(found.numbers()) - len(parts)} of {len(found.numbers())} parts. When the other "
            "shards have finished, the last of them writes the summary; classwise merge does so too."
        )


def _merged(run: AuditFolder) -> Audit:
    times = [path.stat().st_mtime for path in run.records.glob("*.parquet")]
    wall = max(times) - run.config_file.stat().st_mtime
    return assemble(Records.read(run.path), Checks.read(run), max(wall, 0.0), run.path)


def _summarised(run: AuditFolder) -> Audit | None:
    """The finished audit, if its summary is there and not older than its parts."""
    if not run.summary_file.is_file():
        return None
    written = run.summary_file.stat().st_mtime_ns
    if any(path.stat().st_mtime_ns > written for path in run.records.glob("*.parquet")):
        return None
    try:
        return Audit.load(run.path)
    except UserError:  # damaged: it is written again
        return None
