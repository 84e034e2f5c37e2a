"""A plan compared with what the paper states: every setting that differs, by its key.

    rows                    a model of the paper is not in the plan
    attack                  an attack of the paper is not in the plan
    network, epochs, …      the fields of `published.paper_settings`; `settings` are those of a method or attack
    inv_temperature, …      an option of the study
    every_epoch             models are not audited through their training

A setting that the paper does not state cannot differ. Where several models or audits of a plan could be the paper's,
the nearest is compared. What cannot be read from jobs is listed in a plan under one of `NOT_COMPARED`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from classwise.core import spec
from classwise.core.errors import UserError
from classwise.published.paper_settings import NOT_STATED, Settings, StatedAttack, StatedRun
from classwise.studies.reproduction.used import Used, trainings, used
from classwise.studies.runner.graph import Graph
from classwise.studies.runner.study import Study

#: The papers' WideResNet-32-10 has five blocks in each group, as WideResNet-34-10 has by the usual convention.
_SAME = {"wideresnet-32-10": "wideresnet-34-10"}
#: Classes plotted, background colours of digits, data sets of mere definitions, additional models.
NOT_COMPARED = frozenset({"classes", "colours", "data_sets", "extra"})
_PLAIN = {"where", "attack", "settings", "images"}  # of an attack or a training, what is compared separately
_ROUNDING = 1e-9


class Difference(NamedTuple):
    """A setting that is not the paper's: of which model or attack, what the paper states, what the plan does."""

    key: str
    of: str
    paper: Any
    here: Any


def differences(stated: Settings, study: Study, graph: Graph) -> list[Difference]:
    """Every setting of a study, and of its jobs, that is not what the paper states, once each."""
    everything = used(graph)
    found = [difference for run in stated.runs for difference in _of_run(run, stated, everything)]
    found += _of_options(stated.options, study)
    found += _of_variations(stated.varied, graph)
    if stated.every_epoch and not _every_epoch(stated, everything):
        found.append(Difference("every_epoch", "models", "each epoch on test images", "the evaluated epoch"))
    return list({(each.key, each.of, str(each.paper), str(each.here)): each for each in found}.values())


def _of_run(run: StatedRun, stated: Settings, everything: Sequence[Used]) -> Iterator[Difference]:
    own = [each for each in everything if run.data in (each.data, NOT_STATED)]
    own = [each for each in own if run.method in (each.method, NOT_STATED)]
    of = f"{run.method} on {run.data}"
    if not own:
        yield Difference("rows", of, of, "left out")
        return
    by_model = {each.model: [other for other in own if other.model == each.model] for each in own}
    yield from min((list(_of_model(run, stated, model, of)) for model in by_model.values()), key=len)


def _of_model(run: StatedRun, stated: Settings, own: Sequence[Used], of: str) -> Iterator[Difference]:
    """One model of the plan, under all its attacks, compared with the paper's."""
    yield from _of_training(run, own[0], of)
    for attack in run.attacks:
        if attack.attack == NOT_STATED:
            continue
        same = [each for each in own if each.attack.attack == attack.attack]
        if not same:
            yield Difference("attack", of, attack.attack, "left out")
        else:
            yield from min((list(_of_attack(attack, each, stated, of)) for each in same), key=len)


def _of_training(run: StatedRun, own: Used, of: str) -> Iterator[Difference]:
    for part in dataclasses.fields(run.training):
        paper = getattr(run.training, part.name)
        plain = run.method == "standard" and part.name.startswith("train_") and part.name != "train_images"
        if part.name in _PLAIN or paper == NOT_STATED or plain:
            continue
        if not _equal(paper, own.training.get(part.name, NOT_STATED)):
            yield Difference(part.name, of, paper, own.training.get(part.name, "none"))
    yield from _of_settings(run.training.settings, own.training.get("settings", {}), of)


def _of_attack(paper: StatedAttack, own: Used, stated: Settings, of: str) -> Iterator[Difference]:
    named = f"{paper.attack} against {of}"
    for part in dataclasses.fields(paper):
        value, here = getattr(paper, part.name), getattr(own.attack, part.name)
        if part.name not in _PLAIN and value != NOT_STATED and not _equal(value, here):
            yield Difference(part.name, named, value, here)
    yield from _of_settings(paper.settings, own.attack.settings, named)
    images = stated.images if paper.images == NOT_STATED else paper.images
    if images != NOT_STATED and not _equal(images, own.images):
        yield Difference("images", named, images, own.images)


def _of_settings(paper: Mapping[str, Any], here: Mapping[str, Any], of: str) -> Iterator[Difference]:
    for name, value in paper.items():
        if not _equal(value, here.get(name)):
            yield Difference("settings", of, f"{name} {value}", f"{name} {here.get(name)}")


def _of_options(options: Mapping[str, Any], study: Study) -> Iterator[Difference]:
    for name, paper in options.items():
        here = getattr(study, name)
        if isinstance(paper, list):
            held = all(any(_holds(value, own) for own in here) for value in paper)
        else:
            held = _equal(paper, here)
        if not held:
            yield Difference(name, "the study", paper, here)


def _of_variations(varied: Mapping[str, Sequence[str]], graph: Graph) -> Iterator[Difference]:
    if not varied:
        return
    recipes = trainings(graph)
    here = {
        "networks": [own.model.spec for own in recipes],
        "optimizers": [spec.split(own.train.optimizer)[0] for own in recipes],
        "schedules": [spec.split(own.train.schedule)[0] for own in recipes],
    }
    for key, values in varied.items():
        if absent := [value for value in values if value not in here[key]]:
            yield Difference(key, "the study", ", ".join(values), f"without {', '.join(absent)}")


def _every_epoch(stated: Settings, everything: Sequence[Used]) -> bool:
    """Whether each model of the paper that is here is audited after every epoch of its training."""
    wanted = {(run.data, run.method) for run in stated.runs}
    here = {(each.data, each.method) for each in everything} & wanted
    return all(
        {each.training["checkpoint"] for each in everything if (each.data, each.method) == own}
        >= set(range(1, max(each.training["epochs"] for each in everything if (each.data, each.method) == own) + 1))
        for own in here
    )


def _holds(paper: Any, here: Any) -> bool:
    """Equal, or for settings such as ``cosine=0.1`` one of that name."""
    return _equal(paper, here) or (isinstance(here, str) and here.partition("=")[0] == paper)


def _equal(paper: Any, here: Any) -> bool:
    if isinstance(paper, str):
        paper = " ".join(_SAME.get(word, word) for word in paper.split())
    try:
        return abs(spec.number(paper) - spec.number(here)) < _ROUNDING
    except UserError:
        return bool(paper == here)
