"""Attacks keep the order they were asked for: live, resumed, loaded, shown, reported, compared, gated, in images."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import classwise as cw
from classwise.cli.main import app
from classwise.engine import evaluation
from classwise.results import compare, gate
from classwise.results.audit_result import Audit
from classwise.show.page import gallery
from small_net import make_images, make_net

ATTACKS = ["pgd-4", "noise-3", "fgsm"]  # neither in alphabetical order nor in its reverse
COVERAGES = ("all", "survivors")
EPS = 0.02


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Audit, Path]]:
    """A finished audit of each coverage, in parts, with its images."""
    net = make_net()
    images = make_images(net)
    done: dict[str, tuple[Audit, Path]] = {}

    def make(coverage: str, out: Path | None = None) -> tuple[Audit, Path]:
        if out is None and coverage in done:
            return done[coverage]
        folder = out or tmp_path_factory.mktemp(coverage) / "run"
        options: Any = {"coverage": coverage, "eps": EPS, "save_adversarial": True, "batch_size": 16, "workers": 1}
        with mock.patch.object(evaluation, "plan", return_value=evaluation.BatchPlan(16, 50, 1)):
            audit = cw.audit(net, images, ATTACKS, out=folder, **options)
        return done.setdefault(coverage, (audit, folder)) if out is None else (audit, folder)

    return make


def numbers(audit: Audit) -> dict[str, Any]:
    """All that the order decides."""
    return {
        "names": audit.names,
        "right": {name: audit.by_class(name)["correct"].tolist() for name in audit.names},
        "first": list(audit.first_broken_by().items()),
        "images": {name: audit.adversarial(name)["index"].tolist() for name in audit.attacks},
    }


def as_written_before(folder: Path) -> None:
    """Rewrite the parts as they were: attacks sorted by name, no digest, no word on what a part is."""
    for path in folder.glob("records/*.parquet"):
        table = pq.read_table(path)
        meta = json.loads(table.schema.metadata[b"classwise"])
        del meta["format"], meta["part"]
        meta["attacks"] = dict(meta["attacks"])
        text = json.dumps(meta, sort_keys=True).encode()
        pq.write_table(table.replace_schema_metadata({b"classwise": text}), path)
    for path in folder.glob("adversarial/*.npz"):
        old = dict(np.load(path))
        del old["attack"]
        np.savez(path, **old)


@pytest.mark.slow
@pytest.mark.parametrize("coverage", COVERAGES)
def test_it_differs_from_the_alphabet_where_it_matters(made: Any, coverage: str) -> None:
    audit, _ = made(coverage)
    assert audit.names == ("clean", *ATTACKS)
    counts = [sum(right) for right in numbers(audit)["right"].values()]
    assert len(set(counts)) > 2
    if coverage == "survivors":
        assert counts == sorted(counts, reverse=True)  # each joined with those before it


@pytest.mark.slow
@pytest.mark.parametrize("coverage", COVERAGES)
@pytest.mark.parametrize("way", ["loaded", "resumed", "old", "old without config", "old, resumed"])
def test_the_numbers_are_those_of_the_live_run(made: Any, coverage: str, way: str, tmp_path: Path) -> None:
    live, folder = made(coverage)
    again = tmp_path / "run"
    shutil.copytree(folder, again)
    if way.startswith("old"):
        as_written_before(again)
    if way == "old without config":
        (again / "config.toml").unlink()
    audit = made(coverage, again)[0] if "resumed" in way else Audit.load(again)
    assert numbers(audit) == numbers(live)
    if "resumed" in way:
        assert numbers(Audit.load(again)) == numbers(live)
        assert audit.records.frame.equals(live.records.frame)


@pytest.mark.slow
@pytest.mark.parametrize("coverage", COVERAGES)
def test_show_prints_what_the_run_printed(made: Any, coverage: str) -> None:
    live, folder = made(coverage)
    shown = CliRunner().invoke(app, ["show", str(folder), "--json"])
    assert json.loads(shown.stdout) == live.summary() | {"timing": json.loads(shown.stdout)["timing"]}
    for name in ATTACKS:
        text = CliRunner().invoke(app, ["show", str(folder), "--attack", name], env={"COLUMNS": "160"}).stdout
        for share in live.by_class(name)["accuracy"]:
            assert f"{share:.1%}" in text


@pytest.mark.slow
@pytest.mark.parametrize("coverage", COVERAGES)
def test_the_gate_asks_the_right_attack(made: Any, coverage: str) -> None:
    live, folder = made(coverage)
    asked: list[str] = []
    for name in ATTACKS:
        share = float(live.rows(name).correct.mean())
        asked += ["--require", f"{name}.accuracy>={share - 1e-6:.9f}"]
        above = gate.check(Audit.load(folder), [f"{name}.accuracy>={share + 1e-3:.9f}"])
        assert [outcome.passed for outcome in above] == [False]
    shown = CliRunner().invoke(app, ["show", str(folder), *asked])
    assert shown.exit_code == 0, shown.output


@pytest.mark.parametrize("coverage", COVERAGES)
def test_a_comparison_of_the_live_run_and_the_loaded_one_finds_no_difference(made: Any, coverage: str) -> None:
    live, folder = made(coverage)
    for name in (None, *ATTACKS):
        table = compare.compare({"live": live, "loaded": Audit.load(folder)}, attack=name).by_class()
        assert (table.dropna(subset=["difference"])["difference"] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("coverage", COVERAGES)
def test_the_report_tells_the_same_and_shows_the_images(made: Any, coverage: str, tmp_path: Path) -> None:
    live, folder = made(coverage)
    result = CliRunner().invoke(app, ["report", str(folder), "--out", str(tmp_path / "page.html")])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "kept no images" not in page
    found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert found is not None
    run = json.loads(found[1])["runs"][0]
    assert [view["attack"] for view in run["views"]] == ["clean", *ATTACKS, "the worst case"]
    for name, view in zip(("clean", *ATTACKS, "worst_case"), run["views"], strict=True):
        np.testing.assert_allclose(view["rows"]["accuracy"], live.by_class(name)["accuracy"], atol=1e-4)
    assert set(gallery.Kept.of(Audit.load(folder)).points) == set(ATTACKS)


def test_images_are_found_by_the_name_of_the_attack(made: Any, tmp_path: Path) -> None:
    """Whatever number stands before it, and also where two names make the same file name."""
    live, folder = made("all")
    again = tmp_path / "run"
    shutil.copytree(folder, again)
    for path in (again / "adversarial").glob("01-*.npz"):
        shutil.copy(
            folder / "adversarial" / path.name.replace("01-pgd-4", "03-fgsm"), path.with_name("05" + path.name[2:])
        )
        path.rename(path.with_name("07" + path.name[2:]))
    loaded = Audit.load(again)
    assert numbers(loaded) == numbers(live)
    with pytest.raises(cw.UserError, match=r"unknown attack .*did you mean 'fgsm'"):
        loaded.adversarial("fgms")
    next((again / "adversarial").glob("07-*.npz")).unlink()
    with pytest.raises(cw.UserError, match=r"holds \d+ of the \d+ adversarial images of pgd-4"):
        loaded.adversarial("pgd-4")


def test_metadata_keep_the_order_whoever_reads_them(made: Any) -> None:
    _, folder = made("all")
    for path in folder.glob("records/*.parquet"):
        raw = json.loads(pa.parquet.read_schema(path).metadata[b"classwise"])
        assert [name for name, _ in raw["attacks"]] == ["clean", *ATTACKS]
