"""Adding a trained or a repaired model to the zoo, whole or not at all; the same run gives the same files, byte by
byte."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from classwise import methods
from classwise.core.errors import UserError
from classwise.core.repair_folder import RepairFolder
from classwise.core.run_config import plain, write_config
from classwise.core.run_folder import TrainingFolder, kind_of
from classwise.core.run_lock import LOCK, WRITER, writing
from classwise.core.spec import split
from classwise.core.storage import atomic_write_text, file_digest
from classwise.core.toml import tomllib
from classwise.models import zoo as reading
from classwise.models.checkpoint import read_checkpoint
from classwise.models.zoo import ENTRY, FORMAT, INDEX, Entry, Zoo
from classwise.results.audit_result import Audit
from classwise.results.training_result import TrainingResult
from classwise.training import recipe
from classwise.training.resume import recipe_of
from classwise.zoo import audits, repaired, weights

_PARTS = ("model", "teacher", "teacher_clean")  # of a recipe that may name weights
_FINGERPRINTS = {"model": "weights", "teacher": "teacher", "teacher_clean": "teacher_clean"}


@dataclass(frozen=True, kw_only=True)
class _Source:
    """A model to be added: its checkpoint, the config.toml and the other files to keep, what is known of it, and what
    it took."""

    best: Path
    config: Mapping[str, Any]
    files: Sequence[Path]
    about: Mapping[str, Any]
    seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Added:
    """A model that was added: its entry, its size on disk, and what was kept, in sentences."""

    entry: Entry
    bytes: int
    remarks: Sequence[str]


def add(
    run: Path,
    name: str,
    folder: Path,
    *,
    audited: Sequence[Path] = (),
    half: bool = False,
    force: bool = False,
    cores: int = 1,
    root: Path | None = None,
    overwrite: bool = False,
) -> Added:
    """Add the best model of a finished training, or that of a finished repair, to the zoo in `folder`, under a name
    DATA/NETWORK/METHOD-SEED. A repaired model is added after the one that was repaired.

    audited: run folders of audits of that model. half: store the weights in half precision, if every audit, repeated
    with the rounded weights, predicts the same for every image; `force`: also if not, with the repeated audits
    instead of those given. cores: on how many the training and the audits ran, for the cost. root: where the data of
    repeated audits are. overwrite: replace a model of that name.
    """
    source = _source(run, reading.in_folder(folder))
    _check_name(name, source.about)
    folder.mkdir(parents=True, exist_ok=True)
    with writing(folder, wait=True):
        known = reading.in_folder(folder)
        if name in known.entries and not overwrite:
            raise UserError(
                f"the zoo in {folder} has {name} already; choose another --as, or --overwrite to replace it."
            )
        with tempfile.TemporaryDirectory(dir=folder, prefix=".adding-") as scratch:
            made = TrainingFolder(Path(scratch) / "entry")
            made.path.mkdir()
            write_config(made.config_file, source.config)
            for file in source.files:
                shutil.copyfile(file, made.path / file.name)
            trained = weights.store(source.best, made.best, half=False)
            given = {path: _audit_of(path, trained) for path in audited}
            kept, remarks = _choose_precision(made, given, Path(scratch), half=half, force=force, root=root)
            about = {
                "name": name,
                **source.about,
                **_about_weights(made, trained),
                "cost": _cost(source.seconds, cores),
            }
            about["audits"] = _store_audits(kept, made.path, reading.PREFIX + name)
            about["cost"]["audit_core_hours"] = _audit_hours(about)
            return _put(made.path, about, known, folder, remarks)


def add_audits(name: str, folder: Path, audited: Sequence[Path]) -> Added:
    """Add further audits of a model that the zoo in `folder` has, as if they had been given with it."""
    with writing(folder, wait=True):
        known = reading.in_folder(folder)
        entry = known.entry(name)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".adding-") as scratch:
            made = Path(scratch) / "entry"
            shutil.copytree(folder / entry.name, made)
            about = tomllib.loads((made / ENTRY).read_text(encoding="utf-8"))
            kept = [_audit_of(path, about["fingerprint"]) for path in audited]
            before = [own["folder"].rpartition("/")[2] for own in about["audits"]]
            about["audits"] += _store_audits(kept, made, entry.spec, before)
            about["cost"]["audit_core_hours"] = _audit_hours(about)
            return _put(made, about, known, folder, ())


def _put(made: Path, about: Mapping[str, Any], known: Zoo, folder: Path, remarks: Sequence[str]) -> Added:
    """Put the finished folder of a model into the zoo, and the model into its index."""
    name = str(about["name"])
    atomic_write_text(made / ENTRY, tomli_w.dumps(plain(about)))
    entry = Entry(name, plain(about), digests(made))
    _replace(made, folder / name)
    write_index(folder, {**known.entries, name: entry})
    size = sum((folder / name / file).stat().st_size for file in entry.files)
    return Added(entry=entry, bytes=size, remarks=remarks)


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file of a model."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in (LOCK, WRITER))
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in files}


def write_index(folder: Path, entries: Mapping[str, Entry]) -> None:
    """Write the index, sorted by name, so that a further model adds lines and changes none."""
    models = {name: {"about": entries[name].about, "files": entries[name].files} for name in sorted(entries)}
    text = json.dumps({"format": FORMAT, "models": models}, indent=1, ensure_ascii=False, sort_keys=True)
    atomic_write_text(folder / INDEX, text + "\n")


def _source(run: Path, known: Zoo) -> _Source:
    if kind_of(run) == RepairFolder.kind:
        return _repaired(RepairFolder(run), known)
    return _trained(TrainingFolder(run), known)


def _check_finished(run: TrainingFolder, epochs: int) -> None:
    if not run.best.is_file():
        raise UserError(f"{run.path} has no {run.best.name}: it is no finished training.")
    if int(run.history()["epoch"].iloc[-1]) >= epochs:
        return
    last = read_checkpoint(run.last)["classwise"]["extra"]["training"] if run.last.is_file() else {}
    if last.get("stopped") is None:
        raise UserError(f"{run.path} is not finished; classwise train --resume {run.path} finishes it.")


def _trained(run: TrainingFolder, known: Zoo) -> _Source:
    config = recipe_of(run.path)
    chosen = recipe.load(config)
    _check_finished(run, chosen.train.epochs)
    result = TrainingResult.load(run)
    about = {
        "data": chosen.data.name,
        "network": chosen.model.spec,
        "method": methods.name_of(chosen.method),
        "norm": chosen.threat.norm,
        "eps": chosen.threat.eps,
        "epochs": chosen.train.epochs,
        "selected_epoch": result.selected,
        "seed": chosen.train.seed,
    }
    return _Source(
        best=run.best,
        config={**_recipe(config, known), "fingerprint": config["fingerprint"]},
        files=[run.history_file],
        about=about,
        seconds=float(result.history["seconds"].sum()) if "seconds" in result.history else None,
    )


def _repaired(run: RepairFolder, known: Zoo) -> _Source:
    origin = repaired.origin(run, known)
    return _Source(
        best=run.best,
        config=repaired.config(run, origin),
        files=[],
        about={**{key: origin.about[key] for key in repaired.KEPT}, "repaired": repaired.about(run, origin)},
        seconds=float(repaired.result(run)["seconds"]),
    )


def _check_name(name: str, about: Mapping[str, Any]) -> None:
    """Raise where a name does not say what the model is."""
    data, seed, parts = split(about["data"])[0], about["seed"], name.split("/")
    method = f"{about['method']}_repaired" if "repaired" in about else about["method"]
    shaped = len(parts) == 3 and all(map(reading.is_name, parts))
    if not shaped or parts[0] != data or not parts[-1].endswith(f"-{seed}"):
        raise UserError(
            f"a model of the zoo is called DATA/NETWORK/METHOD-SEED; this one was trained on {data} with seed {seed}: "
            f"--as {data}/NETWORK/{method}-{seed}. Got {name!r}."
        )


def _recipe(config: Mapping[str, Any], known: Zoo) -> dict[str, Any]:
    """The recipe of a training; weights that it starts from or distils are named as those of the zoo."""
    tree = {name: dict(part) for name, part in recipe.settings_of(config).items()}
    for part in _PARTS:
        path = tree.get(part, {}).get("weights")
        if path is None or reading.is_zoo(path):
            continue
        wanted = config["fingerprint"][_FINGERPRINTS[part]]
        used = repaired.with_weights(wanted, known)
        if used is None:
            raise UserError(
                f"this training used {path} ({part}.weights), which is not in the zoo: add that model first, so that "
                "others can repeat it."
            )
        tree[part]["weights"] = used.spec
    return tree


def _audit_of(path: Path, trained: str) -> Audit:
    audit = Audit.load(path)
    if not weights.is_of(audit.config, trained):
        raise UserError(
            f"the audit {path} is of another model: its weights have another fingerprint than the best.pt to be added. "
            "Audit that checkpoint, and give its run folder."
        )
    return audit


def _choose_precision(
    made: TrainingFolder, given: Mapping[Path, Audit], scratch: Path, *, half: bool, force: bool, root: Path | None
) -> tuple[list[Audit], list[str]]:
    """Round the weights where that is asked for and changes no prediction; the audits to store, and what was kept."""
    if not half:
        return list(given.values()), ["weights as they were trained (float32)"]
    if not given and not force:
        raise UserError("half precision is judged by audits: give --audit, or --force to round without any.")
    rounded = scratch / "rounded.pt"
    weights.store(made.best, rounded, half=True)
    again = {}
    remarks = []
    for number, (path, audit) in enumerate(given.items()):
        again[path] = audits.repeat(audit, rounded, scratch / f"audit-{number}", root)
        if changed := audits.compare(audit, again[path]):
            remarks.append(f"{path}, repeated with weights in half precision: {changed}")
    if remarks and not force:
        return list(given.values()), [*remarks, "weights as they were trained (float32)"]
    rounded.replace(made.best)
    what = "the audits are those of the rounded weights" if remarks else "every prediction of the audits is the same"
    return list(again.values()), [*remarks, f"weights in half precision (float16); {what}"]


def _store_audits(kept: Sequence[Audit], folder: Path, spec: str, before: Collection[str] = ()) -> list[dict[str, Any]]:
    """Store audits in folders that differ from each other's, and from those before."""
    named: dict[str, Audit] = {}
    for audit in kept:
        named[audits.folder_name(audit, {*before, *named})] = audit
    for name, audit in named.items():
        audits.store(audit, folder / "audits" / name, spec)
    return [audits.about(audit, f"audits/{name}") for name, audit in named.items()]


def _about_weights(made: TrainingFolder, trained: str) -> dict[str, Any]:
    """What is known of the weights as they are stored."""
    stored = weights.fingerprint(made.best)
    return {
        "parameters": weights.parameters(made.best),
        "precision": "float16" if weights.is_half(made.best) else "float32",
        "fingerprint": stored,
        **({} if stored == trained else {"trained_fingerprint": trained}),
    }


def _cost(seconds: float | None, cores: int) -> dict[str, Any]:
    """What making the model took, but for its audits and for the model that it was made from."""
    return {
        "cores": cores,
        "training_seconds": None if seconds is None else round(seconds, 1),
        "training_core_hours": None if seconds is None else _hours(seconds, cores),
    }


def _audit_hours(about: Mapping[str, Any]) -> float:
    return _hours(sum(own["seconds"] for own in about["audits"]), about["cost"]["cores"])


def _hours(seconds: float, cores: int) -> float:
    return round(seconds * cores / 3600, 4)


def _replace(made: Path, target: Path) -> None:
    """Put a finished folder in the place of another, or of none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        target.rename(made.with_name("replaced"))  # removed with the scratch folder
    made.rename(target)
