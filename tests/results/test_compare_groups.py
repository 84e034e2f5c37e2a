"""Groups of runs over seeds: numbers by hand, who is paired with whom, and every way to show it."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import stats
from typer.testing import CliRunner

import classwise as cw
from classwise.cli.main import app
from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.metrics import find
from classwise.results import measured, run_groups
from classwise.results.audit_result import Audit
from classwise.results.compare_groups import GroupComparison, compare_groups
from classwise.show import figures, group_comparison
from classwise.show.page import build
from classwise.stats import comparisons

Make = Callable[..., Audit]
Groups = dict[str, dict[str, Audit]]
NAMES = ("cat", "dog", "ship")
SUPPORT = (100, 100, 100)
#: Correct images of each class with each seed.
TRADES = ([20, 50, 90], [24, 52, 88], [22, 48, 86])
WAT = ([30, 50, 84], [36, 50, 86], [33, 49, 80])


@pytest.fixture
def groups(audit_of: Make) -> Groups:
    return {
        name: {f"{name}-{seed}": audit_of({"pgd-20": right}, SUPPORT, NAMES) for seed, right in enumerate(rights)}
        for name, rights in (("trades", TRADES), ("wat", WAT))
    }


@pytest.fixture
def folders(groups: Groups, tmp_path: Path) -> Path:
    for runs in groups.values():
        for name, audit in runs.items():
            audit.records.write(tmp_path / "runs" / name / "records" / "part.parquet")
            audit.save(tmp_path / "runs" / name)
    return tmp_path


def row(comparison: GroupComparison, metric: str, group: str = "wat") -> pd.Series:
    return comparison.table().set_index(["group", "metric"]).loc[(group, metric)]


class TestNumbers:
    def test_means_and_deviations(self, groups: Groups) -> None:
        made = compare_groups(groups)
        worst, average = row(made, "worst"), row(made, "average")
        assert (worst["mean"], worst["sd"]) == pytest.approx((0.33, 0.03))
        accuracies = np.array(WAT) / 100
        assert (average["mean"], average["sd"]) == pytest.approx(
            (accuracies.mean(), accuracies.mean(axis=1).std(ddof=1))
        )
        assert row(made, "clean")["mean"] == 1
        assert row(made, "cv")["mean"] == pytest.approx((100 * accuracies).var(axis=1).mean())
        assert worst["low"] < 0.33 < worst["high"]

    def test_a_class_by_hand(self, groups: Groups) -> None:
        """cat: differences 10, 12 and 11 of 100, all nested, so the covariances are known."""
        cat = compare_groups(groups).by_class().set_index(["group", "class"]).loc[("wat", "cat")]
        answers = np.array([[[rank < n for rank in range(100)] for n in side] for side in ([20, 24, 22], [30, 36, 33])])
        d = answers[1].astype(float) - answers[0]
        covariance = np.cov(d) / 100
        shared = (covariance.sum() - np.trace(covariance)) / 6
        spread = np.var([0.10, 0.12, 0.11], ddof=1) / 3
        variance = spread + shared
        freedom = variance**2 / (spread**2 / 2)
        assert cat["difference"] == pytest.approx(0.11)
        assert cat["df"] == pytest.approx(freedom)
        over_both = 2 * stats.t.sf(0.11 / np.sqrt(variance), freedom)
        over_images = 2 * stats.norm.sf(0.11 / np.sqrt(covariance.mean()))
        assert cat["p"] == pytest.approx(max(over_both, over_images))
        half = max(stats.t.ppf(0.975, freedom) * np.sqrt(variance), 1.959964 * np.sqrt(covariance.mean()))
        assert (cat["difference_low"], cat["difference_high"]) == pytest.approx((0.11 - half, 0.11 + half), rel=1e-6)

    def test_holm_over_groups_and_metrics_and_over_classes(self, groups: Groups, audit_of: Make) -> None:
        third = {f"fat-{seed}": audit_of({"pgd-20": right}, SUPPORT, NAMES) for seed, right in enumerate(TRADES[::-1])}
        made = compare_groups({**groups, "fat": third}, columns=["average", "worst"])
        table, classes = made.table(), made.by_class()
        assert made.tests == 4
        np.testing.assert_array_equal(table["p_holm"], comparisons.holm(table["p"].to_numpy()))
        for _, own in classes.groupby("group"):
            np.testing.assert_array_equal(own["p_holm"], comparisons.holm(own["p"].to_numpy()))

    def test_of_three_groups_the_variance_over_seeds_is_pooled(self, groups: Groups, audit_of: Make) -> None:
        third = {f"fat-{seed}": audit_of({"pgd-20": right}, SUPPORT, NAMES) for seed, right in enumerate(TRADES[::-1])}
        three = {**groups, "fat": third}
        pooled, own, two = compare_groups(three), compare_groups(three, variance="own"), compare_groups(groups)
        assert (pooled.pooled, own.pooled, two.pooled) == (True, False, False)
        assert "The variance over seeds is pooled over the 3 groups." in pooled.sentences()
        numbers = ["mean", "sd", "difference", "difference_sd", "difference_low", "difference_high", "df", "p"]
        for metric in ("average", "worst"):
            assert row(own, metric)[numbers].tolist() == row(two, metric)[numbers].tolist()
            for name in ("difference", "difference_sd"):
                assert row(pooled, metric)[name] == row(own, metric)[name]
        # the worst class of every run, and what is left without the effects of groups and of seeds
        lowest = np.array([[min(right) for right in rights] for rights in (TRADES, WAT, TRADES[::-1])]) / 100
        rest = lowest - lowest.mean(axis=0) - lowest.mean(axis=1)[:, None] + lowest.mean()
        spread = 2 * (rest**2).sum() / 4 / 3
        own_spread = np.var(lowest[1] - lowest[0], ddof=1) / 3
        variance = own_spread * np.sqrt(row(own, "worst")["df"] / 2) - own_spread + spread  # that of the images kept
        assert row(pooled, "worst")["df"] == pytest.approx(variance**2 / (spread**2 / 4))

    def test_unpaired_groups_are_not_pooled(self, groups: Groups) -> None:
        three = {**groups, "fat": dict(list(groups["wat"].items())[:2])}
        assert not compare_groups(three).pooled
        assert not compare_groups({**groups, "fat": groups["wat"]}, pair="none").pooled

    def test_verdicts(self, audit_of: Make) -> None:
        rights = {"a": [20, 80], "b": [45, 40], "c": [20, 81]}
        made = compare_groups(
            {
                name: {f"{name}{s}": audit_of({"pgd-20": [r + s for r in right]}, (100, 100)) for s in range(4)}
                for name, right in rights.items()
            },
            columns=["worst", "average"],
        )
        assert made.by_class()["verdict"].tolist() == ["", "", "higher", "lower", "undecided", "undecided"]
        assert row(made, "worst", "b")["verdict"] == "higher"
        undecided = row(made, "average", "c")
        assert undecided["verdict"] == "undecided"
        assert undecided["seeds_needed"] > 4
        assert row(made, "worst", "a")[["difference", "p", "detectable", "seeds_needed"]].isna().all()

    def test_control_and_confidence(self, groups: Groups) -> None:
        made = compare_groups(groups, control="wat", confidence=0.5)
        assert row(made, "worst", "trades")["difference"] == pytest.approx(-0.11)
        wide = compare_groups(groups, control="wat", confidence=0.99)
        one, two = (row(c, "worst", "trades") for c in (made, wide))
        assert two["difference_low"] < one["difference_low"] < one["difference_high"] < two["difference_high"]

    @pytest.mark.slow
    def test_any_metric(self, groups: Groups) -> None:
        made = compare_groups(groups, columns=["mcd", "tail", "harmonic", "overall"])
        assert row(made, "mcd")["mean"] == pytest.approx(np.ptp(WAT, axis=1).mean() / 100)
        assert row(made, "overall")["difference"] == pytest.approx((np.sum(WAT) - np.sum(TRADES)) / 900)

    def test_classes_without_images(self, audit_of: Make) -> None:
        made = compare_groups(
            {
                name: {f"{name}{s}": audit_of({"pgd-20": [k + s, 0, 20]}, (50, 0, 50), NAMES) for s in range(3)}
                for name, k in (("a", 10), ("b", 12))
            }
        )
        dog = made.by_class().set_index(["group", "class"]).loc[("b", "dog")]
        assert dog[["mean", "difference", "p", "detectable", "seeds_needed"]].isna().all()
        assert dog["verdict"] == ""

    @pytest.mark.slow
    def test_drawn_again_or_exact(self, groups: Groups) -> None:
        """The average is exact; the same number through draws of the images is near it, and so is its covariance."""
        runs = [audit.rows() for own in groups.values() for audit in own.values()]
        metric = find("average")
        by_draws = measured.of_metric(dataclasses.replace(metric, of=lambda accuracies: float(accuracies.mean())), runs)
        by_records = measured.of_metric(dataclasses.replace(metric, of=None), runs)
        exact = measured.of_metric(metric, runs)
        for found, tolerance in ((by_draws, 0.15), (by_records, 0.3)):
            np.testing.assert_allclose(found.values, exact.values)
            np.testing.assert_allclose(
                np.diagonal(found.covariance[0]), np.diagonal(exact.covariance[0]), rtol=tolerance
            )
            assert np.abs(found.bias).max() < 0.01

    def test_a_minimum_is_biased_downwards(self, audit_of: Make) -> None:
        """Classes that tie: other draws have a lower minimum, and the bias is estimated."""
        rows = [audit_of({"pgd-20": [50] * 5}, [100] * 5).rows()] * 2
        assert measured.of_metric(find("worst"), rows).bias.max() < -0.02


class TestPairs:
    @pytest.mark.parametrize(
        ("trades", "wat"),
        [
            (["trades-0", "trades-1"], ["wat-1", "wat-0"]),
            (["seed3/trades", "seed10/trades"], ["s10/wat", "s3/wat"]),
            (["a-x", "a-y"], ["b-y", "b-x"]),
        ],
    )
    def test_by_name(self, trades: list[str], wat: list[str]) -> None:
        assert run_groups.pairs({"t": trades, "w": wat}, "t", "w", "auto")[0] == [1, 0]

    def test_other_seeds_are_not_paired(self) -> None:
        names = {"t": ["t-10", "t-11"], "w": ["w-20", "w-21"]}
        assert run_groups.pairs(names, "t", "w", "auto")[0] is None
        with pytest.raises(UserError, match="10, 11, 20, 21 only in one"):
            run_groups.pairs(names, "t", "w", "name")
        assert run_groups.pairs(names, "t", "w", "position")[0] == [0, 1]

    def test_position_needs_as_many(self) -> None:
        with pytest.raises(UserError, match="2 runs and w 3"):
            run_groups.pairs({"t": ["a", "b"], "w": ["c", "d", "e"]}, "t", "w", "position")

    def test_pairing_changes_the_test_and_is_shown(self, groups: Groups) -> None:
        paired, alone = compare_groups(groups), compare_groups(groups, pair="none")
        assert paired.pairs == {"wat": [(f"wat-{seed}", f"trades-{seed}") for seed in range(3)]}
        assert alone.pairs == {"wat": []}
        assert row(paired, "worst")["difference_sd"] == pytest.approx(0.01)
        assert np.isnan(row(alone, "worst")["difference_sd"])
        assert row(paired, "worst")["difference"] == pytest.approx(row(alone, "worst")["difference"])
        assert "wat and trades are paired by the names of the folders: wat-0 with trades-0" in str(paired)
        assert "wat and trades are not paired, as asked for." in str(alone)

    def test_the_order_of_the_runs_does_not_matter(self, groups: Groups) -> None:
        turned = {**groups, "wat": dict(reversed(groups["wat"].items()))}
        columns = ["average", "worst"]
        one, two = (compare_groups(given, columns=columns).table() for given in (groups, turned))
        pd.testing.assert_frame_equal(one, two, rtol=1e-9)


class TestRefusals:
    def test_one_group(self, groups: Groups) -> None:
        with pytest.raises(UserError, match="at least two groups; got trades"):
            compare_groups({"trades": groups["trades"]})

    def test_one_run(self, groups: Groups) -> None:
        with pytest.raises(UserError, match="the group wat has 1 run, which says nothing"):
            compare_groups({**groups, "wat": {"wat-0": groups["wat"]["wat-0"]}})

    def test_unknown_control(self, groups: Groups) -> None:
        with pytest.raises(UserError, match="unknown group to compare with 'wta'; did you mean 'wat'"):
            compare_groups(groups, control="wta")

    def test_other_examples(self, groups: Groups) -> None:
        audit = groups["wat"]["wat-1"]
        frame = audit.records.frame.assign(index=audit.records.frame["index"] + 1)
        other = dataclasses.replace(audit, records=Records(frame, audit.records.meta))
        with pytest.raises(UserError, match=r"wat/wat-1 and trades/trades-0 did not see the same examples \(300 and"):
            compare_groups({**groups, "wat": {**groups["wat"], "wat-1": other}})

    def test_unknown_metric(self, groups: Groups) -> None:
        with pytest.raises(UserError, match="did you mean 'worst'"):
            compare_groups(groups, columns=["wrost"])

    @pytest.mark.parametrize(
        ("texts", "message"),
        [
            (["trades"], "NAME=FOLDERS"),
            (["=runs"], "NAME=FOLDERS"),
            (["a=x", "a=y"], "given twice"),
            (["a=x,,y"], "empty folder"),
            (["a=nowhere/t-*"], r"no folder matches nowhere/t-\*"),
        ],
    )
    def test_texts(self, texts: list[str], message: str) -> None:
        with pytest.raises(UserError, match=message):
            run_groups.parse(texts)


class TestFolders:
    def test_patterns_and_lists(self, folders: Path) -> None:
        home = folders / "runs"
        (home / "trades-notes.txt").write_text("not a run")
        listed = ",".join(str(home / f"wat-{seed}") for seed in range(3))
        found = run_groups.parse([f"trades={home}/trades-*", f"wat={listed}"])
        assert [path.name for path in found["trades"]] == ["trades-0", "trades-1", "trades-2"]
        assert [path.name for path in found["wat"]] == ["wat-0", "wat-1", "wat-2"]

    def test_numbers_are_sorted_as_numbers(self, tmp_path: Path) -> None:
        for number in (10, 9, 1):
            (tmp_path / f"t-{number}").mkdir()
        found = run_groups.folders_of([f"{tmp_path}/t-*"], "t")
        assert [path.name for path in found] == ["t-1", "t-9", "t-10"]

    def test_a_run_is_in_one_group(self, folders: Path) -> None:
        with pytest.raises(UserError, match="given twice"):
            cw.compare_groups({"a": f"{folders}/runs/trades-*", "b": f"{folders}/runs/*-0"})

    def test_as_in_memory(self, folders: Path, groups: Groups) -> None:
        made = cw.compare_groups({name: f"{folders}/runs/{name}-*" for name in groups})
        pd.testing.assert_frame_equal(made.table(), compare_groups(groups).table())


def called(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


class TestCommand:
    @pytest.fixture
    def given(self, folders: Path) -> list[str]:
        return [word for name in ("trades", "wat") for word in ("--group", f"{name}={folders}/runs/{name}-*")]

    def test_terminal(self, given: list[str]) -> None:
        text = " ".join(called("compare", *given, "--columns", "worst,average", "--name", "wat=WAT").split())
        for shown in ("33.0% ± 3.0", "WAT", "p (Holm, 2 tests)", "+11.0", "80% power", "wat-2 with trades-2"):
            assert shown in text

    def test_latex(self, given: list[str]) -> None:
        text = called("compare", *given, "--control", "wat", "--columns", "clean,worst,cv", "-f", "latex")
        assert r"wat & 3 & \textbf{100.0\% $\pm$ 0.0} & \textbf{33.0\% $\pm$ 3.0} & \textbf{" in text
        assert r"p (Holm, 3 tests)" in text
        by_class = called("compare", *given, "--by-class", "--format", "latex", "--name", "cat=Cat")
        assert re.search(r"Cat & 22\.0\\% \[\d+\.\d--\d+\.\d\\%\] & \\textbf\{33\.0\\% \[\d", by_class)

    def test_csv_json_and_markdown(self, given: list[str], tmp_path: Path) -> None:
        table = pd.read_csv(io.StringIO(called("compare", *given, "--format", "csv")))
        assert table["metric"].tolist() == ["clean", "average", "worst", "cv"] * 2
        called("compare", *given, "--format", "json", "--out", tmp_path / "c.json")
        summary = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
        assert summary["pairs"]["wat"][0] == ["wat-0", "trades-0"]
        assert summary["groups"][0]["difference"] is None
        assert "| wat | worst | +11.0 |" in called("compare", *given, "--format", "markdown")

    def test_plan(self) -> None:
        assert "3 seeds: 3.1" in called("compare", "--plan", "0.01")

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            (["runs/x"], "not both"),
            (["--base", "x"], "not both"),
            (["--pair", "seed"], "pair"),
            (["--name", "cat"], "OLD=NEW"),
        ],
    )
    def test_mistakes(self, given: list[str], more: list[str], message: str) -> None:
        done = CliRunner().invoke(app, ["compare", *given, *more])
        assert isinstance(done.exception, UserError)
        assert message in str(done.exception)

    def test_control_without_groups(self) -> None:
        done = CliRunner().invoke(app, ["compare", "a", "b", "--control", "a"])
        assert "--control is about groups" in str(done.exception)

    @pytest.mark.slow
    def test_figure(self, given: list[str], tmp_path: Path) -> None:
        (tmp_path / "printed.csv").write_text("group,worst\nwat,7.5\n")
        out = tmp_path / "forest.svg"
        called("figure", "forest", *given, "--set", f"printed={tmp_path / 'printed.csv'}", "--out", out)
        svg = out.read_text(encoding="utf-8")
        for text in (">wat<", "worst, printed", "difference from trades in points", "value: 11"):
            assert text in svg
        assert ">trades<" not in svg

    @pytest.mark.slow
    def test_report(self, given: list[str], tmp_path: Path) -> None:
        called("report", *given, "--out", tmp_path / "report.html")
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        for text in ("Robustness over seeds: trades, wat", 'id="seeds"', "p (Holm, 4 tests)", "33.0% ± 3.0", "--group"):
            assert text in page
        assert 'id="comparison"' not in page
        assert "cannot be drawn" not in page


class TestShown:
    @pytest.fixture
    def hostile(self, groups: Groups, audit_of: Make) -> GroupComparison:
        names = ("<script>alert(1)</script>", "a|b_c", "[bold]&")
        given = {
            new: {f"{new}{s}": audit_of({"pgd-20": right}, SUPPORT, names) for s, right in enumerate(rights)}
            for new, rights in (("class", TRADES), ("<b>&", WAT))
        }
        return compare_groups(given, columns=["worst", "cv"])

    def test_escaped(self, hostile: GroupComparison) -> None:
        html = group_comparison.html(hostile)
        assert "<script>" not in html
        assert "<b>" not in html
        assert r"a\textbar{}b\_c" in group_comparison.latex(hostile, by_class=True)
        assert r"\<b\>\&" in group_comparison.markdown(hostile)

    @pytest.mark.slow
    def test_escaped_on_the_page(self, hostile: GroupComparison, tmp_path: Path) -> None:
        page = build([], tmp_path / "page.html", groups=hostile).read_text(encoding="utf-8")
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)" in page

    @pytest.mark.parametrize("width", [60, 200])
    def test_terminal(self, hostile: GroupComparison, width: int) -> None:
        console = Console(width=width, color_system=None)
        with console.capture() as capture:
            group_comparison.show(hostile, console=console)
        text = capture.get()
        for shown in ("33.0% ± 3.0", "[bold]&", "higher"):
            assert shown in text
        assert max(map(len, text.splitlines())) <= width

    def test_printed_gains_must_name_the_groups(self, groups: Groups, tmp_path: Path) -> None:
        made = compare_groups(groups, columns=["worst", "average"])
        for text, message in (("group,worst\nwta,1\n", "did you mean 'wat'"), ("a,b\n1,2\n", "expected group")):
            (tmp_path / "printed.csv").write_text(text)
            with pytest.raises(UserError, match=message):
                figures.from_groups("forest", made, printed=tmp_path / "printed.csv")

    def test_what_is_not_in_percent_is_not_on_its_axis(self, hostile: GroupComparison) -> None:
        with pytest.raises(UserError, match="cv is not in percent"):
            figures.from_groups("forest", hostile, columns=("cv",))

    def test_tables_are_copies(self, hostile: GroupComparison) -> None:
        made: Mapping[str, pd.DataFrame] = {"groups": hostile.table(), "classes": hostile.by_class()}
        for table in made.values():
            table["p"] = 7.0
        assert not (hostile.table()["p"] == 7).any()
        assert not (hostile.by_class()["p"] == 7).any()
