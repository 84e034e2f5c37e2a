"""Homing: the matrix and its statistics on hand-made records, then the whole study on two retrainings."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import classwise as cw
from classwise import data, studies
from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import Records
from classwise.data import load as load_data
from classwise.studies.homing import claims, tables
from classwise.studies.runner.graph import AuditJob, Graph, TrainJob
from quick import QUICK

NAMES = ("cat", "dog", "car")


def made(names: tuple[str, ...], rows: list[tuple[int, str, str]]) -> Records:
    """Records of (index, class, predicted class)."""
    frame = pd.DataFrame(
        {
            "index": [index for index, _, _ in rows],
            "label": [names.index(own) for _, own, _ in rows],
            "prediction": [names.index(into) for _, _, into in rows],
            "attack": "pgd",
            **dict.fromkeys(("eps", "confidence", "true_prob", "loss", "distance", "minimal"), 0.0),
            **dict.fromkeys(("step", "queries"), 1),
        }
    )
    return Records(frame, Meta(class_names=names, attacks={"pgd": AttackInfo()}))


def answers(names: tuple[str, ...], **predictions: str) -> Records:
    """Records of the ten images of this file, by class the letters of what each is misclassified as."""
    begin, full = {"cat": 0, "dog": 6, "car": 8}, {"t": "cat", "d": "dog", "r": "car"}
    rows = [
        (begin[own] + place, own, full[letter])
        for own, letters in predictions.items()
        for place, letter in enumerate(letters)
    ]
    return made(names, rows)


# Six cats: 0, 1, 2 broken into dog, 3 into car; 4, 5 robust. Two dogs: 6 broken into cat. Two cars, robust.
BASE = answers(NAMES, cat="dddrtt", dog="td", car="rr")
#: Without dogs cats 0, 1 and 4 are robust; without cars only cats 2 and 5; without cats all dogs.
WITHOUT = {
    "dog": answers(("cat", "car"), cat="ttrrtr", car="rt"),
    "car": answers(("cat", "dog"), cat="ddtddt", dog="td"),
    "cat": answers(("dog", "car"), dog="dd", car="rr"),
}


def test_an_image_is_home_if_it_is_robust_without_its_confound() -> None:
    found = tables.fates(BASE, WITHOUT)
    assert found.index.tolist() == [0, 1, 2, 3, 6]
    assert found["home"].tolist() == [1, 1, 0, 0, 1]
    # The cats' only other class is the one that is neither their own nor their confound; the dog's is car.
    assert found["elsewhere"].tolist() == [0, 0, 1, 0, 0]


def test_the_homing_matrix_has_true_classes_in_rows() -> None:
    np.testing.assert_array_equal(tables.matrix(tables.fates(BASE, WITHOUT), NAMES), [[0, 2, 0], [1, 0, 0], [0, 0, 0]])


def test_rates_by_class_and_by_pair() -> None:
    broken = tables.fates(BASE, WITHOUT)
    classes = tables.by_class(BASE, broken).set_index("class")
    assert classes.loc["cat", ["n", "broken", "home", "vulnerable"]].tolist() == [6, 4, 2, "yes"]
    assert classes.loc["cat", "home (%)"] == 50
    assert classes.loc["cat", "another class left out (%)"] == 25
    assert classes.loc["car", ["broken", "home", "vulnerable"]].tolist() == [0, 0, "no"]
    pairs = tables.by_pair(broken)
    assert pairs.iloc[0][["class", "confound", "broken", "home"]].tolist() == ["cat", "dog", 3, 2]
    single = pairs.iloc[0]
    assert single["low"] < single["home (%)"] < single["high"]


def test_relations_are_pairs_that_are_each_others_confound() -> None:
    found = tables.relations(BASE, tables.fates(BASE, WITHOUT))
    assert found.to_numpy().tolist() == [["cat", "dog", 3, 2, 1, 1]]


def test_changes_are_paired_by_image_and_class_name() -> None:
    found = tables.changes(BASE, WITHOUT).set_index(["without", "class"])["change (points)"]
    assert found["dog", "cat"] == pytest.approx(100 * (3 - 2) / 6)
    assert found["dog", "car"] == pytest.approx(-50)
    assert found["cat", "dog"] == pytest.approx(50)
    assert ("dog", "dog") not in found.index


def test_advice_names_no_class_to_weaken_if_the_gain_may_be_chance() -> None:
    found = tables.advice(BASE, tables.changes(BASE, WITHOUT)).set_index("class")
    assert found.loc["cat", "most helped by"] == "dog"
    assert found.loc["cat", "weaken"] == "none (not significant)"


def test_advice_names_the_class_whose_absence_helps() -> None:
    size = 40
    base = made(NAMES, [(i, "cat", "dog") for i in range(size)] + [(size, "dog", "dog"), (size + 1, "car", "car")])
    rows = [(i, "cat", "cat") for i in range(size)] + [(size + 1, "car", "car")]
    found = tables.advice(base, tables.changes(base, {"dog": made(("cat", "car"), rows)}))
    assert found[["class", "weaken"]].to_numpy().tolist() == [["cat", "dog"]]
    assert found["change (points)"].tolist() == [100]


@pytest.mark.parametrize(("home", "verdict"), [(40, "held"), (4, "did not hold"), (21, "not decided here")])
def test_most_come_home_is_judged_by_its_interval(home: int, verdict: str) -> None:
    size = 40
    base = made(NAMES, [(i, "cat", "dog") for i in range(size)] + [(size, "dog", "dog"), (size + 1, "car", "car")])
    rows = [(i, "cat", "cat" if i < home else "car") for i in range(size)] + [(size + 1, "car", "car")]
    most, other, _ = claims.claims(base, tables.fates(base, {"dog": made(("cat", "car"), rows)}))
    assert most.verdict == verdict
    assert f"{home} of {size}" in most.numbers
    assert (other.verdict, other.numbers) == ("not decided here", "needs trainings without at least two classes")


def test_leaving_out_any_class_is_the_control() -> None:
    size = 30
    base = made(NAMES, [(i, "cat", "dog") for i in range(size)] + [(size, "dog", "dog"), (size + 1, "car", "car")])
    rows = {
        "dog": made(("cat", "car"), [(i, "cat", "cat") for i in range(size)]),
        "car": made(("cat", "dog"), [(i, "cat", "cat") for i in range(size)]),
    }
    assert claims.claims(base, tables.fates(base, rows))[1].verdict == "not decided here"
    rows["car"] = made(("cat", "dog"), [(i, "cat", "dog" if i < 15 else "cat") for i in range(size)])
    claim = claims.claims(base, tables.fates(base, rows))[1]
    assert claim.verdict == "held"
    assert "+50.0 points" in claim.numbers


@pytest.mark.parametrize("classes", [2, 3, 4, 5])
def test_chance_of_pairs_by_counting_every_choice(classes: int) -> None:
    choices = [[j for j in range(classes) if j != i] for i in range(classes)]
    pairs = [sum(i < j and into[j] == i for i, j in enumerate(into)) for into in itertools.product(*choices)]
    for least in range(classes // 2 + 2):
        assert claims.chance_of_pairs(least, classes) == pytest.approx(np.mean(np.array(pairs) >= least))


def test_an_audit_of_other_images_is_refused() -> None:
    other = made(("cat", "car"), [(0, "cat", "cat")])
    with pytest.raises(UserError, match="without dog lacks 3 of the images"):
        tables.fates(BASE, {"dog": other, **{name: WITHOUT[name] for name in ("car", "cat")}})


# ---- the view of a data set without a class -----------------------------------------------------------------------


def test_a_data_set_without_a_class_keeps_the_images_and_their_index() -> None:
    whole, part = load_data("digits"), load_data("digits:exclude=3|7")
    assert part.class_names == tuple("01245689")
    kept = ~np.isin(whole.labels, [3, 7])
    np.testing.assert_array_equal(part.positions, whole.positions[kept])
    np.testing.assert_array_equal(
        [part.class_names[label] for label in part.labels], [whole.class_names[label] for label in whole.labels[kept]]
    )


def test_the_images_drawn_of_a_class_do_not_depend_on_the_class_left_out() -> None:
    whole, part = load_data("digits:per_class=4"), load_data("digits:per_class=4,exclude=0")
    assert len(whole) == 40
    np.testing.assert_array_equal(part.positions, whole.positions[whole.labels != 0])
    np.testing.assert_array_equal(whole.positions, load_data("digits").subset(per_class=4).positions)


def test_superclasses_lose_the_class_too() -> None:
    images = data.from_user((np.zeros((4, 1, 2, 2), np.uint8), np.arange(4)), class_names=list("abcd"))
    grouped = dataclasses.replace(images, superclasses={"x": ("a", "b"), "y": ("c", "d")})
    assert grouped.without(["a", "c"]).superclasses == {"x": ("b",), "y": ("d",)}
    assert grouped.without(["c", "d"]).superclasses == {"x": ("a", "b")}


def test_class_names_are_known_without_reading() -> None:
    assert data.class_names("cifar10:exclude=cat") == tuple(
        name for name in data.class_names("cifar10") or () if name != "cat"
    )
    assert data.class_names("corruption:of=mnist,kind=fog") == tuple("0123456789")
    assert data.class_names("folder") is None


def test_what_cannot_be_left_out_is_said() -> None:
    with pytest.raises(UserError, match="unknown class of digits 'cat'"):
        load_data("digits:exclude=cat")
    with pytest.raises(UserError, match="exclude leaves 1 of 10 classes"):
        load_data("digits:exclude=" + "|".join("123456789"))


# ---- the study ----------------------------------------------------------------------------------------------------


def study(**options: object) -> studies.Study:
    return studies.parse("homing", {"recipe": "desk/digits/madry", "set": list(QUICK), **options})


def test_jobs_are_one_training_and_one_audit_for_each_class() -> None:
    graph = Graph.of(studies.parse("homing", {"recipe": "desk/cifar10/madry"}).jobs())
    assert len(graph) == 22
    training, audit = graph.jobs["without-cat"], graph.jobs["without-cat-audit"]
    assert isinstance(training, TrainJob)
    assert isinstance(audit, AuditJob)
    assert training.changes == ('data.exclude=["cat"]',)
    assert (audit.model, audit.data) == ("{without-cat}/best.pt", "cifar10:exclude=cat")


def test_classes_restrict_the_retrainings() -> None:
    graph = Graph.of(study(classes="3,8", per_class=5).jobs())
    assert sorted(graph.jobs) == [
        "madry", "madry-audit", "without-3", "without-3-audit", "without-8", "without-8-audit",
    ]  # fmt: skip
    audit = graph.jobs["without-8-audit"]
    assert isinstance(audit, AuditJob)
    assert audit.data == "digits:per_class=5,exclude=8"


def test_classes_of_a_folder_are_those_given() -> None:
    graph = Graph.of(study(set=['data.name="folder:resize=32"'], classes="t-shirt/top,shoe").jobs())
    training, audit = graph.jobs["without-t-shirt-top"], graph.jobs["without-t-shirt-top-audit"]
    assert isinstance(training, TrainJob)
    assert isinstance(audit, AuditJob)
    assert training.changes[-1] == 'data.exclude=["t-shirt/top"]'
    assert audit.data == "folder:resize=32,exclude=t-shirt/top"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": ["desk/digits/madry", "desk/digits/trades"]}, "give one --recipe, got 2"),
        ({"set": ['data.exclude=["3"]']}, "already leaves out 3"),
        ({"classes": ["cat"]}, "unknown class of digits 'cat'"),
        ({"set": ['data.name="folder"']}, "the classes of folder are only known once it is read: give those"),
    ],
)
def test_what_homing_cannot_use(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        study(**options).jobs()


@pytest.mark.slow
def test_the_study_counts_what_its_audits_say(tmp_path: Path) -> None:
    result = studies.run(study(classes=["3", "8"], per_class=8, attack="pgd-3"), tmp_path)
    base = cw.Audit.load(tmp_path / "jobs" / "madry-audit").rows()
    expected = np.zeros((10, 10), int)
    for removed in ("3", "8"):
        rows = cw.Audit.load(tmp_path / "jobs" / f"without-{removed}-audit").rows()
        robust = dict(zip(rows.index.tolist(), rows.correct.tolist(), strict=True))
        for index, label, into in zip(base.index, base.label, base.prediction, strict=True):
            expected[label, into] += label != into and str(into) == removed and robust[index]
    np.testing.assert_array_equal(result.tables["homing"].drop(columns="true class"), expected)
    broken = result.tables["misclassified"].drop(columns="true class").to_numpy()
    assert (broken >= expected).all()
    assert len(result.claims) == 3
    assert (tmp_path / "figures" / "homing.svg").is_file()
    assert "Not left out" in (tmp_path / "study.md").read_text()
