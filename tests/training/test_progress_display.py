"""What one sees of a training: a line per epoch in a pipe, bars and class bars on a terminal, rows for trackers."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import COLUMNS, Records
from classwise.training.progress_display import ProgressDisplay, class_bars, line, show_trained
from classwise.training.state import TrainingState

ROW = {
    "epoch": 2, "train_loss": 1.25, "lr": 0.1, "clean": 0.9, "robust": 0.5, "worst_class": "[cat]", "worst": 0.25,
    "seconds": 3.0,
}  # fmt: skip
LINE = "epoch 2 of 4: loss 1.2500, lr 0.1, clean 90.0%, robust 50.0%, worst [cat] 25.0%, 3.0 s"


class Listener:
    def __init__(self) -> None:
        self.rows: list[tuple[int, float]] = []
        self.closed = False

    def log(self, row: Mapping[str, float | str], epoch: int) -> None:
        self.rows.append((epoch, float(row["robust"])))

    def close(self) -> None:
        self.closed = True


def valid() -> Records:
    """Class "[cat]" half right under attack, "dog" all right, "emu" without examples."""
    frames = []
    for attack, predictions in (("clean", [0, 0, 1, 1]), ("pgd", [0, 1, 1, 1])):
        columns = {name: np.zeros(4) for name in COLUMNS}
        columns |= {"index": np.arange(4), "label": np.array([0, 0, 1, 1]), "prediction": np.array(predictions)}
        frames.append(pd.DataFrame({**columns, "attack": attack}))
    infos = {name: AttackInfo(settings={}, protocol="final", coverage="all") for name in ("clean", "pgd")}
    return Records(pd.concat(frames, ignore_index=True), Meta(class_names=("[cat]", "dog", "emu"), attacks=infos))


def console(terminal: bool = False) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=100, legacy_windows=False), text


def test_an_epoch_in_one_line() -> None:
    assert line(ROW, 4) == LINE
    assert (
        line({"epoch": 1, "train_loss": 2.0, "lr": 0.5, "seconds": 1.0}, 2)
        == "epoch 1 of 2: loss 2.0000, lr 0.5, 1.0 s"
    )


def test_in_a_pipe_there_is_a_line_per_epoch_and_the_tracker_gets_its_row() -> None:
    (out, text), tracker = console(), Listener()
    display = ProgressDisplay(epochs=4, attacks=["pgd"], tracker=tracker, console=out)
    with display.running():
        display.begin_epoch(1, 10, 0)
        display.step(torch.tensor([0.5]))
        with display.validating(4) as report:
            report("pgd", 4)
        display.epoch(TrainingState(method_state={}, history=[ROW]), valid())
    assert text.getvalue().strip() == LINE
    assert tracker.rows == [(2, 0.5)]
    assert tracker.closed


@pytest.mark.parametrize("how", [{"quiet": True}, {"show": False}])
def test_quiet_processes_and_progress_false_say_nothing(how: dict[str, Any]) -> None:
    out, text = console()
    display = ProgressDisplay(epochs=4, attacks=["pgd"], console=out, **how)
    display.begin([], Path("runs/a/config.toml"), TrainingState(method_state={}, step=7))
    with display.running():
        display.epoch(TrainingState(method_state={}, history=[ROW]), valid())
    assert text.getvalue() == ""


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ({}, ""),
        ({"step": 7}, "The training in runs/a resumes in epoch 1 of 4 after step 7."),
        ({"epoch": 2}, "The training in runs/a resumes in epoch 3 of 4."),
        ({"epoch": 4}, "The training in runs/a was finished already."),
        ({"epoch": 2, "stopped": "it overfits"}, "The training in runs/a was finished already."),
    ],
)
def test_a_training_that_resumes_says_where(start: dict[str, Any], told: str) -> None:
    out, text = console()
    display = ProgressDisplay(epochs=4, console=out)
    display.begin([], Path("runs/a/config.toml"), TrainingState(method_state={}, **start))
    assert text.getvalue().strip() == told


def test_on_a_terminal_there_are_a_bar_and_the_classes_of_the_last_validation() -> None:
    out, text = console(terminal=True)
    display = ProgressDisplay(epochs=4, attacks=["pgd"], show=True, console=out)
    with display.running():
        display.begin_epoch(1, 10, 3)
        display.step(torch.tensor([0.5]))
        display.epoch(TrainingState(method_state={}, history=[ROW]), valid())
    assert "epoch 2 of 4" in text.getvalue()
    assert "4/10" in text.getvalue()
    assert "[cat]" in text.getvalue()


def test_class_bars_begin_with_the_weakest_and_end_with_what_has_no_examples() -> None:
    out, text = console()
    out.print(class_bars(valid(), ["pgd"]))
    names = [line.split()[0] for line in text.getvalue().splitlines()[1:]]
    assert names == ["[cat]", "dog", "emu"]
    assert "50.0%" in text.getvalue().splitlines()[1]


def test_the_end_shows_the_classes_of_the_best_epoch() -> None:
    rows = pd.DataFrame([{**ROW, "epoch": k, "clean:cat": 0.9, "robust:cat": k / 10} for k in (1, 2)])
    out, text = console()
    show_trained(rows, 1, "worst", out)
    assert "epoch 1, the best by worst" in text.getvalue()
    assert "10.0%" in text.getvalue()
    assert "20.0%" not in text.getvalue()
    assert "2 epochs, 6 s" in text.getvalue()
