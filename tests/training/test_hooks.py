"""The hooks of a method that the loop calls besides its attack and loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import assert_same_run, content, dying_after, run, small
from torch import nn

from classwise.methods import Batch, Loss, Method, State
from classwise.methods.trades import Trades
from classwise.training import recipe
from classwise.training.recipe import Recipe

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


def test_a_pass_after_the_step_moves_batch_norm_s_statistics(tmp_path: Path) -> None:
    passes = {}
    for method in (Trades(steps=2), Counting(steps=2)):
        run(with_method(method, tmp_path), tmp_path / type(method).__name__)
        shown = content(tmp_path / type(method).__name__)["shown"]
        passes[type(method)] = next(int(value) for name, value in shown.items() if "num_batches" in name)
    assert passes == {Trades: 2 * 6, Counting: 3 * 6}


@pytest.mark.parametrize("steps", [2, 4])
def test_killed_in_an_epoch_it_resumes_with_the_state_after_the_last_step(steps: int, tmp_path: Path) -> None:
    made = with_method(Counting(steps=2), tmp_path, "dropping", train={"save_minutes": 0})
    run(made, tmp_path / "whole")
    with dying_after(steps):
        run(made, tmp_path / "killed")
    left = content(tmp_path / "killed")
    assert left["step"] > 0 or left["epoch"] > 0
    assert float(left["state"]["seen"].sum()) == 20 * (3 * left["epoch"] + left["step"])
    run(made, tmp_path / "killed")
    assert_same_run(tmp_path / "killed", tmp_path / "whole")
