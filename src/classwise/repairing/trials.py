"""Every change that is tried is attacked from scratch on the calibration images; that is a trial.

Adversarial images of one trial never count for another: each has its own evaluation of the changed model, in the run
folder ``rounds/NN`` of its own, so that a repair that was killed resumes in the part it was in. The change is stored
before it is attacked, and read back when the repair resumes.
"""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from classwise.auditing.config import AuditConfig
from classwise.auditing.parts import AuditedModel, OutputPart
from classwise.auditing.prepare import coverage_of
from classwise.auditing.recorded import in_folder
from classwise.auditing.several import Crew
from classwise.core.errors import UserError
from classwise.core.records import CLEAN, Array, Records
from classwise.core.repair_folder import RepairFolder
from classwise.core.run_lock import writing
from classwise.core.storage import atomic_write
from classwise.engine import run
from classwise.engine.attack_copy import AttackCopy, accelerate
from classwise.engine.evaluation import Evaluation
from classwise.metrics import accuracy
from classwise.models.last_layer import Change, LastLayer, changed
from classwise.results.audit_result import Audit


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A change to try, and how it came about: kind is "unchanged", "round" or "between", about holds its numbers."""

    change: Change
    kind: str = "round"
    about: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A change, and the records of the changed model on the calibration images, attacked and clean."""

    number: int
    proposal: Proposal
    robust: Records
    clean: Records

    @property
    def change(self) -> Change:
        return self.proposal.change

    @property
    def accuracy(self) -> Array:
        """Robust accuracy by class; NaN where there are no images."""
        return accuracy.compute(self.robust).values


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What every change is tried on: the untouched model and its attacks on the calibration images.

    fold: whether batch-norm is folded for the gradient passes. others: processes that attack. report: told of every
    image attacked.
    """

    job: Evaluation
    config: AuditConfig
    layer: LastLayer | None
    folder: RepairFolder | None
    fold: bool = True
    others: Crew | None = None
    report: Callable[[int], None] = lambda finished: None

    @property
    def model(self) -> nn.Module:
        assert isinstance(self.job.model, nn.Module)
        return self.job.model

    def stored(self, number: int) -> Proposal | None:
        """The change of that number as an earlier run left it; None if there is none."""
        return None if self.folder is None else read_proposal(self.folder.change(number))

    def attack(self, number: int, proposal: Proposal) -> Trial:
        """Attack the changed model from scratch, or continue where a killed run was."""
        if self.folder is None:
            audit = Audit(run.evaluate(self._changed(proposal)[0]))
        else:
            place = self.folder.round(number)
            with writing(place):
                write_proposal(self.folder.change(number), proposal)
                job = self.in_round(number, proposal)
                if self.others is not None:
                    self.others.finish(job)
                records, settings = run.evaluate(job), RepairFolder(place).config()
                confidence = self.config.statistics.confidence
                audit = Audit(records, config=settings, folder=place, confidence=confidence)
                audit.save(place)
        return Trial(number=number, proposal=proposal, robust=audit.rows(), clean=audit.rows(CLEAN))

    def _changed(self, proposal: Proposal) -> tuple[Evaluation, nn.Module]:
        """What attacks the changed model, and that model."""
        model = changed(self.model, self.layer, proposal.change)
        job = dataclasses.replace(
            self.job,
            model=model,
            attack_copy=self._copy(model),
            report=lambda attack, finished: None if attack == CLEAN else self.report(finished),
        )
        return job, model

    def in_round(self, number: int, proposal: Proposal) -> Evaluation:
        """What attacks the changed model, in the run folder of its round."""
        assert self.folder is not None
        job, model = self._changed(proposal)
        # The command of the audit names no model: the changed one is nowhere else.
        output = OutputPart(out=self.folder.round(number))
        config = dataclasses.replace(self.config, model=AuditedModel(spec=model), output=output)
        return in_folder(job, config, coverage_of(config), 1 if self.others is None else self.others.parts)

    def _copy(self, model: nn.Module) -> AttackCopy:
        if getattr(model, "black_box", False):
            return AttackCopy(model=model)
        example = self.job.images.first().to(self.job.device)
        usual = self.job.attack_copy
        return dataclasses.replace(accelerate(model, example, self.fold), most=usual.most, amp=usual.amp)


def write_proposal(path: Path, proposal: Proposal) -> None:
    """Store a change, unless it is there already."""
    if path.is_file():
        return
    about = json.dumps({"kind": proposal.kind, "about": dict(proposal.about)})
    weight = {} if proposal.change.weight is None else {"weight": proposal.change.weight}
    write_arrays(path, {"bias": proposal.change.bias, "about": np.array(about), **weight})


def read_proposal(path: Path) -> Proposal | None:
    """A stored change; None if it is not there."""
    if (content := read_arrays(path)) is None:
        return None
    try:
        about: dict[str, Any] = json.loads(str(content["about"]))
        change = Change(content["bias"], content.get("weight"))
        return Proposal(change=change, kind=about["kind"], about=about["about"])
    except (ValueError, KeyError) as error:
        raise damaged_arrays(path, error) from error


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Store named arrays in a file that appears whole."""
    content = io.BytesIO()
    np.savez(content, **arrays)
    with atomic_write(path) as handle:
        handle.write(content.getvalue())


def read_arrays(path: Path) -> dict[str, Array] | None:
    """Stored arrays by their names; None if the file is not there."""
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as content:
            return dict(content)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise damaged_arrays(path, error) from error


def damaged_arrays(path: Path, error: Exception) -> UserError:
    """The error about a file that is not what was written."""
    return UserError(f"{path} is damaged ({error}). Delete it, or begin from scratch with --overwrite.")
