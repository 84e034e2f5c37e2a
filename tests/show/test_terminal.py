"""What a person sees, rendered as text."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from classwise.core.meta import AttackInfo
from classwise.results.audit_result import Audit
from classwise.results.finding import Finding
from classwise.show import terminal

Make = Callable[..., Audit]


def rendered(thing: object, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    if isinstance(thing, Audit):
        terminal.show(thing, console)
    else:
        console.print(thing)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.fixture
def audit(audit_of: Make) -> Audit:
    right = {"clean": [90, 60, 80], "pgd-20": [50, 7, 64]}
    return audit_of(right, (100, 70, 80), ("cat", "dog", "ship"), timing={"wall_seconds": 12.34})


class TestClassTable:
    def test_weakest_first_with_all_columns(self, audit: Audit) -> None:
        title, header, *rows = rendered(terminal.class_table(audit))
        assert title.strip() == "Robustness by class under pgd-20"
        assert header.split() == ["class", "n", "clean", "robust", "95%", "CI", "p(worst)", "misclassified", "as"]
        assert [row.split()[0] for row in rows] == ["dog", "cat", "ship"]
        assert rows[0].split()[:5] == ["dog", "70", "85.7%", "10.0%", "4.9–19.2%"]
        assert rows[0].split()[-3:] == [">0.99", "ship", "100%"]

    def test_another_attack(self, audit: Audit) -> None:
        title, _, *rows = rendered(terminal.class_table(audit, "clean"))
        assert title.strip().endswith("under clean")
        assert [row.split()[0] for row in rows] == ["dog", "cat", "ship"]

    def test_a_class_without_examples_is_last(self, audit_of: Make) -> None:
        audit = audit_of({"pgd-20": [0, 3, 1]}, (0, 5, 5), ("cat", "dog", "ship"))
        rows = rendered(terminal.class_table(audit))[2:]
        assert [row.split()[0] for row in rows] == ["ship", "dog", "cat"]
        assert rows[-1].split() == ["cat", "0", "–", "–", "no", "examples"]

    @pytest.mark.parametrize("name", ["[red]x[/]", "[/]", ":cat:", "back\\", "a [b", "猫"])
    def test_names_are_shown_as_they_are(self, audit_of: Make, name: str) -> None:
        audit = audit_of({"pgd-20": [1, 3]}, (5, 5), (name, "dog"))
        lines = rendered(audit)
        assert lines[2].startswith(f"{name} ")
        assert lines[3].rstrip().endswith(f"{name} 100%")  # dog is misclassified as it
        text = "\n".join(lines)
        assert "has the lowest accuracy: 20.0% robust" in text
        assert f"Below the overall robust accuracy: {name}." in text

    def test_two_classes_of_one_name(self, audit_of: Make) -> None:
        audit = audit_of({"clean": [10, 5], "pgd-20": [4, 1]}, (10, 10), ("crane", "crane"))
        rows = rendered(terminal.class_table(audit))[2:]
        assert [row.split()[2:4] for row in rows] == [["50.0%", "10.0%"], ["100.0%", "40.0%"]]

    def test_a_thousand_classes_are_shortened(self, audit_of: Make) -> None:
        audit = audit_of({"pgd-20": [k % 50 for k in range(1000)]}, [50] * 1000)
        lines = rendered(audit)
        table = lines[2 : lines.index("")]
        assert len(table) == 25
        assert table[12].strip() == "… 976 more"
        robust = [float(row.replace("%", " ").split()[4]) for row in table[:12] + table[13:]]
        assert robust == sorted(robust)
        assert not any(line.startswith("Below the overall") for line in lines)

    def test_forty_classes_are_not(self, audit_of: Make) -> None:
        audit = audit_of({"pgd-20": [2] * 40}, [5] * 40)
        assert len(rendered(terminal.class_table(audit, most=None))) == 42

    @pytest.mark.parametrize("width", [80, 100, 200])
    def test_no_name_is_wrapped(self, audit_of: Make, width: int) -> None:
        names = [f"a rather long class name, number {k}" for k in range(12)]
        hot = "temperature_pgd-20:inv_temperature=50,sound=true"
        audit = audit_of({"pgd-20": range(3, 15), hot: range(12)}, [1000] * 12, names)
        lines = rendered(audit, width)
        assert all(len(line) <= width for line in lines)
        assert len(lines[2 : lines.index("")]) == 12
        for line in lines[2:14]:
            assert line.startswith("a rather"[:6])
            assert line.split("1000")[1].split()[1].endswith("%")  # numbers are never cut
        overview = lines[lines.index("") + 1 :]
        assert len(overview[: overview.index("")]) == 1 + 4  # header, clean, two attacks, worst case

    @pytest.mark.parametrize(("value", "low", "high"), [(0, 0, 0.1), (1, 0.9, 1), (0.5, 0.4, 0.6), (0.26, 0.2, 0.9)])
    def test_bars_are_all_of_one_length(self, value: float, low: float, high: float) -> None:
        text = terminal.bar(value, low, high, 20).plain
        assert len(text) == 20
        assert text.count("█") + text.count("▓") == round(20 * value)
        assert len(text.rstrip()) == round(20 * high)


class TestShow:
    def test_says_everything_once(self, audit: Audit) -> None:
        text = "\n".join(rendered(audit, 200))
        assert "Under pgd-20, dog is the worst class: 10.0% robust (95% CI of the worst class 4.1–21.8%)" in text
        assert "Below the overall robust accuracy: dog." in text
        assert "linf eps 8/255, judged on any point tried, seed 0, 12.3 s" in text
        overview = next(line for line in text.splitlines() if line.startswith("pgd-20 "))
        assert overview.split()[:4] == ["pgd-20", "48.4%", "dog", "10.0%"]

    def test_the_protocol_is_named(self, audit_of: Make) -> None:
        infos = {"pgd-20": AttackInfo(settings={"name": "pgd"}, protocol="final")}
        assert "judged on the last iterate" in "\n".join(rendered(audit_of({"pgd-20": [1, 2]}, (5, 5), infos=infos)))
        assert "judged on the image" in "\n".join(rendered(audit_of({}, (5, 5))))

    def test_findings_under_their_headings_and_literal(self, audit_of: Make) -> None:
        findings = (
            Finding("a", "info", "Class [b]x[/b] and :cat:.", "Nothing."),
            Finding("b", "error", "Bad.", "Mend it [now]."),
            Finding("c", "warning", "Hm.", "Look."),
            Finding("d", "recommendation", "Broken.", "Train it."),
        )
        lines = rendered(audit_of({"pgd-20": [1, 2]}, (5, 5), findings=findings))
        assert [line.strip() for line in lines[-9:]] == [
            "Warnings",
            "• error: Bad. Mend it [now].",
            "• warning: Hm. Look.",
            "",
            "Recommendations",
            "• Broken. Train it.",
            "",
            "Notes",
            "• Class [b]x[/b] and :cat:. Nothing.",
        ]

    def test_side_by_side(self, audit_of: Make) -> None:
        one = audit_of({"pgd-20": [1, 4, 0]}, (5, 5, 0), ("cat", "dog", "ship"))
        other = audit_of({"pgd-20": [3, 2, 0]}, (5, 5, 0), ("cat", "dog", "ship"))
        lines = rendered(terminal.side_by_side({"standard": one, "adversarial": other}), 120)
        assert [line.split()[0] for line in lines[2:]] == ["dog", "cat", "ship"]  # by the last one's weakness
        assert lines[2].split()[1:3] == ["100.0%", "80.0%"]


class TestProgress:
    def test_quiet_where_nobody_watches(self, capsys: pytest.CaptureFixture[str]) -> None:
        with terminal.progress_bar(10, ["clean", "pgd-20"]) as report:
            report("clean", 10)
        assert capsys.readouterr() == ("", "")

    def test_shown_when_asked_on_stderr(self, capsys: pytest.CaptureFixture[str]) -> None:
        with terminal.progress_bar(10, ["clean", "pgd-20:[x]"], show=True) as report:
            report("clean", 10)
            report("pgd-20:[x]", 4)
        out, err = capsys.readouterr()
        assert out == ""
        assert "10/10" in err
        assert "pgd-20:[x]" in err

    def test_not_in_ci(self, monkeypatch: pytest.MonkeyPatch) -> None:
        screen = Console(file=io.StringIO(), force_terminal=True)
        monkeypatch.delenv("CI", raising=False)
        assert terminal.interactive(screen)
        monkeypatch.setenv("CI", "true")
        assert not terminal.interactive(screen)
        assert not terminal.interactive(Console(file=io.StringIO()))
