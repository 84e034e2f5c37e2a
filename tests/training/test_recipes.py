"""Recipes: every shipped one loads and fits its data set, and a wrong one says what is wrong and what was meant."""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import classwise as cw
from classwise import methods
from classwise.core import spec
from classwise.core.errors import UserError
from classwise.data import cifar10
from classwise.models import registry
from classwise.training import augment, averaging, optimizer, recipe, schedule
from classwise.training.awp import Awp
from classwise.training.choice import choose
from classwise.training.parts import Phase
from for_each import for_each

SHIPPED = recipe.names()
shipped = functools.cache(recipe.load)
every_recipe = for_each("name", SHIPPED)
PROTOCOL = ("protocol/cifar10", "protocol/mnist", "protocol/fashion_mnist")

SMALL: dict[str, Any] = {
    "data": {"name": "digits", "validation": 15},
    "model": {"spec": "resnet:width=16,blocks=1-1"},
    "threat": {"eps": 0.15},
    "method": {"name": "trades", "beta": 6.0, "steps": 5},
    "train": {"epochs": 4, "batch": 64},
}


def class_names(data: str) -> tuple[str, ...]:
    """Those of a data set; ImageNet's are on the disk of whoever has it."""
    module = importlib.import_module(f"classwise.data.{spec.split(data)[0]}")
    found: tuple[str, ...] = getattr(module, "CLASS_NAMES", ()) or tuple(f"n{i:08}" for i in range(1000))
    return found


def with_part(part: str, **changed: Any) -> dict[str, Any]:
    """SMALL with some settings of one part replaced."""
    return {**SMALL, part: {**SMALL.get(part, {}), **changed}}


def fine_tunes(name: str) -> bool:
    """Whether a recipe begins from the weights of another."""
    return shipped(name).method.fine_tunes or "Fine-tunes a robust model" in recipe.locate(name).read_text("utf-8")


# ---- the shipped ones


def test_there_are_recipes_for_every_data_set_and_a_desk() -> None:
    places = {name.rpartition("/")[0] for name in SHIPPED}
    papers = {"mnist", "cifar10", "cifar100", "svhn", "stl10", "tiny_imagenet", "imagenet"}
    assert places == papers | {
        *PROTOCOL,
        "protocol/cifar10/tuned",
        "desk/digits",
        "desk/mnist",
        "desk/cifar10",
        "folder",
    }


@for_each("method", methods.names())
def test_every_method_has_a_recipe_for_the_digits(method: str) -> None:
    assert methods.name_of(shipped(f"desk/digits/{method}").method) == method


@every_recipe
def test_it_is_named_after_its_data_and_method_and_survives_being_written_down(name: str, tmp_path: Path) -> None:
    made = shipped(name)
    folder, _, file = name.rpartition("/")
    assert spec.split(made.data.name)[0] == re.sub("^(desk|protocol)/|/tuned$", "", folder)
    assert methods.name_of(made.method) == file.partition("-")[0]
    written = tmp_path / "whole.toml"
    written.write_text(recipe.to_toml(made), encoding="utf-8")
    assert recipe.load(written) == recipe.load(made.settings()) == made


@every_recipe
def test_its_specs_are_understood(name: str) -> None:
    made = shipped(name)
    optimizer.parse(made.train.optimizer)
    schedule.parse(made.train.schedule)
    for transforms in (made.data.augment, *(phase.augment or () for phase in made.train.phases)):
        augment.parse(transforms)
    if made.train.averaging is not None:
        averaging.parse(made.train.averaging)
    if made.train.awp is not None:
        choose({"awp": Awp}, made.train.awp, "awp")


@every_recipe
def test_its_method_knows_the_classes_of_its_data_and_has_the_validation_images_it_needs(name: str) -> None:
    made = shipped(name)
    names = class_names(made.data.name)
    assert made.method.init(names)["weight"].shape == (len(names),)
    if made.method.validation() or made.method.validates_first:
        assert made.data.validation > 0


@pytest.mark.slow
@for_each("network", sorted({shipped(name).model.spec for name in SHIPPED}))
def test_its_network_can_be_built(network: str) -> None:
    with torch.device("meta"):  # the shapes without the numbers
        built: Any = registry.construct(network, num_classes=7)
    assert built.head.out_features == 7


@for_each("name", [name for name in SHIPPED if methods.name_of(shipped(name).method).startswith("he")])
def test_hypersphere_embedding_has_a_cosine_head(name: str) -> None:
    assert "head=cosine" in shipped(name).model.spec


@every_recipe
def test_it_says_in_one_line_what_it_is(name: str) -> None:
    line = recipe.describe(name)
    assert line.endswith(".")
    assert 20 < len(line) < 120
    used = recipe.usage(name)
    assert f"{shipped(name).train.epochs} epochs" in used
    assert methods.name_of(shipped(name).method) in used


@for_each("folder", ["desk/digits", "desk/mnist", "desk/cifar10", "folder", *PROTOCOL, "protocol/cifar10/tuned"])
def test_desk_recipes_of_a_data_set_share_their_budget(folder: str) -> None:
    names = [name for name in SHIPPED if name.rpartition("/")[0] == folder]
    made = [shipped(name) for name in names]
    assert len({(r.data, r.train.batch, r.validate.attack, r.validate.protocol) for r in made}) == 1
    assert len({r.threat for r in made if r.threat.norm == "linf"}) == 1
    scratch = [shipped(name) for name in names if not fine_tunes(name)]
    assert len({r.train.epochs for r in scratch}) <= 1
    assert len({r.model.spec.removesuffix(",head=cosine") for r in made}) == 1


@for_each("name", [name for name in SHIPPED if fine_tunes(name)])
def test_recipes_that_fine_tune_say_how_to_make_the_weights_they_start_from(name: str) -> None:
    text = recipe.locate(name).read_text(encoding="utf-8")
    first, then = re.findall(r"^#   classwise train (\S+)(?: --set (\S+))? --out (\S+)$", text, re.MULTILINE)
    assert then[:2] == (name, f"model.weights={first[2]}/best.pt")
    made = recipe.load(first[0], [first[1]] if first[1] else [])
    assert made.model.spec == shipped(name).model.spec


@for_each("name", [name for name in SHIPPED if shipped(name).method.needs_teacher()])
def test_recipes_that_distil_say_how_to_make_their_teachers(name: str) -> None:
    text = recipe.locate(name).read_text(encoding="utf-8").replace(" \\\n#     ", " ")
    *first, then = re.findall(r"^#   classwise train (\S+) (.*)--out (\S+)$", text, re.MULTILINE)
    wanted = shipped(name).method.needs_teacher()
    given = [f"--set {part}.weights={out}/best.pt " for part, (_, _, out) in zip(wanted, first, strict=True)]
    assert then == (name, "".join(given), f"runs/{name.rpartition('/')[2]}")
    for part, (source, _, _) in zip(wanted, first, strict=True):
        assert getattr(shipped(name), part).spec == shipped(source).model.spec
        assert spec.split(shipped(source).data.name)[0] == spec.split(shipped(name).data.name)[0]


def test_dog_has_its_own_beta() -> None:
    beta = recipe.load("cifar10/trades-dog").method.init(cifar10.CLASS_NAMES)["beta"]
    assert beta.tolist() == [0.5 if name == "dog" else 6.0 for name in cifar10.CLASS_NAMES]


def test_imagenet_has_the_published_rates_and_sizes() -> None:
    made = recipe.load("imagenet/fast-code")
    rate = optimizer.parse(made.train.optimizer).lr
    at = schedule.parse(made.train.schedule).at
    wanted = {0: 0.0, 0.5: 0.2, 1: 0.4, 6: 0.04, 12: 0.004, 15: 0.0004}
    assert {t: round(rate * at(t, made.train.epochs), 7) for t in wanted} == wanted
    batches = [phase.batch for phase in made.train.phases]
    assert list(zip(made.train.ends(), batches, strict=True)) == [(6, 512), (12, 224), (15, 128)]
    assert not optimizer.parse(made.train.optimizer).decay_norm


@pytest.mark.parametrize("name", ["imagenet/fast", "imagenet/fast-code", "imagenet/standard"])
@pytest.mark.parametrize(("epochs", "ends"), [(15, [6, 12, 15]), (30, [12, 24, 30]), (100, [40, 80, 100])])
def test_imagenet_stretches_to_another_number_of_epochs(name: str, epochs: int, ends: list[int]) -> None:
    made = recipe.load(name, [f"train.epochs={epochs}"])
    at = schedule.parse(made.train.schedule).at
    assert made.train.ends() == ends
    assert at(epochs, epochs) == pytest.approx(schedule.parse(shipped(name).train.schedule).at(15, 15))


NINE = (
    "lenet", "vgg-16", "vgg-19", "resnet-18", "resnet-50", "densenet-121", "densenet-169", "googlenet", "inception_v3"
)  # fmt: skip


@pytest.mark.slow
@for_each("network", NINE)
def test_the_nine_networks_of_benz_et_al_take_the_place_of_a_recipes(network: str) -> None:
    made = recipe.load("cifar10/madry", [f"model.spec={network}"])
    with torch.device("meta"):
        assert registry.construct(made.model.spec, num_classes=10)(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@for_each("name", SHIPPED)
def test_a_recipe_in_an_l2_ball_says_so_in_its_name(name: str) -> None:
    assert (shipped(name).threat.norm == "l2") == name.endswith("-l2")


@for_each("name", [name for name in SHIPPED if "-common" in name])
def test_frl_with_the_common_settings_of_the_comparison(name: str) -> None:
    """Li and Liu (2023), "Hyper-parameters used in every method"."""
    made, base = shipped(name), shipped(f"{name.partition('/')[0]}/trades{'-wrn' if name.endswith('-wrn') else ''}")
    assert (made.threat, made.data, made.model.spec) == (base.threat, base.data, base.model.spec)
    same = ("epochs", "batch", "optimizer", "schedule")
    assert [getattr(made.train, key) for key in same] == [getattr(base.train, key) for key in same]
    own, theirs = methods.settings(made.method), methods.settings(base.method)
    assert (own["beta"], own["steps"]) == (theirs["beta"], theirs["steps"])
    assert own["tau1"] == own["tau2"] == own["rate"] == 0.05


def test_trades_rate_falls_in_the_75th_epoch() -> None:
    made = recipe.load("cifar10/trades")
    at = schedule.parse(made.train.schedule).at
    assert [round(at(t, made.train.epochs), 6) for t in (0, 73.9, 74, 89, 99.9)] == [1, 1, 0.1, 0.01, 0.01]


# ---- finding one


def test_a_shipped_recipe_is_found_by_name_and_by_path_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert recipe.load("recipes/cifar10/wat.toml") == recipe.load("cifar10/wat")


def test_a_file_of_ones_own_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "recipes" / "cifar10" / "wat.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[data]\nvalidation = 5\n[method]\nname = "wat"\n', encoding="utf-8")
    assert recipe.load("recipes/cifar10/wat.toml").data.validation == 5


def test_a_name_that_is_none_is_told_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown recipe 'cifar10/tradse'; did you mean 'cifar10/trades'"):
        recipe.load("cifar10/tradse")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no recipe file .*absent\.toml.*cifar10/wat"):
        recipe.load(tmp_path / "absent.toml")


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text("[data\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot read the recipe .*broken\.toml"):
        recipe.load(path)


YAML = """
data: {name: digits, validation: 15}
threat: {eps: 8/255}
method: {name: trades, beta: {"3": 0.5}}
train: {epochs: 4, schedule: "step:milestones=2-3"}
validate: {attack: [pgd-5]}
"""


def test_yaml_says_the_same_as_toml(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    path = tmp_path / "mine.yaml"
    path.write_text(YAML, encoding="utf-8")
    made = recipe.load(path, ["train.epochs=5"])
    assert (made.data.name, made.train.epochs, made.validate.attack) == ("digits", 5, ("pgd-5",))
    assert made.threat.eps == pytest.approx(8 / 255)
    assert made.method.init(class_names("digits"))["beta"][3] == 0.5


@pytest.mark.parametrize("text", ["data: [", "just words"])
def test_bad_yaml_is_named(text: str, tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    path = tmp_path / "mine.yml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"the recipe .*mine\.yml"):
        recipe.load(path)


def test_yaml_without_its_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = tmp_path / "mine.yaml"
    path.write_text(YAML, encoding="utf-8")
    with pytest.raises(UserError, match=r"needs PyYAML: pip install pyyaml"):
        recipe.load(path)


# ---- changing one


def changed(*changes: str) -> recipe.Recipe:
    return recipe.load(SMALL, changes)


def test_a_change_is_toml_where_it_can_be() -> None:
    made = changed("train.epochs=30", "train.joint=true", 'validate.attack=["pgd-20", "margin_pgd-20"]')
    assert (made.train.epochs, made.train.joint) == (30, True)
    assert made.validate.attack == ("pgd-20", "margin_pgd-20")


def test_a_change_is_text_where_it_is_no_toml() -> None:
    made = changed("threat.eps=4/255", "model.spec=smallcnn", "train.schedule=step:milestones=2-3")
    assert made.threat.eps == pytest.approx(4 / 255)
    assert (made.model.spec, made.train.schedule) == ("smallcnn", "step:milestones=2-3")


def test_several_values_of_one_key_are_written_with_bars() -> None:
    assert changed("data.exclude=3|5").data.exclude == ("3", "5")


def test_classes_get_their_own_values() -> None:
    names = class_names("digits")
    by_name = changed("method.beta={3 = 0.5}").method.init(names)["beta"]
    assert by_name.tolist() == [6, 6, 6, 0.5, 6, 6, 6, 6, 6, 6]
    in_order = changed("method.weight=[1, 1, 1, 2, 1, 1, 1, 1, 1, 1]").method.init(names)["weight"]
    assert in_order.argmax() == 3


def test_a_change_of_the_method_leaves_its_old_fields_behind() -> None:
    made = changed("method.name=madry", "method.steps=3")
    assert methods.settings(made.method) == methods.settings(methods.parse("madry", {"steps": 3}))


def test_naming_the_same_method_again_keeps_its_fields() -> None:
    assert methods.settings(changed("method.name=trades").method)["steps"] == 5


def test_a_recipe_that_is_made_already_can_be_changed() -> None:
    made = changed()
    assert recipe.load(made) is made
    assert recipe.load(made, ["train.epochs=9"]).train.epochs == 9
    assert made.train.epochs == 4


def test_a_change_does_not_reach_what_it_was_made_from() -> None:
    changed("method.beta=1.0", "train.epochs=1")
    assert SMALL["method"]["beta"] == 6.0
    assert SMALL["train"]["epochs"] == 4


# ---- what can be wrong


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("train.epoch=3", r"unknown setting of train 'epoch'; did you mean 'epochs'"),
        ("trian.epochs=3", r"unknown part of a recipe 'trian'; did you mean 'train'"),
        ("method.betta=3", r"unknown setting of trades 'betta'; did you mean 'beta'"),
        ("method.name=tradse", r"unknown method 'tradse'; did you mean 'trades'"),
        ("validate.select=wurst", r"unknown value of validate.select 'wurst'; did you mean 'worst'"),
        ('validate.attack=["pdg-20"]', r"unknown attack 'pdg'.*did you mean 'pgd'"),
        ("train.epochs", r"not of the form part.key=value"),
        ("epochs=3", r"not of the form part.key=value"),
        ("train.epochs=0", r"train.epochs must be at least 1, got 0"),
        ("train.epochs=soon", r"train.epochs must be a whole number, got 'soon'"),
        ("train.smoothing=1.5", r"train.smoothing must be at least 0 and below 1, got 1.5"),
        ("train.clip=-1", r"train.clip must be positive, got -1"),
        ("train.clip=0", r"train.clip must be positive, got 0"),
        ("train.save_minutes=-1", r"train.save_minutes must be at least 0, got -1"),
        ("train.stop_drop=-5", r"train.stop_drop must be at least 0 and at most 1, got -5"),
        ("train.batch=0", r"train.batch must be at least 1, got 0"),
        ("train.seed=-1", r"train.seed must be at least 0, got -1"),
        ("train.epochs=99999999999999999999", r"train.epochs must be at least 1 and at most 1000000000, got"),
        ("threat.eps=true", r"threat.eps must be a number such as 8/255 or 0.031, got True"),
        ("validate.eps=-0.1", r"validate.eps must be positive, got -0.1"),
        ("validate.every=0", r"validate.every must be at least 1, got 0"),
        ("data.limit=0", r"data.limit must be at least 1, got 0"),
        ("data.per_class=-3", r"data.per_class must be at least 1, got -3"),
        ("data.extra_fraction=1", r"data.extra_fraction must be at least 0 and below 1, got 1"),
        ("method.weight={cat = 'heavy'}", r"weight\[cat\] must be a number"),
        ("method.weight={cat = -1.0}", r"weight\[cat\] must be at least 0, got -1"),
        ("method.beta=[6.0, -0.5]", r"beta must be at least 0, got -0.5"),
        ("method.temperature=0", r"temperature must be positive, got 0"),
        ("data.validation=-1", r"data.validation must be at least 0, got -1"),
        ("data.validation=0", r"none is held out: set data.validation .* or validate.select to last"),
        ("threat.eps=-0.1", r"eps"),
        ("method.steps=0", r"steps must be at least 1, got 0"),
    ],
)
def test_a_wrong_change_is_explained(change: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        changed(change)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({**SMALL, "modle": {}}, r"unknown setting of a recipe 'modle'; did you mean 'model'"),
        ({**SMALL, "method": {"beta": 6.0}}, r"needs \[method\] name"),
        ({**SMALL, "train": 3}, r"\[train\] of a recipe must be a table of settings, got 3"),
        (with_part("data", nmae="digits"), r"unknown setting of data 'nmae'; did you mean 'name'"),
        (with_part("train", phases=[{"untill": 4}]), r"unknown setting of train.phases 'untill'; did you mean 'until'"),
        (with_part("train", phases=[{"until": 0}]), r"train.phases.until must be at least 1, got 0"),
    ],
)
def test_a_wrong_tree_is_explained(tree: Mapping[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        recipe.load(tree)


@pytest.mark.parametrize("ends", [[3, 2, 4], [2, 2, 4], [2, 3], [2, 5], [0.75, 0.5, 4], [0.5]])
def test_phases_end_one_after_the_other_and_with_the_training(ends: list[int]) -> None:
    with pytest.raises(UserError, match=r"phases must end one after the other, the last at epoch 4; got \["):
        recipe.load(with_part("train", phases=[{"until": end} for end in ends]))


def test_phases_may_change_data_batch_and_augmentation() -> None:
    made = recipe.load(with_part("train", phases=[{"until": 2, "batch": 32, "augment": ["flip"]}, {"until": 4}]))
    assert made.train.phases == (Phase(until=2, batch=32, augment=("flip",)), Phase(until=4))


def test_phases_may_end_with_a_fraction_of_all_epochs_and_with_the_training() -> None:
    made = recipe.load(with_part("train", phases=[{"until": 0.5, "batch": 32}, {"until": 3}, {"batch": 16}]))
    assert made.train.ends() == [2, 3, 4]
    assert recipe.load(made, ["train.epochs=6"]).train.ends() == [3, 3, 6]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("method.beta=[6.0, 0.5]", r"beta has 2 values, but there are 10 classes"),
        ("method.beta={dgo = 0.5}", r"unknown class in beta 'dgo'; did you mean 'dog'"),
        ("method.margin={10 = 0.5}", r"unknown class in margin '10'"),
    ],
)
def test_class_values_that_fit_no_class_are_refused_by_the_method(change: str, message: str) -> None:
    method = changed(change).method
    with pytest.raises(UserError, match=message):
        method.init(cifar10.CLASS_NAMES)


def test_a_recipe_is_read_again_when_its_file_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    for epochs in (3, 4):
        path.write_text(f'method = {{name = "trades"}}\n[data]\nvalidation = 5\n[train]\nepochs = {epochs}\n')
        assert recipe.load(path).train.epochs == epochs
        assert recipe.load(path, ["train.epochs=9"]).train.epochs == 9


def test_a_fine_tuning_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"frl_rw fine-tunes a robust model: give its checkpoint as model.weights"):
        cw.train("desk/digits/frl_rw", out=tmp_path / "run")
