"""Progress: the time left over all attacks, bars on a terminal, lines elsewhere, and silence."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from classwise.show import progress
from classwise.show.progress import Workload, interactive, progress_bar


class Clock:
    """A time that passes only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TestWorkload:
    def test_nothing_is_known_before_anything_is_done(self) -> None:
        work = Workload({"clean": 10, "pgd": 10}, clock=Clock())
        assert work.left() is None
        assert work.share == 0

    def test_what_has_begun_goes_on_at_its_pace_and_the_rest_by_its_cost(self) -> None:
        clock = Clock()
        work = Workload({"pgd": 100, "apgd": 100}, {"pgd": 20, "apgd": 100}, clock)
        clock.now = 10.0
        work.report("pgd", 50)  # 0.2 s each, 0.01 s a pass
        assert work.left() == pytest.approx(50 * 0.2 + 100 * 100 * 0.01)
        assert work.share == pytest.approx(50 * 20 / 12000)
        clock.now = 20.0
        work.report("pgd", 50)
        clock.now = 30.0
        work.report("apgd", 50)  # faster than its cost said
        assert work.left() == pytest.approx(10.0)
        clock.now = 34.0
        assert work.left() == pytest.approx(6.0)
        clock.now = 90.0
        assert work.left() == 0

    def test_nothing_is_left_at_the_end(self) -> None:
        clock = Clock()
        work = Workload({"clean": 4}, clock=clock)
        clock.now = 1.0
        work.report("clean", 4)
        assert (work.left(), work.share) == (0, 1)

    def test_its_line_says_where_it_is(self) -> None:
        clock = Clock()
        work = Workload({"clean": 1000, "pgd-20": 1000}, {"pgd-20": 20}, clock)
        clock.now = 2.0
        work.report("clean", 1000)
        clock.now = 22.0
        work.report("pgd-20", 500)
        assert work.line() == "52% done after 22 s, about 20 s left, pgd-20: 500 of 1,000"


class TestBar:
    def test_nothing_is_written_of_short_work(self, capsys: pytest.CaptureFixture[str]) -> None:
        with progress_bar({"clean": 10, "pgd-20": 10}) as report:
            report("clean", 10)
        assert capsys.readouterr() == ("", "")

    def test_a_line_now_and_then_where_nobody_watches(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(progress, "_QUIET", 0.0)
        with progress_bar({"pgd-20": 10}) as report:
            report("pgd-20", 4)
            report("pgd-20", 2)  # too soon for another line
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1
        assert err.startswith("40% done after")
        assert err.rstrip().endswith("left, pgd-20: 4 of 10")

    def test_silent_when_it_is_not_wanted(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(progress, "_QUIET", 0.0)
        with progress_bar({"pgd-20": 10}, show=False) as report:
            report("pgd-20", 10)
        assert capsys.readouterr() == ("", "")

    def test_shown_when_asked_on_stderr(self, capsys: pytest.CaptureFixture[str]) -> None:
        with progress_bar({"clean": 10, "pgd-20:[x]": 10}, {"pgd-20:[x]": 19}, show=True) as report:
            report("clean", 10)
            report("pgd-20:[x]", 10)
        out, err = capsys.readouterr()
        assert out == ""
        assert "10/10" in err
        assert "pgd-20:[x]" in err
        assert "100%" in err
        assert "left" in err

    def test_not_in_ci(self, monkeypatch: pytest.MonkeyPatch) -> None:
        screen = Console(file=io.StringIO(), force_terminal=True)
        monkeypatch.delenv("CI", raising=False)
        assert interactive(screen)
        monkeypatch.setenv("CI", "true")
        assert not interactive(screen)
        assert not interactive(Console(file=io.StringIO()))
