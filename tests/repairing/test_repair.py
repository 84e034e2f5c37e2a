"""`classwise.repair` on a model whose right bias is known: what it finds, counts, keeps, and says."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from tilted import EPS, HANDICAP, Rows, images
from torch import nn

import classwise as cw
from classwise.core.errors import UserError
from classwise.core.repair_folder import RepairFolder
from classwise.core.run_folder import kind_of
from classwise.engine import run as engine
from classwise.models import load_model
from classwise.repairing.split import split
from classwise.show import repair as shown

pytestmark = pytest.mark.slow  # repairs models

ATTACK = "pgd-5"
MAKE = f"{Path(__file__).parent / 'tilted.py'}:make"


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> cw.RepairResult:
    return cw.repair(Rows(), images(), ATTACK, EPS, out=tmp_path_factory.mktemp("repair") / "run")


def test_the_bias_undoes_the_handicap(repaired: cw.RepairResult) -> None:
    bias = np.array([repaired.bias[name] for name in ("top", "middle", "bottom")])
    assert bias.mean() == pytest.approx(0, abs=1e-9)
    assert bias == pytest.approx(HANDICAP * np.array([-1, -1, 2]) / 3, abs=0.2)
    assert repaired.before.worst.name == "bottom"
    assert repaired.judged()["after"]["worst"] > repaired.judged()["before"]["worst"]
    assert repaired.calibrated()["after"]["worst"] > repaired.calibrated()["before"]["worst"] + 0.2


def test_every_change_tried_is_attacked_from_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    attacked: list[tuple[int, tuple[float, ...]]] = []
    original = engine.evaluate

    def counting(job: Any) -> Any:
        attacked.append((len(job.images), tuple(job.model.linear.bias.tolist())))
        return original(job)

    monkeypatch.setattr(engine, "evaluate", counting)
    found = cw.repair(Rows(), images(), ATTACK, EPS, rounds=3, keep_average=0.0)
    calibrating, judging = attacked[: len(found.rounds)], attacked[len(found.rounds) :]
    assert {count for count, _ in calibrating} == {90}
    own = torch.tensor([0.0, 0.0, -HANDICAP])
    for number, (_, bias) in enumerate(calibrating):
        tried = found.by_round[found.by_round["number"] == number]["bias"].to_numpy()
        assert np.array(bias) == pytest.approx(own.numpy() + tried, abs=1e-6)
    assert len(judging) == 2
    assert judging[0][1] == tuple(own.tolist())


def test_what_is_folded_is_exact_and_of_the_same_architecture(repaired: cw.RepairResult) -> None:
    x = images().batch(np.arange(20))[0]
    bias = torch.tensor(list(repaired.bias.values()))
    assert torch.allclose(repaired.model(x), Rows()(x) + bias, atol=1e-6)
    assert repaired.model.state_dict().keys() == Rows().state_dict().keys()
    assert type(repaired.model) is Rows
    stored = torch.load(RepairFolder(repaired.folder or Path()).best, weights_only=True)["state_dict"]
    assert all(torch.equal(value, stored[name]) for name, value in repaired.model.state_dict().items())


def test_the_given_model_is_left_as_it_was() -> None:
    model = Rows().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    cw.repair(model, images(), ATTACK, EPS, rounds=1)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_two_sets_are_disjoint_and_of_every_class() -> None:
    whole = images()
    calibration, judging = split(whole, 0.25, seed=3)
    assert not set(calibration.positions) & set(judging.positions)
    assert sorted([*calibration.positions, *judging.positions]) == list(range(len(whole)))
    assert np.bincount(judging.labels).tolist() == [15, 15, 15]
    assert not np.array_equal(split(whole, 0.25, seed=4)[1].positions, judging.positions)
    assert np.array_equal(split(whole, 0.25, seed=3)[1].positions, judging.positions)
    with pytest.raises(UserError, match="no class with two images"):
        split(whole.take(np.array([0, 60])), 0.5, 0)


def test_before_and_after_are_ordinary_audits(repaired: cw.RepairResult) -> None:
    assert repaired.folder is not None
    run = RepairFolder(repaired.folder)
    assert kind_of(run.path) == "repair"
    assert kind_of(run.before) == kind_of(run.after) == kind_of(run.round(0)) == "audit"
    before, after = cw.Audit.load(run.before), cw.Audit.load(run.after)
    assert np.array_equal(before.rows().index, after.rows().index)
    assert repaired.comparison.pairs == {"after": True}
    table = repaired.by_class()
    assert table["before"].tolist() == before.by_class()["accuracy"].tolist()
    assert table["after"].tolist() == after.by_class()["accuracy"].tolist()
    tried = cw.Audit.load(run.round(repaired.chosen)).by_class()["accuracy"]
    assert repaired.calibrated()["after"]["worst"] == pytest.approx(tried.min())


def test_a_finished_repair_is_read_back_as_it_was(repaired: cw.RepairResult) -> None:
    assert repaired.folder is not None
    again = cw.RepairResult.load(repaired.folder)
    assert again.summary() == repaired.summary()
    stored = json.loads(RepairFolder(repaired.folder).result_file.read_text())
    assert stored["bias"] == dict(repaired.bias)
    assert stored["judged"]["after"]["worst_low"] < stored["judged"]["after"]["worst"]
    texts = []
    for result in (repaired, again):
        console = Console(file=io.StringIO(), width=200)
        shown.show(result, console)
        assert isinstance(console.file, io.StringIO)
        texts.append(console.file.getvalue())
    assert texts[0] == texts[1]
    for part in ("bottom", "calibration − judged", "What an attacker can still do", "at most ±16.8 points", "381"):
        assert part in texts[0]


def test_the_same_call_does_nothing_twice(repaired: cw.RepairResult, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []
    monkeypatch.setattr(engine, "write_part", lambda records, path: written.append(path))
    again = cw.repair(Rows(), images(), ATTACK, EPS, out=repaired.folder)
    assert again.bias == repaired.bias
    assert not written
    with pytest.raises(UserError, match="other settings"):
        cw.repair(Rows(), images(), ATTACK, EPS, out=repaired.folder, rounds=2)
    with pytest.raises(UserError, match="another kind, repair"):
        cw.audit(Rows(), images(), ATTACK, EPS, out=repaired.folder)


def test_overwriting_leaves_nothing_of_the_old_run(tmp_path: Path) -> None:
    cw.repair(Rows(), images(), ATTACK, EPS, out=tmp_path / "run", rounds=3)
    again = cw.repair(Rows(), images(), ATTACK, EPS, out=tmp_path / "run", rounds=1, overwrite=True)
    assert len(again.rounds) == 2
    assert sorted(path.name for path in (tmp_path / "run" / "rounds").iterdir()) == ["00", "01"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_named_model_becomes_a_checkpoint_that_everything_can_load(tmp_path: Path) -> None:
    found = cw.repair(MAKE, images(), ATTACK, EPS, out=tmp_path / "run", rounds=4)
    model = load_model(str(found.best), trust=True)
    x = images().batch(np.arange(20))[0]
    assert torch.allclose(model(x), Rows()(x) + torch.tensor(list(found.bias.values())), atol=1e-6)
    audit = cw.audit(str(found.best), images(), ATTACK, EPS, trust=True)
    judged = found.after.rows()
    same = audit.rows().take(np.flatnonzero(np.isin(audit.rows().index, judged.index)))
    assert np.array_equal(same.correct, judged.correct)
    torch.export.export(model, (x,))
    traced = torch.jit.trace(model, x)
    assert torch.equal(traced(x), model(x))


def test_goals_and_minimums_are_asked_of_the_calibration_images() -> None:
    kept = cw.repair(Rows(), images(), ATTACK, EPS, rounds=2, min={"bottom": 0.5})
    rows = kept.by_round[(kept.by_round["class"] == "bottom")].set_index("number")["accuracy"]
    assert rows[kept.chosen] >= 0.5 > rows[0]
    assert set(kept.rounds["kind"]) >= {"unchanged", "round", "between"}
    with pytest.raises(UserError, match="class of rows 'cow'"):
        cw.repair(Rows(), images(), ATTACK, EPS, min={"cow": 0.5})
    with pytest.raises(UserError, match="must lie in"):
        cw.repair(Rows(), images(), ATTACK, EPS, min=["bottom=20"])


def test_images_to_calibrate_on_may_be_given() -> None:
    found = cw.repair(Rows(), images(), ATTACK, EPS, rounds=1, calibrate=images(1))
    assert len(found.before.rows()) == 180
    assert found.by_round["n"].tolist() == [30] * 6
    few = cw.repair(Rows(), images(), ATTACK, EPS, rounds=1, calibrate=images(1), per_class=7)
    assert len(few.before.rows()) == 21
    assert few.by_round["n"].tolist() == [30] * 6  # of these, all
    with pytest.raises(UserError, match="names a split"):
        cw.repair(Rows(), images(), ATTACK, EPS, calibrate="train")
    with pytest.raises(UserError, match="is the split that judges"):
        cw.repair("resnet:width=4,blocks=[1]", "digits", calibrate="test")


@pytest.mark.parametrize("eps", ["2/255,4/255", [0.1, 0.2, 0.3]])
def test_a_repair_has_one_radius(eps: Any) -> None:
    with pytest.raises(UserError, match="one radius"):
        cw.repair(Rows(), images(), ATTACK, eps)


def test_a_model_that_is_fair_already_is_left_alone() -> None:
    fair = Rows()
    nn.init.zeros_(fair.linear.bias)
    found = cw.repair(fair, images(20), ATTACK, EPS, rounds=2)
    gained = found.judged()["after"]["worst"] - found.judged()["before"]["worst"]
    assert abs(gained) < 0.06


# ---- killed and resumed --------------------------------------------------------------------------------------------


def whole_repair(out: str) -> None:
    """As the killed process runs it."""
    torch.set_num_threads(1)
    cw.repair(Rows(), images(20), "pgd-40", EPS, out=out, rounds=4, batch_size=64, workers=1)


@pytest.fixture(scope="module")
def processes() -> Iterator[Any]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["classwise.repairing.repair", __name__])
    return context


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there is no -9 to kill with")
def test_killed_and_resumed(processes: Any, tmp_path: Path) -> None:
    killed, unbroken = tmp_path / "killed", tmp_path / "unbroken"
    for waited in ("rounds/00/records/*", "rounds/02/change.npz", "before/records/*"):
        process = processes.Process(target=whole_repair, args=(str(killed),))
        process.start()
        while not list(killed.glob(waited)) and process.is_alive():
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert not RepairFolder(killed).result_file.exists()
    for out in (killed, unbroken):
        process = processes.Process(target=whole_repair, args=(str(out),))
        process.start()
        process.join()
        assert process.exitcode == 0
    one, other = (cw.RepairResult.load(out) for out in (killed, unbroken))
    assert one.bias == other.bias
    assert one.chosen == other.chosen > 0
    assert one.judged() == other.judged()
    weights = [torch.load(RepairFolder(out).best, weights_only=True)["state_dict"] for out in (killed, unbroken)]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
