"""What the papers state: every item that is measured has its settings, and they are the papers'."""

from __future__ import annotations

import subprocess
import sys

import pytest

from classwise import published
from classwise.core.errors import UserError
from classwise.published import settings
from classwise.published.like import resolve_likes
from classwise.published.paper_settings import NOT_STATED


def test_every_measured_item_and_no_other_has_settings() -> None:
    for item in published.items():
        if item.study is None:
            with pytest.raises(KeyError):
                settings(item.id)
        else:
            assert settings(item.id).id == item.id


def test_appendix_a1_is_there_word_for_word() -> None:
    runs = {run.data: run for run in settings("tian2021:figure1").runs}
    mnist, cifar, imagenet = (runs[data].attacks[0] for data in ("mnist", "cifar10", "imagenet"))
    assert (mnist.steps, mnist.step, mnist.eps) == (40, 0.01, 0.3)
    assert (cifar.steps, cifar.step, cifar.eps) == (20, 0.007, 0.031)
    assert (imagenet.steps, imagenet.step, imagenet.eps) == (50, 0.003, 0.007)
    assert runs["svhn"].training.lr == runs["stl10"].training.lr == 0.01
    assert runs["cifar100"].training.milestones == (75, 90)


def test_the_evaluated_epoch_is_stated_in_the_submission_alone() -> None:
    assert {run.training.checkpoint for run in settings("tian2021:figure2").runs} == {NOT_STATED}
    assert {run.training.checkpoint for run in settings("tian2020:figure2").runs} == {75, 14}


def test_a_table_has_its_printed_rows_and_columns() -> None:
    found = settings("tian2020:table6")
    assert found.rows == "Madry; HE; HE-LIS; HE-CMP"
    assert found.columns.split(", ")[-1] == "inv_temperature_300"
    assert settings("tian2021:table3").rows.split("; ")[-2:] == ["HE, 5", "HE, 50"]


@pytest.mark.slow
def test_nothing_of_it_needs_torch() -> None:
    code = (
        "import sys; from classwise.published import settings; settings('li2023:table1'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_entries_begin_from_one_another_however_far_that_leads() -> None:
    found = resolve_likes({"a": {"x": 1, "y": 1}, "b": {"like": "a", "y": 2}, "c": {"like": "b", "z": 3}})
    assert found["c"] == {"x": 1, "y": 2, "z": 3}
    with pytest.raises(UserError, match="is like itself: a -> b -> a"):
        resolve_likes({"a": {"like": "b"}, "b": {"like": "a"}})
    with pytest.raises(UserError, match="unknown plan 'aa'; did you mean 'a'"):
        resolve_likes({"a": {}, "b": {"like": "aa"}}, "plan")
