"""Which files a run has: what kind it is, what begins it, what --overwrite removes, and what another run takes over."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from classwise.core.errors import UserError
from classwise.core.run_folder import AuditFolder, RunFolder, StudyFolder, TrainingFolder, kind_of
from classwise.core.run_lock import writing

TRAINING = {"method": {"name": "madry"}}


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_kind_is_told_by_the_files(tmp_path: Path) -> None:
    marks = {"study.md": "study", "worst.json": "search", "summary.json": "audit", "history.csv": "training"}
    assert kind_of(tmp_path) is None
    for mark, kind in marks.items():
        fill(tmp_path / kind, "config.toml", mark)
        assert kind_of(tmp_path / kind) == kind
    assert kind_of(tmp_path / "study" / "study.md") is None


def test_the_settings_that_are_there_are_returned(tmp_path: Path) -> None:
    folder = TrainingFolder(tmp_path / "run")
    assert folder.open_or_create({**TRAINING, "left_out": None}) == TRAINING
    assert folder.open_or_create({"method": {"name": "trades"}}) == TRAINING
    assert folder.open_or_create({"method": {"name": "trades"}}, overwrite=True) == {"method": {"name": "trades"}}
    with pytest.raises(UserError, match="is the run folder of another kind, training; choose another --out for the au"):
        AuditFolder(tmp_path / "run").open_or_create({"audit": {}}, overwrite=True)


@pytest.mark.parametrize("name", ["last.pt", "next.pt", "previous.pt", "best.pt", "history.csv", "epochs/0014.pt"])
def test_checkpoints_without_settings_are_not_taken_over(tmp_path: Path, name: str) -> None:
    fill(tmp_path, name)
    with pytest.raises(UserError, match=r"holds checkpoints but no config\.toml"):
        TrainingFolder(tmp_path).open_or_create(TRAINING)
    TrainingFolder(tmp_path).open_or_create(TRAINING, overwrite=True)
    assert names(tmp_path) == {"config.toml"}


def test_overwriting_a_training_leaves_what_is_not_its_own(tmp_path: Path) -> None:
    own = ("epochs/0001.pt", "epochs/10000.pt", "best.pt", "remarks.json", "not_finite_0.pt", "job.json", "log.txt")
    trackers = ("tensorboard/events.out.tfevents.1", "mlflow-run.txt", "wandb-run.txt", "best.pt.partial")
    others = ("epochs/mine.pt", "notes.txt", "tensorboard/notes.txt")
    fill(tmp_path, "config.toml", *own, *trackers, *others)
    TrainingFolder(tmp_path).open_or_create(TRAINING, overwrite=True)
    assert names(tmp_path) == {"config.toml", *others}


def test_a_checkpoint_is_found_by_what_it_is(tmp_path: Path) -> None:
    folder = TrainingFolder(tmp_path)
    fill(tmp_path, "best.pt", "epochs/0002.pt", "epochs/0010.pt", "epochs/mine.pt")
    assert folder.kept_epochs() == [2, 10]
    for which in ("best", "last", 2, 10):
        assert TrainingFolder.which(folder.checkpoint(which)) == which
    with pytest.raises(UserError, match=r"does not keep epoch 3; it keeps 2, 10\. Train with train\.keep = 3"):
        folder.checkpoint(3)


def test_a_copy_has_its_settings_last_and_no_lock(tmp_path: Path) -> None:
    fill(tmp_path / "from", "records/00-clean-00000.parquet", "config.toml")
    with writing(tmp_path / "from"):
        RunFolder(tmp_path / "to").copy_from(RunFolder(tmp_path / "from"))
    assert names(tmp_path / "to") == {"records/00-clean-00000.parquet", "config.toml"}


def test_the_images_of_an_attack_are_found_by_its_name(tmp_path: Path) -> None:
    folder = AuditFolder(tmp_path)
    parts = [folder.part(place, name, number) for place, name in ((1, "pgd-2"), (2, "pgd-20")) for number in (0, 1)]
    for part in parts:
        fill(tmp_path, folder.images_of(part).relative_to(tmp_path).as_posix())
    assert folder.adversarial_files("pgd-20") == [folder.images_of(part) for part in parts[2:]]


def test_remarks_and_what_figures_were_drawn_from_are_read_back(tmp_path: Path) -> None:
    training, study = TrainingFolder(tmp_path / "training"), StudyFolder(tmp_path / "study")
    assert training.remarks() == []
    training.write_remarks(["Stopped early: naïve."])
    assert training.remarks() == ["Stopped early: naïve."]
    training.remarks_file.write_text("[")
    with pytest.raises(UserError, match="Delete it to do without"):
        training.remarks()
    study.write_figure_data("curve", pd.DataFrame({"x": [1]}))
    assert [path.stem for path in study.figure_data()] == ["curve"]


def test_a_damaged_config_is_an_error(tmp_path: Path) -> None:
    for text in (
        "[audit",
        "audit = 3",
        "data = []",
        "attacks = 1",
        "[attacks]\npgd = 3",
        "x = " + "[" * 5000,
        "plan = 'x'",
    ):
        (tmp_path / "config.toml").write_text(text)
        with pytest.raises(UserError, match=r"config\.toml is damaged \(.*--overwrite"):
            AuditFolder(tmp_path).config()
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(UserError, match=r"config\.toml is damaged \(it is empty"):
        TrainingFolder(tmp_path).open_or_create(TRAINING)
