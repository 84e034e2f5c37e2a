"""Frozen teachers, and columns of a method's own in the training records: loaded, used, recorded, resumed, refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import assert_same_run, content, dying_after, history, net_file, run, small
from torch import nn

from classwise.core.errors import UserError
from classwise.models import load_model
from classwise.training.teachers import Teacher
from classwise.training.train import Trained

#: Distils a teacher, counts the iterates that are classified correctly, and sums up what the epoch's records say.
OWN = """
import dataclasses
from dataclasses import dataclass

import torch

from classwise.core.losses import cross_entropy, kl
from classwise.methods import Loss
from classwise.methods.madry import Madry
from classwise.methods.method import both_logits


@dataclass(frozen=True, kw_only=True)
class Own(Madry):
    def needs_teacher(self):
        return ("teacher",)

    def init(self, class_names):
        zero = torch.zeros(len(class_names))
        return {**super().init(class_names), "survived": zero, "clean_sum": zero}

    def attack(self, model, batch, state):
        survived = torch.zeros_like(batch.y)
        count = lambda rows: survived.add_(rows["logits"].argmax(1) == batch.y)
        x_adv = super().attack(model, dataclasses.replace(batch, observe=count), state)
        batch.columns["survived"] = survived
        return x_adv

    def loss(self, model, batch, state):
        z, z_adv = both_logits(model, batch, state)
        return Loss(kl(batch.teacher(batch.x), z_adv), z_adv, {"clean": cross_entropy(z, batch.y)})

    def update(self, state, train, valid, epoch):
        sums = train.frame.groupby("label")[["survived", "clean"]].sum()
        assert len(train) == 60 and (train.frame["survived"].between(0, self.steps)).all()
        return {**state, "survived": torch.tensor(sums["survived"].to_numpy()).float(),
                "clean_sum": torch.tensor(sums["clean"].to_numpy()).float()}
"""


def tree_in(folder: Path, teacher: Path | None = None, **parts: Any) -> dict[str, Any]:
    (folder / "own.py").write_text(OWN)
    tree = small(folder, "normed", method={"name": f"{folder / 'own.py'}:Own", "steps": 3}, **parts)
    if teacher is not None:
        tree["teacher"] = {"spec": f"{net_file(folder)}:normed", "weights": str(teacher)}
    return tree


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("teachers")


@pytest.fixture(scope="module")
def trained(folder: Path) -> list[Path]:
    """Two networks to learn from."""
    made = [
        run(small(folder, "normed", method={"name": "standard"}, train={"seed": seed}), folder / f"teacher-{seed}")
        for seed in (0, 1)
    ]
    return [each.last for each in made]


@pytest.fixture(scope="module")
def whole(folder: Path, trained: list[Path]) -> Path:
    """A run that nothing disturbs."""
    run(tree_in(folder, trained[0]), folder / "whole")
    return folder / "whole"


@pytest.mark.slow
def test_the_columns_of_attack_and_loss_reach_the_update(whole: Path) -> None:
    state = content(whole)["state"]
    assert (state["clean_sum"] > 0).all()
    assert 0 < state["survived"].sum() <= 60 * 3
    assert (state["survived"] == state["survived"].round()).all()
    assert {"survived:0", "clean_sum:9"} <= {*history(whole).columns}


@pytest.mark.slow
@pytest.mark.parametrize("steps", [2, 5])
def test_killed_within_an_epoch_it_resumes_to_the_same(steps: int, folder: Path, whole: Path, trained: Any) -> None:
    tree, out = tree_in(folder, trained[0], train={"save_minutes": 0}), folder / f"killed-{steps}"
    with dying_after(steps):
        run(tree, out)
    assert content(out)["step"] > 0
    assert {"survived", "clean"} <= {*content(out)["seen"]}
    run(tree, out)
    assert_same_run(out, whole)


@pytest.mark.slow
def test_a_module_teaches_as_its_checkpoint_does_and_stays_as_it_is(folder: Path, whole: Path, trained: Any) -> None:
    module = load_model(f"{net_file(folder)}:normed", weights=trained[0], num_classes=10, in_channels=1).train()
    before = copy.deepcopy(module.state_dict())
    done = run(tree_in(folder), folder / "module", teacher=module)
    one, other = content(folder / "module")["shown"], content(whole)["shown"]
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert module.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in module.parameters())
    assert done.config["run"]["given"] == ["teacher"]


@pytest.mark.slow
def test_a_checkpoint_of_classwise_needs_no_spec(folder: Path, whole: Path, trained: Any, tmp_path: Path) -> None:
    tree = {**tree_in(folder), "teacher": {"weights": str(trained[0])}}
    run(tree, tmp_path / "run", trust=True)  # the checkpoint names a Python file
    assert Trained(tmp_path / "run").config["fingerprint"] == Trained(whole).config["fingerprint"]


@pytest.mark.slow
def test_another_teacher_is_refused_on_resume(folder: Path, trained: list[Path], tmp_path: Path) -> None:
    copied = tmp_path / "teacher.pt"
    copied.write_bytes(trained[0].read_bytes())
    with dying_after(4):
        run(tree_in(folder, copied), tmp_path / "run")
    copied.write_bytes(trained[1].read_bytes())
    with pytest.raises(UserError, match=r"other settings: the weights of the teacher are not those it was made with"):
        run(tree_in(folder, copied), tmp_path / "run")
    with pytest.raises(UserError, match=r"teacher\.weights: .*teacher\.pt\" there"):
        run(tree_in(folder, trained[1]), tmp_path / "run")
    copied.write_bytes(trained[0].read_bytes())
    run(tree_in(folder, copied), tmp_path / "run")


def test_without_a_teacher_the_error_says_where_to_get_one(tmp_path: Path) -> None:
    for part in ({}, {"teacher": {"spec": "resnet:width=4,blocks=1"}}):
        with pytest.raises(UserError, match=r"distils a robust teacher: .*--set teacher\.weights=.*teacher=module"):
            run({**tree_in(tmp_path), **part}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_teacher_that_nobody_asks_for_or_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    linear = nn.Sequential(nn.Flatten(), nn.Linear(64, 7))
    with pytest.raises(UserError, match=r"trades distils no teacher: leave it out"):
        run(small(tmp_path), tmp_path / "run", teacher=linear)
    with pytest.raises(UserError, match=r"distils no teacher_clean"):
        run({**tree_in(tmp_path), "teacher_clean": {"weights": "some.pt"}}, tmp_path / "run", teacher=linear)
    with pytest.raises(UserError, match=r"the teacher does not fit the data: the model has 7 classes"):
        run(tree_in(tmp_path), tmp_path / "run", teacher=linear)


def test_the_logits_of_a_tensor_are_computed_once_and_without_gradients() -> None:
    asked: list[torch.Tensor] = []
    linear = nn.Linear(3, 2)
    linear.register_forward_hook(lambda module, given, found: asked.append(given[0]))
    teacher, x = Teacher(linear), torch.ones(4, 3, requires_grad=True)
    first, other = teacher(x), teacher(x + 1)
    assert teacher(x) is first
    assert len(asked) == 2
    assert not first.requires_grad
    assert not torch.equal(first, other)


@pytest.mark.slow
def test_a_column_must_have_a_name_of_its_own(folder: Path, trained: list[Path], tmp_path: Path) -> None:
    tree = tree_in(folder, trained[0])
    (tmp_path / "own.py").write_text(OWN.replace('{"clean": ', '{"loss": '))
    tree["method"]["name"] = f"{tmp_path / 'own.py'}:Own"
    with pytest.raises(UserError, match=r"training records have a column loss already"):
        run(tree, tmp_path / "run")
