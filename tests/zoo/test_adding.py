"""Adding models to the zoo, and checking those that are there."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import classwise as cw
from classwise.cli.main import app
from classwise.core.run_folder import TrainingFolder
from classwise.core.toml import tomllib
from classwise.models import zoo
from classwise.models.checkpoint import read_checkpoint
from classwise.zoo import adding, audits, checking, weights
from small_zoo import NAME, made_training, made_zoo


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_training(tmp_path_factory.mktemp("training") / "run")


class TestAdd:
    def test_a_model_that_can_be_used_but_not_resumed(self, run: Path, tmp_path: Path) -> None:
        added = adding.add(run, NAME, tmp_path / "zoo", cores=2)
        folder = tmp_path / "zoo" / NAME
        assert sorted(added.entry.files) == ["best.pt", "config.toml", "entry.toml", "history.csv"]
        stored, trained = (read_checkpoint(path / "best.pt") for path in (folder, run))
        assert set(stored["classwise"]["extra"]["training"]) == {"method", "epoch", "threat"}
        assert all(torch.equal(stored["state_dict"][name], value) for name, value in trained["state_dict"].items())
        about = tomllib.loads((folder / "entry.toml").read_text())
        assert about["cost"]["training_core_hours"] == 0.1  # 180 seconds on two cores
        known = [about[key] for key in ("seed", "method", "selected_epoch", "precision")]
        assert known == [0, "trades", 2, "float32"]

    def test_nothing_of_one_machine_is_kept(self, run: Path, tmp_path: Path) -> None:
        adding.add(run, NAME, tmp_path / "zoo")
        for content in contents(tmp_path / "zoo").values():
            assert b"/somewhere" not in content
            assert str(tmp_path.parent).encode() not in content

    def test_the_same_run_gives_the_same_bytes(self, run: Path, tmp_path: Path) -> None:
        for name in ("one", "two"):
            adding.add(run, NAME, tmp_path / name)
        adding.add(run, NAME, tmp_path / "two", overwrite=True)
        assert contents(tmp_path / "one") == contents(tmp_path / "two")

    def test_another_model_changes_no_line_of_the_index(self, run: Path, tmp_path: Path) -> None:
        adding.add(run, NAME, tmp_path)
        before = (tmp_path / zoo.INDEX).read_text().splitlines()
        adding.add(made_training(tmp_path / "run", "train.seed=7"), "digits/resnet2/trades-7", tmp_path)
        after = (tmp_path / zoo.INDEX).read_text().splitlines()
        assert after[: len(before) - 3] == before[:-3]  # but for the brackets at the end

    @pytest.mark.parametrize(
        "name",
        ["trades-0", "mnist/resnet2/trades-0", "digits/resnet2/trades-1", "digits/../trades-0", "digits/a b/c-0"],
    )
    def test_a_name_that_does_not_say_what_it_is(self, run: Path, tmp_path: Path, name: str) -> None:
        with pytest.raises(cw.UserError, match="DATA/NETWORK/METHOD-SEED; this one was trained on digits with seed 0"):
            adding.add(run, name, tmp_path)

    def test_one_that_is_there_already(self, run: Path, tmp_path: Path) -> None:
        adding.add(run, NAME, tmp_path)
        with pytest.raises(cw.UserError, match=f"has {NAME} already"):
            adding.add(run, NAME, tmp_path)

    def test_an_unfinished_training(self, tmp_path: Path) -> None:
        run = TrainingFolder(made_training(tmp_path / "run"))
        run.write_history(run.history()[:1])
        with pytest.raises(cw.UserError, match="is not finished; classwise train --resume"):
            adding.add(run.path, NAME, tmp_path / "zoo")
        assert not (tmp_path / "zoo").exists()

    def test_a_failure_leaves_the_zoo_as_it_was(self, run: Path, tmp_path: Path) -> None:
        adding.add(run, NAME, tmp_path)
        before = contents(tmp_path)
        with pytest.raises(cw.UserError, match="no finished audit"):
            adding.add(run, NAME, tmp_path, audited=[tmp_path / "nothing"], overwrite=True)
        assert contents(tmp_path) == before

    def test_a_model_that_others_cannot_make(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = made_training(tmp_path / "run")
        monkeypatch.setattr(weights, "names_code", lambda spec: True)
        with pytest.raises(cw.UserError, match="which no other machine has"):
            adding.add(run, NAME, tmp_path / "zoo")


class TestFineTuned:
    def test_the_model_it_started_from_is_named_as_that_of_the_zoo(self, run: Path, tmp_path: Path) -> None:
        adding.add(run, NAME, tmp_path / "zoo")
        tuned = made_training(tmp_path / "tuned", f"model.weights={run / 'best.pt'}", weights_seed=3)
        adding.add(tuned, "digits/resnet2/tuned-0", tmp_path / "zoo")
        config = tomllib.loads((tmp_path / "zoo/digits/resnet2/tuned-0/config.toml").read_text())
        assert config["model"]["weights"] == f"zoo:{NAME}"

    def test_one_that_is_not_in_the_zoo_is_to_be_added_first(self, run: Path, tmp_path: Path) -> None:
        tuned = made_training(tmp_path / "tuned", f"model.weights={run / 'best.pt'}", weights_seed=3)
        with pytest.raises(cw.UserError, match="is not in the zoo: add that model first"):
            adding.add(tuned, "digits/resnet2/tuned-0", tmp_path / "zoo")


def test_half_precision_rounds_what_has_several_dimensions(run: Path, tmp_path: Path) -> None:
    adding.add(run, NAME, tmp_path, half=True, force=True)
    state = read_checkpoint(tmp_path / NAME / "best.pt")["state_dict"]
    assert {value.dtype for value in state.values() if value.ndim > 1} == {torch.float16}
    assert torch.float16 not in {value.dtype for value in state.values() if value.ndim < 2}
    loaded = cw.load_model(tmp_path / NAME / "best.pt")
    assert {value.dtype for value in loaded.parameters()} == {torch.float32}
    about = tomllib.loads((tmp_path / NAME / "entry.toml").read_text())
    assert about["precision"] == "float16"
    assert about["trained_fingerprint"] != about["fingerprint"]


def test_half_precision_needs_audits_to_judge_it(run: Path, tmp_path: Path) -> None:
    with pytest.raises(cw.UserError, match="judged by audits"):
        adding.add(run, NAME, tmp_path, half=True)


def test_predictions_are_compared_row_by_row(audit_of: Callable[..., cw.Audit]) -> None:
    one = audit_of({"pgd-20": [3, 5], "fgsm": [4, 4]}, (5, 5))
    other = audit_of({"pgd-20": [1, 5], "fgsm": [4, 4]}, (5, 5))
    changed = audits.compare(one, other)
    assert (changed.rows, changed.differing) == (30, {"clean": 0, "pgd-20": 2, "fgsm": 0})
    assert str(changed) == "2 of 30 predictions differ (2 under pgd-20)"
    frame = other.records.frame
    fewer = dataclasses.replace(other, records=dataclasses.replace(other.records, frame=frame[frame["index"] < 2]))
    assert audits.compare(one, fewer).differing == {"clean": 0, "pgd-20": 1, "fgsm": 0}
    assert not audits.compare(one, one)


@pytest.fixture(scope="module")
def audited(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("audit") / "a"
    attacks = ["pgd-2", "apgd_ce:iterations=3"]
    cw.audit(run / "best.pt", "digits", attacks, 0.1, limit=40, coverage="survivors", out=out, progress=False)
    return out


@pytest.mark.slow
class TestAudits:
    @pytest.fixture
    def filled(self, run: Path, audited: Path, tmp_path: Path) -> Path:
        adding.add(run, NAME, tmp_path / "zoo", audited=[audited])
        return tmp_path / "zoo"

    def test_a_run_folder_without_probabilities(self, filled: Path, audited: Path) -> None:
        (own,) = zoo.in_folder(filled).entry(NAME).about["audits"]
        stored, original = cw.Audit.load(filled / NAME / own["folder"]), cw.Audit.load(audited)
        assert stored.records.probs is None
        assert stored.summary() == original.summary()
        assert stored.config["command"]["model"] == f"zoo:{NAME}"
        assert not audits.compare(original, stored)
        assert own["worst"] == round(original.verdict().accuracy, 6)
        assert (own["images"], own["attacks"]) == (40, ["pgd-2", "apgd_ce:iterations=3"])
        shown = CliRunner().invoke(app, ["show", str(filled / NAME / own["folder"])])
        assert shown.exit_code == 0, shown.output
        assert not any(str(audited.parent).encode() in content for content in contents(filled).values())

    def test_one_that_is_added_later_is_stored_as_if_it_had_been_given_at_once(
        self, run: Path, filled: Path, audited: Path, tmp_path: Path
    ) -> None:
        again = shutil.copytree(audited, tmp_path / "again")
        adding.add(run, NAME, tmp_path / "both", audited=[audited, again])
        before = contents(filled)
        ran = CliRunner().invoke(app, ["zoo", "add-audits", NAME, str(again), "--zoo", str(filled)])
        assert ran.exit_code == 0, ran.output
        assert contents(filled) == contents(tmp_path / "both") != before
        assert not checking.check(zoo.in_folder(filled), zoo.in_folder(filled).entry(NAME)).wrong

    def test_another_models_audit_is_not_added_later_either(self, audited: Path, tmp_path: Path) -> None:
        other = made_training(tmp_path / "other", weights_seed=9)
        adding.add(other, NAME, tmp_path / "zoo")
        before = contents(tmp_path / "zoo")
        with pytest.raises(cw.UserError, match="is of another model"):
            adding.add_audits(NAME, tmp_path / "zoo", [audited])
        with pytest.raises(cw.UserError, match="digits/resnet2/wat-0"):
            adding.add_audits("digits/resnet2/wat-0", tmp_path / "zoo", [audited])
        assert contents(tmp_path / "zoo") == before

    def test_another_models_audit_is_refused(self, audited: Path, tmp_path: Path) -> None:
        other = made_training(tmp_path / "other", weights_seed=9)
        with pytest.raises(cw.UserError, match="is of another model"):
            adding.add(other, NAME, tmp_path / "zoo", audited=[audited])

    def test_half_precision_where_nothing_changes(self, run: Path, audited: Path, tmp_path: Path) -> None:
        added = adding.add(run, NAME, tmp_path, audited=[audited], half=True)
        same = added.entry.about["precision"] == "float16"
        assert ("every prediction of the audits is the same" in added.remarks[-1]) == same
        assert ("predictions differ" in added.remarks[0]) != same
        assert not checking.check(zoo.in_folder(tmp_path), zoo.in_folder(tmp_path).entry(NAME)).wrong

    def test_half_precision_that_changes_predictions(
        self, run: Path, audited: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(weights, "_rounded", lambda value: -5 * value if value.ndim == 2 else value)
        kept = adding.add(run, NAME, tmp_path / "kept", audited=[audited], half=True)
        assert "predictions differ" in kept.remarks[0]
        assert kept.entry.about["precision"] == "float32"
        forced = adding.add(run, NAME, tmp_path / "forced", audited=[audited], half=True, force=True)
        assert "those of the rounded weights" in forced.remarks[-1]
        (stored,) = (tmp_path / "forced" / NAME / "audits").iterdir()
        assert audits.compare(cw.Audit.load(audited), cw.Audit.load(stored))
        assert not checking.check(zoo.in_folder(tmp_path / "forced"), forced.entry).wrong

    def test_some_images_are_audited_again(self, filled: Path) -> None:
        ran = CliRunner().invoke(app, ["zoo", "check", NAME, "--audit", "--per-class", "2", "--zoo", str(filled)])
        assert ran.exit_code == 0, ran.output
        assert "holds: 18 of 18 images audited again" in ran.output  # one class has a single image


class TestCheck:
    @pytest.fixture
    def damaged(self, tmp_path: Path) -> Path:
        return made_zoo(tmp_path)

    def said(self, folder: Path, code: int) -> str:
        ran = CliRunner().invoke(app, ["zoo", "check", "--zoo", str(folder)])
        assert ran.exit_code == code, ran.output
        return ran.output

    def test_nothing_is_wrong(self, damaged: Path) -> None:
        assert self.said(damaged, 0).split() == ["ok", NAME]

    def test_a_changed_file(self, damaged: Path) -> None:
        (damaged / NAME / "history.csv").write_text("epoch\n1\n")
        assert "history.csv is not the file" in self.said(damaged, 1)

    def test_a_file_that_is_not_in_the_index(self, damaged: Path) -> None:
        (damaged / NAME / "last.pt").write_bytes(b"")
        assert "last.pt is not in the index" in self.said(damaged, 1)

    def test_an_entry_that_says_something_else(self, damaged: Path) -> None:
        index = damaged / zoo.INDEX
        content = json.loads(index.read_text())
        content["models"][NAME]["about"]["seed"] = 1
        index.write_text(json.dumps(content))
        assert "say different things" in self.said(damaged, 1)

    def test_other_weights(self, damaged: Path) -> None:
        found = zoo.in_folder(damaged)
        other = made_training(damaged.parent / "other", weights_seed=4)
        weights.store(other / "best.pt", damaged / NAME / "best.pt", half=False)
        entry = dataclasses.replace(found.entry(NAME), files=adding.digests(damaged / NAME))
        adding.write_index(damaged, {NAME: entry})
        assert "are not those with the fingerprint" in self.said(damaged, 1)
