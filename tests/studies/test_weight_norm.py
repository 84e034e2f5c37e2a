from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import classwise as cw
from classwise import studies
from classwise.studies.weight_norm import WeightNorm
from quick import nothing_decided


@pytest.fixture(scope="module")
def found(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, studies.StudyResult]:
    out = tmp_path_factory.mktemp("study")
    study = studies.parse(
        "weight-norm", {"model": [str(folder) for folder in models.values()], "per_class": 5, "attack": "pgd-2"}
    )
    return out, studies.run(study, out)


def test_norms_are_those_of_the_last_layers_rows(
    found: tuple[Path, studies.StudyResult], models: dict[str, Path]
) -> None:
    _, result = found
    weight = cw.load_model(models["madry"] / "best.pt").head.weight.detach().numpy()
    norms = result.tables["norms"].query("model == 'madry'")["norm"]
    np.testing.assert_allclose(norms, np.sqrt((weight**2).sum(axis=1)), rtol=1e-5)


def test_accuracies_are_the_audits(found: tuple[Path, studies.StudyResult]) -> None:
    out, result = found
    audit = cw.Audit.load(out / "jobs" / "madry-audit")
    shown = result.tables["norms"].query("model == 'madry'")["robust"]
    np.testing.assert_allclose(shown, 100 * audit.by_class()["accuracy"])


def test_each_model_gets_a_verdict_and_everything_is_written(found: tuple[Path, studies.StudyResult]) -> None:
    out, result = found
    nothing_decided(result)
    assert [claim.source for claim in result.claims] == ["tian2020:figure4"] * 2
    assert len(pd.read_csv(out / "tables" / "norms.csv")) == 20
    assert (out / "figures" / "weight_norm.svg").read_text().startswith("<svg")
    assert "## Claims" in (out / "study.md").read_text()
    written = json.loads((out / "claims.json").read_text())
    assert [claim["test"] for claim in written] == [claim.test for claim in result.claims]


@pytest.mark.parametrize(
    ("model", "values", "verdict"),
    [
        ("standard", [1, 2, 3, 4, 5, 6], "did not hold"),
        ("standard", [6, 5, 4, 3, 2, 1], "held"),
        ("standard", [1, 1, 1, 1, 1, 1], "not decided here"),
        ("madry", [1, 2, 3, 4, 5, 6], "held"),
        ("madry", [6, 5, 4, 3, 2, 1], "did not hold"),
        ("madry", [1, 4, 2, 6, 3, 5], "not decided here"),
    ],
)
def test_verdicts_follow_the_test(model: str, values: list[int], verdict: str) -> None:
    """Of the standard model the clean accuracy counts, which after standard training is all there is."""
    used, other = ("clean", "robust") if model == "standard" else ("robust", "clean")
    rows = pd.DataFrame({"model": model, "norm": range(6), used: values, other: [3, 1, 2, 6, 5, 4], "n": 20})
    (claim,) = WeightNorm(model=("x",))._claims(rows)
    assert claim.verdict == verdict
    assert "nan" not in claim.numbers
    (few,) = WeightNorm(model=("x",))._claims(rows.assign(n=19))
    assert few.verdict == "not enough images"
    assert "19 images of each class, 20 are needed" in few.test
    (four,) = WeightNorm(model=("x",))._claims(rows.iloc[:4])
    assert four.verdict == "not decided here"
    assert "4 classes, 5 are needed" in four.test
