"""The game on the bias: updates and steps by hand, and which change a goal takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from classwise.repairing import game
from classwise.repairing.goal import BISECTIONS, Goal, Score, front


def array(*values: float) -> Any:
    return np.array(values)


def test_a_class_below_the_mean_rises_by_as_much_as_it_lacks() -> None:
    # mean 0.4, so d = (-0.2, 0.1, 0.1); the step is 2
    moved = game.next_bias([(array(0, 0, 0), array(0.6, 0.3, 0.3))], 2.0, {})
    assert moved is not None
    assert moved[0] == pytest.approx([-0.4, 0.2, 0.2])
    assert moved[1] == 2.0


def test_the_bias_is_centred_and_starts_where_the_last_round_was() -> None:
    moved = game.next_bias([(array(1, 1, 4), array(0.5, 0.2, np.nan))], 1.0, {})
    assert moved is not None
    # mean of the classes that have images 0.35: d = (-0.15, 0.15, 0); 0.85, 1.15, 4 less their mean 2
    assert moved[0] == pytest.approx([-1.15, -0.85, 2.0])


@pytest.mark.parametrize(
    ("accuracies", "halvings"),
    [
        ([[0.6, 0.2], [0.5, 0.3]], 0),  # the worst class rose, and is still the same
        ([[0.6, 0.2], [0.6, 0.1]], 1),  # it fell
        ([[0.6, 0.2], [0.5, 0.2]], 1),  # it did not rise
        ([[0.6, 0.2], [0.3, 0.5]], 1),  # the two have changed places
        ([[0.6, 0.2], [0.1, 0.5], [0.5, 0.2], [0.4, 0.3]], 2),  # changed places and fell, changed places; then better
    ],
)
def test_the_step_is_halved_when_it_was_too_long(accuracies: list[list[float]], halvings: int) -> None:
    assert game.step_after([array(*each) for each in accuracies], 4.0, {}) == 4.0 / 2**halvings


def test_minimums_only_raise_the_classes_that_lack_them() -> None:
    assert game.deficits(array(0.5, 0.1, 0.2), {1: 0.3, 0: 0.4}) == pytest.approx([0, 0.2, 0])
    assert game.next_bias([(array(0, 0, 0), array(0.5, 0.3, 0.2))], 1.0, {1: 0.3}) is None


def test_equal_classes_leave_nothing_to_do() -> None:
    assert game.next_bias([(array(0, 0), array(0.3, 0.3))], 1.0, {}) is None


def scores(*pairs: tuple[float, float], lacking: float = 0.0) -> list[Score]:
    return [Score(worst=worst, tail=worst, average=average, lacking=lacking) for worst, average in pairs]


def test_the_worst_class_decides_then_the_average_then_the_order() -> None:
    goal = Goal(minimums={})
    assert goal.choose(scores((0.1, 0.5), (0.3, 0.4), (0.3, 0.45), (0.3, 0.45))) == 2
    assert goal.choose(scores((0.3, 0.5), (0.2, 0.6))) == 0  # no change is taken that is worse


def test_the_tail_is_the_worst_fifth() -> None:
    found = Score.of(np.linspace(0.1, 1.0, 10), {})
    assert found.tail == pytest.approx(0.15)
    assert found.worst == pytest.approx(0.1)
    assert Goal(name="tail", minimums={}).choose(
        [
            Score(worst=0.1, tail=0.2, average=0.5, lacking=0),
            Score(worst=0.2, tail=0.1, average=0.5, lacking=0),
        ]
    ) == 0  # fmt: skip


def test_the_average_is_kept() -> None:
    goal = Goal(minimums={}, keep_average=0.01)
    assert goal.choose(scores((0.1, 0.5), (0.3, 0.48), (0.2, 0.49))) == 2
    assert goal.choose(scores((0.1, 0.5), (0.3, 0.48))) == 0


def test_no_class_loses_more_than_is_allowed() -> None:
    goal = Goal(minimums={}, keep_each=0.1)
    none = float("nan")  # a class without images
    found = [goal.score(array(*each)) for each in ([0.1, 0.9, none], [0.3, 0.7, none], [0.2, 0.8, none])]
    assert [goal.allowed(score, found[0]) for score in found] == [True, False, True]
    assert goal.choose(found) == 2
    shares = searched(goal, found[:2], lambda t: goal.score(array(0.1 + 0.2 * t, 0.9 - 0.2 * t, none)))
    assert shares == [0.5, 0.75, 0.625]  # half of the way costs exactly as much as is allowed
    both = Goal(minimums={}, keep_each=0.1, keep_average=0.01)
    assert not both.allowed(both.score(array(0.1, 0.87, none)), found[0])  # within the class's limit, not the average's


def test_minimums_are_reached_at_the_least_cost() -> None:
    goal = Goal(minimums={0: 0.2})
    found = [goal.score(array(*each)) for each in ([0.1, 0.9], [0.2, 0.6], [0.25, 0.7], [0.3, 0.5])]
    assert goal.choose(found) == 2
    assert goal.choose(found[:1]) == 0
    none_reaches = [goal.score(array(*each)) for each in ([0.1, 0.9], [0.15, 0.6])]
    assert goal.choose(none_reaches) == 1  # the nearest


def searched(goal: Goal, rounds: list[Score], at: Callable[[float], Score]) -> list[float]:
    """The shares that a goal asks for, one after the other."""
    between: dict[float, Score] = {}
    while (share := goal.next_share(rounds, between)) is not None:
        between[share] = at(share)
    return list(between)


def test_the_largest_share_that_keeps_the_average_is_sought() -> None:
    goal, rounds = Goal(minimums={}, keep_average=0.01), scores((0.1, 0.5), (0.3, 0.46))
    found = searched(goal, rounds, lambda t: scores((0.1 + 0.2 * t, 0.5 - 0.04 * t))[0])
    assert found == [0.5, 0.25, 0.375]  # 0.25 keeps it exactly
    assert len(found) == BISECTIONS
    assert searched(goal, scores((0.1, 0.5), (0.3, 0.5)), lambda t: scores((0.2, 0.5))[0]) == []


def test_the_smallest_share_that_reaches_the_minimums_is_sought() -> None:
    goal = Goal(minimums={0: 0.2})

    def at(t: float) -> Score:
        return goal.score(array(0.1 + 0.4 * t, 0.9 - 0.4 * t))

    assert searched(goal, [at(0), at(1)], at) == [0.5, 0.25, 0.125]


def test_the_front_is_tried_share_by_share() -> None:
    goal = Goal(minimums={}, front=True)
    found = searched(goal, scores((0.1, 0.5), (0.3, 0.4)), lambda t: scores((0.2, 0.45))[0])
    assert found == [number / 8 for number in range(1, 8)]
    assert goal.most_between() == len(found)


def test_the_front_has_what_no_other_exceeds_in_both() -> None:
    assert front(scores((0.1, 0.5), (0.2, 0.5), (0.3, 0.4), (0.25, 0.4), (0.3, 0.4))) == [1, 2, 4]
