"""A training without a recipe: what the options say, what is chosen for the rest, and that the choice is a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import history, net_file
from torch import nn

import classwise as cw
from classwise.cli.main import app
from classwise.core.errors import UserError
from classwise.data.images import ArrayPixels, Images
from classwise.methods.trades import Trades
from classwise.training import choices, recipe
from classwise.training.options import Options

PLAIN = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
NORMED = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))


def images(*counts: int, side: int = 16) -> Images:
    labels = np.repeat(np.arange(len(counts)), counts)
    pixels = ArrayPixels(np.zeros((len(labels), 1, side, side), np.uint8))
    return Images(pixels, labels, tuple("abcdefghij"[: len(counts)]), "mine")


def chosen(mine: Images, network: nn.Module = NORMED, **given: Any) -> tuple[recipe.Recipe, dict[str, Any]]:
    options = Options.of(**{"model": "net.py:make", "data": "folder", "method": "trades", **given})
    made, found = choices.complete(options, mine, network)
    return made, {f"{one.part}.{one.field}": one.value for one in found}


def test_from_weights_it_fine_tunes_for_two_epochs() -> None:
    made, found = chosen(images(20_000, 20_000, 500), weights="m.pt", eps="4/255", changes=["method.weight=1"])
    assert found == {
        "data.validation": 100,
        "data.augment": ["crop:padding=2"],
        "train.batch": 128,
        "train.epochs": 2,
        "train.optimizer": "sgd:lr=0.01,momentum=0.9,weight_decay=0.0002",
        "train.schedule": "constant",
        "validate.select": "worst",
        "method.steps": 2,
        "method.step": "2/255",
    }
    assert (made.method.steps, made.method.step, made.model.weights) == (2, 2 / 255, "m.pt")  # type: ignore[attr-defined]


def test_from_scratch_it_trains_longer_with_the_method_s_own_attack() -> None:
    made, found = chosen(images(6000, 6000, 6000))
    assert (found["train.epochs"], found["train.schedule"]) == (30, "cyclic")
    assert "lr=0.1," in found["train.optimizer"]
    assert made.method == Trades()
    _, plain = chosen(images(6000, 6000, 6000), PLAIN)
    assert "lr=0.01," in plain["train.optimizer"]


@pytest.mark.parametrize(
    ("counts", "held_out", "batch", "scratch"),
    [
        ((300, 120, 40), 8, 64, 100),  # 436 images are 7 steps an epoch
        ((3000, 2000, 1400), 100, 128, 42),  # 6100 images, 48 steps
        ((30, 4), 1, 64, 100),
        ((30, 1), 0, 64, 100),
    ],
)
def test_few_images_make_more_epochs_and_fewer_held_out(
    counts: tuple[int, ...], held_out: int, batch: int, scratch: int
) -> None:
    _, fine = chosen(images(*counts), weights="m.pt")
    _, new = chosen(images(*counts))
    assert fine["data.validation"] == held_out
    assert fine["validate.select"] == ("worst" if held_out else "last")
    assert (fine["train.batch"], fine["train.epochs"], new["train.epochs"]) == (batch, 2, scratch)


def test_what_is_given_is_not_chosen() -> None:
    given = {"epochs": 7, "batch": 32, "lr": 0.3, "weights": "m.pt", "method": "wat:steps=4,eta=0.5"}
    made, found = chosen(images(300, 300), **given, changes=["data.validation=3", "data.augment=[]", "train.clip=1"])
    assert found.keys() == {"train.optimizer", "train.schedule", "validate.select"}
    assert (made.train.epochs, made.train.batch, made.train.clip, made.data.validation) == (7, 32, 1.0, 3)
    assert "lr=0.3," in made.train.optimizer
    assert (made.method.steps, made.method.eta) == (4, 0.5)  # type: ignore[attr-defined]


def test_flips_only_where_a_mirrored_image_keeps_its_class() -> None:
    assert chosen(images(300, 300, side=32), data="cifar10")[0].data.augment == ("crop:padding=4", "flip")
    for data in ("svhn", "digits", "folder"):
        assert chosen(images(300, 300, side=32), data=data)[0].data.augment == ("crop:padding=4",)


def test_a_method_that_waits_begins_before_the_end() -> None:
    made, found = chosen(images(6000, 6000), method="dafa")
    assert (found["method.warmup"], made.method.idle_epochs()) == (15, 15)
    made, found = chosen(images(20_000, 20_000), method="cfa", weights="m.pt")
    assert (found["method.begin"], made.method.idle_epochs()) == (1, 1)


def test_classes_of_different_sizes_count_the_same() -> None:
    made, found = chosen(images(310, 110, 60, 0), changes=["data.validation=10"])
    weight = np.array(found["method.weight"])
    assert weight[:3] * [300, 100, 50] == pytest.approx([150] * 3, rel=1e-3)
    assert weight[3] == 1
    assert made.method.weight == tuple(found["method.weight"])
    _, rare = chosen(images(1010, 12, 11), changes=["data.validation=10"])  # 1000, 2 and 1 are left
    first, second, third = rare["method.weight"]
    assert second == third == pytest.approx(20 * first, rel=1e-3)
    for method in ("cfol", "cfol:form=reweighted", "codat", "wat:protocol=paper", "trades:weight=2"):
        assert "method.weight" not in chosen(images(300, 100), method=method)[1], method
    assert "method.weight" not in chosen(images(300, 250))[1]


def test_standard_training_selects_the_last_epoch() -> None:
    _, found = chosen(images(300, 300), method="standard", weights="m.pt")
    assert found["validate.select"] == "last"
    assert not any(name.startswith("method.") for name in found)


@pytest.mark.parametrize(
    ("model", "tuned"),
    [("robustbench:cifar10/Linf/Some", True), ("timm:resnet18,pretrained=true", True), ("timm:resnet18", False)],
)
def test_weights_of_a_library_are_weights(model: str, tuned: bool) -> None:
    assert (chosen(images(300, 300), model=model)[1]["train.schedule"] == "constant") == tuned


def test_options_replace_the_fields_of_a_recipe() -> None:
    options = Options.of(
        model="resnet-34", eps="4/255", epochs=3, lr=0.02, data="folder", per_class=9, normalize=((0.5,), (0.25,))
    )
    made = choices.begin("cifar10/wat", options)
    before = recipe.load("cifar10/wat")
    assert (made.model.spec, made.threat.eps, made.train.epochs) == ("resnet-34", 4 / 255, 3)
    assert made.train.optimizer == "sgd:lr=0.02"  # momentum and decay are those of the recipe, and the defaults
    assert (made.data.name, made.data.per_class, made.data.validation) == ("folder", 9, 300)
    assert made.model.normalize == "mean=[0.5],std=[0.25]"
    assert made.method == before.method
    assert choices.begin("cifar10/wat", Options.of()) == before


def test_another_method_brings_its_own_fields() -> None:
    assert choices.begin("cifar10/wat", Options.of(method="trades:beta=3")).method == Trades(beta=3)
    same = choices.begin("cifar10/wat", Options.of(method="wat:beta=3")).method
    assert (same.beta, same.step) == (3, 0.007)  # type: ignore[attr-defined]
    own = Trades(beta=1.5)
    assert choices.begin("cifar10/wat", Options.of(method=own)).method is own


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, r"which recipe\?.*--method trades.*--resume FOLDER"),
        ({"method": "wat"}, r"give --model and --data"),
        ({"method": "wat", "model": "resnet-18"}, r"give --data"),
        ({"method": "wta", "model": "lenet", "data": "digits"}, r"unknown method 'wta'; did you mean 'wat'"),
        ({"method": "wat:beta=-1", "model": "lenet", "data": "digits"}, r"beta"),
        ({"epochs": 0}, r"epochs must be at least 1"),
        ({"epoch": 3}, r"unknown setting of a training 'epoch'; did you mean 'epochs'"),
        ({"method": "wat", "model": "lenet", "data": "digits", "changes": ["train.epoch=3"]}, r"did you mean 'epochs'"),
    ],
)
def test_what_is_missing_or_wrong_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        choices.begin(None, Options.of(**given))


# ---- from outside ---------------------------------------------------------------------------------------------------


def words(folder: Path, *more: str) -> list[str]:
    start = ["train", "--method", "trades:steps=2", "--model", f"{folder / 'net.py'}:plain", "--data", "digits"]
    return [*start, "--per-class", "8", "--eps", "0.1", "--epochs", "2", "--no-progress", *more]


@pytest.mark.slow
def test_the_choice_is_shown_stored_and_a_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net_file(tmp_path)
    app(words(tmp_path, "--out", str(tmp_path / "run")), standalone_mode=False)
    told = capsys.readouterr()
    assert "Chosen, because not given" in told.err
    assert "data.validation" in told.err
    assert "train.epochs" not in told.err.partition("All settings")[0]
    stored = recipe.load(tmp_path / "run" / "config.toml")
    assert (stored.data.validation, stored.train.epochs, stored.threat.eps) == (1, 2, 0.1)
    app(
        ["train", str(tmp_path / "run" / "config.toml"), "--out", str(tmp_path / "again"), "--no-progress"],
        standalone_mode=False,
    )
    assert history(tmp_path / "run").equals(history(tmp_path / "again"))
    app(words(tmp_path, "--out", str(tmp_path / "run")), standalone_mode=False)  # finished: the same is chosen again
    app(words(tmp_path, "--dry-run"), standalone_mode=False)
    (tmp_path / "dry.toml").write_text(capsys.readouterr().out.split("Audit it:")[-1].partition("\n")[2])
    assert recipe.load(tmp_path / "dry.toml") == stored


@pytest.mark.slow
def test_python_takes_the_same_and_modules_too(tmp_path: Path) -> None:
    x, y = torch.rand(60, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    done = cw.train(
        method=Trades(steps=1), model=net, data=(x, y), eps="8/255", epochs=1, out=tmp_path / "run", progress=False
    )
    assert done.config["model"]["spec"] == "Sequential"
    assert done.config["data"]["validation"] == 4
    assert len(done.history) == 1
    with pytest.raises(UserError, match=r"weights and normalize belong to a model spec"):
        cw.train(method="trades", model=net, data=(x, y), weights="m.pt", out=tmp_path / "other")
