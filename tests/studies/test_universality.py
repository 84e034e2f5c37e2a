"""Universality: the statistics on hand-made records, then the study on a recipe and two variations of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import classwise as cw
from classwise import studies
from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import Records
from classwise.metrics import agreement
from classwise.studies import universality
from classwise.studies.runner.graph import Graph, TrainJob
from quick import QUICK, nothing_decided

NAMES = ("cat", "dog", "car", "ship", "bird", "frog")
SIZE = 40


def made(*right: int) -> list[Records]:
    """One seed's records: so many right of the images of each class."""
    names = NAMES[: len(right)]
    label = np.repeat(np.arange(len(names)), SIZE)
    correct = np.concatenate([np.arange(SIZE) < count for count in right])
    frame = pd.DataFrame(
        {
            "index": np.arange(len(label)),
            "label": label,
            "prediction": np.where(correct, label, (label + 1) % len(names)),
            "attack": "pgd",
            **dict.fromkeys(("eps", "confidence", "true_prob", "loss", "distance", "minimal"), 0.0),
            **dict.fromkeys(("step", "queries"), 1),
        }
    )
    return [Records(frame, Meta(class_names=names, attacks={"pgd": AttackInfo()}))]


def test_equal_classes_are_tested_by_chi_square() -> None:
    assert universality.equal_classes(made(20, 20, 20, 20)[0]) == 1
    assert universality.equal_classes(made(40, 40, 40, 40)[0]) == 1
    table = np.array([[5, 20, 30, 35], [35, 20, 10, 5]])
    expected = ((table - table.sum(1, keepdims=True) / 4) ** 2 / (table.sum(1, keepdims=True) / 4)).sum()
    assert universality.equal_classes(made(5, 20, 30, 35)[0]) == pytest.approx(stats.chi2.sf(expected, 3))


def test_agreement_is_the_metrics_with_an_interval() -> None:
    runs = {"one": made(5, 20, 30, 35), "two": made(6, 30, 20, 38), "three": made(39, 30, 20, 2)}
    found = universality.agreements(runs).set_index(["first", "second"])
    for (first, second), row in found.iterrows():
        expected = agreement.compute(runs[first][0], runs[second][0])
        assert (row["rho"], row["tau"]) == (pytest.approx(expected.spearman), pytest.approx(expected.kendall))
        assert row["low"] - 1e-9 <= row["rho"] <= row["high"] + 1e-9
    assert found.loc[("one", "three"), "high"] < 0


def test_the_worst_class_stays_or_not() -> None:
    stays = {f"v{n}": made(5, 20 + n, 30, 35 - n) for n in range(4)}
    claim = universality.same_worst(stays, "data")
    assert claim.verdict == "held"
    least = stats.fisher_exact([[5, 35], [20, 20]], alternative="less").pvalue
    assert f"cat in 4 of 4, p = {least:.2g}" in claim.numbers
    changes = {**stays, "other": made(30, 4, 35, 35)}
    assert universality.same_worst(changes, "data").verdict == "did not hold"


def test_a_worst_class_lost_by_a_hair_decides_nothing() -> None:
    runs = {**{f"v{n}": made(5, 20, 30, 35) for n in range(5)}, "close": made(6, 5, 30, 35)}
    assert universality.same_worst(runs, "data").verdict == "not decided here"


def test_the_order_is_tested_between_halves_of_the_images() -> None:
    same = {f"v{n}": made(5, 12 + n, 20, 26, 32, 38) for n in range(3)}
    claim = universality.same_order(same, "data")
    assert claim.verdict == "held"
    assert "mean ρ 1.00" in claim.numbers
    opposed = {"up": made(2, 8, 14, 26, 32, 38), "down": made(38, 32, 26, 14, 8, 2)}
    assert universality.same_order(opposed, "data").verdict == "did not hold"
    few = universality.same_order({"up": made(2, 14, 26, 38), "too": made(2, 14, 26, 38)}, "data")
    assert few.verdict == "not decided here"
    assert "4 classes, 5 are needed" in few.test
    equal = universality.same_order({"up": made(*[20] * 6), "too": made(*[20] * 6)}, "data")
    assert (equal.verdict, equal.numbers) == (
        "not decided here",
        "ρ is undefined: the classes of a training are equal",
    )


@pytest.mark.slow
def test_hard_images_alone_do_not_make_orders_alike() -> None:
    """All trainings get the same images wrong, the classes being equally hard."""
    rng, verdicts = np.random.default_rng(0), []
    for _ in range(60):
        right = rng.random((6, SIZE)) < 0.5
        run = made(*[SIZE] * 6)[0]
        frame = run.frame.assign(prediction=np.where(right.ravel(), run.label, (run.label + 1) % 6))
        one = Records(frame, run.meta)
        verdicts.append(universality.same_order({"one": [one], "two": [one]}, "data").verdict)
    assert verdicts.count("held") <= 5


def test_all_trainings_must_differ_between_classes() -> None:
    uneven, even = made(5, 20, 30, 35), made(20, 21, 20, 19)
    table = universality.by_variant({"a": uneven, "b": uneven}, {"a": uneven, "b": uneven})
    assert universality.differ_everywhere(table, {"a": uneven, "b": uneven}).verdict == "held"
    assert table["p_holm"].tolist() == pytest.approx((2 * table["p"]).tolist())
    assert table["worst class"].tolist() == ["cat", "cat"]
    assert (table["worst in draws (%)"] > 99).all()
    mixed = universality.by_variant({"a": uneven, "b": even}, {"a": uneven, "b": even})
    claim = universality.differ_everywhere(mixed, {"a": uneven, "b": even})
    assert claim.verdict == "not decided here"
    assert "1 of 2 trainings" in claim.numbers
    assert "weakest in b" in claim.numbers


def test_seeds_are_averaged() -> None:
    runs = [*made(4, 20, 30, 35), *made(8, 20, 30, 35)]
    table = universality.by_variant({"a": runs}, {"a": runs})
    assert table.loc[0, "worst (%)"] == pytest.approx(100 * 6 / SIZE)


# ---- the study ----------------------------------------------------------------------------------------------------


def study(**options: object) -> studies.Study:
    return studies.parse("universality", {"recipe": "desk/digits/madry", "set": list(QUICK), **options})


def test_variations_stand_beside_the_recipe_as_it_is() -> None:
    graph = Graph.of(study(vary=["model.spec=resnet:width=4,blocks=1", "adam=train.optimizer=adam:lr=0.001"]).jobs())
    assert sorted(name for name, job in graph.jobs.items() if isinstance(job, TrainJob)) == [
        "adam", "base", "resnet-width-4-blocks-1",
    ]  # fmt: skip
    training = graph.jobs["adam"]
    assert isinstance(training, TrainJob)
    assert training.changes == (*QUICK, "train.optimizer=adam:lr=0.001", "train.seed=0")


def test_every_recipe_is_varied() -> None:
    recipes = ["desk/digits/madry", "small=desk/mnist/trades"]
    graph = Graph.of(study(recipe=recipes, set=[], vary="both=train.batch=32;model.spec=lenet").jobs())
    trainings = {name: job for name, job in graph.jobs.items() if isinstance(job, TrainJob)}
    assert sorted(trainings) == ["digits-madry", "digits-madry-both", "small", "small-both"]
    assert trainings["small-both"].changes == ("train.batch=32", "model.spec=lenet", "train.seed=0")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": []}, "give --recipe RECIPE"),
        ({}, "nothing to compare it with"),
        ({"vary": "resnet-18"}, "'resnet-18' is not of the form part.key=value"),
        ({"vary": "train.seed=1"}, "--seeds 0,1,2"),
        ({"vary": ["model.spec=lenet", "model.spec=lenet"]}, "two trainings would be called 'lenet'"),
        ({"vary": "modle.spec=lenet"}, "not of the form part.key=value"),
        ({"vary": "model.spce=lenet"}, "did you mean 'spec'"),
    ],
)
def test_what_cannot_be_varied(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        study(**options).jobs()


@pytest.mark.slow
def test_the_study_tells_what_its_audits_say(tmp_path: Path) -> None:
    vary = ["thin=model.spec=resnet:width=4,blocks=1"]
    result = studies.run(study(vary=vary, attack="pgd-2", per_class=8), tmp_path)
    audits = {name: cw.Audit.load(tmp_path / "jobs" / f"{name}-audit") for name in ("base", "thin")}
    table = result.tables["variants"].set_index("variant")
    for name, audit in audits.items():
        own = audit.by_class()
        assert table.loc[name, "robust (%)"] == pytest.approx(100 * own["correct"].sum() / own["n"].sum())
        assert table.loc[name, "worst (%)"] == pytest.approx(100 * own["accuracy"].min())
        assert table.loc[name, "clean (%)"] == pytest.approx(100 * audit.by_class("clean")["accuracy"].mean())
    pairs = result.tables["agreement"].set_index("accuracy")
    expected = agreement.compute(audits["base"].rows("clean"), audits["thin"].rows("clean"))
    assert pairs.loc["clean", "rho"] == pytest.approx(expected.spearman, nan_ok=True)
    nothing_decided(result)
    assert [claim.source for claim in result.claims] == ["benz2020:section3.1"] * 3
    assert (tmp_path / "figures" / "robustness.svg").is_file()
    assert any("trained once" in line for line in result.notes)
