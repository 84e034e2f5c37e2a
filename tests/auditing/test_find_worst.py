"""`find_worst`: the class a full audit would name, from fewer attacks, and a run folder that goes on."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from torch import nn

import classwise as cw
from classwise.auditing.find_worst import find_worst
from classwise.core.errors import UserError
from classwise.core.format import interval
from classwise.data.images import ArrayPixels, Images
from classwise.engine import evaluation, run
from classwise.engine.evaluation import BatchPlan
from classwise.results.search_result import SearchResult
from classwise.show import terminal

EPS = {"bee": 0.03, "cow": 0.02, "*": 0.008}  # so that bee is the worst class, and cow the next
SETTINGS: dict[str, Any] = {"eps": EPS, "seed": 3, "batch_size": 32, "workers": 1}
Find = Callable[..., SearchResult]


@pytest.fixture(scope="module")
def net() -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 4)).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 4)
        net[-1].bias -= net(torch.rand(500, 1, 8, 8, generator=generator)).mean(0)
    return net


@pytest.fixture(scope="module")
def many(net: nn.Module) -> Images:
    """Enough images that not all of them are needed; every twelfth is labelled wrongly."""
    x = torch.rand(900, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        labels = net(x).argmax(1).numpy().astype(np.int64)
    labels[::12] = (labels[::12] + 1) % 4
    return Images(ArrayPixels(x), labels, ("ant", "bee", "cow", "doe"), "noise")


@pytest.fixture(scope="module")
def find(net: nn.Module, many: Images) -> Find:
    return lambda attack="pgd-5", **changes: find_worst(net, many, attack, **{**SETTINGS, **changes})


@pytest.fixture(scope="module")
def full(net: nn.Module, many: Images) -> Callable[..., cw.Audit]:
    return lambda attacks="pgd-5", **changes: cw.audit(net, many, attacks, **{**SETTINGS, **changes})


@pytest.fixture(scope="module")
def found(find: Find) -> SearchResult:
    return find()


@pytest.fixture(scope="module")
def audit(full: Callable[..., cw.Audit]) -> cw.Audit:
    return full()


@pytest.mark.parametrize("tolerance", [0.0, 0.5])
def test_every_surface_names_the_same_classes_with_the_same_bounds(find: Find, tolerance: float) -> None:
    """Terminal, text (which a notebook shows) and JSON, of a search that ends with one class and with several."""
    found = find(tolerance=tolerance)
    console = Console(file=io.StringIO(), width=200)
    terminal.show_worst(found, console)
    assert isinstance(console.file, io.StringIO)
    shown, summary = console.file.getvalue(), found.summary()
    assert (len(found.worst) > 1) is (tolerance > 0)
    mark = "maybe" if tolerance else "yes"
    marked = [line.split()[0] for line in shown.splitlines() if line.split()[-1:] == [mark]]
    assert sorted(marked) == sorted(summary["worst"]) == sorted(found.worst)
    own = found.by_class()[found.by_class()["in_question"]]
    assert (summary["low"], summary["high"]) == (own["low"].min(), own["high"].min())
    assert summary["sentence"] == f"{found}."
    assert summary["sentence"] in shown
    assert f"robust accuracy {interval(summary['low'], summary['high'])} (95% confidence)" in summary["sentence"]
    assert all(name in summary["sentence"] for name in found.worst)


def test_names_the_class_a_full_audit_names(found: SearchResult, audit: cw.Audit) -> None:
    table, truth = found.by_class(), audit.by_class()
    assert found.worst == (audit.worst.name,) == ("bee",)
    assert table["in_question"].tolist() == [False, True, False, False]
    assert (table["low"] <= truth["accuracy"]).all()
    assert (truth["accuracy"] <= table["high"]).all()
    assert table["n"].tolist() == truth["n"].tolist()
    assert table["right"].tolist() == audit.by_class("clean")["correct"].tolist()
    # The easy classes leave first, and nobody is attacked who is misclassified anyway.
    assert table["attacked"].iloc[[0, 3]].max() < table["attacked"].iloc[[1, 2]].min()
    assert found.attacked < 0.7 * table["right"].sum()


def test_the_rows_are_those_of_the_full_audit(found: SearchResult, audit: cw.Audit) -> None:
    ours, theirs = found.records, audit.records.of("pgd-5").frame.set_index("index")
    rows = ours.frame[ours.frame["attack"] == "pgd-5"].set_index("index")
    assert len(rows) == found.attacked
    same = theirs.loc[rows.index]
    pd.testing.assert_frame_equal(
        rows[["label", "eps", "prediction", "queries"]], same[["label", "eps", "prediction", "queries"]]
    )
    assert len(ours.of("clean")) == 900
    counted = rows[rows["label"] == rows["prediction"]].groupby("label").size()
    assert found.by_class()["robust"].tolist() == counted.reindex(range(4), fill_value=0).tolist()


def test_counts_what_it_costs(found: SearchResult, audit: cw.Audit) -> None:
    assert found.passes == found.records.meta.stats["pgd-5"]["passes"]
    whole = audit.timing["attacks"]["pgd-5"]["passes"]
    assert found.passes < 0.7 * whole
    assert found.full_passes == pytest.approx(whole, rel=0.1)
    assert str(found).startswith("Worst class: bee, robust accuracy ")
    assert f"{found.passes:,} passes, about {found.passes / found.full_passes:.0%} of a full audit's" in str(found)


def test_few_images_are_all_attacked_and_then_everything_is_known(net: nn.Module, many: Images) -> None:
    images = many.take(np.arange(100))
    found = find_worst(net, images, "pgd-5", eps=0.02)
    audit = cw.audit(net, images, "pgd-5", eps=0.02)
    open_ = found.by_class()["in_question"].to_numpy()
    truth = audit.by_class()["accuracy"].to_numpy()
    assert found.attacked == found.state.right.sum()
    assert found.by_class()["estimate"].to_numpy() == pytest.approx(truth)
    assert found.full_passes == found.passes == audit.timing["attacks"]["pgd-5"]["passes"]
    assert (truth[open_] == truth.min()).all()


@pytest.mark.slow
def test_of_several_attacks_the_worst_case_counts(find: Find, full: Callable[..., cw.Audit]) -> None:
    found, audit = find(["noise-3", "fgsm", "pgd-5"]), full(["noise-3", "fgsm", "pgd-5"])
    worst_case = audit.records.worst_case().frame.set_index("index")
    attacked = found.records.frame[found.records.frame["attack"] != "clean"]
    stood = (attacked["label"] == attacked["prediction"]).groupby(attacked["index"]).all()
    expected = (worst_case["label"] == worst_case["prediction"]).loc[stood.index]
    assert stood.tolist() == expected.tolist()
    assert found.state.robust.sum() == stood.sum()
    # What noise broke the others never saw.
    assert (attacked["attack"] == "fgsm").sum() < (attacked["attack"] == "noise-3").sum()


def test_a_tolerance_reports_the_classes_within_it(find: Find, found: SearchResult) -> None:
    loose = find(tolerance=0.6)
    assert loose.attacked < found.attacked
    assert set(found.worst) < set(loose.worst)
    assert str(loose).startswith("Worst class: one of ")


@pytest.mark.slow
def test_the_order_is_by_the_seed_alone(find: Find, found: SearchResult) -> None:
    asked = set(found.records.of("pgd-5").index)
    assert set(find(batch_size=7).records.of("pgd-5").index) == asked
    assert set(find(seed=4).records.of("pgd-5").index) != asked


class TestRunFolder:
    @pytest.fixture(autouse=True)
    def small_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            evaluation, "plan", lambda fast, x, n, attacks, batch, workers, shares=1: BatchPlan(batch, 64, workers)
        )

    @staticmethod
    def parts(folder: Path) -> list[str]:
        return sorted(path.name for path in folder.glob("records/worst-*.parquet"))

    def test_holds_what_was_found(self, find: Find, found: SearchResult, tmp_path: Path) -> None:
        in_memory, found = found, find(out=tmp_path / "run")
        assert found.by_class().equals(in_memory.by_class())  # in larger parts
        summary = json.loads((tmp_path / "run" / "worst.json").read_text())
        assert summary == json.loads(json.dumps(found.summary()))
        assert summary["worst"] == ["bee"]
        assert summary["passes"] == {"spent": found.passes, "full_audit": found.full_passes}
        table = pd.read_csv(tmp_path / "run" / "worst.csv")
        assert table["class"].tolist() == ["ant", "bee", "cow", "doe"]
        with pytest.raises(UserError, match=r"holds a search for the worst class, not an audit.*worst\.json"):
            cw.Audit.load(tmp_path / "run")

    @pytest.mark.slow
    def test_the_same_command_again_attacks_nothing(
        self, find: Find, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = find(out=tmp_path / "run")
        monkeypatch.setattr(run, "_attack_part", lambda *args, **named: pytest.fail("computed again"))
        again = find(out=tmp_path / "run")
        assert again.by_class().equals(first.by_class())
        assert (again.passes, again.full_passes) == (first.passes, first.full_passes)

    @pytest.mark.slow
    def test_resumes_after_a_kill(
        self, find: Find, found: SearchResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder, work, calls = tmp_path / "run", run._attack_part, 0

        def killed(task: Any, *more: Any) -> Any:
            nonlocal calls
            calls += task.name == "pgd-5"
            if calls == 4:
                raise KeyboardInterrupt
            return work(task, *more)

        with monkeypatch.context() as patched:
            patched.setattr(run, "_attack_part", killed)
            with pytest.raises(KeyboardInterrupt):
                find(out=folder)
        before = {name: (folder / "records" / name).read_bytes() for name in self.parts(folder)}
        assert len(before) == 3
        assert find(out=folder).by_class().equals(found.by_class())
        assert all((folder / "records" / name).read_bytes() == content for name, content in before.items())

    @pytest.mark.slow
    def test_what_is_there_serves_another_confidence(self, find: Find, tmp_path: Path) -> None:
        bold = find(out=tmp_path / "run", confidence=0.5)
        parts = self.parts(tmp_path / "run")
        sure = find(out=tmp_path / "run", confidence=0.999)
        assert bold.attacked < sure.attacked
        assert self.parts(tmp_path / "run")[: len(parts)] == parts
        asked = set(bold.records.of("pgd-5").index) | set(sure.records.of("pgd-5").index)
        stored = cw.Records.read(tmp_path / "run").of("pgd-5").index
        assert sorted(stored) == sorted(asked)  # each image once
        assert len(asked) < bold.attacked + sure.attacked
        # The bold one again counts only what it asked for, though more is there.
        again = find(out=tmp_path / "run", confidence=0.5)
        assert again.by_class().equals(bold.by_class())
        assert again.passes == bold.passes

    @pytest.mark.slow
    def test_a_damaged_part_is_attacked_again(self, find: Find, tmp_path: Path) -> None:
        first = find(out=tmp_path / "run")
        path, parts = tmp_path / "run" / "records" / "worst-00001.parquet", self.parts(tmp_path / "run")
        whole = cw.Records.read(path)
        path.write_bytes(path.read_bytes()[:-50])
        assert find(out=tmp_path / "run").by_class().equals(first.by_class())
        assert self.parts(tmp_path / "run") == parts
        assert set(cw.Records.read(path).index) == set(whole.index)

    @pytest.mark.slow
    @pytest.mark.parametrize("damage", ["fewer images", "an attack short", "twice", "of other images"])
    def test_a_part_that_is_not_whole_is_attacked_again(self, find: Find, tmp_path: Path, damage: str) -> None:
        attacks = ["fgsm", "pgd-5"]
        first = find(attacks, out=tmp_path / "run")
        path = tmp_path / "run" / "records" / "worst-00001.parquet"
        whole, other = cw.Records.read(path), path.with_name("worst-00002.parquet")
        keep = {
            "fewer images": whole.index != whole.index[0],
            "an attack short": (whole.frame["attack"] == "fgsm").to_numpy(),
        }
        if damage in keep:
            whole.take(np.flatnonzero(keep[damage])).write(path)
        elif damage == "twice":
            other.write_bytes(path.read_bytes())
        else:
            frame = whole.frame.assign(index=whole.frame["index"] + 100_000)
            dataclasses.replace(whole, frame=frame).write(path)
        again = find(attacks, out=tmp_path / "run")
        assert again.by_class().equals(first.by_class())
        assert (again.passes, again.full_passes) == (first.passes, first.full_passes)
        stored = cw.Records.read(tmp_path / "run")  # each image once
        assert set(stored.of("pgd-5").index) == set(again.records.of("pgd-5").index)

    @pytest.mark.slow
    def test_is_not_taken_for_an_audit(self, find: Find, full: Callable[..., cw.Audit], tmp_path: Path) -> None:
        find(out=tmp_path / "run")
        with pytest.raises(UserError, match=r"was made with other settings"):
            full(out=tmp_path / "run", coverage="survivors")
        with pytest.raises(UserError, match=r"attacks\.pgd-5\.find_worst: true there, absent now"):
            full(out=tmp_path / "run", coverage="survivors", probs=False)

    @pytest.mark.slow
    def test_overwrite_begins_anew(self, find: Find, tmp_path: Path) -> None:
        find(out=tmp_path / "run")
        with pytest.raises(UserError, match=r"audit\.seed: 3 there, 4 now"):
            find(out=tmp_path / "run", seed=4)
        fresh = find(out=tmp_path / "run", seed=4, overwrite=True)
        assert fresh.passes == fresh.records.meta.stats["pgd-5"]["passes"]  # nothing of the old run is left


class TestMistakes:
    def test_a_tolerance_in_percent(self, find: Find) -> None:
        with pytest.raises(UserError, match=r"tolerance must be .* got 2\. 0\.02 is two percentage points"):
            find(tolerance=2)

    def test_a_confidence_in_percent(self, find: Find) -> None:
        with pytest.raises(UserError, match="confidence must be positive and below 1, got 95"):
            find(confidence=95)

    def test_clean_is_no_attack(self, find: Find) -> None:
        with pytest.raises(UserError, match="the clean images need no search"):
            find("clean")


def test_the_model_is_left_as_it_was(net: nn.Module, many: Images) -> None:
    trained = nn.Sequential(copy.deepcopy(net), nn.Dropout(0.0)).train()
    found = find_worst(trained, many.take(np.arange(60)), "fgsm", **{**SETTINGS, "eps": 0.02})
    assert trained.training
    assert "train_mode" in {finding.code for finding in found.findings}
