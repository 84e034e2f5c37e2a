"""The digits that come with scikit-learn."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from classwise.data import digits


def test_the_splits_share_out_the_data_by_class() -> None:
    train, test = digits.load("", "train"), digits.load("", "test")
    assert (len(train), len(test)) == (1442, 355)
    joined = np.concatenate([train.positions, test.positions])
    assert np.array_equal(np.sort(joined), np.arange(1797))
    share = np.bincount(test.labels) / (np.bincount(train.labels) + np.bincount(test.labels))
    assert np.abs(share - 0.2).max() < 0.01


def test_the_split_is_every_fifth_of_a_class() -> None:
    zeros = np.flatnonzero(load_digits().target == 0)
    test = digits.load("", "test")
    assert test.positions[test.labels == 0].tolist() == zeros[4::5].tolist()


def test_pixels_are_sixteenths() -> None:
    test = digits.load("")
    x, _ = test.batch(np.arange(len(test)))
    assert x.shape == (355, 1, 8, 8)
    assert (float(x.min()), float(x.max())) == (0.0, 1.0)
    np.testing.assert_array_equal((x * 16).numpy()[:, 0], load_digits().images[test.positions])
