"""The race for the worst class: intervals by hand and exactly, coverage by simulation, rounds by their counts."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from classwise.core.errors import UserError
from classwise.stats.confidence_sequences import RaceState, interval, population, proportion, race


class TestInterval:
    @pytest.mark.parametrize(("alpha", "expected"), [(0.25, (9, 10)), (0.15, (8, 10))])
    def test_by_hand(self, alpha: float, expected: tuple[int, int]) -> None:
        """8 of 8 of 10: π(8, 9, 10) = 1/55, 9/55, 45/55 after 1/11 each, so R = 5, 5/9, 1/9; 8 goes if 1/α ≤ 5."""
        assert interval(8, 8, 10, alpha) == expected

    def test_nothing_seen_says_nothing_and_all_seen_says_all(self) -> None:
        assert interval(0, 0, 7, 0.05) == (0, 7)
        assert interval(3, 7, 7, 0.05) == (3, 3)
        assert interval(0, 0, 0, 0.05) == (0, 0)

    def test_is_the_whole_set_of_the_definition(self) -> None:
        """The posterior recomputed by Bayes' rule from hypergeometric likelihoods."""
        n, alpha = 30, 0.1
        theta = np.arange(n + 1)
        for t, k in ((1, 0), (1, 1), (5, 4), (12, 0), (12, 1), (12, 12), (29, 4)):
            likelihood = stats.hypergeom.pmf(k, n, theta, t)
            ratio = np.divide(likelihood.mean(), likelihood, out=np.full(n + 1, np.inf), where=likelihood > 0)
            inside = theta[ratio < 1 / alpha]
            assert interval(k, t, n, alpha) == (inside[0], inside[-1])
            assert len(inside) == inside[-1] - inside[0] + 1

    @pytest.mark.parametrize("alpha", [0.05, 0.3])
    def test_covers_at_all_times_at_once(self, alpha: float) -> None:
        """The exact probability that the truth is ever left out, over all orders of 24 images."""
        missed = [ever_missed(interval, theta, 24, alpha) for theta in range(25)]
        assert 0 < max(missed) <= alpha

    def test_the_interval_for_one_fixed_sample_size_does_not(self) -> None:
        """So looking after every image is not something any interval would bear."""

        @functools.cache
        def fixed(k: int, t: int, n: int, alpha: float) -> tuple[float, float]:
            theta = np.arange(n + 1)
            below, above = stats.hypergeom.cdf(k, n, theta, t), stats.hypergeom.sf(k - 1, n, theta, t)
            inside = theta[(below > alpha / 2) & (above > alpha / 2)]
            return inside[0], inside[-1]

        assert max(ever_missed(fixed, theta, 24, 0.3) for theta in range(25)) > 0.3


def ever_missed(bounds: Callable[..., tuple[float, float]], theta: int, n: int, alpha: float) -> float:
    """By dynamic programming over the number of robust images seen; a path ends once its interval lacks the truth."""
    alive = {0: 1.0}
    for t in range(1, n + 1):
        after: dict[int, float] = {}
        for k, p in alive.items():
            hit = (theta - k) / (n - t + 1)
            for seen, share in ((k + 1, hit), (k, 1 - hit)):
                low, high = bounds(seen, t, n, alpha) if share > 0 else (1, 0)
                if low <= theta <= high:
                    after[seen] = after.get(seen, 0.0) + p * share
        alive = after
    return 1 - sum(alive.values())


class TestPopulation:
    @pytest.mark.parametrize(("k", "t"), [(3, 10), (1, 400), (199, 200)])
    def test_the_ends_have_the_density_alpha(self, k: int, t: int) -> None:
        low, high = proportion(k, t, 0.05)
        assert low < k / t < high
        assert stats.beta.pdf([low, high], 1 + k, 1 + t - k) == pytest.approx(0.05, rel=1e-6)

    def test_at_the_edges(self) -> None:
        assert proportion(0, 0, 0.05) == (0.0, 1.0)
        assert proportion(0, 9, 0.05)[0] == 0
        assert proportion(9, 9, 0.05)[1] == 1
        # No robust image of 9: (1 − p)⁹ · 10 = 0.05.
        assert proportion(0, 9, 0.05)[1] == pytest.approx(1 - 0.005 ** (1 / 9))

    def test_is_wider_than_what_is_said_of_the_images_themselves(self) -> None:
        robust = np.array([10, 40])
        standing = race(np.array([60, 80]), np.array([100, 100]), lambda seen: np.minimum(robust, seen))
        low, high = population(standing, 0.95)
        assert (low < standing.low).all()
        assert (high > standing.high).all()


def shuffled(robust: np.ndarray, right: np.ndarray, rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    """An attack on classes of which so many of the right images are robust, in random order."""
    sums = [np.concatenate([[0], np.cumsum(rng.permutation(n) < k)]) for k, n in zip(robust, right, strict=True)]
    return lambda seen: np.array([total[count] for total, count in zip(sums, seen, strict=True)])


#: robust and right-when-clean shares: CIFAR-10 under PGD-20, two classes tied for the worst, and near ties.
CASES = {
    "cifar10": (
        [0.516, 0.486, 0.193, 0.085, 0.144, 0.339, 0.447, 0.464, 0.537, 0.460],
        [0.80, 0.83, 0.48, 0.29, 0.51, 0.61, 0.81, 0.74, 0.87, 0.80],
    ),
    "tie": ([0.30, 0.30, 0.45, 0.60, 0.70], [0.7, 0.6, 0.8, 0.8, 0.9]),
    "near tie": ([0.50, 0.52, 0.52, 0.54, 0.54, 0.60], [0.8, 0.8, 0.9, 0.8, 0.9, 0.9]),
}


@pytest.mark.slow
class TestCoverage:
    @pytest.mark.parametrize(
        ("case", "confidence", "most"),
        [("cifar10", 0.95, 0.35), ("tie", 0.95, 0.65), ("near tie", 0.95, 0.98), ("near tie", 0.5, 0.95)],
    )
    def test_of_a_thousand_audits(self, case: str, confidence: float, most: float) -> None:
        """All bounds hold and all classes of lowest accuracy are reported as often as stated."""
        rng, times = np.random.default_rng(5), 250 if confidence < 0.9 else 1000
        whole = np.full(len(CASES[case][0]), 300)
        robust, right = (np.round(np.array(share) * 300).astype(int) for share in CASES[case])
        worst = robust == robust.min()
        missed, spent = 0, 0.0
        for _ in range(times):
            standing = race(right, whole, shuffled(robust, right, rng), confidence)
            held = (standing.low <= robust / 300) & (robust / 300 <= standing.high)
            missed += not (held.all() and standing.open[worst].all())
            spent += standing.seen.sum() / right.sum() / times
        # More misses than this would have a chance of one in a thousand if the guarantee held with equality.
        assert missed <= stats.binom.ppf(0.999, times, 1 - confidence)
        assert spent < most


class TestRace:
    @staticmethod
    def rounds(robust: list[int], right: list[int], **settings: float) -> tuple[RaceState, list[list[int]]]:
        asked: list[list[int]] = []
        attack = shuffled(np.array(robust), np.array(right), np.random.default_rng(0))

        def watched(seen: np.ndarray) -> np.ndarray:
            asked.append(seen.tolist())
            return attack(seen)

        return race(np.array(right), np.full(len(right), 1000), watched, **settings), asked

    def test_rounds_grow_and_only_for_classes_in_question(self) -> None:
        standing, asked = self.rounds([50] + [450] * 9, [500] + [800] * 9)
        assert asked[0] == [16] * 10
        assert standing.rounds == len(asked)
        assert all(
            before <= after for one, two in itertools.pairwise(asked) for before, after in zip(one, two, strict=True)
        )
        assert standing.open.tolist() == [True] + [False] * 9
        assert standing.seen.sum() < 600

    def test_few_classes_still_fill_a_round(self) -> None:
        _, asked = self.rounds([300, 320], [800, 800])
        assert asked[0] == [80, 80]
        assert asked[5] == [500, 500]  # 80, 160, 240, 320, 400: then a quarter more

    def test_a_tie_is_known_once_every_image_was_attacked(self) -> None:
        standing, _ = self.rounds([100, 100, 600], [200, 250, 800])
        assert standing.open.tolist() == [True, True, False]
        assert standing.seen.tolist()[:2] == [200, 250]
        assert standing.low[:2] == pytest.approx(0.1)
        assert standing.high[:2] == pytest.approx(0.1)
        assert standing.estimate[:2] == pytest.approx(0.1)

    def test_a_tolerance_stops_it_sooner(self) -> None:
        standing, _ = self.rounds([100, 105, 600], [200, 250, 800], tolerance=0.1)
        assert standing.open.tolist() == [True, True, False]
        assert standing.seen[:2].sum() < 450
        assert standing.high[:2].max() - standing.low[:2].min() <= 0.1

    def test_a_class_that_is_never_right_needs_no_attack(self) -> None:
        standing, _ = self.rounds([0, 100, 100], [0, 200, 200])
        assert standing.open.tolist() == [True, False, False]
        assert standing.estimate[0] == standing.high[0] == 0

    def test_one_class_alone_is_the_worst(self) -> None:
        standing, asked = self.rounds([100], [200])
        assert asked == []
        assert standing.open.tolist() == [True]
        assert np.isnan(standing.estimate[0])

    def test_an_absent_class_is_not_in_question(self) -> None:
        attack = shuffled(np.array([5, 0, 50]), np.array([60, 0, 60]), np.random.default_rng(0))
        standing = race(np.array([60, 0, 60]), np.array([60, 0, 60]), attack)
        assert standing.open.tolist() == [True, False, False]
        assert np.isnan([standing.low[1], standing.high[1], standing.estimate[1]]).all()
        # Two classes race, so each has half of what may go wrong.
        assert standing.low[0] == interval(int(standing.robust[0]), int(standing.seen[0]), 60, 0.05 / 2)[0] / 60

    def test_mistakes(self) -> None:
        with pytest.raises(UserError, match=r"tolerance must be at least 0 and below 1.*got 2\. Did you mean 0\.02\?"):
            self.rounds([1, 2], [3, 4], tolerance=2)
        with pytest.raises(UserError, match="no class has an example"):
            race(np.zeros(2, int), np.zeros(2, int), lambda seen: seen)
