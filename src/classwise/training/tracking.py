"""The rows of history.csv, sent to other programs as well: TensorBoard, MLflow, Weights & Biases.

Each package is imported only when it is asked for. A resumed run continues in the same place: rows of epochs that were
logged after the last checkpoint replace the old ones (TensorBoard) or, being the same, are left out. A failure while
logging is a warning, since history.csv has everything.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from classwise.core.errors import UserError, unknown
from classwise.core.extras import package
from classwise.core.run_config import flat
from classwise.core.run_folder import TrainingFolder
from classwise.core.storage import atomic_write

Row: TypeAlias = Mapping[str, float | str]

_EXPERIMENT = "classwise"
# What MLflow's servers take in one call, and the longest setting that old ones take.
_MOST_METRICS, _MOST_PARAMS, _LONGEST_PARAM = 1000, 100, 500


class Tracker(Protocol):
    """Something that takes rows of history."""

    def log(self, row: Row, epoch: int) -> None:
        """The row of an epoch; the first epoch is number 1."""

    def close(self) -> None:
        """Called after the last row."""


class Trackers:
    """Several trackers as one, whose failures do not stop the training."""

    def __init__(self, trackers: Mapping[str, Tracker]) -> None:
        self.trackers = dict(trackers)

    def log(self, row: Row, epoch: int) -> None:
        for name, tracker in self.trackers.items():
            with _as_warning(f"{name} did not take the row of epoch {epoch}"):
                tracker.log(row, epoch)

    def close(self) -> None:
        for name, tracker in self.trackers.items():
            with _as_warning(f"{name} did not close"):
                tracker.close()


class TensorBoard:
    """Event files in `folder`/tensorboard: a scalar for each number, a text for the rest."""

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], resumed: int | None) -> None:
        _package("tensorboard")
        writer = _package("tensorboard", "torch.utils.tensorboard").SummaryWriter
        # Purging hides what an earlier process wrote of epochs that come again.
        purge = None if resumed is None else resumed + 1
        self.writer = writer(str(TrainingFolder(folder).tensorboard), purge_step=purge)
        if resumed is None:
            lines = (f"    {key} = {value}" for key, value in flat(config).items())
            self.writer.add_text("config", "\n".join((name, "", *lines)), 0)

    def log(self, row: Row, epoch: int) -> None:
        numbers, texts = _split(row)
        for key, number in numbers.items():
            self.writer.add_scalar(key, number, epoch)
        for key, text in texts.items():
            self.writer.add_text(key, text, epoch)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class MLflow:
    """A run of the experiment "classwise" on the server that MLFLOW_TRACKING_URI names; its id is kept in `folder`."""

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], resumed: int | None) -> None:
        self.mlflow = _package("mlflow")
        self.client = self.mlflow.MlflowClient()  # the client, because the user may have an active run of their own
        self.run, known = _identity(TrainingFolder(folder).tracker_id("mlflow"), resumed, self._new_run(name))
        self.done = 0
        if known:
            self.client.update_run(self.run, status="RUNNING")
            self.done = max((point.step for point in self.client.get_metric_history(self.run, "epoch")), default=0)
            return
        param = self.mlflow.entities.Param
        params = [param(_mlflow_key(k), str(v)[:_LONGEST_PARAM]) for k, v in flat(config).items()]
        for some in _pieces(params, _MOST_PARAMS):
            self.client.log_batch(self.run, params=some)

    def _new_run(self, name: str) -> Callable[[], str]:
        def make() -> str:
            found = self.client.get_experiment_by_name(_EXPERIMENT)
            experiment = found.experiment_id if found else self.client.create_experiment(_EXPERIMENT)
            return str(self.client.create_run(experiment, run_name=name).info.run_id)

        return make

    def log(self, row: Row, epoch: int) -> None:
        if epoch <= self.done:  # a metric once logged cannot be taken back
            return
        numbers, texts = _split(row)
        for key, text in texts.items():
            self.client.set_tag(self.run, _mlflow_key(key), text)
        numbers = {key: number for key, number in numbers.items() if key != "epoch"}
        numbers["epoch"] = epoch  # logged last: where it is there, the row is complete
        metric, now = self.mlflow.entities.Metric, int(time.time() * 1000)
        metrics = [metric(_mlflow_key(key), number, now, epoch) for key, number in numbers.items()]
        for some in _pieces(metrics, _MOST_METRICS):
            self.client.log_batch(self.run, metrics=some)

    def close(self) -> None:
        self.client.set_terminated(self.run)


class Wandb:
    """A run of the project "classwise", or WANDB_PROJECT's; its id is kept in `folder`."""

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], resumed: int | None) -> None:
        wandb = _package("wandb")
        run, _ = _identity(TrainingFolder(folder).tracker_id("wandb"), resumed, lambda: uuid.uuid4().hex[:12])
        project = None if os.environ.get("WANDB_PROJECT") else _EXPERIMENT
        settings = {"name": name, "config": flat(config), "dir": str(folder), "resume": "allow"}
        self.run = wandb.init(id=run, project=project, reinit="create_new", **settings)

    def log(self, row: Row, epoch: int) -> None:
        if epoch >= self.run.step:  # for an earlier step wandb keeps the first row
            self.run.log(dict(row), step=epoch)

    def close(self) -> None:
        self.run.finish()


KINDS: dict[str, Callable[[Path, str, Mapping[str, Any], int | None], Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": Wandb,
}


def open_trackers(
    names: Iterable[str], folder: Path, name: str, config: Mapping[str, Any], resumed: int | None = None
) -> Trackers:
    """The named trackers, opened.

    folder: the run's. name: what the run is called there. config: its settings. resumed: how many epochs the checkpoint
    had that the run resumes from, None for a new run.
    """
    opened: dict[str, Tracker] = {}
    for kind in dict.fromkeys(names):
        if kind not in KINDS:
            raise unknown("tracker", kind, KINDS)
        try:
            opened[kind] = KINDS[kind](folder, name, config, resumed)
        except UserError:
            raise
        except Exception as error:  # no server, no login: the library says which
            raise UserError(f"{kind} cannot be started: {error}. Set it up, or train without it.") from error
    return Trackers(opened)


def _split(row: Row) -> tuple[dict[str, float], dict[str, str]]:
    """The numbers and the texts of a row."""
    texts = {key: value for key, value in row.items() if isinstance(value, str)}
    return {key: float(value) for key, value in row.items() if key not in texts}, texts


def _identity(path: Path, resumed: int | None, make: Callable[[], str]) -> tuple[str, bool]:
    """The id of the run to resume, as stored in a file, else a new one; and whether it was known."""
    if resumed is not None and path.is_file():
        return path.read_text(encoding="utf-8").strip(), True
    made = make()
    with atomic_write(path) as handle:
        handle.write(made.encode())
    return made, False


def _pieces(items: list[Any], most: int) -> Iterator[list[Any]]:
    return (items[place : place + most] for place in range(0, len(items), most))


def _mlflow_key(text: str) -> str:
    return re.sub(r"[^\w\-. /]", "_", text)


def _package(name: str, module: str | None = None) -> Any:
    return package(name, f"tracking with {name} needs", module)


@contextlib.contextmanager
def _as_warning(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # an unreachable server may raise anything
        warnings.warn(f"{what}: {type(error).__name__}: {error}", stacklevel=4)
