"""`repair`: the front door. Model, images and a goal in; the model before and after out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from torch import nn

from classwise.attacks.attack import Attack
from classwise.auditing.audit import audit_by
from classwise.auditing.inputs import Eps, device_of
from classwise.auditing.parts import AuditedModel
from classwise.auditing.prepare import prepared
from classwise.auditing.several import Crew
from classwise.core.arguments import checked
from classwise.core.errors import UserError
from classwise.core.repair_folder import RepairFolder
from classwise.core.run_lock import writing
from classwise.core.settings import with_settings
from classwise.core.trust import trusting
from classwise.metrics import accuracy
from classwise.models.last_layer import Change, LastLayer, changed, find_last_layer, weight_of
from classwise.repairing import crew, saving
from classwise.repairing import goal as goals
from classwise.repairing.config import RepairConfig, RepairSettings
from classwise.repairing.goal import Goal
from classwise.repairing.inputs import Inputs, gather, open_folder
from classwise.repairing.knobs import KNOBS, Task
from classwise.repairing.search import Search
from classwise.repairing.trials import Calibration, Trial
from classwise.results import repair_result
from classwise.results.finding import SERIOUS
from classwise.results.repair_result import RepairResult
from classwise.show import figures

if TYPE_CHECKING:
    from typing_extensions import Unpack


@checked
@with_settings(RepairConfig, RepairSettings)
def repair(
    model: Any,
    data: Any,
    attacks: str | Attack | Sequence[str | Attack] | None = None,
    eps: Eps = "8/255",
    **settings: Unpack[RepairSettings],
) -> RepairResult:
    """Raise the worst class of a model under attack by changing its last layer, without training the network.

    The change is fitted on some of the images and judged on the others. Every change tried is attacked from scratch;
    what counts is the attack on the repaired model.
    """
    return repair_by(RepairConfig.of(model=model, data=data, attacks=attacks, eps=eps, **settings))


def repair_by(config: RepairConfig, say: Callable[[str], None] = lambda text: None) -> RepairResult:
    """The repair that a config asks for. say: told beforehand how precise the result will be, and what
    is wrong with the model or the images, then what each change did."""
    begin = time.perf_counter()
    opening = crew.opened(config) if config.resources.several else nullcontext()
    with writing(config.output.out), trusting(config.model.trust), opening as others:
        inputs = gather(config)
        for remark in inputs.remarks:
            say(remark)
        run = open_folder(inputs)
        fitting = inputs.config.attacked(inputs.calibration, inputs.config.attacks.attacks)
        with prepared(fitting, inputs.model) as (job, findings):
            example = job.images.first().to(device_of(inputs.model))
            layer = None if inputs.black_box else find_last_layer(inputs.model, example)
            for finding in findings:
                if finding.severity in SERIOUS:
                    say(f"{finding.severity}: {finding.what} {finding.remedy}")
            randomised = any(finding.code == "randomised" for finding in findings)
            fold = config.resources.fold and not randomised
            calibration = Calibration(job=job, config=fitting, layer=layer, folder=run, fold=fold, others=others)
            task = _task(inputs, layer, calibration)
            search = Search(knob=KNOBS[config.knob.knob], goal=inputs.goal, task=task)
            told = say if config.output.progress is not False else lambda text: None
            trials = search.run(config.output.progress, told)
            scores = [inputs.goal.score(trial.accuracy) for trial in trials]
            chosen = inputs.goal.choose(scores)
            repaired = changed(inputs.model, layer, trials[chosen].change)
        told("auditing the model before and after on the judging images")
        return _judged(inputs, run, trials, chosen, repaired, layer, begin, others)


def _task(inputs: Inputs, layer: LastLayer | None, calibration: Calibration) -> Task:
    settings = inputs.config.knob
    if KNOBS[settings.knob].needs_weight and (layer is None or not layer.takes_weight):
        raise UserError(
            f"the knob {settings.knob} changes the weights of the last layer, and none was found whose output is the "
            "model's: it is a black box, a program, or computes more after its last linear layer. Use --knob bias."
        )
    return Task(
        settings=settings,
        calibration=calibration,
        goal=inputs.goal,
        weight=weight_of(inputs.model, layer) if layer is not None and layer.takes_weight else None,
        seed=inputs.config.attacks.seed,
    )


def _judged(
    inputs: Inputs,
    run: RepairFolder | None,
    trials: Sequence[Trial],
    chosen: int,
    repaired: nn.Module,
    layer: LastLayer | None,
    begin: float,
    others: Crew | None,
) -> RepairResult:
    """Write the repaired model, and audit it and the model as it was on the judging images."""
    config, attacks = inputs.config, inputs.config.judging.judge_attacks
    change, names = trials[chosen].change, trials[chosen].robust.class_names
    best: Path | None = None
    judged: nn.Module | None = repaired
    after, folders = config.model, (None, None) if run is None else (run.before, run.after)
    if run is not None:
        best = saving.save_model(run, config, repaired, inputs.named(names), knob=config.knob.knob, round=chosen)
        if best is not None and saving.loads(config):  # what is judged is what the file holds
            after, judged = AuditedModel(spec=str(best), trust=True, force=config.model.force), None
    with trusting(best is not None):  # written here, of a model that was loaded already
        first = audit_by(config.attacked(inputs.judging, attacks, folders[0]), inputs.model, others)
        second = audit_by(config.attacked(inputs.judging, attacks, folders[1], after), judged, others)
    result = RepairResult(
        before=first,
        after=second,
        rounds=_rounds(trials, chosen, inputs.goal, config.statistics.confidence),
        by_round=_by_round(trials),
        chosen=chosen,
        bias={name: float(value) for name, value in zip(names, change.bias, strict=True)},
        norms=_norms(names, change, inputs.model, layer),
        settings=inputs.recorded(),
        remarks=tuple(inputs.remarks),
        command=saving.audit_command(config, inputs.judging, best, layer is not None and layer.takes_bias),
        seconds=time.perf_counter() - begin,
        folder=None if run is None else run.path,
        model=repaired,
    )
    if run is not None:
        result.save(run.path)
        if config.goal.front:
            figures.save(figures.from_repairs("front", {run.path.name: result}), run.front_figure)
    return result


def _rounds(trials: Sequence[Trial], chosen: int, goal: Goal, confidence: float) -> pd.DataFrame:
    """A row for each change tried."""
    rows = [
        repair_result.tried(
            trial.number, trial.proposal.kind, trial.proposal.about, trial.robust, trial.clean, confidence
        )
        for trial in trials
    ]
    best = goals.front([goal.score(trial.accuracy) for trial in trials])
    numbers = range(len(trials))
    marks = {"chosen": [number == chosen for number in numbers], "front": [number in best for number in numbers]}
    return pd.DataFrame(rows).assign(**marks)


def _by_round(trials: Sequence[Trial]) -> pd.DataFrame:
    """A row for each change tried and class."""
    tables = []
    for trial in trials:
        robust, clean = accuracy.compute(trial.robust), accuracy.compute(trial.clean)
        columns = {"n": robust.support, "accuracy": robust.values, "clean": clean.values, "bias": trial.change.bias}
        tables.append(pd.DataFrame({"number": trial.number, "class": trial.robust.class_names, **columns}))
    return pd.concat(tables, ignore_index=True)


def _norms(names: Sequence[str], change: Change, model: nn.Module, layer: LastLayer | None) -> dict[str, float]:
    """By what the norm of each class's weights was multiplied; empty where they were left as they are."""
    if change.weight is None or layer is None:
        return {}
    ratio = np.linalg.norm(change.weight, axis=1) / np.linalg.norm(weight_of(model, layer), axis=1)
    return {name: float(value) for name, value in zip(names, ratio, strict=True)}
