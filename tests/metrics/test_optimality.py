"""Optimality of attacks, against distances worked out by hand and against the trapezoids of its authors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import CLEAN, COLUMNS, Records
from classwise.metrics import optimality

NEVER = np.inf


def records(distances: dict[str, list[float]], label: list[int], wrong: list[bool] | None = None) -> Records:
    """Attacks that minimise the distance, with what each found for every image. wrong: without an attack."""
    size, missed = len(label), np.array(wrong or [False] * len(label))
    frames = []
    for name, own in {CLEAN: [NEVER] * size, **distances}.items():
        found = np.where(missed, 0.0, own)
        broken = np.isfinite(found) if name != CLEAN else missed
        given = {
            "index": np.arange(size),
            "label": label,
            "attack": name,
            "minimal": found,
            "prediction": np.where(broken, (np.array(label) + 1) % 2, label),
        }
        frames.append(pd.DataFrame({**dict.fromkeys(COLUMNS, 0), **given}))
    infos = {name: AttackInfo(settings={"minimal": True}) for name in distances}
    meta = Meta(class_names=("cat", "dog"), attacks={CLEAN: AttackInfo(), **infos})
    return Records(pd.concat(frames, ignore_index=True), meta)


def by_attack(table: pd.DataFrame, name: str) -> dict[str, float]:
    return dict(zip(table[table["class"] == name]["attack"], table[table["class"] == name]["optimality"], strict=True))


def test_by_hand() -> None:
    """Best distances 1, 2, 4: D = 4, A* = 7/3; fab finds them all, cw 2, 4, never: A = 10/3, so 1 − 1/(4 − 7/3)."""
    made = records({"fab": [1, 2, 4], "cw": [2, 4, NEVER]}, [0, 0, 0])
    table = optimality.compute(made)
    assert by_attack(table, "cat") == pytest.approx({"fab": 1.0, "cw": 1 - 1 / (5 / 3)})
    row = table[(table["class"] == "cat") & (table["attack"] == "cw")].iloc[0]
    assert (row["n"], row["area"], row["best_area"], row["largest"]) == pytest.approx((3, 10 / 3, 7 / 3, 4))
    assert np.isnan(by_attack(table, "dog")["fab"])  # no dogs


def test_an_attack_that_breaks_nothing_is_0_and_the_best_of_both_is_1() -> None:
    table = optimality.compute(records({"fab": [1, 2, 4], "cw": [NEVER] * 3}, [1, 1, 1]))
    assert by_attack(table, "dog") == pytest.approx({"fab": 1.0, "cw": 0.0})


def test_each_is_measured_against_the_best_of_all_and_images_nobody_broke_move_nothing() -> None:
    distances = {"fab": [1, 4, NEVER], "cw": [3, 2, NEVER]}
    with_it, without = (
        by_attack(optimality.compute(records({k: v[:n] for k, v in distances.items()}, [0] * n)), "cat") for n in (3, 2)
    )
    assert with_it == pytest.approx(without)
    # Best 1 and 2: D = 2, A* = 1.5, and no attack leaves 2; fab has 1 and 4, cut at 2, and cw 3 and 2, cut at 2.
    assert without == pytest.approx({"fab": 1.0, "cw": 0.0}, abs=1e-12)


def test_errors_without_an_attack_are_at_distance_0() -> None:
    """Clean 2/3: D = 4, A* = (0 + 2 + 4)/3 = 2, the area of no attack 8/3; cw has 0, 4, 4."""
    table = optimality.compute(records({"fab": [9, 2, 4], "cw": [9, 4, 4]}, [0, 0, 0], [True, False, False]))
    assert by_attack(table, "cat") == pytest.approx({"fab": 1.0, "cw": 1 - (2 / 3) / (8 / 3 - 2)})


def test_agrees_with_trapezoids_of_many_images() -> None:
    """The published code joins the points of the curves by trapezoids, which differs by the order of 1/n."""
    draw = np.random.default_rng(0)
    best = draw.gamma(2.0, 1.0, 4000)
    own = best * draw.uniform(1, 2, 4000)
    made = records({"fab": best.tolist(), "cw": own.tolist()}, [0] * 4000)
    largest = best.max()

    def area(distances: np.ndarray) -> float:
        points, counts = np.unique(distances.clip(max=largest), return_counts=True)
        return float(np.trapezoid(1 - counts.cumsum() / len(distances), points)) + float(points[0])

    expected = 1 - (area(own) - area(best)) / (largest - area(best))
    assert by_attack(optimality.compute(made), "cat")["cw"] == pytest.approx(expected, abs=2e-3)


def test_which_attacks_have_distances_that_mean_something() -> None:
    assert list(optimality.rated_attacks(records({"fab": [1, 2]}, [0, 1]))) == ["fab"]
    made = records({"fab": [1, 2], "pgd": [1, 1]}, [0, 1])
    meta = Meta(class_names=made.class_names, attacks={**made.meta.attacks, "pgd": AttackInfo(settings={"steps": 20})})
    assert list(optimality.rated_attacks(Records(made.frame, meta))) == ["fab"]
    infos = {**made.meta.attacks, "pgd": AttackInfo(settings={"minimal": True}, coverage="survivors")}
    assert list(optimality.rated_attacks(Records(made.frame, Meta(class_names=("cat", "dog"), attacks=infos)))) == [
        "fab"
    ]


def test_families_of_several_radii_count_with_the_smallest_that_broke() -> None:
    """pgd at 1, 2 and 4 breaks the images at 1 and at 4; fab finds 0.5 and 4."""
    pgd = {"pgd@1": [1, NEVER], "pgd@2": [1, NEVER], "pgd@4": [1, 4]}
    made = records({"fab": [0.5, 4], **pgd}, [0, 0])
    infos = {name: AttackInfo(eps=float(name[-1]), family="pgd") for name in pgd}
    meta = Meta(class_names=made.class_names, attacks={**made.meta.attacks, **infos}, eps=4.0)
    whole = Records(made.frame, meta)
    table = optimality.compute(whole, optimality.rated_attacks(whole))
    assert by_attack(table, "cat") == pytest.approx({"pgd": 1 - 0.25 / (4 - 2.25), "fab": 1.0})
