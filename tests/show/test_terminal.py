"""What a person sees, rendered as text."""

from __future__ import annotations

import io
from collections.abc import Callable

import pandas as pd
import pytest
from rich.console import Console

from classwise.core.errors import UserError
from classwise.core.format import percent, radius
from classwise.core.meta import AttackInfo
from classwise.results.audit_result import Audit
from classwise.results.finding import Finding
from classwise.show import terminal
from classwise.show.class_table import Choice, class_details

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
        assert table.pop() == "audit.by_class() has every class"
        assert table.pop().startswith("bars: █ to the lower end of the 95% CI")
        assert len(table) == 25
        assert table[12].strip() == "… 976 more"
        robust = [float(row.replace("%", " ").split()[4]) for row in table[:12] + table[13:]]
        assert robust == sorted(robust)
        assert not any(line.startswith("Below the overall") for line in lines)

    def test_forty_classes_are_not(self, audit_of: Make) -> None:
        audit = audit_of({"pgd-20": [2] * 40}, [5] * 40)
        assert len(rendered(terminal.class_table(audit))) == 42

    @pytest.mark.parametrize("width", [80, 100, 200])
    def test_no_name_is_wrapped(self, audit_of: Make, width: int) -> None:
        names = [f"a rather long class name, number {k}" for k in range(12)]
        hot = "temperature_pgd-20:inv_temperature=50,sound=true"
        audit = audit_of({"pgd-20": range(3, 15), hot: range(12)}, [1000] * 12, names)
        lines = rendered(audit, width)
        assert all(len(line) <= width for line in lines)
        assert len(lines[2 : lines.index("")]) == 12 + 1  # and what the bars are
        for line in lines[2:14]:
            assert line.startswith("a rat")
            assert line.split("1000")[1].split()[1].endswith("%")  # numbers are never cut
        overview = lines[lines.index("") + 1 :]
        assert len(overview[: overview.index("")]) == 1 + 4  # header, clean, two attacks, worst case

    @pytest.mark.parametrize("count", [10, 43, 1000])
    @pytest.mark.parametrize("width", [80, 120])
    def test_numbers_are_whole_however_long_the_names(self, audit_of: Make, count: int, width: int) -> None:
        names = [f"Speed limit ({k} km/h), temporary restriction" for k in range(count)]
        audit = audit_of({"clean": [900] * count, "pgd-20": [k % 901 for k in range(count)]}, [1000] * count, names)
        header, *rows = [
            line for line in rendered(terminal.class_table(audit, width=width), width)[1:] if "more" not in line
        ]
        assert max(map(len, (header, *rows))) <= width
        assert header.rstrip().endswith("misclassified as")
        table = audit.by_class().sort_values("accuracy", kind="stable")
        for row, accuracy in zip(rows[:5], table["accuracy"], strict=False):
            assert f"  1000  90.0%{percent(accuracy):>8}  " in row
            assert row.rstrip().endswith("%")
        assert len({row.partition("1000")[0] for row in rows}) == len(rows)  # names that are cut still differ

    @pytest.mark.parametrize(("value", "low", "high"), [(0, 0, 0.1), (1, 0.9, 1), (0.5, 0.4, 0.6), (0.26, 0.2, 0.9)])
    def test_bars_are_all_of_one_length(self, value: float, low: float, high: float) -> None:
        text = terminal.bar(value, low, high, 20).plain
        assert len(text) == 20
        assert text.count("█") + text.count("▓") == round(20 * value)
        assert len(text.rstrip()) == round(20 * high)


class TestChoice:
    @pytest.fixture
    def audit(self, audit_of: Make) -> Audit:
        right = {"clean": [9, 6, 8], "pgd-20": [5, 1, 6]}
        return audit_of(right, (10, 10, 10), ("dog", "cat", "ship"))

    def order(self, audit: Audit, **choice: object) -> list[str]:
        table = terminal.class_table(audit, choice=Choice(**choice))  # type: ignore[arg-type]
        return [row.split()[0] for row in rendered(table)[2:]]

    @pytest.mark.parametrize(
        ("sort", "order"),
        [
            ("robust", ["cat", "dog", "ship"]),
            ("clean", ["cat", "ship", "dog"]),
            ("drop", ["cat", "dog", "ship"]),  # 50, 40 and 20 points
            ("class", ["cat", "dog", "ship"]),
            ("data", ["dog", "cat", "ship"]),
            ("p_worst", ["cat", "dog", "ship"]),
        ],
    )
    def test_sorts(self, audit: Audit, sort: str, order: list[str]) -> None:
        assert self.order(audit, sort=sort) == order

    def test_only_some_classes(self, audit: Audit) -> None:
        assert self.order(audit, classes=["ship", "dog"]) == ["dog", "ship"]

    def test_what_there_is_not_is_said(self, audit: Audit) -> None:
        with pytest.raises(UserError, match="unknown order of classes 'dropp'; did you mean 'drop'"):
            self.order(audit, sort="dropp")
        with pytest.raises(UserError, match="unknown class 'do'; did you mean 'dog'"):
            self.order(audit, classes=["do"])

    def test_all_of_many(self, audit_of: Make) -> None:
        audit = audit_of({"pgd-20": [k % 50 for k in range(60)]}, [50] * 60)
        assert len(self.order(audit)) == 25
        assert len(self.order(audit, every=True)) == 60

    def test_the_details_of_a_class(self, audit: Audit) -> None:
        title, header, clean, pgd = rendered(class_details(audit, "cat"))
        assert title.strip() == "cat"
        assert header.split()[:3] == ["attack", "n", "accuracy"]
        assert clean.split()[:3] == ["clean", "10", "60.0%"]
        assert pgd.split()[:4] == ["pgd-20", "10", "10.0%", "1.8–40.4%"]
        assert pgd.rstrip().endswith("100%")

    def test_a_search_and_a_curve_are_arranged_too(self) -> None:
        table = pd.DataFrame({"class": ["a", "b"], "area": [0.5, 0.2]})
        assert list(Choice().arranged(table, columns={"robust": "area"})["class"]) == ["b", "a"]
        with pytest.raises(UserError, match="cannot be sorted by 'clean'; use one of robust, class, data"):
            Choice(sort="clean").arranged(table, columns={"robust": "area"})


def test_a_curve_of_many_radii_is_cut_into_pieces_not_numbers(audit_of: Make) -> None:
    radii = [k / 255 for k in range(1, 17)]
    infos = {
        f"pgd@{k}": AttackInfo(settings={"name": "pgd"}, protocol="any", eps=eps, family="pgd")
        for k, eps in enumerate(radii, 1)
    }
    audit = audit_of({name: [50, 7] for name in infos}, (100, 70), ("cat", "dog"), infos=infos)
    lines = rendered(audit)
    assert max(map(len, lines)) <= 80
    first = lines.index("Robustness along eps under pgd")
    heads = [line.split() for line in lines[first:] if line.startswith("class ")]
    assert [cell for head in heads for cell in head[1:]] == ["clean", *(radius(eps) for eps in radii), "area", "median"]


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
