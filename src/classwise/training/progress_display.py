"""The terminal display of a training: a bar with the time left, class bars of the last validation, a line per epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from torch import Tensor

from classwise.core.format import percent
from classwise.core.records import CLEAN, Records
from classwise.metrics import accuracy
from classwise.show import tables
from classwise.show.class_table import bar, cut
from classwise.show.progress import interactive
from classwise.training import history, profile
from classwise.training.choices import Choice
from classwise.training.state import TrainingState
from classwise.training.tracking import Tracker

_REFRESH = 4  # times a second
_MOST = 12  # classes shown; of more, the weakest
_NAME = 30  # characters of a class's name beside its bar


@dataclass(kw_only=True)
class ProgressDisplay:
    """Shows a training on the terminal and passes its history to the trackers.

    show: whether there is a live display; by default on a terminal, else a line for each epoch. False shows nothing, as
    quiet processes do.
    """

    epochs: int
    attacks: Sequence[str] = ()
    tracker: Tracker | None = None
    show: bool | None = None
    quiet: bool = False
    console: Console = field(default_factory=lambda: Console(stderr=True))
    _bars: Progress | None = None
    _live: Live | None = None
    _task: Any = None
    _read: float = -1.0

    @property
    def _silent(self) -> bool:
        return self.quiet or self.show is False

    def begin(self, made: Sequence[Choice], config: Path, start: TrainingState) -> None:
        """What was chosen for a training without a recipe, and where all of it is; of one that resumes, where."""
        if self._silent:
            return
        if start.epoch or start.step:
            step = f" after step {start.step}" if start.step else ""
            done = start.epoch >= self.epochs or start.stopped
            told = "was finished already" if done else f"resumes in epoch {start.epoch + 1} of {self.epochs}{step}"
            self.console.print(Text(f"The training in {config.parent} {told}.", "dim"), soft_wrap=True)
        elif made:
            self.console.print(choice_table(made))
            told = f"All settings are in {config}, which is a recipe; --set train.epochs=… and the like change them."
            self.console.print(Text(told, "dim"), soft_wrap=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The live display, on a terminal; the tracker is closed at the end."""
        wanted = interactive(self.console) if self.show is None else self.show
        try:
            if self.quiet or not wanted:
                yield
                return
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bars = Progress(*columns, TextColumn("loss {task.fields[loss]}"), console=self.console)
            with Live(self._bars, console=self.console, transient=True, refresh_per_second=_REFRESH) as self._live:
                yield
        finally:
            self._bars = self._live = None
            if self.tracker is not None:
                self.tracker.close()

    def begin_epoch(self, epoch: int, steps: int, done: int) -> None:
        if self._bars is None:
            return
        for task in self._bars.task_ids:
            self._bars.remove_task(task)
        self._task = self._bars.add_task(f"epoch {epoch + 1} of {self.epochs}", total=steps, completed=done, loss="–")

    def step(self, losses: Tensor) -> None:
        """One more step, with the losses of its examples; they are read, which on a GPU waits for them, if shown."""
        if self._bars is None:
            return
        self._bars.advance(self._task)
        if (now := time.monotonic()) - self._read > 1 / _REFRESH:
            self._bars.update(self._task, loss=f"{float(losses.detach().mean()):.3f}")
            self._read = now

    @contextmanager
    def validating(self, examples: int, what: str = "validation") -> Iterator[Callable[[str, int], None]]:
        """A bar per validation attack, or of what else is attacked besides the steps."""
        if self._bars is None:
            yield lambda attack, finished: None
            return
        bars, tasks = self._bars, {}

        def report(attack: str, finished: int) -> None:
            if attack not in tasks:
                tasks[attack] = bars.add_task(f"{what} {attack}", total=examples, loss="")
            bars.advance(tasks[attack], finished)

        yield report

    def epoch(self, state: TrainingState, valid: Records | None) -> None:
        """An epoch is done: its line, its class bars, its row for the tracker."""
        row = state.history[-1]
        if self.tracker is not None:
            self.tracker.log(row, int(row["epoch"]))
        if self._silent:
            return
        if self._live is None:
            self.console.print(Text(line(row, self.epochs)), soft_wrap=True)
            self._times(row)
        elif self._bars is not None and valid is not None:
            self._live.update(Group(Text(line(row, self.epochs)), class_bars(valid, self.attacks), self._bars))
            self._times(row)

    def _times(self, row: history.Row) -> None:
        if found := profile.sentence(row):
            self.console.print(Text(f"  {found}", "dim"), soft_wrap=True)


def choice_table(made: Sequence[Choice]) -> Table:
    """Settings that nobody gave, a row each."""
    table = Table(box=None, pad_edge=False, title="Chosen, because not given", title_justify="left", title_style="")
    for header in ("setting", "value", "why"):
        table.add_column(header, overflow="fold", no_wrap=header == "setting")
    for one in made:
        table.add_row(Text(f"{one.part}.{one.field}"), Text(_value(one.value)), Text(one.why))
    return table


def _value(value: Any) -> str:
    """A value of a recipe in a few words; of a number for each class, the range."""
    if isinstance(value, list) and all(isinstance(item, float) for item in value):
        return f"{min(value):g} to {max(value):g}, by class"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def line(row: history.Row, epochs: int) -> str:
    """An epoch in one line."""
    text = f"epoch {row['epoch']} of {epochs}: loss {float(row['train_loss']):.4f}, lr {float(row['lr']):.4g}"
    if "robust" in row:
        clean, robust, worst = (percent(float(row[key])) for key in ("clean", "robust", "worst"))
        text += f", clean {clean}, robust {robust}, worst {row['worst_class']} {worst}"
    return f"{text}, {float(row['seconds']):.1f} s"


def class_bars(valid: Records, attacks: Sequence[str]) -> Table:
    """The validation accuracies of the classes, weakest first."""
    clean = accuracy.compute(valid.of(CLEAN))
    robust = accuracy.compute(history.robust_rows(valid, attacks))
    table = Table(box=None, pad_edge=False)
    for header, justify in (("class", "left"), ("clean", "right"), ("robust", "right"), ("", "left")):
        table.add_column(header, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    order = sorted(range(len(robust.values)), key=lambda k: (robust.support[k] == 0, robust.values[k]))
    for number in order[:_MOST]:
        known = robust.support[number] > 0
        shown = bar(robust.values[number], robust.low[number], robust.high[number]) if known else Text()
        cells = percent(clean.values[number]), percent(robust.values[number])
        table.add_row(cut(valid.class_names[number], _NAME), *cells, shown)
    return table


def show_trained(rows: pd.DataFrame, best_epoch: int, rule: str, console: Console) -> None:
    """The classes of a training's best epoch on validation data, weakest first."""
    best = rows.loc[rows["epoch"] == best_epoch].iloc[0]
    if "robust" in rows and not pd.isna(best["robust"]):
        names = [str(column).partition(":")[2] for column in rows if str(column).startswith("robust:")]
        console.print(Text(f"Validation accuracy of epoch {best_epoch}, the best by {rule}"))
        weakest = sorted(names, key=lambda name: float(best[f"robust:{name}"]))[:_MOST]
        rows_of = [
            (name, *(percent(float(best[f"{what}:{name}"])) for what in ("clean", "robust"))) for name in weakest
        ]
        frame = pd.DataFrame(rows_of, columns=["class", "clean", "robust"])
        for piece in tables.terminal(frame, ("class",), console.width):
            console.print(piece)
    console.print(f"{len(rows)} epochs, {rows['seconds'].sum():.0f} s")
