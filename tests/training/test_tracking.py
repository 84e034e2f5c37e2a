"""What other programs are told of a training: by stand-ins that remember it, and by the real ones where installed."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from classwise.core.errors import UserError
from classwise.training import tracking
from classwise.training.tracking import Trackers, open_trackers

CONFIG = {"train": {"epochs": 4, "lr": 0.1}, "method": {"name": "trades", "beta": (6.0, 6.0)}}
FLAT = {"train.epochs": 4, "train.lr": 0.1, "method.name": "trades", "method.beta": (6.0, 6.0)}


def row(epoch: int) -> dict[str, float | str]:
    return {"epoch": epoch, "robust/cat": epoch / 10, "worst": "cat"}


def module(name: str, **members: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(members)
    return made


class FakeWriter:
    """TensorBoard's writer."""

    def __init__(self, folder: str, purge_step: int | None = None) -> None:
        self.folder, self.purge_step = folder, purge_step
        self.scalars: list[tuple[str, float, int]] = []
        self.texts: list[tuple[str, str, int]] = []
        self.open = True

    def add_scalar(self, *entry: Any) -> None:
        self.scalars.append(entry)

    def add_text(self, *entry: Any) -> None:
        self.texts.append(entry)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.open = False


class FakeMlflow:
    """One server's memory, and the client's methods."""

    def __init__(self) -> None:
        self.runs: dict[str, SimpleNamespace] = {}
        self.experiments: dict[str, str] = {}

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=self.experiments[name]) if name in self.experiments else None

    def create_experiment(self, name: str) -> str:
        return self.experiments.setdefault(name, "7")

    def create_run(self, experiment_id: str, run_name: str) -> Any:
        run = f"run{len(self.runs)}"
        made = SimpleNamespace(
            experiment=experiment_id, name=run_name, params={}, tags={}, metrics=[], status="RUNNING"
        )
        self.runs[run] = made
        return SimpleNamespace(info=SimpleNamespace(run_id=run))

    def log_batch(self, run: str, metrics: Any = (), params: Any = ()) -> None:
        assert len(params) <= 100
        assert len(metrics) <= 1000
        self.runs[run].metrics += metrics
        self.runs[run].params.update(params)

    def set_tag(self, run: str, key: str, value: str) -> None:
        self.runs[run].tags[key] = value

    def get_metric_history(self, run: str, key: str) -> Any:
        return [SimpleNamespace(step=step) for name, _, _, step in self.runs[run].metrics if name == key]

    def update_run(self, run: str, status: str) -> None:
        self.runs[run].status = status

    def set_terminated(self, run: str) -> None:
        self.runs[run].status = "FINISHED"


class FakeWandb:
    """Runs by id, each with its rows; resumed runs continue at the next step."""

    def __init__(self) -> None:
        self.runs: dict[str, FakeWandbRun] = {}
        self.settings: list[dict[str, Any]] = []

    def init(self, **settings: Any) -> FakeWandbRun:
        self.settings.append(settings)
        run = self.runs.setdefault(settings["id"], FakeWandbRun())
        run.step = max(run.rows, default=-1) + 1
        return run


class FakeWandbRun:
    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.step = 0
        self.finished = False

    def log(self, row: dict[str, Any], step: int) -> None:
        assert step not in self.rows
        self.rows[step], self.step = row, step

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[FakeWriter]:
    made: list[FakeWriter] = []

    def writer(*args: Any, **kwargs: Any) -> FakeWriter:
        made.append(FakeWriter(*args, **kwargs))
        return made[-1]

    monkeypatch.setitem(sys.modules, "tensorboard", module("tensorboard"))
    name = "torch.utils.tensorboard"
    monkeypatch.setitem(sys.modules, name, module(name, SummaryWriter=writer))
    return made


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeMlflow:
    memory = FakeMlflow()
    entities = SimpleNamespace(Metric=lambda *entry: entry, Param=lambda *entry: entry)
    monkeypatch.setitem(sys.modules, "mlflow", module("mlflow", MlflowClient=lambda: memory, entities=entities))
    return memory


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    memory = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", module("wandb", init=memory.init))
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return memory


def log_all(trackers: Trackers, epochs: range) -> None:
    for epoch in epochs:
        trackers.log(row(epoch), epoch)


def test_tensorboard_gets_numbers_and_texts(tmp_path: Path, writers: list[FakeWriter]) -> None:
    trackers = open_trackers(["tensorboard"], tmp_path, "demo", CONFIG)
    log_all(trackers, range(1, 3))
    trackers.close()
    (writer,) = writers
    assert writer.folder == str(tmp_path / "tensorboard")
    assert writer.purge_step is None
    assert writer.scalars == [("epoch", 1, 1), ("robust/cat", 0.1, 1), ("epoch", 2, 2), ("robust/cat", 0.2, 2)]
    (config, *texts) = writer.texts
    assert "train.epochs = 4" in config[1]
    assert texts == [("worst", "cat", 1), ("worst", "cat", 2)]
    assert not writer.open


def test_tensorboard_hides_what_comes_again(tmp_path: Path, writers: list[FakeWriter]) -> None:
    open_trackers(["tensorboard"], tmp_path, "demo", CONFIG, resumed=5)
    assert writers[0].purge_step == 6
    assert not writers[0].texts


def test_mlflow_gets_settings_and_rows(tmp_path: Path, server: FakeMlflow) -> None:
    trackers = open_trackers(["mlflow"], tmp_path, "demo", CONFIG)
    log_all(trackers, range(1, 3))
    (run,) = server.runs.values()
    assert (run.name, run.experiment, run.status) == ("demo", "7", "RUNNING")
    assert run.params == {key: str(value) for key, value in FLAT.items()}
    assert run.tags == {"worst": "cat"}
    assert [(key, value, step) for key, value, _, step in run.metrics] == [
        ("robust/cat", 0.1, 1),
        ("epoch", 1, 1),
        ("robust/cat", 0.2, 2),
        ("epoch", 2, 2),
    ]
    trackers.close()
    assert run.status == "FINISHED"


def test_mlflow_resumes_its_run(tmp_path: Path, server: FakeMlflow) -> None:
    log_all(open_trackers(["mlflow"], tmp_path, "demo", CONFIG), range(1, 4))
    again = open_trackers(["mlflow"], tmp_path, "demo", CONFIG, resumed=1)
    log_all(again, range(2, 5))
    (run,) = server.runs.values()
    assert [step for key, _, _, step in run.metrics if key == "robust/cat"] == [1, 2, 3, 4]


def test_mlflow_takes_many_classes_and_odd_names(tmp_path: Path, server: FakeMlflow) -> None:
    trackers = open_trackers(["mlflow"], tmp_path, "demo", {f"key{n}": n for n in range(250)})
    trackers.log({f"robust[{n}], clean": float(n) for n in range(2500)}, 1)
    (run,) = server.runs.values()
    assert len(run.params) == 250
    assert len(run.metrics) == 2501
    assert run.metrics[3][0] == "robust_3__ clean"


def test_wandb_gets_settings_and_rows(tmp_path: Path, wandb: FakeWandb) -> None:
    trackers = open_trackers(["wandb"], tmp_path, "demo", CONFIG)
    log_all(trackers, range(1, 3))
    trackers.close()
    ((run_id, run),) = wandb.runs.items()
    assert run.rows == {1: row(1), 2: row(2)}
    assert run.finished
    assert (tmp_path / "wandb-run.txt").read_text() == run_id
    settings = wandb.settings[0]
    assert (settings["name"], settings["project"], settings["dir"]) == ("demo", "classwise", str(tmp_path))
    assert settings["config"] == FLAT


def test_wandb_resumes_its_run(tmp_path: Path, wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    log_all(open_trackers(["wandb"], tmp_path, "demo", CONFIG), range(1, 4))
    log_all(open_trackers(["wandb"], tmp_path, "demo", CONFIG, resumed=1), range(2, 5))
    (run,) = wandb.runs.values()
    assert sorted(run.rows) == [1, 2, 3, 4]
    assert {settings["resume"] for settings in wandb.settings} == {"allow"}
    assert wandb.settings[0]["project"] is None  # wandb reads the variable itself


def test_a_new_training_in_an_old_folder_is_a_new_run(tmp_path: Path, wandb: FakeWandb, server: FakeMlflow) -> None:
    for _ in range(2):
        open_trackers(["wandb", "mlflow"], tmp_path, "demo", CONFIG)
    assert len(wandb.runs) == len(server.runs) == 2


def test_a_tracker_added_on_resume_begins_a_run(tmp_path: Path, wandb: FakeWandb) -> None:
    log_all(open_trackers(["wandb"], tmp_path, "demo", CONFIG, resumed=3), range(4, 6))
    (run,) = wandb.runs.values()
    assert sorted(run.rows) == [4, 5]


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path, writers: list[FakeWriter], server: FakeMlflow) -> None:
    trackers = open_trackers(["mlflow", "tensorboard"], tmp_path, "demo", CONFIG)

    def away(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("server is away")

    server.log_batch = server.set_terminated = away  # type: ignore[method-assign]
    with pytest.warns(UserWarning, match="mlflow did not take the row of epoch 1: ConnectionError: server is away"):
        trackers.log(row(1), 1)
    with pytest.warns(UserWarning, match="mlflow did not close"):
        trackers.close()
    assert writers[0].scalars
    assert not writers[0].open


def test_one_that_cannot_start_is_an_error(tmp_path: Path, server: FakeMlflow) -> None:
    def refused(name: str) -> None:
        raise ConnectionError("refused")

    server.get_experiment_by_name = refused  # type: ignore[method-assign]
    with pytest.raises(UserError, match="mlflow cannot be started: refused"):
        open_trackers(["mlflow"], tmp_path, "demo", CONFIG)


@pytest.mark.parametrize("name", tracking.KINDS)
def test_a_missing_package_is_named_with_its_remedy(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=rf'needs the package {name}: pip install "classwise\[{name}\]"'):
        open_trackers([name], tmp_path, "demo", CONFIG)


def test_unknown_trackers_and_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'tensorboard'"):
        open_trackers(["tensorbord"], tmp_path, "demo", CONFIG)
    nothing = open_trackers([], tmp_path, "demo", CONFIG)
    nothing.log(row(1), 1)
    nothing.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.adapters
def test_the_real_tensorboard_shows_each_epoch_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    killed = open_trackers(["tensorboard"], tmp_path, "demo", CONFIG)
    log_all(killed, range(1, 4))
    again = open_trackers(["tensorboard"], tmp_path, "demo", CONFIG, resumed=1)
    again.log({"robust/cat": 0.9}, 2)
    again.close()
    shown = EventAccumulator(str(tmp_path / "tensorboard"))
    shown.Reload()
    assert [(event.step, round(event.value, 6)) for event in shown.Scalars("robust/cat")] == [(1, 0.1), (2, 0.9)]


@pytest.mark.slow
@pytest.mark.adapters
def test_the_real_mlflow_shows_each_epoch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    log_all(open_trackers(["mlflow"], tmp_path, "demo", CONFIG), range(1, 4))
    again = open_trackers(["mlflow"], tmp_path, "demo", CONFIG, resumed=1)
    log_all(again, range(2, 5))
    again.log({"robust/cat": math.nan}, 5)
    again.close()
    client, run_id = mlflow.MlflowClient(), (tmp_path / "mlflow-run.txt").read_text()
    assert [point.step for point in client.get_metric_history(run_id, "robust/cat")] == [1, 2, 3, 4, 5]
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["train.epochs"] == "4"
    assert run.data.tags["worst"] == "cat"


@pytest.mark.slow
@pytest.mark.adapters
def test_the_real_wandb_starts_logs_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for resumed in (None, 1):
        trackers = open_trackers(["wandb"], tmp_path, "demo", CONFIG, resumed)
        log_all(trackers, range(2, 4))
        trackers.close()
    run_id = (tmp_path / "wandb-run.txt").read_text()
    assert len(list(tmp_path.glob(f"wandb/offline-run-*/run-{run_id}.wandb"))) == 2
