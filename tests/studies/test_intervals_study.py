"""Classes counted by interval of robustness."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import classwise as cw
from classwise import studies
from classwise.core.errors import UserError
from classwise.results.audit_result import Audit
from classwise.studies.intervals import Intervals
from quick import nothing_decided


def test_every_class_is_counted_once(models: dict[str, Path], tmp_path: Path) -> None:
    options = {"model": [str(folder) for folder in models.values()], "per_class": 8, "attack": "pgd-2", "bins": 4}
    result = studies.run(studies.parse("intervals", options), tmp_path)
    table = result.tables["classes"]
    assert table["above (%)"].tolist() == [0, 25, 50, 75]
    accuracies = cw.Audit.load(tmp_path / "jobs" / "madry-audit").by_class("pgd-2")["accuracy"].to_numpy()
    above, up_to = (table[column].to_numpy()[:, None] / 100 for column in ("above (%)", "up to (%)"))
    inside = (accuracies <= up_to) & ((accuracies > above) | (above == 0))
    assert table["madry"].tolist() == inside.sum(axis=1).tolist()
    row = result.tables["models"].set_index("model").loc["madry"]
    assert row["intervals"] == (table["madry"] > 0).sum()
    assert row["CV (%²)"] == pytest.approx((100 * accuracies).var())
    nothing_decided(result)
    assert [claim.source for claim in result.claims] == ["tian2020:figure6"] * 2
    assert (tmp_path / "figures" / "intervals.svg").is_file()


def test_the_verdict_rests_on_the_interval_of_the_gap(models: dict[str, Path], audit_of: Callable[..., Audit]) -> None:
    study = Intervals(model=(str(models["madry"]),))

    def verdict(right: list[int], each: int) -> str:
        return study._claim("it", audit_of({"pgd": right}, [each] * len(right)).rows("pgd")).verdict

    assert verdict([90, 50, 10], 100) == "held"
    assert verdict([55, 55, 56], 100) == "not decided here"
    assert verdict([5500, 5500, 5510], 10_000) == "did not hold"


def test_one_interval_is_none(models: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="--bins 1: cut 0 to 100% into two intervals or more"):
        studies.parse("intervals", {"model": [str(models["madry"])], "bins": "1"}).jobs()
