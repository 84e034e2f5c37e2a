"""Symmetry and superclasses beside chance, against all the orders and assignments there are."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from classwise.metrics import kinship, reciprocity, superclass, symmetry

COUNTS = np.array([[80, 14, 4, 2], [10, 85, 3, 2], [3, 5, 70, 22], [0, 2, 28, 70]])


def all_orders(counts):
    """The symmetry of every way to order each row's errors."""
    rates = counts / counts.sum(axis=1, keepdims=True)
    size = len(rates)
    rows = [list(itertools.permutations(np.delete(rates[i], i))) for i in range(size)]
    found = []
    for chosen in itertools.product(*rows):
        flips = np.zeros((size, size))
        for i, row in enumerate(chosen):
            flips[i, [j for j in range(size) if j != i]] = row
        found.append(np.minimum(flips, flips.T).sum() / flips.sum())
    return np.array(found)


def test_symmetry_beside_every_order_of_the_errors(from_confusion):
    records = from_confusion(COUNTS)
    found, every = reciprocity.compute(records, permutations=3000), all_orders(COUNTS)
    assert found.symmetry == symmetry.compute(records)
    assert found.chance == pytest.approx(every.mean(), abs=0.01)
    assert found.p == pytest.approx(np.mean(every >= found.symmetry - 1e-12), abs=0.01)


def test_nothing_confused_has_no_symmetry(from_confusion):
    found = reciprocity.compute(from_confusion(np.diag([5, 5, 5])))
    assert all(map(math.isnan, (found.symmetry, found.chance, found.p)))


def test_superclasses_beside_every_assignment(from_confusion):
    names, groups = ["a", "b", "c", "d"], {"one": ("a", "b"), "two": ("c", "d")}
    records = from_confusion(COUNTS, names, superclasses=groups)
    found = kinship.compute(records, permutations=3000)
    flips = superclass.compute(records)
    assert (found.inside, found.errors) == (pytest.approx(flips.inside), flips.errors)
    assert found.low < found.inside < found.high
    assert found.chance == pytest.approx(1 / 3)  # each class has one relative among three others
    # Three ways to part four classes into two pairs; the errors prefer this one.
    assert found.p == pytest.approx(1 / 3, abs=0.03)


def test_chance_weighs_classes_by_their_errors(from_confusion):
    names, groups = ["a", "b", "c"], {"one": ("a", "b"), "two": ("c",)}
    counts = np.array([[5, 3, 2], [1, 9, 0], [3, 2, 5]])
    found = kinship.compute(from_confusion(counts, names, superclasses=groups))
    assert found.inside == pytest.approx(4 / 11)
    assert found.chance == pytest.approx((5 * 1 + 1 * 1 + 5 * 0) / 2 / 11)


def test_without_errors_nothing_is_inside(from_confusion):
    groups = {"one": ("a", "b"), "two": ("c",)}
    found = kinship.compute(from_confusion(np.diag([3, 3, 3]), ["a", "b", "c"], superclasses=groups))
    assert found.errors == 0
    assert math.isnan(found.inside)


def test_a_relation_may_differ_between_the_images_of_a_class():
    """Images of the first kind are related to the next class, of the second kind to the one before, around a circle."""
    size = 4
    related = np.stack([np.eye(size) + np.roll(np.eye(size), way, axis=1) for way in (1, -1)], axis=1).astype(bool)
    counts = np.zeros((size, 2, size), dtype=int)
    for c in range(size):
        counts[c, 0, (c + 1) % size], counts[c, 1, (c - 1) % size], counts[c, 0, (c + 2) % size] = 6, 3, 1
    found = kinship.of(counts, related, permutations=2000)
    assert (found.inside, found.errors) == (pytest.approx(0.9), 40)
    assert found.chance == pytest.approx(1 / 3)
    every = [
        (counts * related[list(order)][..., list(order)]).sum() / 40 for order in itertools.permutations(range(size))
    ]
    assert found.p == pytest.approx(np.mean([share >= 0.9 - 1e-12 for share in every]), abs=0.02)
