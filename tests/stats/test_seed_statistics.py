"""Means over seeds: against Student, Welch, an analysis of variance, the noncentral t, and simulated trainings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from simulated_seeds import SETTINGS, coverage, measured

from classwise.core.errors import UserError
from classwise.stats import intervals, resampling
from classwise.stats.over_seeds import MOST_SEEDS, MeanOverSeeds, Measured, beforehand

FIRST, SECOND = np.array([0.50, 0.53, 0.49]), np.array([0.60, 0.58, 0.65, 0.61])


def exact(values: np.ndarray) -> Measured:
    """Numbers that do not vary with the images."""
    count = len(values)
    nothing = np.zeros((1, count))
    return Measured(values=values[None], covariance=np.zeros((1, count, count)), bias=nothing, least=np.zeros(1))


def drawn(seed: int = 0, runs: int = 6, images: int = 40) -> np.ndarray:
    """Answers of one class, (runs, images), with effects of runs and of images."""
    rng = np.random.default_rng(seed)
    hard, shift = rng.normal(size=images), 0.4 * rng.normal(size=(runs, 1))
    return (hard + shift + rng.normal(size=(runs, images)) > 0).astype(np.float64)


def of_class(answers: np.ndarray) -> Measured:
    found = measured(answers[:, None, :])
    return Measured(values=found.values[:1], covariance=found.covariance[:1], bias=found.bias[:1], least=np.zeros(1))


class TestWithoutImages:
    def test_a_mean_is_students(self) -> None:
        found, expected = exact(FIRST).mean(np.arange(3)), stats.ttest_1samp(FIRST, 0)
        assert found.p_value()[0] == pytest.approx(expected.pvalue)
        np.testing.assert_allclose(np.ravel(found.interval(0.9)), expected.confidence_interval(0.9))
        assert found.deviation[0] == pytest.approx(FIRST.std(ddof=1))

    def test_pairs_are_students(self) -> None:
        found = exact(np.concatenate([FIRST, SECOND[:3]])).difference(np.arange(3), np.arange(3, 6), paired=True)
        expected = stats.ttest_rel(SECOND[:3], FIRST)
        assert found.p_value()[0] == pytest.approx(expected.pvalue)
        assert found.freedom()[0] == pytest.approx(2)

    def test_groups_are_welchs(self) -> None:
        found = exact(np.concatenate([FIRST, SECOND])).difference(np.arange(3), np.arange(3, 7), paired=False)
        expected = stats.ttest_ind(SECOND, FIRST, equal_var=False)
        assert found.p_value()[0] == pytest.approx(expected.pvalue)
        assert found.freedom()[0] == pytest.approx(expected.df)
        np.testing.assert_allclose(np.ravel(found.interval()), expected.confidence_interval())


class TestPooled:
    def test_it_is_twice_the_mean_square_of_the_interaction(self) -> None:
        """And the mean of the variance of the differences over all pairs of groups."""
        values = np.array([[0.50, 0.53, 0.49], [0.60, 0.58, 0.65], [0.70, 0.71, 0.62], [0.55, 0.50, 0.51]])
        runs = np.split(np.arange(12), 4)
        effects = values - values.mean(axis=0) - values.mean(axis=1)[:, None] + values.mean()
        found = exact(values.ravel()).pooled(runs)[0]
        assert found == pytest.approx(2 * (effects**2).sum() / (3 * 2))
        pairs = [(values[b] - values[a]).var(ddof=1) for a in range(4) for b in range(a)]
        assert found == pytest.approx(np.mean(pairs))

    def test_two_groups_pool_nothing(self) -> None:
        runs, numbers = np.split(np.arange(6), 2), exact(np.concatenate([FIRST, SECOND[:3]]))
        assert numbers.pooled(runs)[0] == pytest.approx(numbers.difference(*runs, paired=True).spread[0, 0])

    def test_degrees_of_freedom(self) -> None:
        """Without an effect of the images they are those of the interaction, (t − 1)(k − 1)."""
        plan = beforehand(0.01, 3, paired=True, groups=5)
        assert plan.freedom()[0] == pytest.approx(4 * 2)
        assert plan.planned(10).freedom()[0] == pytest.approx(4 * 9)
        assert plan.half_width()[0] == pytest.approx(stats.t.ppf(0.975, 8) * 0.01 / np.sqrt(3))
        assert plan.detectable()[0] < beforehand(0.01, 3, paired=True).detectable()[0]

    def test_groups_that_are_not_paired_cannot_be_pooled(self) -> None:
        with pytest.raises(UserError, match="groups must be at least 2, and 2 where runs are not paired; got 5"):
            beforehand(0.01, 3, groups=5)

    @pytest.mark.slow
    def test_coverage(self) -> None:
        for name in ("large", "classes tie"):
            assert (coverage(SETTINGS[name], 3, 150, paired=True, groups=5) >= 0.90).all(), name


class TestImages:
    def test_the_variance_is_that_of_the_crossed_design(self) -> None:
        """(MS_seeds + MS_images − MS_rest) / (seeds · images), mean squares of a two-way analysis of variance."""
        answers = drawn()
        d = answers[3:] - answers[:3]
        k, n = d.shape
        rows, columns = d.mean(axis=1, keepdims=True), d.mean(axis=0, keepdims=True)
        of_seeds = n * ((rows - d.mean()) ** 2).sum() / (k - 1)
        of_images = k * ((columns - d.mean()) ** 2).sum() / (n - 1)
        rest = ((d - rows - columns + d.mean()) ** 2).sum() / ((k - 1) * (n - 1))
        found = of_class(answers).difference(np.arange(3), np.arange(3, 6), paired=True)
        assert of_images > rest
        assert found.variance()[0] == pytest.approx((of_seeds + of_images - rest) / (k * n))
        hillis = (of_seeds + of_images - rest) ** 2 / (of_seeds**2 / (k - 1))
        assert found.freedom()[0] == pytest.approx(hillis)

    def test_these_models_on_other_images(self) -> None:
        """The variance over images alone is that of the mean difference of an image."""
        answers = drawn(1)
        d = (answers[3:] - answers[:3]).mean(axis=0)
        for paired in (True, False):
            found = of_class(answers).difference(np.arange(3), np.arange(3, 6), paired)
            assert found.on_these_models()[0] == pytest.approx(d.var(ddof=1) / len(d))

    def test_runs_that_agree_by_chance_are_no_narrower_than_the_images_allow(self) -> None:
        found = of_class(drawn(2)).difference(np.arange(3), np.arange(3, 6), paired=True)
        lucky = replace(found, spread=np.zeros_like(found.spread), shared=np.zeros(1))
        half = 1.959964 * np.sqrt(lucky.on_these_models())
        np.testing.assert_allclose(lucky.half_width(), half, rtol=1e-6)
        size = replace(lucky, value=half)
        assert size.p_value()[0] == pytest.approx(0.05, abs=1e-6)

    def test_interval_and_test_agree(self) -> None:
        found = of_class(drawn(3)).difference(np.arange(3), np.arange(3, 6), paired=True)
        at_the_end = replace(found, value=found.half_width(0.02))
        assert at_the_end.p_value()[0] == pytest.approx(0.02)

    def test_runs_that_never_disagree(self) -> None:
        """No variance at all: the difference is 0 with p 1, and `least` gives it an interval."""
        found = of_class(np.zeros((4, 50))).difference(np.arange(2), np.arange(2, 4), paired=True)
        assert (found.value[0], found.p_value()[0]) == (0, 1)
        assert replace(found, least=np.array([0.0004])).half_width()[0] == pytest.approx(1.96 * 0.02, rel=1e-3)

    def test_a_bias_widens(self) -> None:
        found = of_class(drawn(4)).mean(np.arange(6))
        assert replace(found, bias=np.array([0.1])).variance()[0] == pytest.approx(found.variance()[0] + 0.01)

    @pytest.mark.parametrize("share", [0.0, 1.0])
    def test_shares_at_the_end_are_wilsons(self, share: float) -> None:
        found = of_class(np.full((3, 80), share)).mean(np.arange(3))
        expected = intervals.bounds(np.array(80 * share), np.array(80))
        np.testing.assert_allclose(np.ravel(found.share_interval(np.array([80]))), expected, atol=1e-12)

    def test_shares_stay_inside(self) -> None:
        found = of_class(np.repeat([[1.0] * 9 + [0.0], [1.0] * 10], 1, axis=0)).mean(np.arange(2))
        low, high = found.share_interval(np.array([10]))
        assert 0 <= low[0] < 0.95 < high[0] <= 1

    def test_one_run_is_refused(self) -> None:
        with pytest.raises(UserError, match="at least two"):
            exact(FIRST).mean(np.array([0]))


class TestPower:
    @pytest.mark.parametrize("seeds", [2, 3, 5, 20])
    def test_it_is_that_of_the_noncentral_t(self, seeds: int) -> None:
        plan = beforehand(0.01, seeds, paired=True)
        size = np.array([0.02])
        away, beyond = 0.02 / (0.01 / np.sqrt(seeds)), stats.t.ppf(0.975, seeds - 1)
        expected = stats.nct.sf(beyond, seeds - 1, away) + stats.nct.cdf(-beyond, seeds - 1, away)
        assert plan.power(size)[0] == pytest.approx(expected, abs=2e-3)

    def test_detectable_has_the_power(self) -> None:
        plan = beforehand(0.01, 4, image_sd=0.004)
        assert plan.power(plan.detectable(0.01, 0.9), 0.01)[0] == pytest.approx(0.9, abs=1e-6)

    def test_seeds_needed_are_the_fewest(self) -> None:
        plan = replace(beforehand(0.01, 3, image_sd=0.002, paired=True), value=np.array([-0.012]))
        needed = int(plan.seeds_needed()[0])
        assert plan.planned(needed).power(plan.value)[0] >= 0.8 > plan.planned(needed - 1).power(plan.value)[0]

    def test_no_number_of_seeds_replaces_images(self) -> None:
        plan = replace(beforehand(0.01, 3, image_sd=0.01), value=np.array([0.02]))
        assert plan.seeds_needed()[0] == np.inf
        assert plan.planned(MOST_SEEDS).power(plan.value)[0] < 0.8

    def test_a_plan_expects_what_the_images_explain(self) -> None:
        """Runs that agree by chance will not do so again."""
        found = replace(beforehand(0.0, 3, paired=True), own=np.array([[0.0004]]))
        assert found.planned().spread[0, 0] == 0.0004

    @pytest.mark.parametrize(("sd", "seeds", "image_sd"), [(-0.1, 3, 0), (0.1, 1, 0), (0.1, 3, float("nan"))])
    def test_impossible_plans(self, sd: float, seeds: int, image_sd: float) -> None:
        with pytest.raises(UserError, match="must be at least"):
            beforehand(sd, seeds, image_sd)

    @pytest.mark.slow
    def test_simulated_power(self) -> None:
        """Four pairs that differ by the detectable difference are told apart in four of five experiments."""
        size = float(beforehand(0.01, 4, paired=True).detectable()[0])
        rng = np.random.default_rng(0)
        values = size + 0.01 * rng.standard_normal((4000, 4))
        found = MeanOverSeeds(
            value=values.mean(axis=1),
            spread=values.var(axis=1, ddof=1)[None],
            own=np.zeros((1, 4000)),
            shared=np.zeros(4000),
            bias=np.zeros(4000),
            least=np.zeros(4000),
            seeds=np.array([[4.0]]),
        )
        assert (found.p_value() < 0.05).mean() == pytest.approx(0.8, abs=0.02)


def test_draws_of_rows_are_those_of_accuracies() -> None:
    label, right = np.repeat([0, 2], [5, 8]), drawn(5, runs=2, images=13).T
    accuracies = resampling.class_accuracies(right, label, 3, draws=4, seed=7)
    for rows, expected in zip(resampling.rows(label, 4, seed=7), accuracies, strict=True):
        assert sorted(label[rows]) == sorted(label)
        for which in (0, 2):
            np.testing.assert_allclose(right[rows][label[rows] == which].mean(axis=0), expected[:, which])
    assert np.isnan(accuracies[:, :, 1]).all()


@pytest.mark.slow
def test_coverage() -> None:
    """Of intervals at 95%, for the first class, the average and the worst class; the module says what 1000 gave."""
    found = np.array(
        [
            coverage(SETTINGS[name], seeds, 120, paired, start=seeds)
            for name in ("small", "large", "classes tie")
            for seeds, paired in ((3, True), (3, False), (5, True), (10, False))
        ]
    )
    assert found.min() >= 0.9  # 120 repetitions have a standard error of 2%
    assert found.mean(axis=0).min() >= 0.94
