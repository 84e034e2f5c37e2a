"""Studies take from the zoo what they would have to train."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_jobs import planned
from typer.testing import CliRunner

import classwise as cw
from classwise import studies
from classwise.cli.main import app
from classwise.models import zoo
from classwise.studies.runner import from_zoo, study
from classwise.studies.runner.graph import AuditJob, Graph, TrainJob
from classwise.studies.runner.probe import probe
from classwise.zoo import adding
from small_zoo import CHANGES, NAME, made_training, made_zoo

TRAIN = TrainJob("base", "desk/digits/trades", CHANGES)


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo that is in use."""
    found = made_zoo(tmp_path)
    monkeypatch.setenv(zoo.SETTING, str(found))
    return found


def audit(model: str) -> AuditJob:
    return AuditJob("look", model=model, data="digits", attacks=("fgsm",))


class TestWhatIsInTheZoo:
    def test_a_training_of_the_same_recipe(self, filled: Path) -> None:
        other = TrainJob("other", "desk/digits/trades", (*CHANGES, "train.seed=1"))
        assert from_zoo.in_zoo(Graph.of([TRAIN, other, audit("{base}/best.pt")])) == {"base": NAME}

    @pytest.mark.parametrize("model", ["{base}/last.pt", "{base}/epochs/0002.pt"])
    def test_not_one_of_which_more_is_needed(self, filled: Path, model: str) -> None:
        assert from_zoo.in_zoo(Graph.of([TRAIN, audit(model)])) == {}

    def test_one_that_fine_tunes_another(self, filled: Path, tmp_path: Path) -> None:
        tuned = TrainJob("tuned", "desk/digits/trades", (*CHANGES, "model.weights={base}/best.pt"))
        assert from_zoo.in_zoo(Graph.of([TRAIN, tuned])) == {"base": NAME}
        weights = f"model.weights={filled / NAME / 'best.pt'}"
        adding.add(made_training(tmp_path / "tuned", weights, weights_seed=1), "digits/resnet2/tuned-0", filled)
        assert from_zoo.in_zoo(Graph.of([TRAIN, tuned])) == {"base": NAME, "tuned": "digits/resnet2/tuned-0"}

    def test_a_zoo_that_cannot_be_reached(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv(zoo.SETTING, "http://127.0.0.1:9/zoo")
        monkeypatch.setattr(zoo.pooch, "os_cache", lambda project: tmp_path)
        with pytest.warns(UserWarning, match="nothing is taken from the zoo: could not read"):
            assert from_zoo.in_zoo(Graph.of([TRAIN])) == {}


class TestTaken:
    def test_the_folder_is_that_of_a_finished_training(self, filled: Path, tmp_path: Path) -> None:
        workspace = planned(tmp_path / "study", TRAIN)
        assert from_zoo.take(workspace, {"base": NAME}) == {"base": NAME}
        about = workspace.finished(TRAIN)
        assert about is not None
        assert (about["zoo"], about["seconds"]) == (NAME, 180.0)
        folder = workspace.folder_of("base")
        names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
        assert names == {"best.pt", "config.toml", "history.csv", "job.json"}
        cw.load_model(folder / "best.pt")
        assert from_zoo.take(workspace, {"base": NAME}) == {}

    def test_one_that_was_begun_is_left_alone(self, filled: Path, tmp_path: Path) -> None:
        workspace = planned(tmp_path / "study", TRAIN)
        folder = workspace.folder_of("base")
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text("[method]\n")
        assert from_zoo.take(workspace, {"base": NAME}) == {}
        assert not (folder / "best.pt").exists()


class TestAudits:
    @pytest.fixture
    def audited(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A zoo in use whose model has an audit of two images of each class."""
        run, found = made_training(tmp_path / "run"), tmp_path / "zoo"
        cw.audit(run / "best.pt", "digits", "fgsm", 0.15, per_class=2, out=tmp_path / "audit", progress=False)
        adding.add(run, NAME, found, audited=[tmp_path / "audit"])
        monkeypatch.setenv(zoo.SETTING, str(found))
        return found

    def asked(self, **changed: Any) -> AuditJob:
        given: dict[str, Any] = {"model": "{base}/best.pt", "data": "digits", "attacks": ("fgsm",), "eps": 0.15}
        options = {"per_class": 2, "probs": False, **changed.pop("options", {})}
        return AuditJob("look", **{**given, **changed}, options=options)

    def test_the_same_audit_is_found_whether_the_study_trains_the_model_or_names_it(self, audited: Path) -> None:
        wanted = f"{NAME}/audits/fgsm"
        assert from_zoo.in_zoo(Graph.of([TRAIN, self.asked()])) == {"base": NAME, "look": wanted}
        assert from_zoo.in_zoo(Graph.of([self.asked(model=f"zoo:{NAME}", eps="0.15")])) == {"look": wanted}

    @pytest.mark.parametrize(
        "changed",
        [
            {"attacks": ("pgd-2",)},
            {"eps": 0.1},
            *({"options": own} for own in ({"per_class": 3}, {"seed": 1}, {"probs": None}, {"protocol": "final"})),
        ],
    )
    def test_another_audit_is_not(self, audited: Path, changed: dict[str, Any]) -> None:
        assert from_zoo.in_zoo(Graph.of([TRAIN, self.asked(**changed)])) == {"base": NAME}

    def test_one_of_every_example_has_what_the_survivors_are_asked_for(self, audited: Path, tmp_path: Path) -> None:
        wanted = {"base": NAME, "look": f"{NAME}/audits/fgsm"}
        assert from_zoo.in_zoo(Graph.of([TRAIN, self.asked(options={"coverage": "survivors"})])) == wanted
        run, few = tmp_path / "run", tmp_path / "few"
        options = {"per_class": 2, "coverage": "survivors", "progress": False}
        cw.audit(run / "best.pt", "digits", "fgsm", 0.15, out=few, **options)
        adding.add(run, NAME, audited, audited=[few], overwrite=True)
        assert from_zoo.in_zoo(Graph.of([TRAIN, self.asked(options={"coverage": "survivors"})])) == wanted
        assert from_zoo.in_zoo(Graph.of([TRAIN, self.asked()])) == {"base": NAME}

    def test_it_is_copied_and_not_run(self, audited: Path, tmp_path: Path) -> None:
        workspace = planned(tmp_path / "study", TRAIN, self.asked())
        from_zoo.take(workspace, from_zoo.in_zoo(workspace.graph))
        about = workspace.finished(workspace.graph.jobs["look"])
        assert about is not None
        assert about["zoo"] == f"{NAME}/audits/fgsm"
        found, given = (cw.Audit.load(path) for path in (workspace.folder_of("look"), tmp_path / "audit"))
        assert found.verdict() == given.verdict()
        assert (found.rows().prediction == given.rows().prediction).all()


OPTIONS = ["--recipe", "base=desk/digits/trades", *(word for change in CHANGES for word in ("--set", change))]


@pytest.mark.slow
def test_an_audit_is_measured_with_the_model_of_the_zoo(filled: Path, tmp_path: Path) -> None:
    workspace = planned(tmp_path / "study", TRAIN, audit("{base}/best.pt"))
    assert probe(workspace, "look", 1.0, {"base": NAME}).basis == "measured"
    assert probe(workspace, "look", 1.0).basis == "measured, at most"


@pytest.mark.slow
class TestStudy:
    def test_nothing_is_trained_and_it_is_said(
        self, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("classwise.training.train.train", lambda *given, **more: pytest.fail("trained"))
        options = {"recipe": ["base=desk/digits/trades"], "set": list(CHANGES), "per_class": 2, "attack": "pgd-2"}
        said: list[str] = []
        chosen = studies.parse("weight-norm", options)
        studies.run(chosen, tmp_path / "out", say=said.append)
        assert said == [f"base: using zoo:{NAME} (--no-zoo trains it instead)."]
        assert f"- from the zoo: `base=zoo:{NAME}`" in (tmp_path / "out" / "study.md").read_text()
        again: list[str] = []
        studies.run(chosen, tmp_path / "out", say=again.append)
        assert again == []
        assert f"base=zoo:{NAME}" in (tmp_path / "out" / "study.md").read_text()
        with pytest.raises(cw.UserError, match=r"was taken from the zoo.*choose another --out"):
            studies.run(chosen, tmp_path / "out", zoo=False)

    def test_without_the_zoo_it_is_to_be_trained(
        self, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(study.from_zoo, "in_zoo", lambda graph: pytest.fail("looked"))

        def train(*given: object, **more: object) -> None:
            raise cw.UserError("trained")

        monkeypatch.setattr("classwise.training.train.train", train)
        chosen = studies.parse("weight-norm", {"recipe": ["base=desk/digits/trades"], "set": list(CHANGES)})
        with pytest.raises(cw.UserError, match="base: trained"):
            studies.run(chosen, tmp_path / "out", zoo=False)

    def test_a_model_of_the_zoo_under_study(self, filled: Path, tmp_path: Path) -> None:
        options = {"model": [f"standard=zoo:{NAME}", f"zoo:{NAME}"], "per_class": 2, "attack": "pgd-2"}
        studies.run(studies.parse("class-bias", options), tmp_path / "out")
        _, job = json.loads((tmp_path / "out" / "jobs.json").read_text())["jobs"]
        assert (job["name"], job["model"], job["data"], job["eps"]) == (
            "trades-0-audit", f"zoo:{NAME}", "digits", 0.15,
        )  # fmt: skip


def test_a_plan_says_what_is_in_the_zoo(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("classwise.cli.studies._PROBING", 0.0)
    monkeypatch.setattr("classwise.cli.studies.show_plan.__defaults__", (None, 0.0))
    words = ["study", "weight-norm", *OPTIONS, "--out", str(tmp_path / "out"), "--dry-run"]
    shown = CliRunner().invoke(app, words, env={"COLUMNS": "160"})
    assert shown.exit_code == 0, shown.output
    (line,) = [line for line in shown.output.splitlines() if line.startswith("base ")]
    assert line.split() == ["base", "train", "in", "zoo", "0.0", "s", "0", "MB", f"zoo:{NAME}"]
    without = CliRunner().invoke(app, [*words, "--no-zoo"], env={"COLUMNS": "160"})
    assert "to do" in next(line for line in without.output.splitlines() if line.startswith("base "))
