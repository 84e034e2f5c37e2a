"""Other processes that compute the audits of a repair: of every change tried, and of the model before and after.

Each loads model and images as the repair did, and takes the change from the folder of its round.
"""

from __future__ import annotations

import contextlib
import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from classwise.auditing import several
from classwise.auditing.inputs import device_of
from classwise.auditing.parts import AuditedModel
from classwise.auditing.prepare import prepared
from classwise.core.errors import UserError
from classwise.core.repair_folder import RepairFolder
from classwise.core.trust import trusting
from classwise.engine import run
from classwise.engine.evaluation import Evaluation
from classwise.models.last_layer import find_last_layer
from classwise.repairing.config import RepairConfig
from classwise.repairing.inputs import Inputs, gather
from classwise.repairing.trials import Calibration, read_proposal


def opened(config: RepairConfig) -> AbstractContextManager[several.Crew]:
    """The processes that a config asks for."""
    return several.opened(config, __name__, rounds=True)


def parts_of(options: dict[str, Any], folder: str, numbers: list[int]) -> str | None:
    """Compute parts of one of the audits of a repair, in a process that an engine started for that."""

    def work() -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(trusting(bool(options.get("trust"))))
            job = _job(stack, _inputs(options), Path(options["out"]), Path(folder))
            for number in numbers:
                run.evaluate_part(job, number)

    return several.attempted(work)


_gathered: dict[str, Inputs] = {}


def _inputs(options: dict[str, Any]) -> Inputs:
    """Model and images, loaded once in each process."""
    key = json.dumps(options, sort_keys=True)
    if key not in _gathered:
        _gathered.clear()
        _gathered[key] = gather(RepairConfig.of(**{**options, "progress": False}))
    return _gathered[key]


def _job(stack: contextlib.ExitStack, inputs: Inputs, out: Path, folder: Path) -> Evaluation:
    """The audit of a repair that has this run folder."""
    repair, config = RepairFolder(out), inputs.config
    if folder in (repair.before, repair.after):
        model: AuditedModel | None = None
        if folder == repair.after:
            stack.enter_context(trusting(True))  # the repair wrote it, of a model that is loaded already
            best = repair.best if repair.best.is_file() else repair.best_box
            model = AuditedModel(spec=str(best), trust=True, force=config.model.force)
        asked = config.attacked(inputs.judging, config.judging.judge_attacks, folder, model)
        return stack.enter_context(prepared(asked, None if model else inputs.model, lock=False))[0]
    fitting = config.attacked(inputs.calibration, config.attacks.attacks)
    job, findings = stack.enter_context(prepared(fitting, inputs.model))
    layer = None if inputs.black_box else find_last_layer(inputs.model, job.images.first().to(device_of(inputs.model)))
    fold = config.resources.fold and not any(finding.code == "randomised" for finding in findings)
    calibration = Calibration(job=job, config=fitting, layer=layer, folder=repair, fold=fold)
    number = int(folder.name)
    if (proposal := read_proposal(repair.change(number))) is None:
        raise UserError(f"{folder} holds no change to attack; repeat the repair's command.")
    return calibration.in_round(number, proposal)
