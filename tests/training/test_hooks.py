"""The hooks of a method that the loop calls besides its attack and loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import assert_same_run, content, dying_after, run, small
from torch import Tensor, nn

from classwise.attacks.pgd import Pgd
from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.methods import Batch, Loss, Method, State
from classwise.methods.method import craft
from classwise.methods.trades import Trades
from classwise.training import recipe
from classwise.training.batches import Examples
from classwise.training.recipe import Recipe
from classwise.training.step import TrainStep

pytestmark = pytest.mark.slow


def with_method(method: Method, folder: Path, net: str = "normed", **parts: dict[str, Any]) -> Recipe:
    """The small recipe with a method that no file holds."""
    return dataclasses.replace(recipe.load(small(folder, net, **parts)), method=method)


@dataclass(frozen=True, kw_only=True)
class Counting(Trades):
    """TRADES whose class weights are the images seen so far; clean images go through the network once more."""

    def init(self, class_names: Sequence[str]) -> State:
        return {**super().init(class_names), "seen": torch.zeros(len(class_names)), "norm": torch.tensor(0.0)}

    def after_step(self, model: nn.Module, batch: Batch, state: State, loss: Loss) -> State:
        assert model.training
        assert not model(batch.x).requires_grad
        seen = state["seen"] + batch.total(torch.bincount(batch.y, minlength=len(state["seen"])).float())
        norm = torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).norm()
        return {**state, "seen": seen, "weight": 1 + seen / seen.sum(), "norm": norm}


def test_the_state_moves_after_every_step_and_the_weights_have_moved_before_it(tmp_path: Path) -> None:
    run(with_method(Counting(steps=2), tmp_path), tmp_path / "run")
    saved = content(tmp_path / "run")
    assert saved["state"]["seen"].tolist() == [12] * 10  # two epochs of six images of each class
    torch.testing.assert_close(saved["state"]["weight"], torch.full((10,), 1.1))
    weights = [value.flatten() for name, value in saved["shown"].items() if name.endswith(("weight", "bias"))]
    torch.testing.assert_close(torch.cat(weights).norm(), saved["state"]["norm"])


def test_a_recipe_can_ask_for_a_validation_before_the_first_epoch(tmp_path: Path) -> None:
    asked: list[tuple[int, bool, bool]] = []

    @dataclass(frozen=True, kw_only=True)
    class Asked(Trades):
        def update(self, state: State, train: Records | None, valid: Records | None, epoch: int) -> State:
            asked.append((epoch, train is None, valid is None))
            return state

    for first in (True, False):
        made = with_method(Asked(steps=2), tmp_path, validate={"first": first, "attack": ["pgd-2"]})
        run(made, tmp_path / f"run-{first}")
        assert asked == [(0, True, False)] * first + [(1, False, False), (2, False, False)]
        asked.clear()
    made = with_method(Trades(steps=2), tmp_path, validate={"first": True, "select": "last"}, data={"validation": 0})
    with pytest.raises(UserError, match="first is set, and no images are held out"):
        run(made, tmp_path / "none")


def test_a_pass_after_the_step_moves_batch_norm_s_statistics(tmp_path: Path) -> None:
    passes = {}
    for method in (Trades(steps=2), Counting(steps=2)):
        run(with_method(method, tmp_path), tmp_path / type(method).__name__)
        shown = content(tmp_path / type(method).__name__)["shown"]
        passes[type(method)] = next(int(value) for name, value in shown.items() if "num_batches" in name)
    assert passes == {Trades: 2 * 6, Counting: 3 * 6}


@pytest.mark.parametrize("steps", [2, 5])
def test_killed_in_an_epoch_it_resumes_with_the_state_after_the_last_step(steps: int, tmp_path: Path) -> None:
    made = with_method(Counting(steps=2), tmp_path, "dropping", train={"save_minutes": 0})
    run(made, tmp_path / "whole")
    with dying_after(steps):
        run(made, tmp_path / "killed")
    left = content(tmp_path / "killed")
    assert left["step"] == 1  # of the first or the second epoch
    assert float(left["state"]["seen"].sum()) == 20 * (3 * left["epoch"] + left["step"])
    run(made, tmp_path / "killed")
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


# ---- batches drawn by class


@dataclass(frozen=True, kw_only=True)
class Drawing(Trades):
    """TRADES that draws the classes the less often, the more it has drawn them."""

    def init(self, class_names: Sequence[str]) -> State:
        return {**super().init(class_names), "seen": torch.zeros(len(class_names))}

    def sampling(self, state: State) -> Tensor:
        return torch.softmax(-state["seen"], 0)

    def after_step(self, model: nn.Module, batch: Batch, state: State, loss: Loss) -> State:
        counts = torch.bincount(batch.y, minlength=len(state["seen"])).float()
        assert (counts[state["seen"] > state["seen"].amin() + 20] == 0).all()
        return {**state, "seen": state["seen"] + batch.total(counts)}


def test_batches_are_drawn_by_the_state_when_their_step_begins(tmp_path: Path) -> None:
    run(with_method(Drawing(steps=1), tmp_path, train={"epochs": 4}), tmp_path / "run")
    seen = content(tmp_path / "run")["state"]["seen"]
    assert seen.sum() == 4 * 60  # as many draws as there are training images
    assert seen.amax() - seen.amin() < 20  # each batch made up for the ones before


@pytest.mark.parametrize("steps", [2, 5])
def test_killed_in_an_epoch_the_same_batches_are_drawn(steps: int, tmp_path: Path) -> None:
    made = with_method(Drawing(steps=2), tmp_path, "dropping", train={"save_minutes": 0})
    run(made, tmp_path / "whole")
    with dying_after(steps):
        run(made, tmp_path / "killed")
    assert content(tmp_path / "killed")["step"] == 1  # of the first or the second epoch
    run(made, tmp_path / "killed")
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


def test_an_example_drawn_twice_has_random_numbers_of_its_own_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[tuple[int, int]] = []
    prepared = TrainStep.prepare

    def noted(self: TrainStep, examples: Examples, *rest: Any, **more: Any) -> Batch:
        batch = prepared(self, examples, *rest, **more)
        keys.extend(zip(examples.index.tolist(), batch.key.tolist(), strict=True))
        return batch

    monkeypatch.setattr(TrainStep, "prepare", noted)
    run(with_method(Drawing(steps=1), tmp_path, train={"epochs": 1}), tmp_path / "run")
    assert len({index for index, _ in keys}) < len(keys) == 60
    assert len({key for _, key in keys}) == 60


def test_images_without_labels_cannot_be_drawn_by_class(tmp_path: Path) -> None:
    made = with_method(Drawing(), tmp_path, data={"extra": "more.npz"})
    with pytest.raises(UserError, match=r"draws its images by class.*leave data\.extra out"):
        run(made, tmp_path / "run")


# ---- records before every epoch


@dataclass(frozen=True, kw_only=True)
class Surveying(Trades):
    """TRADES that weighs a class by how many of its training images are misclassified before the epoch."""

    surveys = True

    def init(self, class_names: Sequence[str]) -> State:
        return {**super().init(class_names), "images": torch.tensor(0), "epochs": torch.tensor(0)}

    def survey(self, batch: Batch, state: State) -> Tensor:
        x_adv = craft(Pgd(steps=1), batch.fast, batch, state)
        return batch.fast(x_adv)

    def before_epoch(self, state: State, train: Records, epoch: int) -> State:
        assert epoch == int(state["epochs"])
        weight = state["weight"].new_tensor(1 + np.bincount(train.label, ~train.correct, minlength=10))
        count = torch.tensor(len(train.label))
        return {**state, "weight": weight, "images": count, "epochs": state["epochs"] + 1}


def test_every_training_image_is_surveyed_before_every_epoch(tmp_path: Path) -> None:
    done = run(with_method(Surveying(steps=1), tmp_path), tmp_path / "run")
    state = content(tmp_path / "run")["state"]
    assert (int(state["images"]), int(state["epochs"])) == (60, 2)
    weights = done.history.filter(regex="^weight:").to_numpy()
    assert (weights[0] > 1).any()  # the first epoch is trained with it too
    assert not np.array_equal(weights[0], weights[1])


def test_the_survey_is_of_the_model_in_eval_mode_and_leaves_it_alone(tmp_path: Path, monkeypatch: Any) -> None:
    survey = Surveying.survey

    def watched(self: Surveying, batch: Batch, state: State) -> Tensor:
        found = survey(self, batch, state)
        alone = torch.cat([batch.fast(image[None]) for image in batch.x])
        torch.testing.assert_close(
            batch.fast(batch.x), alone, atol=1e-5, rtol=1e-5
        )  # batch-norm does not see the batch
        return found

    monkeypatch.setattr(Surveying, "survey", watched)
    run(with_method(Surveying(steps=1), tmp_path, train={"epochs": 1}), tmp_path / "run")
    shown = content(tmp_path / "run")["shown"]
    assert next(int(value) for name, value in shown.items() if "num_batches" in name) == 2 * 3  # of the steps only


@pytest.mark.parametrize("steps", [2, 5])
def test_killed_in_an_epoch_it_resumes_with_its_survey(steps: int, tmp_path: Path) -> None:
    made = with_method(Surveying(steps=2), tmp_path, "dropping", train={"save_minutes": 0})
    run(made, tmp_path / "whole")
    with dying_after(steps):
        run(made, tmp_path / "killed")
    assert content(tmp_path / "killed")["step"] == 1  # of the first or the second epoch
    run(made, tmp_path / "killed")
    assert_same_run(tmp_path / "killed", tmp_path / "whole")
