"""Settings of recipes that a study changes: in all of its models, or in one."""

from __future__ import annotations

import pytest

from classwise.core.errors import UserError
from classwise.studies.runner.models_under_study import find_models

RECIPES = ["desk/digits/madry", "fair=desk/digits/wat"]


def test_a_change_with_a_name_is_for_the_model_of_that_name() -> None:
    changes = ["train.epochs=7", "fair=method.eta=0.25", "madry=train.optimizer=sgd:lr=0.2", "madry=threat.eps=0.1"]
    madry, fair = find_models([], RECIPES, changes)
    assert madry.training is not None
    assert fair.training is not None
    assert madry.training.changes == ("train.epochs=7", "train.optimizer=sgd:lr=0.2", "threat.eps=0.1")
    assert fair.training.changes == ("train.epochs=7", "method.eta=0.25")
    assert (madry.eps, fair.eps) == (0.1, 0.15)


def test_a_change_for_a_model_that_is_not_there_is_an_error() -> None:
    with pytest.raises(UserError, match="unknown model of --set 'fiar'; did you mean 'fair'"):
        find_models([], RECIPES, ["fiar=method.eta=0.25"])
