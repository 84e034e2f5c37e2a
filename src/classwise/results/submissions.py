"""What goes on a leaderboard: finished audits, each with the training that its model comes from, if that is here.

An audit names its model. Where that is a checkpoint in the run folder of a training, or where the audit lies inside of
one (as in a zoo: MODEL/audits/NAME), the network, the method, the seed and the cost of the training are known.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from classwise.core.errors import UserError
from classwise.core.run_config import flat
from classwise.core.run_folder import AuditFolder, TrainingFolder, kind_of
from classwise.core.storage import file_digest
from classwise.core.toml import tomllib
from classwise.results.audit_result import Audit, unique_names
from classwise.results.training_result import TrainingResult

ZOO = "zoo:"
_ENTRY = "entry.toml"  # what a model of a zoo is
_SEED = re.compile(r"(?P<family>.+?)[-_](?:seed-?)?(?P<seed>\d)")  # one digit: resnet-18 and -50 are no seeds
#: Settings that do not make another recipe.
_FREE = ("run.", "train.seed", "train.save_minutes", "train.keep")


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A model on the board: its audit, and what is known of its training, otherwise empty or NaN.

    family: models trained in the same way but for the seed have the same one; empty where there is no telling.
    training: the run folder of the training. seconds: what it took, as its history says.
    """

    name: str
    audit: Audit
    architecture: str = ""
    method: str = ""
    seed: int | None = None
    family: str = ""
    training: Path | None = None
    epochs: int | None = None
    seconds: float = float("nan")


def read(runs: Sequence[str | Path]) -> list[Submission]:
    """The submissions in these run folders; a folder that is no run, such as a zoo, stands for all audits inside."""
    folders = list(dict.fromkeys(folder for run in runs for folder in _audits(run)))
    audits = [Audit.load(folder) for folder in folders]
    names = [_zoo_name(audit) or name for audit, name in zip(audits, unique_names(folders), strict=True)]
    own = [
        name if names.count(name) == 1 else f"{name} ({folder.name})"
        for name, folder in zip(names, folders, strict=True)
    ]
    return [submission(name, audit) for name, audit in zip(own, audits, strict=True)]


def submission(name: str, audit: Audit) -> Submission:
    """An audit with what is known of its model's training."""
    trained = _training(audit)
    if trained is None:
        return _repaired(name, audit) or _untrained(name, audit)
    result = TrainingResult.load(trained)
    settings = flat(result.config)
    recipe = {key: value for key, value in settings.items() if not key.startswith(_FREE)}
    seed = settings.get("train.seed")
    return Submission(
        name=name,
        audit=audit,
        architecture=str(settings.get("model.spec", "")),
        method=str(settings.get("method.name", "")),
        seed=seed if isinstance(seed, int) else None,
        family=json.dumps(recipe, sort_keys=True, default=str),
        training=trained.path,
        epochs=len(result.history),
        seconds=float(result.history["seconds"].sum()) if "seconds" in result.history else float("nan"),
    )


def _repaired(name: str, audit: Audit) -> Submission | None:
    """An audit of a repaired model in a zoo, whose entry says what it is, with the seconds of the repair; None of any
    other."""
    if not _zoo_name(audit):
        return None
    files = (place / _ENTRY for place in _above(audit)[:2])
    about = next((tomllib.loads(file.read_text(encoding="utf-8")) for file in files if file.is_file()), {})
    if "repaired" not in about:
        return None
    repair = {key: value for key, value in about["repaired"].items() if key not in ("of", "bias")}
    origin = about["repaired"]["of"].rpartition("-")[0]
    return Submission(
        name=name,
        audit=audit,
        architecture=about["network"],
        method=f"{about['method']}, repaired",
        seed=about["seed"],
        family=json.dumps([origin, repair], sort_keys=True),
        seconds=about["cost"]["training_seconds"],
    )


def _untrained(name: str, audit: Audit) -> Submission:
    """An audit whose training is not here: its network where that is no file, its seed where its name ends in one."""
    spec = str(audit.config.get("model", {}).get("spec", ""))
    network = "" if Path(spec).suffix in _FILES or spec.startswith(ZOO) else spec
    parts = _SEED.fullmatch(name)
    if parts is None:
        return Submission(name=name, audit=audit, architecture=network)
    family = f"{parts['family']} {network}".strip()
    return Submission(name=name, audit=audit, architecture=network, seed=int(parts["seed"]), family=family)


_FILES = (".pt", ".pth", ".ckpt", ".safetensors", ".bin", ".ts", ".pt2", ".onnx", ".toml", ".tar", ".pkl")


def _audits(run: str | Path) -> Iterator[Path]:
    """The folders of finished audits that an argument stands for: a run folder, a pattern, or a folder of runs."""
    path = Path(run)
    if not path.exists() and glob.has_magic(str(run)):
        found = sorted(map(Path, glob.glob(str(run))))
        if not any(place.is_dir() for place in found):
            raise UserError(f"no folder matches {run}; give run folders of finished audits.")
        for place in found:
            if place.is_dir():
                yield from _inside(place)
        return
    if not path.is_dir():
        raise UserError(f"{path} is not a folder; give run folders of finished audits, or a folder of them.")
    kind = kind_of(path)
    if kind in ("audit", "search") or AuditFolder(path).records.is_dir():
        yield path  # a search or an unfinished audit is an error that reading it explains
        return
    inside = list(_inside(path))
    if not inside:
        raise UserError(
            f"{path} holds no finished audit. Audit the model (classwise audit … --out RUN) and give that folder."
        )
    yield from inside


def _inside(path: Path) -> Iterator[Path]:
    """The audits below a folder, without the many that a repair makes on its way."""
    kind = kind_of(path)
    if kind == "audit":
        yield path
    elif kind == "repair":
        yield from (path / "before", path / "after")
    elif kind != "search":
        for child in sorted(place for place in path.iterdir() if place.is_dir() and not place.name.startswith(".")):
            yield from _inside(child)


def _zoo_name(audit: Audit) -> str:
    spec = str(audit.config.get("model", {}).get("spec", ""))
    return spec.removeprefix(ZOO) if spec.startswith(ZOO) else ""


def _training(audit: Audit) -> TrainingFolder | None:
    """The training of an audit's model: the folder of its checkpoint or, in a zoo, the one that the audit lies in."""
    model, above = audit.config.get("model", {}), _above(audit)
    if _zoo_name(audit):
        runs = (TrainingFolder(place) for place in above[:2])
        return next((run for run in runs if run.history_file.is_file()), None)
    file, digest = audit.config.get("command", {}).get("weights", model.get("spec", "")), model.get("weights_sha256")
    for root in (Path(), *above):
        checkpoint = root / str(file)
        run = TrainingFolder(checkpoint.parent.parent if checkpoint.parent.name == "epochs" else checkpoint.parent)
        if checkpoint.suffix == ".pt" and checkpoint.is_file() and run.history_file.is_file():
            return run if digest is None or file_digest(checkpoint) == digest else None
    return None


def _above(audit: Audit) -> list[Path]:
    """The folders that an audit lies in, the nearest first."""
    return [] if audit.folder is None else list(audit.folder.resolve().parents)
