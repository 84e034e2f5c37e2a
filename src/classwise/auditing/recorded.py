"""The config.toml of a run folder: the same command resumes, another one is refused, and the report shows the command
that reproduces the run.

`[command]` holds what was given, option by option, as the command line takes it; all other tables what came of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import numbers
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from classwise import attacks as attack_files
from classwise.auditing.config import AuditConfig
from classwise.auditing.fingerprints import fingerprint_data, fingerprint_model
from classwise.core.errors import UserError
from classwise.core.meta import Coverage
from classwise.core.records import digest
from classwise.core.run_config import check_same, damaged
from classwise.core.run_folder import AuditFolder
from classwise.core.run_lock import moment
from classwise.core.settings import settings_of
from classwise.core.spec import items, number, written
from classwise.core.storage import file_digest
from classwise.data.images import Images
from classwise.engine import evaluation
from classwise.models import zoo


def command(config: AuditConfig, images: Images) -> dict[str, Any]:
    """The settings of an audit or a search by their options, as config.toml has them."""
    return options(config, images, "find_worst" if config.statistics.find_worst else "audit")


def options(config: Any, images: Images, mode: str) -> dict[str, Any]:
    """The settings of a config by their options; those at their defaults are left out, but the confidence. What no
    option can give, being a Python object, is named by ``only_in_python``."""
    texts: dict[str, Callable[[Any], Any]] = {
        "model": _text,
        "data": _text,
        "attack": _attacks,
        "judge_attack": _attacks,
        "calibrate": _text,
        "normalize": _normalisation,
        "classes": lambda classes: ",".join(_name(name, images) for name in classes),
        "min": lambda pairs: [f"{_name(name, images)}={_number(least)}" for name, least in pairs],
    }
    given = [(one.key, value) for one, value in config.changed() if one.recorded and one.mode in (None, mode)]
    found = {key: texts.get(key, _plain)(value) for key, value in given if key is not None}
    found |= {"attack": _attacks(config.attacks.attacks), **_radius(config.threat.eps, images)}
    objects = ("model", "data", "attack", "judge_attack", "calibrate", "eps")
    python = [key for key in objects if key in found and found[key] is None]
    python += ["class_names"] if config.data.class_names is not None else []
    found |= {"only_in_python": python} if python else {}
    found["confidence"] = config.statistics.confidence
    order = [one.key for one in settings_of(type(config)).values()] + ["only_in_python"]
    return {key: found[key] for key in order if key is not None and key in found}


def config_of(stored: Mapping[str, Any], leave: Collection[str] = (), **changes: Any) -> AuditConfig:
    """What a run folder's config.toml says was asked for. leave: options to forget; `changes`: settings by their names
    in Python."""
    given = stored.get("command")
    if given is None or {*given.get("only_in_python", ())} - {*leave}:
        objects = "a version that did not record its command" if given is None else "Python objects"
        raise UserError(f"this audit was made with {objects}, so it cannot be repeated; audit it again by a command.")
    names = {one.key: name for name, one in settings_of(AuditConfig).items() if one.key is not None}
    asked = {names[key]: value for key, value in given.items() if key in names and key not in leave}
    if "classes" in asked:
        asked["classes"] = items(asked["classes"], older=",")
    asked.setdefault("coverage", stored["audit"]["coverage"])
    return AuditConfig.of(**{**asked, **{name: value for name, value in changes.items() if value is not None}})


def in_folder(
    job: evaluation.Evaluation, settings: AuditConfig, coverage: Coverage, shares: int = 1
) -> evaluation.Evaluation:
    """The job with a run folder: cut into parts, a multiple of `shares`, or with those of the run that is there."""
    assert isinstance(job.model, nn.Module)
    example = job.images.first().to(job.device)
    shares = shares if settings.shard is None else settings.shard.count
    plan = evaluation.plan(
        job.attack_copy, example, len(job.images), job.attacks, job.plan.batch, job.plan.workers, shares
    )
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
            "amp": settings.resources.amp,
            "probs": job.probs,
        },
        "model": {
            "spec": spec_of(settings.model.spec, job.model),
            "fingerprint": fingerprint_model(job.model),
            "weights_sha256": _weights_digest(settings),
        },
        "data": {
            "name": job.images.name,
            "examples": len(job.images),
            "classes": list(job.images.class_names),
            "fingerprint": fingerprint_data(job.images),
        },
        "attacks": {name: {**info.settings, "eps": info.eps} for name, info in job.meta.attacks.items()},
        "criteria": _criteria(settings),
        "command": command(settings, job.images),
        "versions": dict(job.meta.versions),
    }
    assert settings.folder is not None
    run = AuditFolder(settings.folder)
    with contextlib.nullcontext() if settings.shard is None else moment(settings.folder):
        stored = run.open_or_create({**config, "plan": vars(plan)}, settings.output.overwrite)
    try:
        plan = evaluation.BatchPlan(**stored.pop("plan"))
    except (KeyError, TypeError, UserError) as error:
        raise damaged(run.config_file, str(error)) from error
    check_same(settings.folder, stored, config)
    if settings.shard is not None:  # on this machine, not on that of the first shard
        plan = dataclasses.replace(plan, workers=job.plan.workers)
    return dataclasses.replace(job, folder=run, plan=plan)


def _criteria(settings: AuditConfig) -> dict[str, Any] | None:
    """What is required, written down before the first attack; None without requirements."""
    asked = settings.gate.criteria()
    return asked.to_dict() if asked else None


def spec_of(given: Any, module: nn.Module) -> str:
    """The model's spec, the name of its class, or what a black box says of itself."""
    if getattr(module, "black_box", False):
        return str(module.identity)
    return type(given).__name__ if isinstance(given, nn.Module) else str(given)


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, (str, Path)) else None


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float)) else str(value)


def _attacks(attacks: Any) -> list[str] | None:
    """The specs of the attacks; None where one has none."""
    listed = attack_files.listed(attacks)
    specs = [item.strip() if isinstance(item, str) else attack_files.written(item) for item in listed]
    return None if None in specs else [str(text) for text in specs]


def _radius(eps: Any, images: Images) -> dict[str, Any]:
    """``--eps`` and ``--class-eps``; no radius where there is one for each example, which no command can give."""
    if isinstance(eps, Mapping):
        whole = eps.get("*", max(eps.values(), key=number))
        own = [f"{_name(name, images)}={_number(value)}" for name, value in eps.items() if name != "*"]
        return {"eps": _number(whole), "class_eps": own}
    if isinstance(eps, (str, numbers.Real)):
        return {"eps": _number(eps)}
    if isinstance(eps, Sequence) and any(isinstance(part, str) for part in eps):
        return {"eps": ",".join(_number(part) for part in eps)}
    return {"eps": None}


def _number(value: Any) -> str:
    """A number as it was written, or with all its digits."""
    return value.strip() if isinstance(value, str) else repr(float(value))


def _name(name: str | int, images: Images) -> str:
    """A class as options can name it: by number where its name holds what separates names."""
    return str(images.class_number(name)) if set(str(name)) & set(",=") else str(name)


def _normalisation(normalize: Any) -> str:
    if isinstance(normalize, str):
        return normalize
    mean, std = (written([float(value) for value in part]) for part in normalize)
    return f"mean={mean},std={std}"


def _weights_digest(settings: AuditConfig) -> str | None:
    """SHA-256 of the weights file, or of the file that is the model."""
    file = settings.model.spec if settings.model.weights is None else settings.model.weights
    if not isinstance(file, (str, Path)) or not (path := zoo.checkpoint(file)).is_file():
        return None
    return file_digest(path)
