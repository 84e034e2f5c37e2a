from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import classwise as cw
from classwise import studies
from classwise.core.errors import UserError
from quick import nothing_decided

FEW = ("gaussian_noise", "contrast")


@pytest.fixture(scope="module")
def found(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, studies.StudyResult]:
    out = tmp_path_factory.mktemp("study")
    options = {"model": [str(models["madry"])], "per_class": 6, "attack": "pgd-2", "corruption": FEW, "severity": "1,5"}
    return out, studies.run(studies.parse("corruptions", options), out)


def test_answers_are_the_models_on_corrupted_images(
    found: tuple[Path, studies.StudyResult], models: dict[str, Path]
) -> None:
    _, result = found
    images = cw.load_data("corruption:of=digits,kind=contrast,severity=5,seed=0").subset(per_class=6, seed=0)
    x, y = images.batch(np.arange(len(images)))
    with torch.no_grad():
        right = (cw.load_model(models["madry"] / "best.pt")(x).argmax(1) == y).numpy()
    expected = [right[images.labels == number].mean() for number in range(images.num_classes)]
    row = result.tables["by_corruption"].query("corruption == 'contrast' and severity == 5").iloc[0]
    assert row["average (%)"] == pytest.approx(100 * np.mean(expected))
    assert row["worst (%)"] == pytest.approx(100 * min(expected))
    assert row["low"] <= row["worst (%)"] <= row["high"]


def test_classes_stand_beside_the_attack(found: tuple[Path, studies.StudyResult]) -> None:
    out, result = found
    table = result.tables["by_class"]
    np.testing.assert_allclose(
        table["robust (%)"], 100 * cw.Audit.load(out / "jobs/madry-audit").by_class()["accuracy"]
    )
    both = (table["noise (%)"] + table["digital (%)"]) / 2  # one corruption of each category, two severities each
    np.testing.assert_allclose(table["corrupted (%)"], both)
    assert list(result.tables["agreement_with_the_attack"]["corruption"]) == list(FEW)
    nothing_decided(result)
    assert len(result.claims) == 2


def test_errors_name_the_near_miss() -> None:
    with pytest.raises(UserError, match="unknown corruption 'fogg'; did you mean 'fog'"):
        studies.parse("corruptions", {"corruption": ["fogg"]})
    with pytest.raises(UserError, match="from 1 to 5, got 6"):
        studies.parse("corruptions", {"severity": "1,6"})
