"""`Audit`: the tables of records made by hand, saved and loaded again."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo
from classwise.core.run_folder import RunFolder
from classwise.core.storage import atomic_write_text
from classwise.results.audit_result import Audit
from classwise.results.findings import Finding
from classwise.show.figures import chart

Make = Callable[..., Audit]
NAMES = ("cat", "dog", "ship")


@pytest.fixture
def audit(audit_of: Make) -> Audit:
    finding = Finding("few_images", "warning", "Few.", "More.")
    attacks = {"clean": [10, 9, 10], "fgsm": [8, 6, 10], "pgd-20": [5, 2, 9]}
    return audit_of(attacks, (10, 10, 10), NAMES, findings=(finding,), timing={"wall_seconds": 1.5})


def stored(audit: Audit, folder: Path) -> Path:
    audit.records.write(folder / "records" / "00-all-00000.parquet")
    audit.save(folder)
    return folder


class TestTables:
    def test_headline(self, audit_of: Make) -> None:
        assert audit_of({}, (5, 5)).headline == "clean"
        assert audit_of({"pgd-20": [1, 2]}, (5, 5)).headline == "pgd-20"
        assert audit_of({"pgd-20": [1, 2], "fgsm": [2, 2]}, (5, 5)).headline == "worst_case"

    def test_numbers(self, audit: Audit) -> None:
        assert audit.by_class("clean")["correct"].tolist() == [10, 9, 10]
        assert audit.by_class()["correct"].tolist() == [5, 2, 9]  # pgd-20 breaks all that fgsm breaks, and more
        assert audit.worst.name == "dog"
        assert audit.worst.value == 0.2
        assert audit.confusion("pgd-20").to_numpy().tolist() == [[5, 5, 0], [0, 2, 8], [1, 0, 9]]
        assert audit.confusion("pgd-20", rates=True).loc["dog", "ship"] == 0.8
        assert str(audit).startswith("Audit of 30 examples under worst_case: 53.3% overall, worst class dog 20.0% [")
        assert repr(audit) == str(audit)

    def test_an_unknown_attack(self, audit: Audit) -> None:
        with pytest.raises(UserError, match="unknown attack in these records 'pgd-2'; did you mean 'pgd-20'"):
            audit.by_class("pgd-2")

    def test_standing_rows_are_joined_with_those_before(self, audit_of: Make) -> None:
        infos = {name: AttackInfo(settings={"name": name}, coverage="survivors") for name in ("fgsm", "pgd-20")}
        attacks = {"fgsm": [8, 6, 10], "pgd-20": [10, 2, 10]}  # as if pgd had not seen what fgsm broke
        audit = audit_of(attacks, (10, 10, 10), infos=infos)
        assert audit.by_class("pgd-20")["correct"].tolist() == [8, 2, 10]
        assert audit.by_class("fgsm")["correct"].tolist() == [8, 6, 10]

    def test_a_class_without_examples(self, audit_of: Make) -> None:
        audit = audit_of({"pgd-20": [1, 0, 4]}, (5, 0, 5), NAMES)
        row = audit.by_class().iloc[1]
        assert row["n"] == 0
        assert np.isnan(row["accuracy"])
        summary = audit.summary()["attacks"]["pgd-20"]
        assert summary["by_class"][1]["accuracy"] is None
        assert summary["worst"]["class"] == "cat"


class TestFolder:
    def test_goes_and_comes_back(self, audit: Audit, tmp_path: Path) -> None:
        loaded = Audit.load(stored(audit, tmp_path))
        assert loaded.summary() == audit.summary()
        assert loaded.findings == list(audit.findings)
        assert loaded.folder == tmp_path
        assert json.loads((tmp_path / "summary.json").read_text()) == audit.summary()

    def test_tables_are_csv(self, audit: Audit, tmp_path: Path) -> None:
        stored(audit, tmp_path)
        table = pd.read_csv(tmp_path / "tables" / "pgd-20.csv")
        assert table["correct"].tolist() == [5, 2, 9]
        confusion = pd.read_csv(tmp_path / "tables" / "worst_case-confusion.csv", index_col="class")
        assert confusion.loc["dog", "ship"] == 8

    def test_odd_names_make_safe_files(self, audit_of: Make, tmp_path: Path) -> None:
        audit = audit_of({"pgd-20:step=2/255": [1, 2]}, (5, 5), ("a/b", "ü, ö"))
        stored(audit, tmp_path)
        assert (tmp_path / "tables" / "pgd-20_step=2_255.csv").is_file()
        assert Audit.load(tmp_path).records.class_names == ("a/b", "ü, ö")
        assert pd.read_csv(tmp_path / "tables" / "clean.csv", encoding="utf-8")["class"].tolist() == ["a/b", "ü, ö"]

    def test_not_finished(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"holds no finished audit \(no summary\.json\)"):
            Audit.load(tmp_path)
        with pytest.raises(UserError, match="holds no finished audit"):
            Audit.load(tmp_path / "nowhere")

    @pytest.mark.parametrize(
        ("file", "what"),
        [
            ("repair.json", "a repair, not an audit. Its audits are {}/before and {}/after"),
            ("history.csv", "a training, not an audit. Audit its best.pt"),
        ],
    )
    def test_a_run_of_another_kind(self, tmp_path: Path, file: str, what: str) -> None:
        (tmp_path / file).touch()
        with pytest.raises(UserError, match=re.escape(what.replace("{}", str(tmp_path)))):
            Audit.load(tmp_path)

    @pytest.mark.parametrize("content", [b"{", b"[]", b'{"findings": [{"x": 1}]}', b"\xff\xfe"])
    def test_a_damaged_summary(self, audit: Audit, tmp_path: Path, content: bytes) -> None:
        (stored(audit, tmp_path) / "summary.json").write_bytes(content)
        with pytest.raises(UserError, match=r"summary\.json is damaged .*Repeat the audit's command"):
            Audit.load(tmp_path)

    def test_records_that_are_gone(self, audit: Audit, tmp_path: Path) -> None:
        (stored(audit, tmp_path) / "records" / "00-all-00000.parquet").unlink()
        with pytest.raises(UserError, match="no records"):
            Audit.load(tmp_path)

    def test_a_damaged_config(self, tmp_path: Path) -> None:
        assert RunFolder(tmp_path).config() == {}
        (tmp_path / "config.toml").write_text("[audit")
        with pytest.raises(UserError, match=r"config\.toml is damaged"):
            RunFolder(tmp_path).config()


class TestWriteText:
    def test_whole_and_in_utf8(self, tmp_path: Path) -> None:
        atomic_write_text(tmp_path / "new" / "a.txt", "ε ≤ 8/255\n")
        assert (tmp_path / "new" / "a.txt").read_bytes() == "ε ≤ 8/255\n".encode()
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.txt"]

    def test_a_full_disk_leaves_the_old_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        atomic_write_text(tmp_path / "a.txt", "old")

        def full(descriptor: int) -> Any:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(UserError, match=r"cannot write .*a\.txt: No space left on device\. Make room"):
            atomic_write_text(tmp_path / "a.txt", "new")
        assert (tmp_path / "a.txt").read_text() == "old"
        assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]

    def test_below_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(UserError, match="cannot write"):
            atomic_write_text(tmp_path / "file" / "a.txt", "text")


class TestNotebook:
    def test_the_classes_from_the_weakest_on_under_the_verdict(self, audit: Audit) -> None:
        shown = audit._repr_html_()
        assert "<strong>In the worst case over all attacks, dog has the lowest accuracy: 20.0% robust" in shown
        assert re.findall(r'<tr><th scope="row"[^>]*>(\w+)<', shown) == ["dog", "cat", "ship"]

    def test_a_class_named_like_a_tag_is_just_a_name(self, audit_of: Make) -> None:
        shown = audit_of({"pgd-20": [1, 2]}, (5, 5), ("<script>", "b"))._repr_html_()
        assert "<script>" not in shown
        assert "&lt;script&gt;" in shown

    def test_charts(self, audit: Audit) -> None:
        assert "rect" in json.dumps(chart("confusion", audit, attack="pgd-20").to_dict())
        assert chart("forest", audit).to_dict()
        with pytest.raises(UserError, match="unknown figure 'forrest'; did you mean 'forest'"):
            chart("forrest", audit)
