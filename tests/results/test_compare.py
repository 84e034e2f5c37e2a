"""Comparison of runs: numbers by hand, who may be compared, and every way to show it."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import stats

from classwise.core.errors import UserError
from classwise.core.format import points
from classwise.core.meta import AttackInfo
from classwise.metrics import difference, worst
from classwise.results.audit_result import Audit, unique_names
from classwise.results.compare import compare, read_runs
from classwise.show import comparison as comparison_text
from classwise.show.comparison import show
from classwise.show.page import sections
from classwise.stats import comparisons

Make = Callable[..., Audit]
NAMES = ("cat", "dog", "ship")
SUPPORT = (100, 100, 100)


@pytest.fixture
def two(audit_of: Make) -> dict[str, Audit]:
    """cat gains 20 of 100, ship loses 30, dog gains 2: all nested, so b or c is 0."""
    return {
        "base": audit_of({"pgd-20": [20, 50, 90]}, SUPPORT, NAMES),
        "run": audit_of({"clean": [90, 95, 100], "pgd-20": [40, 52, 60]}, SUPPORT, NAMES),
    }


def moved(audit: Audit, by: int) -> Audit:
    """The same audit of other examples."""
    frame = audit.records.frame.assign(index=audit.records.frame["index"] + by)
    return dataclasses.replace(audit, records=dataclasses.replace(audit.records, frame=frame))


class TestNumbers:
    def test_runs_by_hand(self, two: dict[str, Audit]) -> None:
        table = compare(two).table().set_index("run")
        run = table.loc["run"]
        assert (run["n"], run["paired"], run["worst_class"], run["worst"]) == (300, True, "cat", 0.4)
        assert run["clean"] == pytest.approx(0.95)
        assert run["average"] == pytest.approx((0.4 + 0.52 + 0.6) / 3)
        assert run["overall"] == pytest.approx(152 / 300)
        assert run["cv"] == pytest.approx(np.var([40, 52, 60]))
        assert run["mcd"] == pytest.approx(0.2)
        assert run["rho"] == pytest.approx((0.4 - 0.2) / 0.2 - (160 - 152) / 160)
        assert (run["spearman"], run["kendall"]) == (1, 1)
        lowest = worst.compute(two["run"].rows())
        assert (run["worst_low"], run["worst_high"]) == (lowest.low, lowest.high)
        # 22 right only in the run, 30 only in the base
        assert run["difference"] == pytest.approx(-8 / 300)
        assert run["p"] == run["p_holm"] == pytest.approx(stats.binomtest(22, 52).pvalue)
        assert table.loc["base", ["difference", "low", "high", "p", "p_holm"]].isna().all()
        assert table.loc["base", "rho"] == 0

    def test_classes_by_hand(self, two: dict[str, Audit]) -> None:
        table = compare(two).by_class().set_index("class")
        assert table["difference"].tolist() == pytest.approx([0.2, 0.02, -0.3])
        assert table["p"].tolist() == pytest.approx([2 * 0.5**20, 0.5, 2 * 0.5**30])
        assert table["p_holm"].tolist() == pytest.approx([4 * 0.5**20, 0.5, 6 * 0.5**30])
        assert table["change"].tolist() == ["gained", "", "lost"]
        expected = difference.compute(two["base"].rows(), two["run"].rows())
        np.testing.assert_array_equal(table[["low", "high"]], expected[["low", "high"]][:-1])

    def test_the_runs_are_corrected_together(self, two: dict[str, Audit], audit_of: Make) -> None:
        runs = {**two, "third": audit_of({"pgd-20": [25, 50, 90]}, SUPPORT, NAMES)}
        table = compare(runs).table()
        np.testing.assert_array_equal(table["p_holm"][1:], comparisons.holm(table["p"].to_numpy()[1:]))
        assert table["p"].iloc[2] == pytest.approx(2 * 0.5**5)
        assert table["p_holm"].iloc[2] == pytest.approx(4 * 0.5**5)

    def test_base_and_confidence(self, two: dict[str, Audit]) -> None:
        comparison = compare(two, base="run", confidence=0.4)
        assert comparison.by_class()["run"].unique().tolist() == ["base"]
        assert comparison.by_class()["difference"].tolist() == pytest.approx([-0.2, -0.02, 0.3])
        assert comparison.by_class()["change"].tolist() == ["lost", "lost", "gained"]  # 0.5 < 0.6

    def test_tables_are_copies(self, two: dict[str, Audit]) -> None:
        comparison = compare(two)
        runs, classes = comparison.table(), comparison.by_class()
        runs["rho"] = classes["p"] = 7.0
        assert comparison.table()["rho"].iloc[0] == 0
        assert (comparison.by_class()["p"] < 1).all()

    def test_absent_class(self, audit_of: Make) -> None:
        runs = {name: audit_of({"pgd-20": right}, (50, 0, 50), NAMES) for name, right in
                (("a", [10, 0, 20]), ("b", [30, 0, 20]))}  # fmt: skip
        comparison = compare(runs)
        assert comparison.by_class().loc[1, ["base", "accuracy", "difference", "p", "p_holm"]].isna().all()
        assert comparison.sentences() == [
            "b against a, in percentage points: 1 of 2 classes gained (cat: +40.0); the other one did not change "
            "beyond chance."
        ]

    def test_one_class_has_no_order(self, audit_of: Make) -> None:
        runs = {name: audit_of({"pgd-20": [right]}, (50,), ("cat",)) for name, right in (("a", 10), ("b", 30))}
        assert compare(runs).table()[["spearman", "kendall"]].isna().all(axis=None)


class TestPairing:
    def test_other_examples_are_unpaired_and_say_so(self, two: dict[str, Audit]) -> None:
        comparison = compare({**two, "run": moved(two["run"], 100)})
        assert comparison.pairs == {"run": False}
        assert comparison.notes == (
            "run and base did not see the same examples (300 and 300 examples, 200 shared): they are compared "
            "unpaired, by Fisher's exact test, which needs a larger difference than a paired comparison.",
        )
        assert comparison.by_class()["p"].iloc[0] == pytest.approx(stats.fisher_exact([[20, 80], [40, 60]]).pvalue)
        assert not comparison.table()["paired"].iloc[1]

    def test_other_labels(self, two: dict[str, Audit]) -> None:
        records = two["run"].records
        frame = records.frame.assign(label=records.frame["label"][::-1].to_numpy())
        other = dataclasses.replace(two["run"], records=dataclasses.replace(records, frame=frame))
        assert "their labels differ" in compare({**two, "run": other}).notes[0]

    @pytest.mark.parametrize(("mark", "same"), [("aa", True), ("bb", False), (None, True)])
    def test_fingerprint_of_the_data(self, two: dict[str, Audit], mark: str | None, same: bool) -> None:
        config = {"data": {"fingerprint": "aa"}}
        runs = {
            "base": dataclasses.replace(two["base"], config=config),
            "run": dataclasses.replace(two["run"], config={"data": {"fingerprint": mark}} if mark else {}),
        }
        assert compare(runs).pairs == {"run": same}


class TestRefusals:
    def test_one_run(self, two: dict[str, Audit]) -> None:
        with pytest.raises(UserError, match="at least two runs; got base"):
            compare({"base": two["base"]})

    def test_unknown_base(self, two: dict[str, Audit]) -> None:
        with pytest.raises(UserError, match="unknown run to compare with 'bse'; did you mean 'base'"):
            compare(two, base="bse")

    def test_other_classes(self, two: dict[str, Audit], audit_of: Make) -> None:
        other = audit_of({"pgd-20": [1, 1, 1]}, SUPPORT, ("cat", "dog", "car"))
        with pytest.raises(UserError, match=r"base and other do not have.*'ship' only in base; 'car' only in other"):
            compare({"base": two["base"], "other": other})
        swapped = audit_of({"pgd-20": [1, 1, 1]}, SUPPORT, ("dog", "cat", "ship"))
        with pytest.raises(UserError, match="their order differs"):
            compare({"base": two["base"], "other": swapped})

    def test_other_attacks(self, two: dict[str, Audit], audit_of: Make) -> None:
        other = audit_of({"pgd-20": [20, 50, 90], "cw": [10, 40, 80]}, SUPPORT, NAMES)
        with pytest.raises(
            UserError,
            match=r"in the same way: base under pgd-20, other under the worst case of cw, pgd-20\. .*: clean, pgd-20\.",
        ):
            compare({"base": two["base"], "other": other})
        chosen = compare({"base": two["base"], "other": other}, attack="pgd-20")
        assert chosen.notes == ()
        assert chosen.table()["overall"].nunique() == 1

    def test_the_order_of_attacks_does_not_matter(self, audit_of: Make) -> None:
        rights = {"pgd-20": [20, 50, 90], "cw": [10, 40, 80]}
        runs = {"a": audit_of(rights, SUPPORT, NAMES), "b": audit_of(dict(reversed(rights.items())), SUPPORT, NAMES)}
        assert compare(runs).attack == "worst_case"

    def test_other_settings(self, two: dict[str, Audit], audit_of: Make) -> None:
        infos = {"pgd-20": AttackInfo(settings={"name": "pgd", "step": 0.003}, protocol="final")}
        other = audit_of({"pgd-20": [20, 50, 90]}, SUPPORT, NAMES, infos)
        runs = {"base": two["base"], "other": other}
        with pytest.raises(UserError, match=r"pgd-20 protocol any and final; pgd-20 step unset and 0\.003"):
            compare(runs)
        assert compare(runs, attack="pgd-20").notes == (
            "pgd-20 was not the same in base and other (pgd-20 protocol any and final; pgd-20 step unset and 0.003): "
            "the difference may be due to the attack, not the model.",
        )
        assert compare(runs, attack="clean").notes == ()

    def test_other_radius(self, two: dict[str, Audit]) -> None:
        records = two["run"].records
        meta = dataclasses.replace(records.meta, eps=4 / 255)
        other = dataclasses.replace(two["run"], records=dataclasses.replace(records, meta=meta))
        with pytest.raises(UserError, match=r"with different settings: pgd-20 eps 0.0313725 and 0.0156863"):
            compare({"base": two["base"], "other": other})

    def test_an_attack_they_lack(self, two: dict[str, Audit]) -> None:
        with pytest.raises(UserError, match="unknown attack that all runs have 'pgd-2'; did you mean 'pgd-20'"):
            compare(two, attack="pgd-2")

    def test_confidence(self, two: dict[str, Audit]) -> None:
        with pytest.raises(UserError, match=r"Did you mean 0\.95"):
            compare(two, confidence=95)


class TestFolders:
    @pytest.fixture
    def folders(self, two: dict[str, Audit], tmp_path: Path) -> list[Path]:
        paths = [tmp_path / "one" / "trades", tmp_path / "two" / "trades"]
        for path, audit in zip(paths, two.values(), strict=True):
            audit.records.write(path / "records" / "part.parquet")
            audit.save(path)
        return paths

    def test_names_are_as_long_as_they_must_be(self, folders: list[Path], tmp_path: Path) -> None:
        assert list(read_runs(folders)) == ["one", "two"]  # not one/trades: that is the same in both
        (tmp_path / "two" / "trades").rename(tmp_path / "two" / "wat")
        assert list(read_runs([folders[0], tmp_path / "two" / "wat"])) == ["trades", "wat"]
        assert unique_names(["x/a/audit", "y/a/audit", "y/b/audit"]) == ["x/a", "y/a", "y/b"]
        assert unique_names(["runs/a"]) == ["a"]

    def test_compared_as_in_memory(self, folders: list[Path], two: dict[str, Audit]) -> None:
        pd.testing.assert_frame_equal(
            compare(folders).by_class().drop(columns="run"), compare(two).by_class().drop(columns="run")
        )

    def test_base_by_its_folder(self, folders: list[Path]) -> None:
        assert compare(folders, base=str(folders[1])).base == "two"

    def test_twice(self, folders: list[Path]) -> None:
        with pytest.raises(UserError, match="given twice"):
            compare([folders[0], folders[0]])


class TestWords:
    def test_which_classes_gained_and_lost(self, two: dict[str, Audit]) -> None:
        assert compare(two).sentences() == [
            "run against base, in percentage points: 1 of 3 classes gained (cat: +20.0), 1 of 3 classes lost "
            "(ship: −30.0); the other one did not change beyond chance."
        ]

    def test_nobody(self, two: dict[str, Audit]) -> None:
        assert compare({"a": two["base"], "b": two["base"]}).sentences() == [
            "b against a: none of 3 classes differs beyond chance."
        ]

    def test_many_are_counted(self, audit_of: Make) -> None:
        runs = {"a": audit_of({"pgd-20": [0] * 8}, [100] * 8), "b": audit_of({"pgd-20": range(20, 28)}, [100] * 8)}
        text = compare(runs).sentences()[0]
        assert "8 of 8 classes gained (class 7: +27.0, class 6: +26.0" in text
        assert text.endswith("class 3: +23.0 and 3 more).")

    def test_points(self) -> None:
        assert [points(value) for value in (0.0312, -0.2, 0.0, float("nan"))] == ["+3.1", "−20.0", "+0.0", "–"]


class TestHeadline:
    """The better worst class of two runs, or the best of several against the base or the next."""

    def test_apart_and_overlapping(self, audit_of: Make) -> None:
        low, high = audit_of({"pgd-20": [20, 80]}, (200, 200)), audit_of({"pgd-20": [120, 130]}, (200, 200))
        made = compare({"a": low, "b": high})
        assert made.headline.startswith("b has the higher worst class: 60.0% robust (95% CI ")
        assert made.headline.endswith("of a.")
        near = compare({"a": low, "b": audit_of({"pgd-20": [24, 80]}, (200, 200))}).headline
        assert near.endswith("of a; the intervals overlap.")

    def test_of_several_and_equal(self, audit_of: Make) -> None:
        runs = {name: audit_of({"pgd-20": [k, 150]}, (200, 200)) for name, k in (("a", 20), ("b", 30), ("c", 25))}
        assert compare(runs).headline.startswith("b has the highest worst class of the 3 runs: 15.0% robust")
        assert " of c" in compare(runs, base="b").headline
        same = compare({"a": runs["a"], "d": runs["a"]}).headline
        assert same == "The worst classes of a and d are equally robust: 10.0%."


class TestShown:
    HOSTILE = ("<script>alert(1)</script>", "a|b_c", "[bold]&")

    @pytest.fixture
    def hostile(self, audit_of: Make) -> dict[str, Audit]:
        rights = {"<b>base</b>": [20, 50, 90], "class": [40, 52, 60]}
        return {run: audit_of({"pgd-20": right}, SUPPORT, self.HOSTILE) for run, right in rights.items()}

    def test_html_is_escaped(self, hostile: dict[str, Audit]) -> None:
        made = comparison_text.html(compare(hostile))
        assert "<script>" not in made
        assert "<b>" not in made
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in made
        assert "1 of 3 classes gained" in made

    def test_markdown_and_latex_are_escaped(self, hostile: dict[str, Audit]) -> None:
        comparison = compare(hostile)
        assert r"| a\|b\_c | 50.0% | 52.0% +2.0  |" in comparison_text.markdown(comparison, by_class=True)
        assert r"a\textbar{}b\_c & 50.0\% & \textbf{52.0\% +2.0" in comparison_text.latex(comparison, by_class=True)
        assert r"\<b\>base\</b\>" in comparison_text.markdown(comparison)

    def test_csv_holds_the_numbers(self, hostile: dict[str, Audit]) -> None:
        comparison = compare(hostile)
        pd.testing.assert_frame_equal(
            pd.read_csv(io.StringIO(comparison.to_csv(by_class=True)), keep_default_na=False, na_values=[]).drop(
                columns="change"
            ),
            comparison.by_class().drop(columns="change"),
        )
        read = pd.read_csv(io.StringIO(comparison.to_csv()), converters={"rho": float})
        assert read["rho"].tolist() == comparison.table()["rho"].tolist()

    def test_json(self, two: dict[str, Audit]) -> None:
        summary = json.loads(json.dumps(compare(two).summary(), allow_nan=False))
        assert (summary["base"], summary["attack"], summary["confidence"]) == ("base", "pgd-20", 0.95)
        assert summary["runs"][0]["p"] is None
        assert summary["runs"][1]["rho"] == pytest.approx(0.95)
        assert [row["change"] for row in summary["classes"]] == ["gained", "", "lost"]

    @pytest.mark.parametrize("width", [60, 200])
    def test_terminal(self, hostile: dict[str, Audit], width: int) -> None:
        console = Console(width=width, color_system=None)
        with console.capture() as capture:
            show(compare({**hostile, "third": moved(hostile["class"], 1)}), console)
        text = capture.get()
        for shown in ("20.0%", "40.0% +20.0*", "60.0% −30.0*", "+0.950", "[bold]&", "compared unpaired"):
            assert shown in text
        assert max(map(len, text.splitlines())) <= width

    def test_printed(self, two: dict[str, Audit]) -> None:
        assert str(compare(two)).splitlines()[0] == "2 runs under pgd-20, against base"


def test_what_is_not_defined_is_never_shown_as_a_number(audit_of: Make) -> None:
    """One class has no order, and a worst class of 0 no relative gain: no τ, no ρ, and no text says nan."""
    made = compare({name: audit_of({"pgd-20": [k, 0]}, (20, 0)) for name, k in (("a", 0), ("b", 5))})
    console = Console(file=io.StringIO(), width=300)
    show(made, console)
    assert isinstance(console.file, io.StringIO)
    shown = [
        console.file.getvalue(),
        comparison_text.markdown(made),
        comparison_text.latex(made),
        comparison_text.html(made),
        json.dumps(made.summary()),
    ]
    shown += [str(sections.comparison(made.audits)), comparison_text.markdown(made, by_class=True)]
    assert not [text for text in shown if re.search(r"\bnan\b", text, re.IGNORECASE)]
    run = comparison_text.markdown(made).splitlines()[-1].replace(" ", "").split("|")[1:-1]
    assert (run[0], run[9], run[-1]) == ("b", "–", "–")


def test_ties_are_not_one_class(audit_of: Make) -> None:
    made = compare({name: audit_of({"pgd-20": [0, 0, 0, k]}, (20,) * 4) for name, k in (("a", 9), ("b", 5))})
    assert made.table()["worst_class"].tolist() == ["3 classes tie"] * 2
