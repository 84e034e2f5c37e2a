"""A model of the zoo that was trained by the same recipe: its content is compared, seed included, not its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from classwise import methods
from classwise.core.run_config import flat, plain, same
from classwise.core.run_folder import TrainingFolder
from classwise.models.zoo import Entry, Zoo
from classwise.training import recipe
from classwise.training.recipe import Recipe

_FREE = ("train.save_minutes", "train.keep")  # settings that do not change the best model


def find(chosen: Recipe, zoo: Zoo) -> Entry | None:
    """The first model of the zoo, by name, that this recipe would train, and whose files are at hand."""
    wanted = contents(chosen)
    quick = {"data": chosen.data.name, "method": methods.name_of(chosen.method), "seed": chosen.train.seed}
    for name in sorted(zoo.entries):
        entry = zoo.entries[name]
        if all(entry.about.get(key) == value for key, value in quick.items()) and zoo.holds(name):
            stored = contents(recipe.load(zoo.file(name, TrainingFolder.config_file.name)))
            if stored.keys() == wanted.keys() and all(same(stored[key], wanted[key]) for key in stored):
                return entry
    return None


def contents(chosen: Recipe) -> Mapping[str, Any]:
    """All settings of a recipe that the trained model depends on, defaults included."""
    settings = flat(plain(chosen.settings()))
    return {key: value for key, value in settings.items() if key not in _FREE}
