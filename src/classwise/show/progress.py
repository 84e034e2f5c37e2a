"""Progress of long work: bars with one time left for all of it on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from classwise.core.format import duration, percent

_QUIET = 20.0  # seconds until the first line, where there are no bars
_EVERY = 60.0  # seconds between two lines


def interactive(console: Console) -> bool:
    """Whether a person is watching: not in a pipe, not in CI."""
    return console.is_terminal and not os.environ.get("CI")


class Workload:
    """How much of the work is done, and how long the rest takes.

    The time between two reports is that of the attack which reports. What an attack has begun is extrapolated from its
    own pace; what it has not, from the time that the others took for a unit of cost.

    totals: the examples of each attack. costs: about how much work an example is, such as the model's evaluations.
    """

    def __init__(
        self,
        totals: Mapping[str, int],
        costs: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.totals, self.done = dict(totals), dict.fromkeys(totals, 0)
        self._costs = {name: (costs or {}).get(name, 1.0) for name in totals}
        self._spent = dict.fromkeys(totals, 0.0)
        self._clock, self._last = clock, clock()
        self._began, self._alone = self._last, threading.Lock()  # workers report too

    def report(self, name: str, finished: int) -> None:
        """So many more examples are finished."""
        with self._alone:
            now = self._clock()
            self._spent[name] += now - self._last
            self._last = now
            self.done[name] += finished

    @property
    def share(self) -> float:
        """How much of all the work is done, by its cost."""
        whole = sum(self._costs[name] * count for name, count in self.totals.items())
        return sum(self._costs[name] * count for name, count in self.done.items()) / whole if whole else 1.0

    @property
    def elapsed(self) -> float:
        return self._clock() - self._began

    def left(self) -> float | None:
        """Seconds until all is done; None as long as nothing is."""
        paid = sum(self._costs[name] * count for name, count in self.done.items())
        if not paid:
            return None
        usual, whole = sum(self._spent.values()) / paid, 0.0
        for name, total in self.totals.items():
            done = self.done[name]
            pace = self._spent[name] / done if done else usual * self._costs[name]
            whole += max(total - done, 0) * pace
        return max(whole - (self._clock() - self._last), 0.0)

    def line(self) -> str:
        """Where the work is, in one line."""
        begun = [name for name, count in self.done.items() if 0 < count < self.totals[name]]
        at = f", {begun[-1]}: {self.done[begun[-1]]:,} of {self.totals[begun[-1]]:,}" if begun else ""
        left = self.left()
        rest = "" if left is None else f", about {duration(left)} left"
        return f"{percent(self.share, 0)} done after {duration(self.elapsed)}{rest}{at}"


class _Count(ProgressColumn):
    """Examples finished of all; of the row for all of them, the share of the work."""

    def render(self, task: Task) -> Text:
        if task.fields["work"] is not None:
            return Text(percent(task.fields["work"].share, 0), style="progress.download")
        return Text(f"{task.completed:,.0f}/{task.total:,.0f}", style="progress.download")


class _Pace(ProgressColumn):
    """Examples per second; of the row for all of them, the time left."""

    def render(self, task: Task) -> Text:
        work = task.fields["work"]
        if work is None:
            return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="dim")
        left = work.left()
        return Text("" if left is None else f"{duration(left)} left", style="progress.remaining")


@contextmanager
def progress_bar(
    totals: Mapping[str, int], costs: Mapping[str, float] | None = None, show: bool | None = None
) -> Iterator[Callable[[str, int], None]]:
    """Bars of the attacks and one of all, with the time left; yields `report(attack, finished)`.

    Where nobody watches, in a pipe or in CI, a line is written now and then instead; show=False is silent.
    totals: the examples of each attack. costs: about how much work an example is for each.
    """
    work = Workload(totals, costs)
    console = Console(stderr=True, force_terminal=show or None)
    if show is False:
        yield lambda attack, finished: None
    elif show or interactive(console):
        with _bars(work, console) as report:
            yield report
    else:
        yield _lines(work, console)


@contextmanager
def _bars(work: Workload, console: Console) -> Iterator[Callable[[str, int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), _Count(), _Pace())
    with Progress(*columns, console=console, transient=True) as progress:
        tasks = {name: progress.add_task(escape(name), total=count, work=None) for name, count in work.totals.items()}
        whole = progress.add_task("all", total=1.0, work=work)

        def report(attack: str, finished: int) -> None:
            work.report(attack, finished)
            progress.advance(tasks[attack], finished)
            progress.update(whole, completed=work.share)

        yield report


def _lines(work: Workload, console: Console) -> Callable[[str, int], None]:
    due = _QUIET

    def report(attack: str, finished: int) -> None:
        nonlocal due
        work.report(attack, finished)
        if work.elapsed >= due:
            due = work.elapsed + _EVERY
            console.print(Text(work.line(), "dim"), soft_wrap=True)

    return report
