"""Where the time of an epoch goes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import classwise as cw
from classwise.training import profile as profile_module
from classwise.training.profile import Profile, sentence

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands where the test puts it."""
    now = [0.0]
    monkeypatch.setattr(profile_module.time, "perf_counter", lambda: now[0])
    return now


def test_parts_add_up_and_begin_again(clock: list[float]) -> None:
    profile = Profile(CPU)
    for seconds in (2.0, 3.0):
        with profile.part("attack"):
            clock[0] += seconds
    with contextlib.suppress(ZeroDivisionError), profile.part("data"):
        clock[0] += 1
        raise ZeroDivisionError
    assert profile.take() == {"seconds:attack": 5.0, "seconds:data": 1.0}
    assert profile.take() == {}


def test_time_waiting_for_items_counts_and_time_using_them_does_not(clock: list[float]) -> None:
    def slow() -> Iterator[int]:
        for number in range(3):
            clock[0] += 1
            yield number

    profile, seen = Profile(CPU), []
    for item in profile.each("data", slow()):
        seen.append(item)
        clock[0] += 10
    assert seen == [0, 1, 2]
    assert profile.take() == {"seconds:data": 3.0}


def test_nothing_is_reported_where_it_is_off(clock: list[float]) -> None:
    profile = Profile(CPU, on=False)
    with profile.part("attack"):
        clock[0] += 1
    assert profile.take() == {}
    assert sentence({"seconds": 4.0}) == ""


def test_a_sentence_has_the_longest_part_first_and_the_rest_as_other() -> None:
    row = {"seconds": 10.0, "seconds:data": 1.0, "seconds:attack": 6.0}
    assert sentence(row) == "attack 6.0 s (60.0%), other 3.0 s (30.0%), data 1.0 s (10.0%)"


@pytest.mark.slow
def test_a_training_stores_and_prints_the_parts_of_every_epoch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    changes = ["data.per_class=20", "data.validation=5", "train.epochs=2"]
    trained = cw.train("desk/digits/csr", out=tmp_path, changes=changes, profile=True)
    parts = [column for column in trained.history if column.startswith("seconds:")]
    names = {"data", "attack", "outer pass", "state", "survey", "validation"}
    assert {name.removeprefix("seconds:") for name in parts} == names
    total, rows = trained.history["seconds"], trained.history[parts]
    assert (rows.drop(columns="seconds:state") > 0).all(axis=None)
    assert (rows.sum(axis=1) <= total + 0.01).all()
    assert capfd.readouterr().err.count("outer pass") == 2
