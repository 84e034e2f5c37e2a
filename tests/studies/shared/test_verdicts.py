"""A verdict needs a test, a level and enough images; and tiny samples decide nothing, in whatever study."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest

from classwise import studies
from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import Records
from classwise.metrics import reciprocity
from classwise.results.audit_result import Audit
from classwise.studies import Claim, attacks, class_bias, corruptions, relations
from classwise.studies.homing import claims as homing
from classwise.studies.shared import extremes, verdicts
from classwise.studies.shared.verdicts import (
    Ruling,
    Sample,
    agree,
    all_held,
    classes,
    contrary,
    either,
    exceeds,
    falls_short,
    given,
    images,
    inapplicable,
    omnibus,
    tails,
    undecided,
)

ENOUGH = images(20)
OPEN = {"not enough images", "not decided here"}


def above(low: float, high: float, threshold: float = 0.0, sample: Sample = ENOUGH) -> Ruling:
    return exceeds(low, high, threshold, test="interval", sample=sample)


HELD, FAILED, UNKNOWN, FEW = above(1, 2), above(-2, -1), above(-1, 1), above(1, 2, sample=images(19))


def test_an_interval_decides_where_it_lies_on_one_side() -> None:
    assert (HELD.verdict, FAILED.verdict, UNKNOWN.verdict) == ("held", "did not hold", "not decided here")
    assert above(math.nan, math.nan).verdict == above(math.nan, -1).verdict == "not decided here"
    assert falls_short(0.2, 0.4, 0.5, test="interval", sample=ENOUGH).verdict == "held"
    assert above(18.3, math.inf, 1.0).verdict == "held"
    assert HELD.test == "interval, two-sided 5%"


def test_both_directions_share_the_level() -> None:
    found = [tails(*p, test="permutation", sample=ENOUGH).verdict for p in ((0.025, 0.9), (0.04, 0.9), (0.9, 0.02))]
    assert found == ["held", "not decided here", "did not hold"]
    assert tails(math.nan, math.nan, test="permutation", sample=ENOUGH).verdict == "not decided here"
    assert omnibus(0.04, test="χ²", sample=ENOUGH).verdict == "held"
    assert omnibus(0.96, test="χ²", sample=ENOUGH).verdict == "not decided here"


def test_too_few_say_how_many_there_are_and_how_many_are_needed() -> None:
    few = "interval, two-sided 5%: 19 images of each class, 20 are needed"
    assert Ruling("not enough images", few, "19 images of each class") == FEW
    models = tails(0.001, 1.0, test="permutation", sample=(ENOUGH, classes(4, "models")))
    counted = f"{ENOUGH}, 4 models"
    assert models == Ruling("not decided here", "permutation, two-sided 5%: 4 models, 5 are needed", counted)


def test_a_ruling_of_several_names_every_sample_once() -> None:
    other = tails(0.001, 1.0, test="permutation", sample=classes(9, "models"))
    assert all_held(HELD, other, HELD).sample == f"{ENOUGH}; 9 models"
    assert contrary(other).sample == given(HELD, other).sample == "9 models"
    assert given(UNKNOWN, undecided("no data")).sample == str(ENOUGH)


def test_several_rulings_make_one() -> None:
    assert all_held(HELD, HELD).verdict == "held"
    assert all_held(HELD, UNKNOWN).verdict == "not decided here"
    assert all_held(HELD, FEW).verdict == all_held(UNKNOWN, FEW).verdict == "not enough images"
    assert all_held(HELD, FAILED, FEW).verdict == "did not hold"
    assert agree(FAILED, FAILED).verdict == "did not hold"
    assert agree(HELD, FAILED).verdict == "not decided here"
    assert given(HELD, FAILED).verdict == "did not hold"
    assert given(UNKNOWN, HELD).verdict == "not decided here"
    assert given(FAILED, HELD).verdict == given(FAILED, FEW).verdict == "does not apply"
    assert given(FAILED, HELD).test == FAILED.test
    assert given(FEW, HELD).verdict == "not enough images"
    assert [either(one, HELD).verdict for one in (HELD, UNKNOWN, FAILED)] == ["held", "did not hold", "did not hold"]
    assert either(UNKNOWN, FAILED).verdict == "not decided here"
    assert [contrary(one).verdict for one in (HELD, FAILED, UNKNOWN, FEW)] == [
        "did not hold", "held", "not decided here", "not enough images",
    ]  # fmt: skip
    assert undecided("no superclasses") == Ruling("not decided here", "none: no superclasses")
    equal = "all classes are equally robust"
    assert inapplicable(equal, ENOUGH) == Ruling("does not apply", f"none: {equal}", str(ENOUGH))
    assert inapplicable(equal, images(3)).verdict == "not enough images"


def test_what_is_not_decided_says_how_many_would_decide_it() -> None:
    """An effect of a standard error at 20 images: (1.960 + 0.842)² = 7.85 times as many find it with 80% power."""
    one_error = above(1 - 1.959964, 1 + 1.959964)
    assert one_error.needs == "about 160 images of each class"
    assert above(11 - 1.959964, 11 + 1.959964, 10).needs == one_error.needs
    assert falls_short(9 - 1.959964, 9 + 1.959964, 10, test="interval", sample=ENOUGH).needs == one_error.needs
    p = NormalDist().cdf(-1)
    for found in (tails(p, 1 - p, test="ranks", sample=ENOUGH), tails(1 - p, p, test="ranks", sample=ENOUGH)):
        assert found.needs == one_error.needs
    assert omnibus(p, test="χ²", sample=ENOUGH).needs == "about 130 images of each class"  # (1.645 + 0.842)² = 6.18
    ranks = tails(p, 1 - p, test="ranks", sample=(ENOUGH, classes(10)))
    assert ranks.needs == "about 79 classes"  # not images, of which more do not help
    assert tails(p, 1 - p, test="t", sample=ENOUGH, needs="about 7 seeds").needs == "about 7 seeds"
    assert UNKNOWN.needs == "more than 100 times as many images of each class"  # no effect at all
    assert not any(own.needs for own in (HELD, FAILED, FEW, undecided("no data"), above(math.nan, math.nan)))
    assert above(-1, math.inf).needs == ""


def test_of_several_the_hardest_to_decide_says_how_many_and_of_alternatives_the_easiest() -> None:
    near, far = above(-1, 3), above(-2, 3)
    assert near.factor < far.factor
    assert all_held(HELD, near, far).needs == agree(near, far).needs == given(HELD, far).needs == far.needs
    assert either(near, far).needs == either(far, near).needs == near.needs
    assert all_held(near, FAILED).needs == agree(HELD, FAILED).needs == ""
    assert contrary(near).needs == near.needs


def test_no_study_writes_a_verdict_itself() -> None:
    """Outside the rule's own file no study names a deciding verdict, nor makes a ruling by hand."""
    folder = Path(studies.__file__).parent
    for path in folder.rglob("*.py"):
        if path == Path(verdicts.__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.Constant) and node.value in ("held", "did not hold")), path
            assert not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Ruling"), (
                path
            )


def test_a_claim_takes_no_verdict_without_a_test() -> None:
    with pytest.raises(TypeError, match="names its test"):
        Claim("benz2020", "It holds.", "held", "")  # type: ignore[arg-type]
    assert Claim("benz2020", "It holds.", HELD, "1 to 2").to_dict() == {
        "source": "benz2020", "text": "It holds.", "verdict": "held", "numbers": "1 to 2",
        "test": "interval, two-sided 5%", "sample": str(ENOUGH), "needs": "",
    }  # fmt: skip


# ---- tiny samples, clear effects, and no effect --------------------------------------------------------------------


def confused(counts: np.ndarray, superclasses: dict[str, tuple[str, ...]] | None = None) -> Records:
    """Records with this confusion."""
    names = tuple("abcdefghij"[: len(counts)])
    label, prediction = np.indices(counts.shape).reshape(2, -1).repeat(counts.reshape(-1), axis=1)
    zero = dict.fromkeys(("eps", "confidence", "true_prob", "loss", "distance", "minimal", "step", "queries"), 0)
    frame = pd.DataFrame({"index": np.arange(len(label)), "label": label, "prediction": prediction, **zero})
    return Records(
        frame.assign(attack="pgd"), Meta(class_names=names, superclasses=superclasses, attacks={"pgd": AttackInfo()})
    )


def ring(size: int, errors: int, right: int) -> np.ndarray:
    """Every class is misclassified as the next one."""
    return right * np.eye(size, dtype=int) + errors * np.roll(np.eye(size, dtype=int), 1, axis=1)


def test_a_symmetry_of_nought_is_no_refutation_by_itself() -> None:
    for errors in (1, 1000):
        found = reciprocity.compute(confused(ring(10, errors, errors)))
        assert found.symmetry == 0
        assert found.p == 1
        assert found.p_less > 0.2  # most orders of one confusion of each class are as one-sided
        (claim,) = relations._claims("it", confused(ring(10, errors, errors)))
        assert claim.verdict in OPEN


def test_classes_confused_with_each_other_or_not() -> None:
    pairs = np.kron(np.eye(5, dtype=int), np.array([[30, 20], [20, 30]]))
    (mutual,) = relations._claims("it", confused(pairs + 1))
    assert mutual.verdict == "held"
    later = np.triu(np.full((10, 10), 20), 1) + 30 * np.eye(10, dtype=int)  # only ever as a later class
    later[9, 8] = 20
    found = reciprocity.compute(confused(later))
    assert found.p_less == pytest.approx(0.001)
    (one_sided,) = relations._claims("it", confused(later))
    assert one_sided.verdict == "did not hold"
    (few,) = relations._claims("it", confused(pairs // 10))
    assert few.verdict == "not enough images"


@pytest.mark.slow
def test_without_reciprocity_it_is_found_as_seldom_as_the_level_says() -> None:
    rng, found = np.random.default_rng(0), []
    for seed in range(150):
        counts = rng.multinomial(12, np.full(6, 1 / 6), size=6)
        found.append(reciprocity.compute(confused(counts), permutations=199, seed=seed))
    for tail in ("p", "p_less"):
        assert np.mean([getattr(each, tail) <= 0.05 for each in found]) <= 0.09


def corrupted(right: list[int], n: int, cells: int = 5) -> pd.DataFrame:
    half = n // 2
    rows = [
        {"corruption": "fog", "severity": 1 + cell, "class": f"class {c}", "n": n, "correct": k, "accuracy": k / n,
         "n_second": half, "correct_second": k // 2}
        for cell in range(cells)
        for c, k in enumerate(right)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_corruptions_decide_nothing_from_one_image_of_each_class(audit_of: Callable[..., Audit]) -> None:
    right = [0, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    audit = audit_of({"pgd": right}, support=[1] * 10)
    claims = list(corruptions._claims("it", corrupted(right, 1), audit))
    assert {claim.verdict for claim in claims} == {"not enough images"}
    assert "1 image of each class, 20 are needed" in claims[0].test


def test_corruptions_decide_clear_cases(audit_of: Callable[..., Audit]) -> None:
    right = [5, 30, 40, 50, 60, 70, 80, 85, 90, 95]
    audit = audit_of({"pgd": right}, support=[100] * 10)
    together, weakest = corruptions._claims("it", corrupted(right, 100), audit)
    assert (together.verdict, weakest.verdict) == ("held", "held")
    apart, other = corruptions._claims("it", corrupted(right[::-1], 100), audit)
    assert (apart.verdict, other.verdict) == ("did not hold", "did not hold")
    before = corrupted(right, 100).drop(columns=["n_second", "correct_second"])
    old, _ = corruptions._claims("it", before, audit)  # answers kept before there were halves
    assert old.verdict == "not decided here"
    assert "delete the job" in old.test
    _, level = corruptions._claims("it", corrupted([10, 11, *right[2:]], 100), audit)
    assert level.verdict == "not decided here"


def test_halves_of_corrupted_images_are_those_of_an_audit(audit_of: Callable[..., Audit]) -> None:
    rows = audit_of({"pgd": [2, 3]}, support=[5, 4]).rows("pgd")
    order = np.random.default_rng(0).permutation(len(rows))
    odd = corruptions.second_half(rows.label[order], rows.index[order])
    assert sorted(rows.index[order][odd]) == sorted(corruptions.halves([rows])[1][0].index)


def fates(home: list[int], elsewhere: list[float]) -> pd.DataFrame:
    return pd.DataFrame(
        {"class": "cat", "confound": "dog", "home": np.array(home, dtype=float), "elsewhere": elsewhere}
    )


def test_three_images_do_not_say_that_the_confound_matters() -> None:
    claim = homing._confound_matters(fates([1, 1, 0], [0.0, 0.0, 0.0]))
    assert claim.verdict == "not enough images"
    assert "3 broken images, 20 are needed" in claim.test
    assert "-76.8 to +100.0" in claim.numbers  # 2/3 ± 4.30 · 0.577/√3, a difference of shares is at most 100 points
    among = homing._confound_matters(fates([1, 0, 0], [math.nan, 0.0, 1.0]))  # the first has nothing to compare with
    assert among.numbers.startswith("0.0% robust, 50.0% without another class: -50.0 points")
    assert homing._confound_matters(fates([1] * 20 + [0] * 5, [0.1] * 25)).verdict == "held"
    assert homing._confound_matters(fates([0] * 25, [0.5] * 24 + [0.0])).verdict == "did not hold"


@pytest.mark.slow
def test_where_any_class_matters_as_much_the_confound_is_found_as_seldom_as_the_level_says() -> None:
    rng = np.random.default_rng(0)
    found = [
        homing._confound_matters(fates(list(rng.random(30) < 0.3), list(rng.binomial(8, 0.3, 30) / 8))).verdict
        for _ in range(300)
    ]
    assert found.count("held") <= 15
    assert found.count("did not hold") <= 15


def test_a_confound_that_is_one_of_several_makes_no_pair() -> None:
    """One error to each other class: whoever comes first would be everybody's confound."""
    even = np.ones((10, 10), dtype=int) + 20 * np.eye(10, dtype=int)
    claim = homing._in_pairs(confused(even))
    assert claim.numbers.startswith("0 pairs (none)")
    pairs = np.kron(np.eye(5, dtype=int), np.array([[30, 20], [20, 30]])) + 1
    assert homing._in_pairs(confused(pairs)).verdict == "held"


def comparison(audit_of: Callable[..., Audit], right: list[int], base: list[int], n: int) -> list[str]:
    audit, standard = (audit_of({"pgd": own}, support=[n] * len(own)) for own in (right, base))
    found = class_bias._Comparison(_Model(), audit, standard.rows("pgd"))  # type: ignore[arg-type]
    return [claim.verdict for claim in found.claims()]


class _Model:
    name, data = "it", "data"


def test_five_images_of_each_class_decide_no_cv(audit_of: Callable[..., Audit]) -> None:
    assert set(comparison(audit_of, [0, 1, 2, 3, 4, 5], [5] * 6, 5)) == {"not enough images"}
    many = comparison(audit_of, [0, 100, 200, 300, 400, 500], [490, 495, 500, 480, 490, 497], 500)
    assert many[:4] == ["held"] * 4
    less = comparison(audit_of, [490, 495, 500, 480, 490, 497], [0, 100, 200, 300, 400, 500], 500)
    assert less[2:4] == ["did not hold"] * 2


def test_one_class_is_the_least_in_all_settings_or_none_is() -> None:
    n = np.full(4, 100)
    least = [(np.array([5, 50, 60, 70]), n), (np.array([10, 40, 90, 60]), n)]
    sample = images(100)
    assert attacks._always(least, "abcd", "least", sample).verdict == "held"
    turned = [*least, (np.array([80, 5, 60, 70]), n)]
    assert attacks._always(turned, "abcd", "least", sample).verdict == "did not hold"
    close = [*least, (np.array([5, 6, 60, 70]), n)]
    assert attacks._always(close, "abcd", "least", sample).verdict == "not decided here"
    assert attacks._always(least, "abcd", "least", images(1)).verdict == "not enough images"


def test_among_equal_classes_none_is_surely_the_least() -> None:
    rng, n, wrong = np.random.default_rng(0), np.full(3, 40), 0
    for _ in range(300):
        wrong += extremes.always_least([(rng.binomial(40, 0.5, 3), n)])[1] <= 0.025
    assert wrong <= 15
    for _ in range(100):  # one class is the least everywhere, by little
        settings = [(rng.binomial(40, [0.4, 0.5, 0.5]), n) for _ in range(4)]
        wrong += extremes.always_least(settings)[2] <= 0.025
    assert wrong <= 20


def test_fishers_test_of_two_classes() -> None:
    """3 of 10 against 7 of 10, P(X ≤ 3): Σ C(10,k) C(10,10−k) / C(20,10) for k up to 3."""
    p = extremes.below((np.array([3, 7]), np.array([10, 10])))
    expected = sum(math.comb(10, k) * math.comb(10, 10 - k) for k in range(4)) / math.comb(20, 10)
    assert p[0, 1] == pytest.approx(expected)
    assert np.isnan(p[0, 0])
