"""`train` from outside: what is wrong is said before the first epoch and leaves no trace; a run can be gone on with."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import history, net_file, run, small
from torch import nn

import classwise as cw
from classwise.core.errors import UserError
from classwise.data.images import ArrayPixels, Images
from classwise.training import prepare
from classwise.training.step import TrainStep

pytestmark = pytest.mark.slow

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a class that is not there": (
        {"method": {"beta": {"thre": 0.5}}}, r"unknown class in beta 'thre'"),
    "a vector of the wrong length": (
        {"method": {"beta": [6.0, 0.5]}}, r"beta has 2 values, but there are 10 classes"),
    "a split larger than a class": (
        {"data": {"validation": 8}}, r"data\.validation = 8 would leave no '0' to train on: digits has 8 of it"),
    "nothing to fold": (
        {"train": {"fold": "yes"}}, r"train\.fold = yes, but nothing in .*net\.py:plain can be folded"),
    "data that is not there": (
        {"data": {"name": "cifar10"}}, r"cifar10"),
    "a data set that does not exist": (
        {"data": {"name": "digit"}}, r"unknown data set 'digit'; did you mean 'digits'"),
    "a model that does not exist": (
        {"model": {"spec": "resnet-1"}}, r"resnet"),
    "a class to leave out that is not there": (
        {"data": {"exclude": ["eleven"]}}, r"unknown class of digits 'eleven'"),
    "no start to fine-tune": (
        {"method": {"name": "frl_rw"}}, r"frl_rw fine-tunes a robust model: give its checkpoint as model\.weights"),
    "wat with nothing held out": (
        {"method": {"name": "wat"}, "data": {"validation": 0}, "validate": {"select": "last"}},
        r"wat uses validation images after every epoch, and none are held out: set data\.validation"),
    "csl with nothing held out": (
        {"method": {"name": "csl"}, "data": {"validation": 0}, "validate": {"select": "last"}},
        r"csl uses validation images after every epoch, and none are held out"),
    "wat every other epoch": (
        {"method": {"name": "wat"}, "validate": {"every": 2}},
        r"wat uses validation images after every epoch, but validate\.every = 2: set it to 1"),
    "fawa with nothing held out": (
        {"train": {"averaging": "fawa"}, "data": {"validation": 0}, "validate": {"select": "last"}},
        r"train\.averaging = fawa uses validation images, and none are held out"),
    "an optimiser that does not exist": (
        {"train": {"optimizer": "sdg"}}, r"unknown optimi[sz]er 'sdg'; did you mean 'sgd'"),
    "a schedule that does not exist": (
        {"train": {"schedule": "cosin"}}, r"unknown schedule 'cosin'; did you mean 'cosine'"),
    "an augmentation that does not exist": (
        {"data": {"augment": ["flp"]}}, r"'flp'; did you mean 'flip'"),
    "an averaging that does not exist": (
        {"train": {"averaging": "sva"}}, r"unknown averaging 'sva'; did you mean 'swa'"),
    "no such pseudo-labels": (
        {"data": {"extra": "none.npz"}}, r"cannot read pseudo-labelled images from none\.npz"),
    "batches of one": (
        {"train": {"batch": 1}}, r"train\.batch = 1 makes no batch of at least 2"),
    "halves on a CPU": (
        {"train": {"amp": "float16"}}, r"train\.amp = float16 is for GPUs"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_before_the_first_epoch(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrainStep, "__call__", lambda *args: pytest.fail("a step was taken"))
    parts, message = WRONG[what]
    with pytest.raises(UserError, match=message):
        run(small(tmp_path, **parts), tmp_path / "run", root=tmp_path / "data", device="cpu")
    assert not (tmp_path / "run" / "config.toml").exists()  # so that the corrected command is not refused


def test_csl_by_training_accuracies_needs_nothing_held_out(tmp_path: Path) -> None:
    tree = small(
        tmp_path, method={"name": "csl", "source": "train", "steps": 1}, data={"validation": 0},
        validate={"select": "last"},
    )  # fmt: skip
    assert len(run(tree, tmp_path / "run").history) == 2


def test_an_unknown_tracker(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unknown tracker 'tensorbord'; did you mean 'tensorboard'"):
        run(small(tmp_path), tmp_path / "run", trackers=["tensorbord"])
    run(small(tmp_path), tmp_path / "run")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("done")
    run(small(folder), folder / "run")
    return folder / "run"


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ({"train": {"epochs": 5}}, r"train\.epochs: 2 there, 5 now"),
        ({"method": {"beta": {"3": 0.5}}}, r"method\.beta"),
        ({"threat": {"eps": 0.2}}, r"threat\.eps: 0\.1 there, 0\.2 now"),
        ({"data": {"per_class": 9}}, r"data\.per_class: 8 there, 9 now"),
    ],
)
def test_other_settings_are_refused_by_name(parts: dict[str, Any], line: str, done: Path) -> None:
    with pytest.raises(UserError, match=rf"was made with other settings:\n(.|\n)*{line}(.|\n)*--overwrite"):
        run(small(done.parent, **parts), done)
    assert len(history(done)) == 2


def test_another_first_model_is_refused(done: Path, tmp_path: Path) -> None:
    """The same file and name, and other weights in it."""
    before = (done.parent / "net.py").read_text()
    tree = small(done.parent)
    (done.parent / "net.py").write_text(
        before.replace("nn.Linear(36, num_classes))", "nn.Linear(36, num_classes, bias=False))")
    )
    try:
        with pytest.raises(UserError, match=r"the first weights of .*net\.py:plain are not those"):
            run(tree, done)
    finally:
        net_file(done.parent)


def test_overwrite_trains_from_scratch(done: Path, tmp_path: Path) -> None:
    run(small(tmp_path), tmp_path / "run")
    tree = small(tmp_path, train={"epochs": 1})
    (tmp_path / "run" / "tensorboard").mkdir()
    earlier = ("tensorboard/events.out.tfevents.1", "mlflow-run.txt", "wandb-run.txt", "job.json", "not_finite_1.pt")
    for name in earlier:
        (tmp_path / "run" / name).touch()
    again = run(tree, tmp_path / "run", overwrite=True)
    assert not [name for name in earlier if (tmp_path / "run" / name).exists()]
    assert len(again.history) == 1
    assert again.config["train"]["epochs"] == 1


def test_a_mistake_with_overwrite_costs_nothing(tmp_path: Path) -> None:
    run(small(tmp_path), tmp_path / "run")
    with pytest.raises(UserError, match=r"unknown class in beta"):
        run(small(tmp_path, method={"beta": {"cat": 1.0}}), tmp_path / "run", overwrite=True)
    assert len(history(tmp_path / "run")) == 2
    assert (tmp_path / "run" / "best.pt").is_file()


def test_checkpoints_without_settings_are_not_written_over(tmp_path: Path) -> None:
    run(small(tmp_path), tmp_path / "run")
    (tmp_path / "run" / "config.toml").unlink()
    with pytest.raises(UserError, match=r"holds checkpoints but no config\.toml; choose another --out"):
        run(small(tmp_path), tmp_path / "run")


def test_a_file_is_no_run_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(UserError, match=r"run is a file; --out must be a folder"):
        run(small(tmp_path), tmp_path / "run")


def test_one_s_own_images_and_model(tmp_path: Path) -> None:
    """Three classes told apart by where they are bright; the model is trained in place."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 3
    x = 0.2 * torch.rand(60, 1, 3, 3, generator=generator)
    x[torch.arange(60), 0, y, y] += 0.8
    images = Images(ArrayPixels(x.numpy()), y.numpy(), ("left", "middle", "right"))
    net = nn.Sequential(nn.Flatten(), nn.Linear(9, 3))
    before = net[1].weight.detach().clone()
    tree = small(tmp_path, data={"validation": 5}, train={"epochs": 6, "optimizer": "sgd:lr=1"})
    tree["data"].pop("per_class")
    done = run(tree, tmp_path / "run", data=images, model=net)
    assert not torch.equal(net[1].weight, before)
    assert done.history["robust:middle"].iloc[-1] == 1
    saved = torch.load(done.last, weights_only=True)["state_dict"]
    assert torch.equal(saved["1.weight"], net[1].weight)


def test_training_never_asks_for_the_test_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load, splits = prepare.load_data, []

    def watched(name: str, root: Any = None, split: str = "train", *rest: Any) -> Images:
        splits.append(split)
        return load(name, root, split, *rest)

    monkeypatch.setattr(prepare, "load_data", watched)
    run(small(tmp_path), tmp_path / "run")
    assert set(splits) == {"train"}


def test_a_run_of_no_epoch_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none of its epochs has finished"):
        _ = cw.training.train.Trained(tmp_path).history


def test_excluding_a_class_trains_the_others(tmp_path: Path) -> None:
    done = run(small(tmp_path, data={"exclude": ["3", "5"]}), tmp_path / "run")
    assert [c for c in done.history if str(c).startswith("robust:")] == [
        f"robust:{d}" for d in (0, 1, 2, 4, 6, 7, 8, 9)
    ]
    assert done.model()(torch.zeros(1, 1, 8, 8)).shape == (1, 8)
    assert np.isfinite(done.history["robust"]).all()


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"method": {"name": "dafa", "steps": 2}}, r"dafa would begin after the last of this training's 2 epochs"),
        ({"method": {"name": "cfa", "steps": 2, "begin": 2}}, r"cfa would begin after the last of"),
        ({"train": {"averaging": "swa:start=3"}}, r"swa:start=3 would begin .*: nothing is averaged"),
        ({"train": {"awp": "awp:start=2"}}, r"awp:start=2 would begin .*: no weight is perturbed"),
        ({"train": {"schedule": "cosine:warmup=2"}}, r"cosine:warmup=2 warms up for 2 of this training's 2 epochs"),
    ],
)
def test_what_never_begins_is_a_warning_and_a_remark(parts: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=sentence):
        done = run(small(tmp_path, **parts), tmp_path / "run")
    assert re.search(sentence, done.remarks()[0])


def test_what_a_training_says_at_its_end_is_kept_for_the_page(tmp_path: Path) -> None:
    done = run(small(tmp_path, method={"name": "wat", "steps": 2}), tmp_path / "run")
    said = json.loads((done.folder / "remarks.json").read_text(encoding="utf-8"))
    assert [sentence[:9] for sentence in said] == ["The worst", "Theorem 1", "Theorem 2"]
    assert tuple(said) == done.remarks()
    run(small(tmp_path, validate={"select": "last"}), tmp_path / "run", overwrite=True)
    assert not (done.folder / "remarks.json").exists()


@pytest.mark.parametrize(
    "parts", [{"method": {"name": "dafa", "steps": 2, "warmup": 1}}, {"train": {"averaging": "swa:start=2"}}]
)
def test_what_begins_in_the_last_epoch_is_none(parts: dict[str, Any], tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not run(small(tmp_path, validate={"select": "last"}, **parts), tmp_path / "run").remarks()
