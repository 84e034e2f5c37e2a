"""The leaderboard: who is ranked with whom, numbers by hand, what is known of trainings, and every way to write it."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import classwise as cw
from board_runs import write_entry, write_trained
from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo
from classwise.core.storage import file_digest
from classwise.metrics import worst
from classwise.models import zoo
from classwise.results.audit_result import Audit
from classwise.show import leaderboard as board_text

Make = Callable[..., Audit]
NAMES = ("cat", "dog", "ship")
SUPPORT = (100, 100, 100)


def made_of(audit: Audit, data: str = "cifar10", attack: str = "pgd-20", mark: str = "d" * 64, **model: Any) -> Audit:
    """The audit with the settings that a run folder has."""
    config = {
        "data": {"name": data, "fingerprint": mark},
        "model": model,
        "command": {"attack": [attack]},
    }
    return dataclasses.replace(audit, config=config)


@pytest.fixture
def three(audit_of: Make) -> dict[str, Audit]:
    """Worst classes 60, 25 and 24 of 100: the first is far ahead, the others cannot be distinguished."""
    rights = {"middle": [25, 80, 90], "best": [60, 85, 95], "last": [24, 81, 90]}
    return {
        name: made_of(audit_of({"clean": [90, 95, 97], "pgd-20": right}, SUPPORT, NAMES))
        for name, right in rights.items()
    }


class TestNumbers:
    def test_rows_by_hand(self, three: dict[str, Audit]) -> None:
        table = cw.leaderboard(three).table().set_index("name")
        assert table.index.tolist() == ["best", "middle", "last"]
        assert table["rank"].tolist() == [1, 2, 3]
        assert list(zip(table["rank_low"], table["rank_high"], strict=True)) == [(1, 1), (2, 3), (2, 3)]
        row = table.loc["middle"]
        assert (row["worst_class"], row["worst"]) == ("cat", 0.25)
        lowest = worst.compute(three["middle"].rows())
        assert (row["worst_low"], row["worst_high"]) == (lowest.low, lowest.high)
        assert row["average"] == pytest.approx((0.25 + 0.8 + 0.9) / 3)
        assert row["clean"] == pytest.approx((0.9 + 0.95 + 0.97) / 3)
        assert row["cv"] == pytest.approx(np.var([25, 80, 90]))
        assert row["mcd"] == pytest.approx(0.65)
        assert np.isnan(row["bottom_tenth"])
        assert row["behind"] == pytest.approx(0.35)
        assert row["p_behind"] < 1e-4
        assert row["overall_difference"] == pytest.approx((195 - 240) / 300)
        assert np.isnan(table.loc["best", ["p_behind", "overall_difference", "overall_p"]].astype(float)).all()

    def test_what_it_says(self, three: dict[str, Audit]) -> None:
        division = cw.leaderboard(three).divisions[0]
        assert division.title == "cifar10, linf 8/255, pgd-20, 300 images"
        assert division.sentence() == "best has the most accurate worst class of 3 models, beyond chance."
        del three["best"]
        assert cw.leaderboard(three).divisions[0].sentence() == "2 of 2 models may be first: middle, last."

    def test_the_bottom_tenth_of_many_classes(self, audit_of: Make) -> None:
        audit = audit_of({"pgd-20": list(range(30))}, [40] * 30)
        assert cw.leaderboard({"a": audit}).table()["bottom_tenth"].tolist() == [pytest.approx((0 + 1 + 2) / 3 / 40)]

    def test_another_column_and_confidence(self, three: dict[str, Audit]) -> None:
        board = cw.leaderboard(three, confidence=0.2)
        by_average = board.sorted_by("name").divisions[0]
        assert by_average.rows["name"].tolist() == ["best", "last", "middle"]
        assert by_average.classes.index.tolist() == ["best", "last", "middle"]
        assert by_average.p.columns.tolist() == [one.name for one in by_average.submissions]
        with pytest.raises(UserError, match="did you mean 'average'"):
            board.sorted_by("averge")

    def test_one_attack_instead_of_the_worst_case(self, audit_of: Make) -> None:
        both = audit_of({"pgd-20": [20, 50, 90], "fgsm": [40, 30, 90]}, SUPPORT, NAMES)
        one = audit_of({"pgd-20": [30, 50, 90]}, SUPPORT, NAMES)
        plain = cw.leaderboard({"both": both, "one": one})
        assert len(plain.divisions) == 2
        chosen = cw.leaderboard({"both": both, "one": one}, attack="pgd-20")
        assert chosen.table()["worst"].tolist() == [0.3, 0.2]
        fgsm = cw.leaderboard({"both": both, "one": one}, attack="fgsm")
        assert fgsm.table()["name"].tolist() == ["both"]
        assert fgsm.notes == ("Without fgsm, and not on this board: one.",)
        with pytest.raises(UserError, match="unknown attack"):
            cw.leaderboard({"both": both}, attack="cw")


class TestComparable:
    def test_a_weaker_attack_is_another_division(self, audit_of: Make) -> None:
        weak = {"pgd-20": AttackInfo(settings={"name": "pgd", "steps": 20, "restarts": 1})}
        strong = {"pgd-20": AttackInfo(settings={"name": "pgd", "steps": 20, "restarts": 5})}
        runs = {
            "weak": made_of(audit_of({"pgd-20": [50, 60, 90]}, SUPPORT, NAMES, infos=weak)),
            "strong": made_of(audit_of({"pgd-20": [40, 50, 90]}, SUPPORT, NAMES, infos=strong)),
        }
        board = cw.leaderboard(runs)
        assert [one.rows["rank"].tolist() for one in board.divisions] == [[1], [1]]
        assert "restarts 1 and 5" in " ".join(one.title for one in board.divisions) or "restarts 5 and 1" in " ".join(
            one.title for one in board.divisions
        )

    @pytest.mark.parametrize("change", ["data", "norm", "eps", "images", "classes"])
    def test_whatever_else_differs(self, audit_of: Make, change: str) -> None:
        first = made_of(audit_of({"pgd-20": [50, 60, 90]}, SUPPORT, NAMES))
        second = made_of(audit_of({"pgd-20": [40, 50, 90]}, SUPPORT, NAMES))
        records = second.records
        if change == "data":
            second = made_of(second, data="svhn")
        elif change == "images":
            second = made_of(second, mark="e" * 64)
        else:
            own = {"norm": {"norm": "l2"}, "eps": {"eps": 0.1}, "classes": {"class_names": ("cat", "dog", "boat")}}
            changed = dataclasses.replace(records, meta=dataclasses.replace(records.meta, **own[change]))
            second = dataclasses.replace(second, records=changed)
        assert len(cw.leaderboard({"first": first, "second": second}).divisions) == 2
        assert len(cw.leaderboard({"first": first, "again": first}).divisions) == 1

    def test_common_images(self, audit_of: Make) -> None:
        """The second run saw 50 images of each class, of which 25, 50 and 50 are right."""
        first = made_of(audit_of({"pgd-20": [60, 70, 90]}, SUPPORT, NAMES))
        whole = audit_of({"pgd-20": [25, 90, 90]}, SUPPORT, NAMES)
        few = whole.records.take(np.flatnonzero(whole.records.index % 100 < 50))
        second = made_of(dataclasses.replace(whole, records=few), mark="e" * 64)
        runs = {"first": first, "second": second}
        apart = cw.leaderboard(runs)
        assert len(apart.divisions) == 2
        assert "--common" in apart.notes[0]
        (division,) = cw.leaderboard(runs, common=True).divisions
        assert division.images == 150
        assert division.rows["worst"].tolist() == [1.0, 0.5]
        assert "all models saw" in cw.leaderboard(runs, common=True).notes[0]

    def test_no_common_image(self, audit_of: Make) -> None:
        first = made_of(audit_of({"pgd-20": [60, 70, 90]}, SUPPORT, NAMES))
        frame = first.records.frame.assign(index=first.records.frame["index"] + 1000)
        second = dataclasses.replace(first, records=dataclasses.replace(first.records, frame=frame))
        with pytest.raises(UserError, match="share no image"):
            cw.leaderboard({"first": first, "second": second}, common=True)

    def test_a_model_that_is_there_twice(self, three: dict[str, Audit]) -> None:
        again = {name: made_of(audit, fingerprint="f" * 64) for name, audit in three.items() if name != "last"}
        assert cw.leaderboard(again).notes == ("middle, best are audits of one model, which takes a rank for each.",)


class TestPrinted:
    def test_beside_and_never_ranked(self, three: dict[str, Audit], audit_of: Make) -> None:
        names = [f"class {number}" for number in range(10)]
        audit = made_of(audit_of({"pgd-20": [50] * 10}, [100] * 10, names))
        board = cw.leaderboard({"ours": audit})
        assert set(board.printed["kind"]) == {"pgd"}
        assert board.table()["name"].tolist() == ["ours"]
        wat = board.printed[(board.printed["method"] == "wat") & (board.printed["network"] == "resnet-18")].iloc[0]
        assert (wat["worst"], wat["average"], wat["item"]) == (0.366, 0.4913, "li2023:table1")
        tian = board.printed[board.printed["item"] == "tian2021:table1"].set_index("method")
        assert tian.loc["madry", "worst_class"] == "class 3"
        assert cw.leaderboard({"ours": audit}, printed=False).printed.empty

    def test_only_of_the_same_data_radius_and_kind_of_attack(self, audit_of: Make) -> None:
        ten = audit_of({"pgd-20": [50] * 10}, [100] * 10)
        assert cw.leaderboard({"a": made_of(ten, data="svhn")}).printed.empty
        assert cw.leaderboard({"a": made_of(ten, attack="square")}).printed.empty
        some = ten.records.take(np.flatnonzero(ten.records.label < 5))
        assert cw.leaderboard({"a": made_of(dataclasses.replace(ten, records=some))}).printed.empty
        meta = dataclasses.replace(ten.records.meta, eps=0.1)
        other = dataclasses.replace(ten, records=dataclasses.replace(ten.records, meta=meta))
        assert cw.leaderboard({"a": made_of(other)}).printed.empty


class TestTrainings:
    @pytest.fixture
    def trained(self, tmp_path: Path, audit_of: Make) -> dict[str, Path]:
        """Two seeds of one recipe and one of another, each with its audit beside it."""
        found = {}
        for method, seed, right in (("wat", 0, (14, 30, 36)), ("wat", 1, (12, 30, 36)), ("trades", 0, (8, 30, 36))):
            checkpoint = write_trained(tmp_path / "trained" / f"{method}{seed}", method, seed)
            found[f"{method}{seed}"] = tmp_path / "runs" / f"{method}{seed}"
            write_entry(found[f"{method}{seed}"], right, NAMES, model=str(checkpoint))
        return found

    def test_method_network_seed_and_cost(self, trained: dict[str, Path]) -> None:
        table = cw.leaderboard(list(trained.values())).table().set_index("name")
        row = table.loc["wat1"]
        assert (row["method"], row["architecture"], row["seed"], row["epochs"]) == ("wat", "resnet-18", 1, 2)
        assert row["training_seconds"] == 30

    def test_seeds_of_one_recipe(self, trained: dict[str, Path]) -> None:
        families = cw.leaderboard(list(trained.values())).families()
        assert families["family"].tolist() == ["wat, resnet-18"]
        row = families.iloc[0]
        assert row["seeds"] == 2
        assert row[["worst", "worst_low", "worst_high"]].tolist() == pytest.approx([13 / 40, 12 / 40, 14 / 40])

    def test_another_checkpoint_at_that_place_is_not_its_training(self, trained: dict[str, Path]) -> None:
        config = trained["wat0"] / "config.toml"
        checkpoint = trained["wat0"].parents[1] / "trained" / "wat0" / "best.pt"
        text = config.read_text()
        config.write_text(text.replace("[model]", f'[model]\nweights_sha256 = "{file_digest(checkpoint)}"'))
        assert cw.leaderboard([trained["wat0"]]).table()["method"].tolist() == ["wat"]
        checkpoint.write_bytes(b"other weights")
        assert cw.leaderboard([trained["wat0"]]).table()["method"].tolist() == [""]

    def test_seeds_by_name_where_no_training_is_there(self, audit_of: Make) -> None:
        audit = made_of(audit_of({"pgd-20": [20, 50, 90]}, SUPPORT, NAMES))
        names = ("wat-0", "wat-1", "resnet-18", "resnet-50")
        families = cw.leaderboard(dict.fromkeys(names, audit)).families()
        assert families["models"].tolist() == ["wat-0, wat-1"]

    def test_a_folder_of_runs_patterns_and_a_zoo(self, trained: dict[str, Path], tmp_path: Path) -> None:
        whole = cw.leaderboard([tmp_path / "runs"]).table()
        assert sorted(whole["name"]) == ["trades0", "wat0", "wat1"]
        assert sorted(cw.leaderboard([str(tmp_path / "runs" / "w*")]).table()["name"]) == ["wat0", "wat1"]
        twice = cw.leaderboard([tmp_path / "runs", trained["wat0"]]).table()
        assert len(twice) == 3  # a run that is named twice is one

    def test_models_of_a_zoo(self, tmp_path: Path) -> None:
        for method in ("trades", "wat"):
            home = tmp_path / "zoo" / "cifar10" / "resnet16" / f"{method}-0"
            write_trained(home, method, 0)
            write_entry(home / "audits" / "pgd-20", (14, 30, 36), NAMES, model=f"zoo:cifar10/resnet16/{method}-0")
        table = cw.leaderboard([tmp_path / "zoo"]).table().set_index("name")
        assert sorted(table.index) == ["cifar10/resnet16/trades-0", "cifar10/resnet16/wat-0"]
        assert table.loc["cifar10/resnet16/wat-0", ["method", "training_seconds"]].tolist() == ["wat", 30]

    def test_the_shipped_zoo(self) -> None:
        table = cw.leaderboard([zoo.home()]).table().set_index("name")
        assert {name.partition(" (")[0] for name in table.index} == {*zoo.names()}  # (AUDIT) where one has several
        assert table.loc["digits/resnet16/wat-0", "method"] == "wat"
        assert (table["training_seconds"] > 0).all()

    @pytest.mark.parametrize(
        ("run", "why"), [("nothing", "not a folder"), ("empty", "no finished audit"), ("x*y", "no folder matches")]
    )
    def test_what_is_no_run(self, tmp_path: Path, run: str, why: str) -> None:
        (tmp_path / "empty").mkdir()
        with pytest.raises(UserError, match=why):
            cw.leaderboard([tmp_path / run])

    def test_no_run_at_all(self) -> None:
        with pytest.raises(UserError, match="at least one"):
            cw.leaderboard([])


class TestWritten:
    def test_terminal_and_markdown(self, three: dict[str, Audit], audit_of: Make) -> None:
        ten = made_of(audit_of({"pgd-20": [5] * 10}, [10] * 10), attack="autoattack")
        board = cw.leaderboard({**three, "ten": ten})
        console = Console(file=io.StringIO(), width=200)
        board_text.show(board, console, printed=True)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert "60.0%" in text
        assert "2–3" in text
        assert all(one.sentence() in text for one in board.divisions)
        assert "wat, printed" in text
        page = board_text.markdown(board)
        assert "## cifar10, linf 8/255, pgd-20, 300 images" in page
        assert "Printed in papers, not ranked:" in page

    def test_csv_and_json_hold_the_numbers(self, three: dict[str, Audit]) -> None:
        board = cw.leaderboard(three)
        read = pd.read_csv(io.StringIO(board.to_csv()))
        np.testing.assert_allclose(read["worst"], board.table()["worst"])
        (division,) = json.loads(board.to_json())["divisions"]
        assert [row["name"] for row in division["models"]] == ["best", "middle", "last"]
        assert division["classes"]["best"] == {"cat": 0.6, "dog": 0.85, "ship": 0.95}
        assert division["p_better"]["best"]["best"] is None
        assert division["p_better"]["best"]["last"] < 0.001
