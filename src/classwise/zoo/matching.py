"""A model of the zoo that was trained by the same recipe, and its audits that were asked for the same: contents are
compared, seeds included, not names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from classwise import attacks, methods
from classwise.auditing.config import AuditConfig
from classwise.auditing.prepare import coverage_of
from classwise.auditing.recorded import config_of
from classwise.core.run_config import flat, plain, read_config, same
from classwise.core.run_folder import AuditFolder, TrainingFolder
from classwise.core.spec import number
from classwise.models.zoo import Entry, Zoo
from classwise.results.training_result import TrainingResult
from classwise.training import recipe
from classwise.training.recipe import Recipe
from classwise.zoo.audits import HERE

_ANYWHERE = ("root", "download")  # of data, which their name and split determine
_FREE = ("train.save_minutes", "train.keep")  # settings that do not change the best model
_VALIDATION = "validate."


def find(chosen: Recipe, zoo: Zoo) -> Entry | None:
    """The first model of the zoo, by name, that this recipe would train, and whose files are at hand."""
    wanted = contents(chosen)
    quick = {"data": chosen.data.name, "method": methods.name_of(chosen.method), "seed": chosen.train.seed}
    for name in sorted(zoo.entries):
        entry = zoo.entries[name]
        alike = all(entry.about.get(key) == value for key, value in quick.items())
        if alike and "repaired" not in entry.about and zoo.holds(name):
            files = [zoo.file(name, own.name) for own in (TrainingFolder.config_file, TrainingFolder.history_file)]
            if not differing(trained(TrainingFolder(files[0].parent), chosen), wanted):
                return entry
    return None


def trained(run: TrainingFolder, chosen: Recipe) -> Mapping[str, Any]:
    """The contents of a finished training's recipe. If its selected epoch was its last, its model is that of a recipe
    that selects the last one, and is described so where `chosen` does."""
    made = recipe.load(run.config_file)
    if chosen.validate.select == "last" and TrainingResult.load(run).selected == made.train.epochs:
        made = replace(made, validate=replace(made.validate, select="last"))
    return contents(made)


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The settings that two recipes do not share."""
    return [key for key in sorted({*one, *other}) if not same(one.get(key), other.get(key))]


def contents(chosen: Recipe) -> Mapping[str, Any]:
    """All settings of a recipe that the trained model depends on, defaults included: not those of a validation that
    neither selects the epoch nor sets the state of the method."""
    settings = flat(plain(chosen.settings()))
    free = (*_FREE, *(() if chosen.uses_validation else (key for key in settings if key.startswith(_VALIDATION))))
    return {key: value for key, value in settings.items() if key not in free}


def find_audit(wanted: AuditConfig, entry: Entry, zoo: Zoo) -> str | None:
    """The folder, inside that of the model, of an audit that was asked for the same; the first of several.

    Stored audits have neither probabilities nor adversarial images, so that there is none for who wants those. One in
    which every attack saw every example has the worst case of one that asks for the survivors only.
    """
    if wanted.output.probs is not False or wanted.output.save_adversarial or wanted.output.landscape:
        return None
    accepted = [_asked(wanted)]
    if wanted.attacks.coverage == "survivors":
        accepted.append({**accepted[0], "coverage": "all"})
    for about in entry.about.get("audits", ()):
        folder = str(about["folder"])
        stored = read_config(zoo.file(entry.name, f"{folder}/{AuditFolder.config_file.name}"))
        if _asked(config_of(stored, leave=HERE, model=entry.spec)) in accepted:
            return folder
    return None


def _asked(config: AuditConfig) -> Mapping[str, Any]:
    """All settings that the records of a model depend on."""
    data = {name: value for name, value in vars(config.data).items() if name not in _ANYWHERE}
    eps = config.threat.eps
    threat = {
        **vars(config.threat),
        "eps": number(eps) if isinstance(eps, (str, float)) and "," not in str(eps) else eps,
    }
    named = attacks.listed(config.attacks.attacks)
    return {**data, **threat, **vars(config.attacks), "attacks": named, "coverage": coverage_of(config)}
