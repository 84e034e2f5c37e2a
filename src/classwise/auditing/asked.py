"""What an audit was asked for, as config.toml has it: the same command resumes, another one is refused, and the report
shows the command that reproduces the run.

`[command]` holds what was given, option by option, as the command line takes it; all other tables what came of it.
"""

from __future__ import annotations

import dataclasses
import inspect
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from classwise import attacks as attack_files
from classwise.auditing.fingerprints import fingerprint_data, fingerprint_model
from classwise.auditing.inputs import spec_of
from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo
from classwise.core.records import digest
from classwise.core.run_config import check_same, damaged
from classwise.core.run_folder import AuditFolder
from classwise.core.spec import number, written
from classwise.core.storage import file_digest
from classwise.data.images import Images
from classwise.engine import evaluation

_NOT_SETTINGS = {"out", "overwrite", "progress", "download"}  # the same records with and without
_WRITTEN_APART = {"model", "data", "attacks", "attack", "eps", "classes", "normalize", "class_names"}


@dataclass(frozen=True)
class Asked:
    """What a call was given.

    spec: what the run folder says of the model.
    weights: SHA-256 of the file the weights came from, where there is one.
    command: options of the command line by name; those left out were not given.
    """

    spec: str
    weights: str | None
    command: Mapping[str, Any]

    @classmethod
    def of(cls, call: Callable[..., Any], given: Mapping[str, Any], images: Images, module: nn.Module) -> Asked:
        """Of the arguments `call` was called with, the images that were chosen and the model that was made."""
        defaults = {name: parameter.default for name, parameter in inspect.signature(call).parameters.items()}
        command: dict[str, Any] = {}
        for name in ("model", "data"):
            command[name] = str(given[name]) if isinstance(given[name], (str, Path)) else None
        asked = attack_files.listed(given["attacks"] if "attacks" in given else given["attack"])
        written = [item.strip() if isinstance(item, str) else attack_files.written(item) for item in asked]
        command["attack"] = None if None in written else written
        command |= _radius(given["eps"], images)
        command["classes"] = _classes(given["classes"], images)
        command["normalize"] = _normalisation(given["normalize"])
        for name, value in given.items():
            if name not in _NOT_SETTINGS | _WRITTEN_APART and value != defaults[name]:
                command[name] = str(value) if isinstance(value, Path) else value
        python = [name for name in ("model", "data", "attack", "eps") if command[name] is None]
        python += ["class_names"] if given["class_names"] is not None else []
        command |= {"only_in_python": python} if python else {}
        return cls(spec_of(given["model"], module), _file_digest(given), command)


def in_folder(
    job: evaluation.Evaluation,
    folder: Path,
    asked: Asked,
    coverage: str,
    amp: str | None,
    confidence: float,
    overwrite: bool,
) -> evaluation.Evaluation:
    """The job with a run folder: cut into parts, or with the parts of the run that is there already."""
    assert isinstance(job.model, nn.Module)
    example = job.images.batch(np.arange(min(8, len(job.images))))[0].to(job.device)
    plan = evaluation.plan(job.fast, example, len(job.images), job.attacks, job.plan.batch, job.plan.workers)
    config = {
        "audit": {
            "norm": job.threat.norm,
            "eps": job.meta.eps,
            "eps_per_example": None if np.ptp(job.eps) == 0 else digest(job.eps),
            "protocol": job.protocol,
            "coverage": coverage,
            "save_adversarial": job.save_adversarial,
            "seed": job.meta.seed,
            "eot": job.eot,
            "amp": amp,
            "probs": job.probs,
        },
        "model": {
            "spec": asked.spec,
            "fingerprint": fingerprint_model(job.model),
            "weights_sha256": asked.weights,
        },
        "data": {
            "name": job.images.name,
            "examples": len(job.images),
            "classes": list(job.images.class_names),
            "fingerprint": fingerprint_data(job.images),
        },
        "attacks": {name: _described(info) for name, info in job.meta.attacks.items()},
        "command": {**asked.command, "confidence": confidence},
        "versions": dict(job.meta.versions),
    }
    run = AuditFolder(folder)
    stored = run.open_or_create({**config, "plan": vars(plan)}, overwrite)
    try:
        plan = evaluation.BatchPlan(**stored.pop("plan"))
    except (KeyError, TypeError, UserError) as error:
        raise damaged(run.config_file, str(error)) from error
    check_same(folder, stored, config)
    return dataclasses.replace(job, folder=run, plan=plan)


def _described(info: AttackInfo) -> dict[str, Any]:
    return {**info.settings, "eps": info.eps} if info.eps is not None else dict(info.settings)


def _radius(eps: Any, images: Images) -> dict[str, Any]:
    """``--eps`` and ``--class-eps``; no radius where there is one for each example, which no command can give."""
    if isinstance(eps, Mapping):
        whole = eps.get("*", max(eps.values(), key=number))
        own = [f"{_name(name, images)}={_text(value)}" for name, value in eps.items() if name != "*"]
        return {"eps": _text(whole), "class_eps": own}
    if isinstance(eps, (str, numbers.Real)):
        return {"eps": _text(eps)}
    if isinstance(eps, Sequence) and any(isinstance(part, str) for part in eps):
        return {"eps": ",".join(_text(part) for part in eps)}
    return {"eps": None}


def _text(value: Any) -> str:
    """A number as it was written, or with all its digits."""
    return value.strip() if isinstance(value, str) else repr(float(value))


def _name(name: str | int, images: Images) -> str:
    """A class as options can name it: by number where its name holds what separates names."""
    return str(images.class_number(name)) if set(str(name)) & set(",=") else str(name)


def _classes(classes: Sequence[str | int] | None, images: Images) -> str | None:
    return None if classes is None else ",".join(_name(name, images) for name in classes)


def _normalisation(normalize: Any) -> str | None:
    if normalize is None or isinstance(normalize, str):
        return normalize
    mean, std = (written([float(value) for value in part]) for part in normalize)
    return f"mean={mean},std={std}"


def _file_digest(given: Mapping[str, Any]) -> str | None:
    """SHA-256 of the weights file, or of the file that is the model."""
    file = given["weights"] if given["weights"] is not None else given["model"]
    if not isinstance(file, (str, Path)) or not Path(file).is_file():
        return None
    return file_digest(Path(file))
