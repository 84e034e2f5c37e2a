"""Runs resampled and cut into halves together: what is kept, what is independent, and what noise is taken out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.metrics import accuracy, cv
from classwise.results.audit_result import Audit
from classwise.studies.runner.models_under_study import Setting
from classwise.studies.shared.together import (
    by_name,
    covariance,
    cv_change,
    halves,
    interval,
    mean_interval,
    require_same_setting,
    resampled,
)

RNG = np.random.default_rng(0)


def run(audit_of: Callable[..., Audit], right: np.ndarray, labels: np.ndarray) -> Records:
    """A run that is right about exactly these images."""
    size = int(labels.max()) + 1
    rows = audit_of({"pgd": [0] * size}, support=np.bincount(labels, minlength=size)).rows("pgd")
    wrong = (rows.frame["label"] + 1) % size
    return Records(rows.frame.assign(prediction=np.where(right, rows.frame["label"], wrong)), rows.meta)


def test_draws_have_the_mean_and_the_variance_of_sampling(audit_of: Callable[..., Audit]) -> None:
    rows = audit_of({"pgd": [10, 30, 40]}, support=[40, 40, 40]).rows("pgd")
    drawn = resampled([rows], draws=4000)[:, 0]
    p = np.array([0.25, 0.75, 1.0])
    np.testing.assert_allclose(drawn.mean(axis=0), p, atol=0.005)
    np.testing.assert_allclose(drawn.std(axis=0), np.sqrt(p * (1 - p) / 40), atol=0.003)


def test_runs_share_the_images_that_are_drawn(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of({"pgd": [10, 30], "cw": [8, 30]}, support=[40, 40])
    first, second = (resampled([audit.rows("pgd"), audit.rows(name)], draws=50) for name in ("pgd", "cw"))
    np.testing.assert_array_equal(first[:, 0], first[:, 1])
    np.testing.assert_array_equal(second[:, 0], first[:, 0])  # the seed alone decides
    np.testing.assert_array_equal(second[:, 0, 1], second[:, 1, 1])
    assert (second[:, 0, 0] >= second[:, 1, 0]).all()  # cw breaks all that pgd does


def test_a_run_of_fewer_images_is_judged_on_its_own(audit_of: Callable[..., Audit]) -> None:
    rows = audit_of({"pgd": [4, 0]}, support=[4, 4]).rows("pgd")
    part = rows.take(np.flatnonzero(rows.index < 2))
    drawn = resampled([rows, part], draws=200)
    assert np.isnan(drawn[:, 1, 1]).all()
    assert set(drawn[:, 1, 0][np.isfinite(drawn[:, 1, 0])]) == {1.0}
    assert np.isnan(drawn[:, 1, 0]).any()  # none of its two images was drawn


def test_interval_is_the_middle_of_the_draws() -> None:
    assert interval(np.arange(1001.0), 0.9) == pytest.approx((50.0, 950.0))
    assert np.isnan(interval(np.append(np.arange(90.0), np.full(10, np.nan)))).all()
    assert np.isnan(interval(np.zeros(100))).all()  # nothing varies, so nothing is known of what was not seen


def test_halves_part_every_image_evenly_and_alike(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of({"pgd": [10, 5], "cw": [3, 3]}, support=[20, 11])
    whole, few = audit.rows("pgd"), audit.rows("cw").take(np.arange(6))
    first, second = halves([whole, few])
    assert sorted([*first[0].index, *second[0].index]) == list(range(31))
    assert set(first[1].index) <= set(first[0].index)
    assert len(first[1]) == len(second[1]) == 3  # what few saw is parted evenly too
    assert [len(half[0]) for half in (first, second)] == [16, 15]


def test_change_of_cv_is_free_of_the_noise_of_few_images(audit_of: Callable[..., Audit]) -> None:
    """Accuracies 0.5 ± 0.1 and 0.9 ± 0.1 have one true variance, 100; plain CV of 16 images adds 156 and 49."""
    labels = np.repeat(np.arange(100), 16)
    spread = np.where(np.arange(100) % 2, 0.1, -0.1)[labels]
    plain, clear = [], []
    for _ in range(15):
        first, second = (run(audit_of, RNG.random(1600) < mean + spread, labels) for mean in (0.5, 0.89))
        plain.append(cv.compute(second) - cv.compute(first))
        parts = halves([first, second])
        seen = [np.stack([accuracy.compute(rows).values for rows in half]) for half in parts]
        clear.append(1e4 * np.diff(covariance(*seen))[0])
    assert np.mean(plain) < -60
    assert abs(np.mean(clear)) < 3 * np.std(clear) / np.sqrt(len(clear))


def test_change_of_cv_has_an_interval_around_it(audit_of: Callable[..., Audit]) -> None:
    audit = audit_of({"pgd": [60, 60, 40, 40], "cw": [60, 60, 20, 20]}, support=[100] * 4)
    change, low, high = cv_change(audit.rows("pgd"), audit.rows("cw"))
    assert change == pytest.approx(400 - 100)
    assert low < change < high
    assert low > 0


def test_runs_that_cannot_be_compared_are_refused(audit_of: Callable[..., Audit]) -> None:
    one = audit_of({"pgd": [1, 1]}, support=[2, 2]).rows("pgd")
    with pytest.raises(UserError, match="same classes"):
        resampled([one, audit_of({"pgd": [1, 1]}, support=[2, 2], names=("cat", "dog")).rows("pgd")])
    with pytest.raises(UserError, match="different labels"):
        resampled([one, audit_of({"pgd": [1, 1]}, support=[3, 1]).rows("pgd")])


def test_models_of_other_data_or_radius_are_refused() -> None:
    one = Setting("cifar10", "8/255", "linf").model("one", "a.pt")
    require_same_setting([one, Setting("cifar10", 8 / 255, "linf").model("two", "b.pt")])
    with pytest.raises(UserError, match=r"two for cifar10 in linf at eps 0\.1"):
        require_same_setting([one, Setting("cifar10", 0.1, "linf").model("two", "b.pt")])
    with pytest.raises(UserError, match="in linf at eps 8/255, two for cifar10 in l2 at eps 8/255"):
        require_same_setting([one, Setting("cifar10", "8/255", "l2").model("two", "b.pt")])


def test_accuracies_by_name_are_in_percent(audit_of: Callable[..., Audit]) -> None:
    assert by_name(audit_of({"pgd": [1, 2]}, support=[2, 2], names=("cat", "dog")).rows("pgd")) == {
        "cat": 50.0,
        "dog": 100.0,
    }


def test_the_interval_of_a_mean_by_hand() -> None:
    """Of two t is 12.706; all of 8 alike: of a share of 1 − 0.025^(1/8) = 0.369 nothing is known."""
    assert mean_interval(np.array([0.1, 0.2])) == pytest.approx(
        (0.15 - 12.7062 * 0.05, 0.15 + 12.7062 * 0.05), abs=1e-4
    )
    assert mean_interval(np.array([1.0, 1.0, 0.0]))[1] == 1
    unseen = 1 - 0.025 ** (1 / 8)
    assert mean_interval(np.zeros(8)) == pytest.approx((-unseen, unseen))
    assert mean_interval(np.ones(8)) == pytest.approx((1 - 2 * unseen, 1))
    assert np.isnan(mean_interval(np.ones(1))).all()
