"""Every plan does what the paper states, or says in what it differs; and the comparison finds what differs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from classwise import published, studies
from classwise.published.paper_settings import NOT_STATED, Settings, StatedAttack, StatedRun, StatedTraining, settings
from classwise.studies.reproduction import compared, page, reproduce
from classwise.studies.reproduction.used import used
from classwise.studies.runner.graph import Graph
from for_each import for_each

both_scales = pytest.mark.parametrize("scale", ["desk", "paper"])


@pytest.mark.slow
@for_each("scale", ["desk", "paper"])
@for_each("name", reproduce.names())
def test_what_differs_from_the_paper_is_said_and_nothing_else_is(name: str, scale: reproduce.Scale) -> None:
    plan = reproduce.plan(name, scale)
    found = reproduce.differences(name, scale)
    listed = {key for each in plan.differs for key in each.keys}
    assert {each.key for each in found} <= listed, [each for each in found if each.key not in listed]
    present = {each.key for each in found} | compared.NOT_COMPARED
    assert [each.says for each in plan.differs if not present & set(each.keys)] == []


def test_every_item_that_is_measured_has_settings_with_their_place() -> None:
    for name in reproduce.names():
        assert settings(name).where, name
        for run in settings(name).runs:
            assert all(attack.where for attack in run.attacks if attack.attack != "clean"), name


def test_a_difference_is_a_sentence() -> None:
    for name in reproduce.names():
        for sentence in (*reproduce.plan(name, "desk").sentences, *reproduce.plan(name, "paper").sentences):
            assert sentence.endswith("."), (name, sentence)


@pytest.mark.slow
def test_the_page_of_all_reproductions_is_up_to_date() -> None:
    file = Path(__file__).parents[3] / "docs" / "results" / "reproductions.md"
    made = page.markdown()
    assert file.read_text(encoding="utf-8") == made, "python -m classwise.studies.reproduction.page > " + str(file)
    for name in reproduce.names():
        assert f"### `{name}`\n" in made
        for scale in ("desk", "paper"):
            assert all(sentence in made for sentence in reproduce.plan(name, scale).sentences)


# ---- plan by plan, what was not as in the paper


def option(name: str, scale: reproduce.Scale, field: str) -> Any:
    return getattr(reproduce.plan(name, scale).study, field)


@both_scales
def test_the_fourth_class_counted_from_one_is_cat(scale: reproduce.Scale) -> None:
    assert option("li2023:figure3", scale, "class_name") == ("cat",)


@both_scales
@pytest.mark.parametrize("name", ["tian2021:table1", "tian2020:table2"])
def test_fgsm_starts_at_random_and_transfer_crafts_with_the_steps_of_pgd(name: str, scale: reproduce.Scale) -> None:
    found = {each.attack.attack: each.attack for each in used(reproduce.graph(name, scale))}
    assert found["fgsm"].start == "random"
    assert (found["transfer"].steps, found["transfer"].step, found["transfer"].start) == (20, 0.003, "random")
    assert {found[attack].eps for attack in ("fgsm", "pgd", "transfer", "nattack")} == {0.031}


@pytest.mark.parametrize("name", ["tian2021:figure4c", "tian2021:table4", "tian2021:figure6"])
def test_class_3_is_attacked_with_temperature_pgd_on_the_wide_trades_model(name: str) -> None:
    models = used(reproduce.graph(name, "paper"))
    attacked = [each for each in models if each.attack.attack != "clean"]
    assert {each.attack.settings["inv_temperature"] for each in attacked} == {5.0}
    assert {each.training["network"] for each in models} == {"wideresnet-34-10"}
    assert {(each.method, each.training["train_eps"]) for each in models} == {("trades", 0.031)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tian2021:figure1", "tian2021:table5", "tian2021:figure2", "tian2020:figure4"])
def test_each_data_set_has_its_own_attack_radius_and_epoch(name: str) -> None:
    found = {
        (each.data, each.attack.steps, each.attack.step, each.attack.eps)
        for each in used(reproduce.graph(name, "paper"))
        if each.attack.attack == "pgd"
    }
    small = {(data, 20, 0.007, 0.031) for data in ("cifar10", "cifar100", "svhn", "stl10")}
    assert found == {("mnist", 40, 0.01, 0.3), ("imagenet", 50, 0.003, 0.007)} | small
    epochs = {
        each.data: each.training["checkpoint"]
        for each in used(Graph.of(dataclasses.replace(reproduce.plan(name, "paper").study, set=()).jobs()))
    }
    assert epochs["imagenet"] == 14
    assert {epochs[data] for data in ("mnist", "cifar10", "cifar100", "svhn", "stl10")} == {75}


def test_wats_table_of_etas_is_attacked_as_it_is_printed() -> None:
    found = used(reproduce.graph("li2023:table3", "paper"))
    attacks = {(each.attack.attack, each.attack.steps, each.attack.eps) for each in found}
    radius = 8 / 255
    assert attacks >= {("pgd", 100, radius), ("margin_pgd", 30, radius), ("autoattack", NOT_STATED, radius)}


def test_wats_first_table_has_both_data_sets_and_frl_with_the_settings_of_all() -> None:
    found = used(reproduce.graph("li2023:table1", "paper"))
    assert {each.data for each in found} == {"cifar10", "cifar100"}
    frl = {each.model: each.training for each in found if each.method == "frl_rw" and each.data == "cifar10"}
    common, own = frl["{frl_rw}/best.pt"], frl["{frl_rw-own}/best.pt"]
    assert (common["epochs"], common["lr"], common["weight_decay"]) == (100, 0.1, 2e-4)
    assert (own["epochs"], own["lr"], own["weight_decay"]) == (40, 0.001, 5e-4)


def test_a_plan_like_a_plan_like_a_third_keeps_its_notes() -> None:
    assert published.item("benz2020:figure2").study == "class-bias"
    assert any("width 16" in sentence for sentence in reproduce.plan("benz2020:figure2", "desk").sentences)


# ---- the comparison itself


def stated(**changed: Any) -> Settings:
    """Three-step PGD at 0.1 of a madry model of the digits, as desk/digits/madry has none of."""
    attack = {"attack": "pgd", "steps": 5, "step": 0.02, "eps": 0.15, "norm": "linf", "start": "random"}
    training: dict[str, Any] = {"network": "resnet:width=16,blocks=1-1"}
    own = StatedRun(
        data=changed.pop("data", "digits"),
        method=changed.pop("method", "madry"),
        training=StatedTraining(**training | {k: changed.pop(k) for k in [*changed] if k in _TRAINING}),
        attacks=(StatedAttack(**attack | {k: changed.pop(k) for k in [*changed] if k in attack}),),  # type: ignore[arg-type]
    )
    return Settings(id="tian2021:figure2", where="here", runs=(own,), **changed)


_TRAINING = {field.name for field in dataclasses.fields(StatedTraining)}


def study(**changed: Any) -> studies.Study:
    options = {"recipe": ["desk/digits/madry"], "attack": "pgd:steps=5,step=0.02", "eps": "0.15"} | changed
    return studies.parse("relations", options)


def keys(paper: Settings, own: studies.Study) -> set[str]:
    return {each.key for each in compared.differences(paper, own, Graph.of(own.jobs()))}


def base() -> Settings:
    model = used(Graph.of(study().jobs()))[0].training
    return stated(network=model["network"], epochs=model["epochs"], lr=model["lr"])


def test_equal_settings_do_not_differ() -> None:
    assert keys(base(), study()) == set()


@pytest.mark.parametrize(
    ("own", "key"),
    [
        ({"attack": "pgd:steps=6,step=0.02"}, "steps"),
        ({"attack": "pgd:steps=5"}, "step"),
        ({"attack": "pgd:steps=5,step=0.02,start=none"}, "start"),
        ({"attack": "margin_pgd:steps=5,step=0.02"}, "attack"),
        ({"eps": "0.1"}, "eps"),
        ({"set": ["train.epochs=99"]}, "epochs"),
        ({"set": ["model.spec=lenet"]}, "network"),
        ({"recipe": ["desk/digits/trades"]}, "rows"),
        ({"recipe": ["desk/mnist/madry"], "eps": "0.15"}, "rows"),
    ],
)
def test_a_setting_that_differs_is_found_by_its_key(own: dict[str, Any], key: str) -> None:
    assert keys(base(), study(**own)) == {key}


def test_test_images_are_compared_with_all_of_the_data_set() -> None:
    paper = dataclasses.replace(base(), images="all")
    assert keys(paper, study(per_class=20)) == {"images"}
    assert keys(paper, study(per_class=36)) == set()  # 360 test images of ten classes


def test_what_a_paper_does_not_state_cannot_differ() -> None:
    assert keys(stated(network=NOT_STATED, steps=NOT_STATED, step=NOT_STATED), study(attack="pgd-7")) == set()


def test_every_epoch_must_be_audited_where_the_paper_shows_them() -> None:
    paper = dataclasses.replace(base(), every_epoch=True)
    own = studies.parse(
        "class-bias",
        {"recipe": ["desk/digits/madry", "desk/digits/standard"], "attack": "pgd:steps=5,step=0.02", "eps": "0.15"},
    )
    assert keys(paper, own) == {"every_epoch"}
    assert keys(paper, dataclasses.replace(own, set=("train.keep=all",))) == set()


def test_options_of_the_study_are_compared_by_name() -> None:
    paper = dataclasses.replace(base(), options={"groups": 3})
    assert keys(paper, study(groups=3)) == set()
    assert keys(paper, study(groups=4)) == {"groups"}
