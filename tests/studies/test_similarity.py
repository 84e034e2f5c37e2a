from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import classwise as cw
from classwise import studies
from classwise.core.errors import UserError
from classwise.data import load as load_data
from classwise.studies import similarity
from quick import nothing_decided


@pytest.fixture(scope="module")
def found(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, studies.StudyResult]:
    out = tmp_path_factory.mktemp("study")
    options = {"model": str(models["madry"]), "per_class": 6, "attack": "pgd-2", "permutations": 99}
    return out, studies.run(studies.parse("similarity", options), out)


def test_cosines_are_those_of_the_mean_logits(found: tuple[Path, studies.StudyResult], models: dict[str, Path]) -> None:
    _, result = found
    images = load_data("digits").subset(per_class=6)
    x, y = images.batch(np.arange(len(images)))
    logits = cw.load_model(models["madry"] / "best.pt")(x).detach().double().numpy()
    means = np.stack([logits[y.numpy() == label].mean(axis=0) for label in range(10)])
    pairs = result.tables["pairs"].set_index(["first", "second"])
    assert len(pairs) == 45
    for first, second in itertools.combinations(range(10), 2):
        a, b = means[first], means[second]
        expected = a @ b / np.sqrt((a @ a) * (b @ b))
        assert pairs.loc[(str(first), str(second)), "cosine"] == pytest.approx(expected, abs=1e-5)


def test_confusion_is_the_audits(found: tuple[Path, studies.StudyResult]) -> None:
    out, result = found
    rates = cw.Audit.load(out / "jobs" / "madry-audit").confusion(rates=True)
    for row in result.tables["pairs"].to_dict("records"):
        assert row["first as second (%)"] == pytest.approx(100 * rates.loc[row["first"], row["second"]])
        assert row["second as first (%)"] == pytest.approx(100 * rates.loc[row["second"], row["first"]])


def test_the_correlation_is_spearmans_over_unordered_pairs(found: tuple[Path, studies.StudyResult]) -> None:
    _, result = found
    pairs, test = result.tables["pairs"], result.tables["correlation"].iloc[0]
    assert test["pairs"] == len(pairs)
    assert test["rho"] == pytest.approx(stats.spearmanr(pairs["cosine"], pairs["mean (%)"]).statistic)


def test_everything_is_told(found: tuple[Path, studies.StudyResult]) -> None:
    out, result = found
    nothing_decided(result)
    assert [claim.source for claim in result.claims] == ["benz2020:section3.2-similarity"] * 2
    classes = result.tables["classes"].set_index("class")
    pairs = result.tables["pairs"]
    own = pairs[(pairs["first"] == "4") | (pairs["second"] == "4")]
    assert classes.loc["4", "mean cosine"] == pytest.approx(own["cosine"].mean())
    nearest = own.loc[own["cosine"].idxmax(), ["first", "second"]].tolist()
    assert classes.loc["4", "nearest"] in nearest
    assert (out / "figures" / "similarity.svg").is_file()


def test_mantel_counts_the_renamings_of_the_classes() -> None:
    """Against all 24 renamings of four classes, of which the test draws."""
    rng = np.random.default_rng(3)
    one, other = (half + half.T for half in rng.random((2, 4, 4)))
    below = np.tril_indices(4, -1)
    by_all = np.array(
        [
            stats.spearmanr(one[below], other[np.ix_(order, order)][below]).statistic
            for order in itertools.permutations(range(4))
        ]
    )
    rho, p, p_less = similarity.mantel(one, other, 4000)
    assert rho == pytest.approx(by_all[0])
    assert p == pytest.approx(np.mean(by_all >= by_all[0] - 1e-9), abs=0.03)
    assert p_less == pytest.approx(np.mean(by_all <= by_all[0] + 1e-9), abs=0.03)


def test_mantel_finds_matrices_that_go_together_and_apart() -> None:
    matrix = np.add.outer(np.arange(8.0) ** 2, np.arange(8.0) ** 2)
    assert similarity.mantel(matrix, 2 * matrix, 999)[1] < 0.01
    rho, p, p_less = similarity.mantel(matrix, -matrix, 999)
    assert (rho, p) == (pytest.approx(-1), pytest.approx(1))
    assert p_less < 0.01
    assert np.isnan(similarity.mantel(matrix, np.ones((8, 8)), 9)).all()


def test_verdicts_go_by_the_p_value_of_either_direction() -> None:
    study = similarity.Similarity(model=("x",))
    classes = pd.DataFrame({"model": "m", "n": 50, "mean_cosine": range(6), "robust": [6, 5, 4, 3, 2, 1]})
    for p, p_less, verdict in (
        (0.01, 0.99, "held"),
        (0.3, 0.7, "not decided here"),
        (1.0, 0.2, "not decided here"),
        (0.99, 0.01, "did not hold"),
        (np.nan, np.nan, "not decided here"),
    ):
        tests = pd.DataFrame([{"model": "m", "rho": 0 * p, "pairs": 15, "p": p, "p_less": p_less}])
        first, second = study._claims("m", tests, classes)
        assert first.verdict == verdict
        assert "nan" not in first.numbers
        assert second.verdict == "held"  # of six classes the one order of 720
        assert {claim.verdict for claim in study._claims("m", tests, classes.assign(n=19))} == {"not enough images"}
    _, none_differs = study._claims("m", tests, classes.assign(robust=0.0))
    assert none_differs.verdict == "does not apply"
    assert none_differs.test == "none: all classes are equally robust"


def test_a_class_without_images_takes_no_part_and_too_few_are_refused(found: tuple[Path, studies.StudyResult]) -> None:
    out, _ = found
    rows = cw.Audit.load(out / "jobs" / "madry-audit").rows()
    logits = pd.read_csv(out / "jobs" / "madry-logits" / "logits.csv").to_numpy()
    some = rows.take(np.flatnonzero(rows.label < 5))
    pairs = similarity.ordered_pairs(some, np.where(np.arange(10)[:, None] < 5, logits, np.nan))
    assert sorted(pairs["true"].unique()) == list("01234")
    assert len(pairs) == 20
    with pytest.raises(UserError, match="at least 4 classes to compare pairs; there are 3"):
        similarity.ordered_pairs(rows.take(np.flatnonzero(rows.label < 3)), logits)
