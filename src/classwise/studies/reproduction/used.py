"""What a plan does, by the keys in which the papers' settings are written (`classwise.published.paper_settings`).

Read from the jobs themselves, not from the plan's options: the recipe of each training as it will be run, and the
attack, radius and images of each audit.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from classwise import attacks, methods
from classwise.attacks import Attack
from classwise.attacks.fgsm import Fgsm
from classwise.attacks.pgd import Pgd
from classwise.attacks.transfer import Transfer
from classwise.core import spec
from classwise.core.run_folder import TrainingFolder
from classwise.core.threat import Threat
from classwise.data import size
from classwise.published.paper_settings import StatedAttack
from classwise.studies.runner.graph import AuditJob, DeriveJob, Graph, StudyJob, TrainJob
from classwise.training import recipe

BEST = "best on held-out images"
_STARTS = {"uniform": "random", "gaussian": "random", "none": "the image"}


@dataclass(frozen=True, kw_only=True)
class Used:
    """A model under one attack: its data set and method, and by the papers' keys how it is trained and attacked."""

    job: str
    model: str
    data: str
    method: str
    training: Mapping[str, Any]
    attack: StatedAttack
    images: int | str


def used(graph: Graph) -> list[Used]:
    """Every model of the graph under every attack, and on clean images."""
    return [found for job in graph for found in _of(job, graph)]


def trainings(graph: Graph) -> list[recipe.Recipe]:
    """The recipes that are trained."""
    return [recipe.load(job.recipe, job.changes) for job in graph if isinstance(job, TrainJob)]


def _of(job: StudyJob, graph: Graph) -> Iterator[Used]:
    if isinstance(job, AuditJob):
        model, data, eps, given, options = job.model, job.data, job.eps, job.attacks, job.options
    elif isinstance(job, DeriveJob) and {"model", "data", "eps", "attack", "per_class"} <= set(job.arguments):
        options = job.arguments
        model, data, eps, given = options["model"], options["data"], options["eps"], (options["attack"],)
    else:
        return
    own = _recipe_of(model, graph)
    facts = {"weights": model} if own is None else _training(own, model)
    method = "given" if own is None else methods.name_of(own.method)
    name, inside = spec.split(data)
    images = _images(name, options.get("per_class") or inside.get("per_class"))
    threat = Threat(options.get("norm") or "linf", spec.number(eps))
    for text in ("clean", *given):
        attack = _attack(text, threat, graph)
        yield Used(job=job.name, model=model, data=name, method=method, training=facts, attack=attack, images=images)


def _recipe_of(model: str, graph: Graph) -> recipe.Recipe | None:
    training = graph.training_of(model)
    return None if training is None else recipe.load(training.recipe, training.changes)


def _images(data: str, per_class: Any) -> int | str:
    if per_class is None:
        return "all"
    known, count = size(data), int(per_class)
    return "all" if known is not None and count * known.classes >= known.test else count


def _training(own: recipe.Recipe, model: str) -> dict[str, Any]:
    """A recipe by the keys of `StatedTraining`."""
    optimizer, rates = spec.split(own.train.optimizer)
    schedule, options = spec.split(own.train.schedule)
    steps = getattr(own.method, "steps", 0)
    step = getattr(own.method, "step", None)
    found: dict[str, Any] = {
        "network": _network(own.model.spec),
        "weights": "trained here" if own.model.weights is None else "fine-tuned",
        "epochs": own.train.epochs,
        "checkpoint": _checkpoint(own, model),
        "optimizer": optimizer,
        "lr": float(rates.get("lr", "nan")),
        "momentum": float(rates.get("momentum", 0)),
        "weight_decay": float(rates.get("weight_decay", 0)),
        "schedule": "three stages" if own.train.phases else schedule,
        "batch": own.train.batch,
        "train_images": own.data.per_class or own.data.limit or "all",
        "held_out": own.data.validation,
        "settings": methods.settings(own.method),
    }
    if schedule == "step":
        found["milestones"] = tuple(int(number) for number in re.findall(r"\d+", options.get("milestones", "")))
    if steps:
        found |= {"train_steps": steps, "train_eps": own.threat.eps}
        found["train_step"] = own.threat.eps / 4 if step is None else spec.number(step)
        found["train_start"] = _STARTS[getattr(own.method, "start", "uniform")]
    return found


def _network(text: str) -> str:
    """A network without its head and stem; a width is kept, since it makes another network."""
    name, options = spec.split(text)
    rest = {key: value for key, value in options.items() if key not in ("head", "stem")}
    return name + (":" + ",".join(f"{key}={value}" for key, value in rest.items()) if rest else "")


def _checkpoint(own: recipe.Recipe, model: str) -> int | str:
    which = TrainingFolder.which(Path(model))
    if isinstance(which, int):
        return which
    return own.train.epochs if which == "last" or own.validate.select == "last" else BEST


def _attack(text: str, threat: Threat, graph: Graph) -> StatedAttack:
    """An attack by the papers' keys; the settings of a transfer attack are those of the attack that crafts."""
    name = spec.leading(spec.split(text)[0])[0].replace("-", "_")
    if name in ("clean", "autoattack"):
        return StatedAttack(attack=name, eps=threat.eps, norm=threat.norm)
    own = _parsed(text)
    fields = {part.name: getattr(own, part.name) for part in dataclasses.fields(own)}  # type: ignore[arg-type]
    made: dict[str, Any] = {"attack": name, "eps": threat.eps, "norm": threat.norm, "settings": fields}
    if isinstance(own, Transfer):
        made["surrogate"] = _surrogate(own.model or "", graph)
        return StatedAttack(**made, **_steps(own.crafting, threat.eps))
    if name == "temperature_pgd" and fields["inv_temperature"] == 1 and not fields["sound"]:
        made["attack"] = "pgd"  # as which it is audited
    if name == "nattack":
        made["start"] = "random"
    return StatedAttack(**made, **_steps(own, threat.eps))


@functools.cache
def _parsed(text: str) -> Attack:
    (own,) = attacks.parse(text).values()
    return own


def _steps(own: Attack, eps: float) -> dict[str, Any]:
    if not isinstance(own, Pgd):
        return {}
    default = eps if isinstance(own, Fgsm) else eps / 4
    return {"steps": own.steps, "step": default if own.step is None else own.step, "start": _STARTS[own.start]}


def _surrogate(model: str, graph: Graph) -> str:
    own = _recipe_of(model, graph)
    return model if own is None else f"{methods.name_of(own.method)} {_network(own.model.spec)}"
