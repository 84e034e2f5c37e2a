"""Other processes that compute the parts of an audit, on whichever engine (`classwise.dispatch`) was asked for.

They load model and data by themselves, from the settings of the audit as plain values. Ray is given parts one by one:
whoever is free takes the next, and a part of a worker that dies is given to another; a process that has computed a part
keeps what it has loaded for the next. Other engines start one process for each shard.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from classwise import attacks as attack_files
from classwise.auditing.config import AuditConfig
from classwise.auditing.prepare import prepared
from classwise.core.errors import Unfinished, UserError, check_known
from classwise.core.run_folder import AuditFolder
from classwise.core.run_lock import writing
from classwise.core.storage import remove
from classwise.data.images import IntArray
from classwise.dispatch import Call, Future, Resources, Submit, engine, failures, names
from classwise.engine import run
from classwise.engine.attacked import attack_rows
from classwise.engine.evaluation import Evaluation

_PARTS_EACH = 4  # for each process at least, so that all end at about the same time
#: Settings of the process that was started, not of its helpers.
_HERE = (
    "engine", "jobs", "cpus", "gpus", "devices", "shard", "overwrite", "progress", "csv", "as_json", "require",
    "confident", "junit",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Crew:
    """The processes that an engine gives, and what they are to compute.

    dynamic: whether whoever is free takes the next part. parts: of how many parts a plan should be a multiple.
    """

    submit: Submit
    options: dict[str, Any]
    folder: Path
    count: int
    dynamic: bool
    module: str = __name__  # that has the functions of the processes

    @property
    def parts(self) -> int:
        return self.count * (_PARTS_EACH if self.dynamic else 1)

    def shards(self) -> None:
        """Compute all parts, a shard in each process."""
        self._do("shard", [(f"{number}/{self.count}",) for number in range(1, self.count + 1)])

    def finish(self, job: Evaluation) -> None:
        """Compute the parts of a run folder that are not there: one by one, or as many in each process."""
        assert job.folder is not None
        todo = [number for number in job.parts if not run.is_finished(job, number)]
        groups = [[number] for number in todo] if self.dynamic else [todo[at :: self.count] for at in range(self.count)]
        self._do("parts_of", [(str(job.folder.path.resolve()), group) for group in groups if group])

    @property
    def pieces(self) -> int:
        """Into how many pieces the images of a round of a search should be divided."""
        return self.parts

    def attack(self, pieces: Mapping[int, IntArray]) -> None:
        """Attack the images at these rows, and store each piece as the part of its number."""
        self._do("piece", [(number, rows.tolist()) for number, rows in pieces.items()])

    def _do(self, what: str, arguments: Sequence[tuple[Any, ...]]) -> None:
        futures: dict[Future, str] = {}
        for own in arguments:
            name = f"{what} {own[0]}" if what != "parts_of" else f"parts {', '.join(map(str, own[1]))}"
            log = self.folder / "logs" / f"{what}-{len(futures)}.txt"
            call = Call(name, f"{self.module}:{what}", (self.options, *own), log)
            futures[self.submit(call)] = name
        if failed := failures(futures):
            lines = [f"  {name}: {wrong}" for name, wrong in failed.items()]
            raise UserError(
                f"{len(failed)} of {len(arguments)} failed:\n" + "\n".join(lines[:8]) + "\n"
                "What is finished is kept; the same command resumes."
            )


@contextlib.contextmanager
def opened(config: AuditConfig | Any, module: str = __name__, rounds: bool = False) -> Iterator[Crew]:
    """The processes that the config of an audit, search or repair asks for. rounds: they are needed several times."""
    part, folder = config.resources, folder_of(config)
    devices = _devices(part.devices)
    name = part.engine.partition(":")[0]
    check_known("engine", names(), name)
    if devices and name != "local":
        raise UserError(f"--devices are the GPUs of this host; --engine {name} takes --gpus instead.")
    if name == "torchrun" and rounds:
        raise UserError("--engine torchrun starts its processes once; this has rounds: use local, ray or slurm.")
    jobs = len(devices) or part.jobs or (1 if name == "ray" else _default_jobs(name))
    resources = Resources(jobs=jobs, cpus=part.cpus, gpus=part.gpus, devices=devices)
    options = plain(config)
    folder.mkdir(parents=True, exist_ok=True)
    with engine(part.engine, folder, resources, jobs) as submit:
        if name == "ray" and part.jobs is None:
            from classwise.dispatch import ray

            jobs = ray.at_once(resources)
        yield Crew(submit=submit, options=options, folder=folder, count=jobs, dynamic=name == "ray", module=module)


def folder_of(config: AuditConfig | Any) -> Path:
    if config.folder is None:
        raise UserError("several processes share a run folder: give out=… (--out).")
    return Path(config.folder).resolve()


def clear(config: AuditConfig) -> None:
    """Begin from scratch, if that is asked for: once, and not in each process."""
    if config.output.overwrite:
        with writing(config.folder):
            remove(folder_of(config), AuditFolder.owned)


def _default_jobs(name: str) -> int:
    raise UserError(f"--engine {name} needs to know how many processes to start: give --jobs.")


def _devices(given: str | None) -> tuple[str, ...]:
    """The numbers of GPUs of this host."""
    if given is None:
        return ()
    there = torch.cuda.device_count()
    if not there:
        raise UserError(
            "--devices chooses GPUs of this host, and it has none that torch can use. --jobs N starts N processes."
        )
    if given == "all":
        return tuple(map(str, range(there)))
    chosen = tuple(text.strip() for text in given.split(","))
    for text in chosen:
        if not text.isdigit() or int(text) >= there:
            raise UserError(f"--devices {given}: {text!r} is none of the GPUs 0 to {there - 1}; or all.")
    return chosen


def plain(config: AuditConfig | Any) -> dict[str, Any]:
    """The settings by their names in Python, as values that any process can read; an error where they are objects."""
    given: dict[str, Any] = {}
    for one, given_value in config.changed():
        if one.name in _HERE:
            continue
        value: Any = str(given_value) if isinstance(given_value, (Path, torch.device)) else given_value
        if one.name == "min":  # pairs
            value = dict(value)
        if one.name in ("attacks", "judge_attacks"):
            listed = attack_files.listed(value)
            value = [item if isinstance(item, str) else attack_files.written(item) for item in listed]
        try:
            given[one.name] = json.loads(json.dumps(value))
        except (TypeError, ValueError):
            given[one.name] = None
        if given[one.name] is None or (isinstance(given[one.name], list) and None in given[one.name]):
            raise UserError(
                f"{one.name} is a Python object, {type(value).__name__}: other processes load model, data and attacks "
                "by themselves. Give it by name, such as a checkpoint or file.py:name."
            )
    given["out"] = str(folder_of(config))
    return given


def config_of(options: dict[str, Any], **more: Any) -> AuditConfig:
    """The config of plain settings; those of a search make one."""
    known = {**options, **more, "progress": False}
    if known.pop("find_worst", False):
        return AuditConfig.of_search(**{k: v for k, v in known.items() if k not in ("coverage", "probs")})
    return AuditConfig.of(**known)


def attempted(work: Callable[[], object]) -> str | None:
    """Do it; the message of its error, or None."""
    try:
        work()
    except UserError as error:
        return str(error)
    except Exception:
        return traceback.format_exc()
    return None


def shard(options: dict[str, Any], share: str) -> str | None:
    """Compute a shard, in a process that an engine started."""
    from classwise.auditing.audit import audit_by

    def work() -> None:
        with contextlib.suppress(Unfinished):
            audit_by(config_of(options, shard=share))

    return attempted(work)


def parts_of(options: dict[str, Any], folder: str, numbers: list[int]) -> str | None:
    """Compute parts, in a process that an engine started for these and others."""
    return attempted(lambda: [run.evaluate_part(_job(options), number) for number in numbers])


def piece(options: dict[str, Any], number: int, rows: list[int]) -> str | None:
    """Attack some images of a search, in a process that an engine started for that and others."""
    return attempted(lambda: attack_rows(_job(options), np.array(rows, dtype=np.int64), number))


_jobs: dict[str, tuple[contextlib.ExitStack, Evaluation]] = {}


def _job(options: dict[str, Any]) -> Evaluation:
    """What is evaluated, prepared once in each process."""
    key = json.dumps(options, sort_keys=True)
    if key not in _jobs:
        for stack, _ in _jobs.values():
            stack.close()
        _jobs.clear()
        stack = contextlib.ExitStack()
        job, _ = stack.enter_context(prepared(config_of(options), lock=False))
        threads = job.plan.workers if job.device.type != "cpu" else min(job.plan.workers, torch.get_num_threads())
        _jobs[key] = stack, dataclasses.replace(job, plan=dataclasses.replace(job.plan, workers=threads))
    return _jobs[key][1]
