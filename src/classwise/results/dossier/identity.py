"""Which model, data and software a dossier is about: names, and SHA-256 digests of 64 hexadecimal digits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from classwise.core.errors import UserError
from classwise.core.run_config import as_table, same
from classwise.core.run_folder import AuditFolder
from classwise.core.storage import file_digest
from classwise.core.version import __version__
from classwise.results.audit_result import Audit
from classwise.results.dossier.facts import Facts

_SELECTION = ("split", "limit", "per_class", "classes", "root")


def collect(audits: Mapping[str, Audit], facts: Facts) -> dict[str, Any]:
    """The identity of the one model of all runs, of the data of each, and of the software."""
    model = _model(audits)
    return {
        "model": model,
        "runs": {name: _run(audit) for name, audit in audits.items()},
        "data_files": {name: _file(facts.folder / name) for name in facts.files},
        "software": {
            "classwise": __version__,
            "classwise_sha256": package_digest(),
            "environment_sha256": environment_digest(),
            "versions": {name: dict(audit.records.meta.versions) for name, audit in audits.items()},
        },
    }


def _model(audits: Mapping[str, Audit]) -> dict[str, Any]:
    """What the runs say of the model; an error where two of them are of different models."""
    found = {name: as_table(audit.config.get("model")) for name, audit in audits.items()}
    first, *rest = found
    for name in rest:
        mine, theirs = (found[run].get("fingerprint") for run in (first, name))
        if not same(mine, theirs):
            raise UserError(
                f"{first} and {name} are audits of different models (fingerprints {mine} and {theirs}). A dossier is "
                "of one model: give the runs of one, and compare models with classwise compare."
            )
    own = found[first]
    return {
        "spec": own.get("spec"),
        "fingerprint": own.get("fingerprint"),
        "weights_sha256": own.get("weights_sha256"),
        "adversarially_trained": audits[first].adversarially_trained,
    }


def _run(audit: Audit) -> dict[str, Any]:
    data, command = as_table(audit.config.get("data")), as_table(audit.config.get("command"))
    files = {} if audit.folder is None else _files(audit.folder)
    return {
        "data": data.get("name"),
        "data_fingerprint": data.get("fingerprint"),
        "images": len(audit.rows("clean")) if "clean" in audit.names else len(audit.rows()),
        "selection": {key: command[key] for key in _SELECTION if key in command},
        "seed": audit.records.meta.seed,
        "finished": audit.timing.get("finished") or _finished(audit.folder),
        "files": files,
        "records_sha256": _combined({name: digest for name, digest in files.items() if name.startswith("records/")}),
    }


def _files(folder: Path) -> dict[str, str]:
    """The digests of what the numbers rest on."""
    run = AuditFolder(folder)
    parts = [run.config_file, run.summary_file, *sorted(run.records.glob("*.parquet"))]
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in parts if path.is_file()}


def _combined(digests: Mapping[str, str]) -> str | None:
    """One digest of many files: SHA-256 of a line ``digest  name`` for each, as sha256sum writes them."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    return hashlib.sha256(lines.encode()).hexdigest() if digests else None


def _finished(folder: Path | None) -> str | None:
    """When the summary of an older run was written, by the clock of the machine; newer ones say it themselves."""
    if folder is None or not (path := AuditFolder(folder).summary_file).is_file():
        return None
    return datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def _file(path: Path) -> str:
    try:
        return file_digest(path)
    except OSError as error:
        raise UserError(
            f"cannot take the digest of {path}, which the facts name in data.files: {error.strerror or error}. "
            "Paths begin at the folder of the file of facts."
        ) from error


def package_digest() -> str:
    """SHA-256 of the source of this classwise: of each file its path and content, in order of the paths."""
    root, whole = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            whole.update(f"{path.relative_to(root).as_posix()}\n{file_digest(path)}\n".encode())
    return whole.hexdigest()


def environment_digest() -> str:
    """SHA-256 of the installed packages, a line ``name==version`` each."""
    lines = sorted({f"{one.metadata['Name']}=={one.version}" for one in metadata.distributions()})
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
