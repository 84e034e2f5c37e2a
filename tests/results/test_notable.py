"""Which images of a class are worth a look, on records made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import CLEAN, Records
from classwise.results.audit_result import Audit
from classwise.results.notable import notable
from page_runs import write_curve


def rows(attack: str, prediction: list[int], loss: list[float]) -> pd.DataFrame:
    others = dict.fromkeys(("eps", "true_prob", "distance", "minimal", "step", "queries"), 0)
    columns = {"index": np.arange(8), "label": [0] * 4 + [1] * 4, "prediction": prediction, "loss": loss}
    return pd.DataFrame(columns).assign(attack=attack, confidence=[0.5, 0.6, 0.7, 0.8] * 2, **others)


def test_the_largest_loss_is_the_most_fragile_and_the_smallest_the_most_robust() -> None:
    """Images 3 and 4 are wrong as they are; the attack breaks 0, 1, 5; 2, 6 and 7 survive."""
    clean = rows(CLEAN, [0, 0, 0, 1, 0, 1, 1, 1], [0.1] * 8)
    attacked = rows("pgd", [1, 1, 0, 1, 0, 0, 1, 1], [2.0, 3.0, 0.5, 4.0, 4.0, 1.0, 0.6, 0.2])
    infos = {CLEAN: AttackInfo(), "pgd": AttackInfo(settings={"name": "pgd"})}
    audit = Audit(Records(pd.concat([clean, attacked], ignore_index=True), Meta(class_names=("a", "b"), attacks=infos)))
    found = notable(audit, 2)
    by = {key: own["index"].tolist() for key, own in found.groupby(["kind", "label"])}
    assert by == {
        ("fragile", 0): [1, 0],
        ("fragile", 1): [5],
        ("robust", 0): [2],
        ("robust", 1): [7, 6],
        ("wrong", 0): [3],
        ("wrong", 1): [4],
    }
    assert found["rank"].is_monotonic_increasing
    assert found[found["rank"] == 0]["label"].tolist() == [0, 0, 0, 1, 1, 1]  # class a is the weaker one
    assert len(notable(audit, 1)) == 6


def test_of_several_radii_the_smallest_that_breaks_an_image_counts(tmp_path: Path) -> None:
    """Of the first class 30 of 40 survive 2/255 and 10 survive 4/255: first those that break at 2/255."""
    audit = write_curve(tmp_path, [(30, 40, 40, 40), (10, 38, 40, 40)])
    fragile = notable(audit, 9)
    own = fragile[(fragile["kind"] == "fragile") & (fragile["label"] == 0)]
    assert set(own["attack"].head(8)) == {"pgd-20@2/255"}
    assert own["attack"].iloc[8] == "pgd-20@4/255"  # 38 and 39 are wrong without any attack
    wrong = fragile[fragile["kind"] == "wrong"]
    assert wrong["index"].tolist() == [39, 38]


def test_without_an_attack_only_errors() -> None:
    clean = rows(CLEAN, [0, 0, 0, 1, 0, 1, 1, 1], [0.1] * 8)
    audit = Audit(Records(clean, Meta(class_names=("a", "b"), attacks={CLEAN: AttackInfo()})))
    assert set(notable(audit, 3)["kind"]) == {"wrong"}
