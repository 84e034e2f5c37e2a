"""Schedules are functions of time, with the values their papers' code has."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from classwise.core.errors import UserError
from classwise.training import schedule
from classwise.training.schedule import Constant, Cosine, Cyclic, Knots, Schedule, Step


def test_step_changes_in_the_epoch_that_bears_the_milestones_number() -> None:
    """TRADES counts epochs from 1 and asks whether epoch >= 75 before it begins one."""
    rate = schedule.parse("step:milestones=75-90-100,factor=0.1")
    for epoch in range(1, 121):  # TRADES' own rule, written out
        expected = 0.001 if epoch >= 100 else 0.01 if epoch >= 90 else 0.1 if epoch >= 75 else 1.0
        for part in (0.0, 0.5, 0.999):
            assert rate.at(epoch - 1 + part, 120) == pytest.approx(expected)


def test_step_counted_from_zero_is_torchs() -> None:
    rate = schedule.parse("step:milestones=3-5,factor=0.5,first=0")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    reference = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5], gamma=0.5)
    for epoch in range(8):
        assert rate.at(epoch, 8) == pytest.approx(reference.get_last_lr()[0])
        optimizer.step()
        reference.step()


def test_milestones_below_one_are_fractions_of_all_epochs() -> None:
    rate = schedule.parse("step:milestones=.5-.75")
    assert [rate.at(t, 8) for t in (0, 3.9, 4, 5.9, 6, 8)] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_cyclic_is_a_triangle() -> None:
    rate = Cyclic()
    assert [rate.at(t, 15) for t in (0, 3.75, 7.5, 11.25, 15)] == pytest.approx([0, 0.5, 1, 0.5, 0])
    early = schedule.parse("cyclic:peak=0.2")
    assert [early.at(t, 10) for t in (1, 2, 6, 10)] == pytest.approx([0.5, 1, 0.5, 0])


def test_cosine_goes_down_smoothly_or_by_epochs() -> None:
    smooth, stepped = Cosine(), schedule.parse("cosine:by=epoch")
    assert [smooth.at(t, 8) for t in (0, 2, 4, 8)] == pytest.approx([1, (1 + math.sqrt(0.5)) / 2, 0.5, 0])
    for e in range(1, 9):  # RST's rule: e counts from 1
        for part in (0.0, 0.7):
            assert stepped.at(e - 1 + part, 8) == pytest.approx((1 + math.cos(math.pi * (e - 1) / 8)) / 2)


def test_knots_are_joined_by_lines() -> None:
    rate = schedule.parse("knots:epochs=0|1|6|12|15,factor=0|1|.1|.01|.001")
    found = [rate.at(t, 15) for t in (0, 0.5, 1, 3.5, 6, 9, 12, 15, 16)]
    assert found == pytest.approx([0, 0.5, 1, 0.55, 0.1, 0.055, 0.01, 0.001, 0.001])


def test_knots_written_for_some_epochs_stretch_to_others() -> None:
    rate = schedule.parse("knots:epochs=0|1|6|12|15,factor=0|1|.1|.01|.001,of=15")
    assert [rate.at(t, 15) for t in (0.5, 6, 15)] == pytest.approx([0.5, 0.1, 0.001])
    assert [rate.at(t, 30) for t in (1, 12, 24, 30)] == pytest.approx([0.5, 0.1, 0.01, 0.001])
    with pytest.raises(UserError, match="of must be positive, got 0"):
        schedule.parse("knots:of=0")


@pytest.mark.parametrize("name", schedule.KINDS)
def test_warmup_raises_the_rate_from_zero(name: str) -> None:
    plain, warm = schedule.parse(name), schedule.parse(f"{name}:warmup=2")
    for t in (0, 0.5, 1, 2, 3.3, 9.9):
        assert warm.at(t, 10) == pytest.approx(min(1, t / 2) * plain.at(t, 10))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("constant", Constant()),
        ("step-60-80", Step(milestones=(60, 80))),
        ({"name": "step", "milestones": [60, 80], "factor": 0.2}, Step(milestones=(60, 80), factor=0.2)),
        (Cyclic(peak=0.3), Cyclic(peak=0.3)),
        ("knots:epochs=0|2,factor=1e-3|1", Knots(epochs=(0, 2), factor=(0.001, 1))),
    ],
)
def test_ways_to_write_a_schedule(wanted: Any, expected: Schedule) -> None:
    assert schedule.parse(wanted) == expected


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("cosin", "did you mean 'cosine'"),
        ({"milestones": [3]}, "unknown schedule ''"),
        (3, "3 is no schedule"),
        ("step:milestone=75", "did you mean 'milestones'"),
        ("step:milestones=90-75", "increasing numbers, got 90, 75"),
        ("step:milestones=0-75", "milestones must be positive"),
        ("step:factor=0", "factor must be positive"),
        ("step-75:milestones=80", "gives milestones twice"),
        ("cyclic:peak=1", "peak must be positive and below 1"),
        ("cosine:by=day", "unknown value of cosine.by 'day'"),
        ("knots:epochs=0|1,factor=1", "one factor for each epoch: got 1 and 2"),
        ("knots:epochs=0|1,factor=1;-1", "must be a number"),
        ("constant:warmup=-1", "warmup must be at least 0, got -1"),
    ],
)
def test_bad_schedules(wanted: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        schedule.parse(wanted)


def test_negative_factors_are_refused() -> None:
    with pytest.raises(UserError, match="must be at least 0, got -1"):
        Knots(epochs=(0, 1), factor=(1, -1))
