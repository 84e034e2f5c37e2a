"""groups: what is taken for each other stands together, and how far that is the known superclasses."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.cluster import hierarchy
from sklearn.metrics import adjusted_rand_score

from classwise.core.errors import UserError
from classwise.metrics import groups

NAMES = ["cat", "dog", "car", "truck", "ship"]
#: cat and dog flip into each other, car and truck too; ship goes to car now and then.
COUNTS = np.array(
    [
        [40, 50, 5, 3, 2],
        [30, 66, 0, 2, 2],
        [2, 0, 60, 38, 0],
        [0, 2, 20, 78, 0],
        [0, 0, 10, 0, 90],
    ]
)


def test_pairs_that_flip_are_groups_the_weakest_first(from_confusion):
    found = groups.compute(from_confusion(COUNTS, NAMES))
    assert found.members == (("cat", "dog"), ("car", "truck", "ship"))
    assert found.number.tolist() == [0, 0, 1, 1, 1]
    assert abs(found.order.index("cat") - found.order.index("dog")) == 1
    assert abs(found.order.index("car") - found.order.index("truck")) == 1
    # cat: 50 of 60 errors become dog; ship: 10 of 10 become car
    np.testing.assert_allclose(found.inside, [50 / 60, 30 / 34, 38 / 40, 20 / 22, 1])
    assert found.superclasses is None


def modularity(likeness, group) -> float:
    """Newman and Girvan's formula, pair by pair: Σ_ij (w_ij − k_i k_j / 2m) δ(g_i, g_j) / 2m."""
    degree, twice = likeness.sum(axis=1), likeness.sum()
    same = group[:, None] == group[None, :]
    return float(((likeness - np.outer(degree, degree) / twice) * same).sum() / twice)


def test_the_cut_is_the_one_of_largest_modularity(from_confusion):
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 30, (9, 9)) + np.kron(np.eye(3, dtype=int), np.full((3, 3), 25))
    records = from_confusion(counts)
    rates = counts / counts.sum(axis=1, keepdims=True)
    np.fill_diagonal(rates, 0)
    likeness = (rates + rates.T) / 2
    found = {count: groups.compute(records, count) for count in range(1, 10)}
    for count, cut in found.items():
        assert len(cut.members) == count
        assert cut.modularity == pytest.approx(modularity(likeness, cut.number))
        as_scipy = hierarchy.cut_tree(cut.tree, count)[:, 0]
        assert adjusted_rand_score(as_scipy, cut.number) == 1
    best = groups.compute(records)
    assert best.modularity == max(cut.modularity for cut in found.values())
    assert sorted(map(len, best.members)) == [3, 3, 3]


def test_absent_classes_are_in_no_group(from_confusion):
    counts = np.insert(np.insert(COUNTS, 1, 0, axis=0), 1, 0, axis=1)
    found = groups.compute(from_confusion(counts, ["cat", "bird", *NAMES[1:]]))
    assert found.members == (("cat", "dog"), ("car", "truck", "ship"))
    assert found.number.tolist() == [0, -1, 0, 1, 1, 1]
    assert found.order[-1] == "bird"


def test_nothing_confused_leaves_every_class_alone(from_confusion):
    found = groups.compute(from_confusion(np.diag([3, 4, 5])))
    assert [len(members) for members in found.members] == [1, 1, 1]
    assert np.isnan(found.modularity)
    assert np.isnan(found.inside).all()


def test_a_single_class(make):
    found = groups.compute(make([0, 0], [0, 1], ["cat", "dog"]))
    assert found.members == (("cat",),)
    assert found.order == ("cat", "dog")


def test_count_must_be_possible(from_confusion):
    with pytest.raises(UserError, match="between 1 and 5, the number of classes with examples; got 6"):
        groups.compute(from_confusion(COUNTS, NAMES), 6)


def test_superclasses_recovered(from_confusion):
    known = {"animals": ("cat", "dog"), "vehicles": ("car", "truck", "ship")}
    found = groups.compute(from_confusion(COUNTS, NAMES, superclasses=known)).superclasses
    assert (found.rand, found.purity) == (1, 1)
    # of the 10 ways to choose two of five, one is as good
    assert found.p == pytest.approx(0.1, abs=0.01)


def test_rand_index_agrees_with_sklearn():
    rng = np.random.default_rng(1)
    cases = [(rng.integers(0, 4, 30), rng.integers(0, 3, 30)) for _ in range(10)]
    cases += [(np.arange(6), np.zeros(6, int)), (np.zeros(4, int), np.zeros(4, int)), (np.arange(5), np.arange(5))]
    for found, known in cases:
        assert groups.compare(found, known, permutations=9).rand == pytest.approx(adjusted_rand_score(known, found))


def test_p_value_is_the_share_of_all_assignments():
    """Every order of five classes tried, by sklearn's index."""
    found, known = np.array([0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 1])
    index = adjusted_rand_score(known, found)
    tried = [adjusted_rand_score(known, found[list(order)]) for order in itertools.permutations(range(5))]
    exact = np.mean(np.array(tried) >= index - 1e-12)
    assert 0 < exact < 0.9
    assert groups.compare(found, known).p == pytest.approx(exact, abs=0.02)


def test_purity_by_hand():
    assert groups.compare(np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 1]), permutations=9).purity == 4 / 5


def test_p_value_does_not_depend_on_the_order_of_classes():
    found, known = np.array([0, 0, 1, 1, 1, 2, 2]), np.array([0, 0, 0, 1, 1, 1, 1])
    order = np.array([3, 6, 0, 2, 5, 1, 4])
    assert groups.compare(found, known) == groups.compare(found[order], known[order])
