"""Curves by hand: points, areas and medians along the radius, and accuracy at any radius from minimal distances."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import Records
from classwise.metrics import curve
from classwise.stats import intervals

NAMES = ("cat", "dog", "absent")
LABEL = np.array([0, 0, 0, 0, 1, 1, 1])
NEVER = np.inf
#: The distance at which each example breaks; the last cat is misclassified as it is.
DISTANCE = np.array([0.5, 1.5, NEVER, 0.0, 3.0, NEVER, NEVER])


def attacked(name: str, eps: float, distance: np.ndarray = DISTANCE, rows: np.ndarray | None = None) -> pd.DataFrame:
    """The rows of an attack that breaks what it can within eps, of all examples or only of some."""
    broken = distance <= eps
    frame = pd.DataFrame(
        {
            "index": 10 * np.arange(len(LABEL)),
            "label": LABEL,
            "attack": name,
            "eps": eps,
            "prediction": np.where(broken, 1 - LABEL, LABEL),
            "confidence": 0.5,
            "true_prob": 0.5,
            "loss": 1.0,
            "distance": np.where(broken, distance, 0),
            "minimal": np.where(broken, distance, NEVER),
            "step": 1,
            "queries": 1,
        }
    )
    return frame if rows is None else frame[rows]


def along(*radii: float, coverage: str = "all", **infos: AttackInfo) -> Records:
    """Clean and one attack at several radii; "survivors" leaves out what was broken before."""
    frames, standing = [attacked("clean", 0)], DISTANCE > 0
    known = {"clean": AttackInfo()}
    for eps in radii:
        name = f"pgd@{eps:g}"
        frames.append(attacked(name, eps, rows=standing if coverage == "survivors" else None))
        known[name] = AttackInfo(settings={"name": "pgd"}, protocol="any", coverage=coverage, eps=eps, family="pgd")  # type: ignore[arg-type]
        standing = eps < DISTANCE
    frame = pd.concat(frames, ignore_index=True)
    return Records(frame, Meta(class_names=NAMES, eps=max(radii, default=0), attacks={**known, **infos}))


class TestPoints:
    @pytest.mark.parametrize("coverage", ["all", "survivors"])
    def test_by_hand(self, coverage: str) -> None:
        table = curve.compute(along(1, 2, 4, coverage=coverage))
        assert list(table.columns) == ["family", "eps", "class", "n", "accuracy", "low", "high"]
        assert set(table["family"]) == {"pgd"}
        values = table.pivot(index="eps", columns="class", values="accuracy")
        assert values.index.tolist() == [0, 1, 2, 4]
        assert values["cat"].tolist() == [3 / 4, 2 / 4, 1 / 4, 1 / 4]
        assert values["dog"].tolist() == pytest.approx([1, 1, 1, 2 / 3])
        assert values["absent"].isna().all()
        assert table["n"].tolist() == [4, 3, 0] * 4

    def test_intervals_are_those_of_a_class(self) -> None:
        table = curve.compute(along(1), confidence=0.8)
        low, high = intervals.bounds(np.array([2]), np.array([4]), 0.8)
        row = table[(table["eps"] == 1) & (table["class"] == "cat")].iloc[0]
        assert (row["low"], row["high"]) == (low[0], high[0])

    def test_an_attack_that_found_nothing_standing_has_no_rows_but_a_point(self) -> None:
        records = along(1, 4, coverage="survivors")
        later = {
            **records.meta.attacks,
            "pgd@8": AttackInfo(settings={"name": "pgd"}, protocol="any", coverage="survivors", eps=8, family="pgd"),
        }
        records = dataclasses.replace(records, meta=dataclasses.replace(records.meta, attacks=later))
        table = curve.compute(records)
        assert table[table["eps"] == 8]["accuracy"].tolist()[:2] == [1 / 4, 2 / 3]

    def test_radii_are_in_order_however_they_ran(self) -> None:
        assert curve.compute(along(4, 1, 2))["eps"].tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [4] * 3

    def test_an_attack_at_one_radius_is_a_curve_of_two_points(self) -> None:
        single = along(1, **{"pgd@1": AttackInfo(settings={"name": "pgd"})})
        table = curve.compute(single)
        assert set(table["family"]) == {"pgd@1"}
        assert table["eps"].unique().tolist() == [0, 1]

    def test_clean_images_alone_are_a_point(self) -> None:
        table = curve.compute(along())
        assert table["family"].unique().tolist() == ["clean"]
        assert table["eps"].unique().tolist() == [0]

    def test_families_keep_apart(self) -> None:
        records = along(1, 2)
        other = attacked("fgsm@2", 2, np.where(DISTANCE == 0, 0, NEVER))
        infos = {
            **records.meta.attacks,
            "fgsm@2": AttackInfo(settings={"name": "fgsm"}, protocol="any", coverage="all", eps=2, family="fgsm"),
        }
        meta = dataclasses.replace(records.meta, attacks=infos)
        table = curve.areas(Records(pd.concat([records.frame, other], ignore_index=True), meta))
        areas = table.set_index(["family", "class"])["area"]
        assert areas["fgsm", "cat"] == 3 / 4
        assert areas["pgd", "cat"] == pytest.approx((0.625 + 0.375) / 2)


class TestAreas:
    @pytest.mark.parametrize("coverage", ["all", "survivors"])
    def test_by_hand(self, coverage: str) -> None:
        """cat: (½(¾+½) + ½(½+¼) + 2·¼)/4 = 0.375; dog: (1 + 1 + (1+⅔))/4."""
        table = curve.areas(along(1, 2, 4, coverage=coverage)).set_index("class")
        assert table["area"].tolist()[:2] == pytest.approx([0.375, (1 + 1 + 5 / 3) / 4])
        assert np.isnan(table.loc["absent", "area"])
        assert table["eps"].tolist() == [4] * 3
        assert table["n"].tolist() == [4, 3, 0]
        # Half of the cats break at 0.5; of three dogs only one breaks.
        assert table["median_distance"].tolist()[:2] == [0.5, NEVER]
        assert np.isnan(table.loc["absent", "median_distance"])

    def test_the_nearest_of_all_radii_counts(self) -> None:
        records = along(1, 4)
        records.frame.loc[(records.frame["attack"] == "pgd@4") & (records.frame["index"] == 0), "minimal"] = 3.0
        assert curve.areas(records)["median_distance"].iloc[0] == 0.5

    def test_need_a_beginning_and_an_attack(self) -> None:
        with pytest.raises(UserError, match="begins at the clean images"):
            curve.areas(along(1, 2).of("pgd@1"))
        with pytest.raises(UserError, match="hold no attack"):
            curve.areas(along())


class TestAnyRadius:
    SEEKING = AttackInfo(settings={"name": "fab", "minimal": True})

    def records(self, **infos: AttackInfo) -> Records:
        frame = pd.concat([attacked("clean", 0), attacked("fab", 9)], ignore_index=True)
        return Records(
            frame, Meta(class_names=NAMES, eps=1, attacks={"clean": AttackInfo(), "fab": self.SEEKING, **infos})
        )

    @pytest.mark.parametrize(("eps", "cat", "dog"), [(0, 0.75, 1), (0.5, 0.5, 1), (2, 0.25, 1), (3, 0.25, 2 / 3)])
    def test_by_hand(self, eps: float, cat: float, dog: float) -> None:
        found = curve.at(self.records(), eps)
        assert found.values[:2].tolist() == pytest.approx([cat, dog])
        assert np.isnan(found.values[2])
        assert found.support.tolist() == [4, 3, 0]
        assert found.low[0] < cat < found.high[0]

    def test_several_count_together_or_one_alone(self) -> None:
        records = self.records(cw=self.SEEKING)
        nearer = attacked("cw", 9, np.where(LABEL == 1, 0.1, NEVER))
        both = Records(pd.concat([records.frame, nearer], ignore_index=True), records.meta)
        assert curve.at(both, 1).values[:2].tolist() == [0.5, 0]
        assert curve.at(both, 1, "fab").values[:2].tolist() == [0.5, 1]

    def test_mistakes(self) -> None:
        with pytest.raises(UserError, match=r"no attack .* minimal distances.*--distances"):
            curve.at(along(1), 1)
        with pytest.raises(UserError, match="attack with minimal distances 'clean'"):
            curve.at(self.records(), 1, "clean")
        survivors = dataclasses.replace(self.SEEKING, coverage="survivors")
        with pytest.raises(UserError, match="saw only the examples that survived"):
            curve.at(self.records(fab=survivors), 1)
