"""The manifest of a dossier: the SHA-256 digest of every file in it, and of the run folders' files that it rests on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from classwise.core.errors import UserError
from classwise.core.run_folder import write_json
from classwise.core.storage import file_digest

NAME = "manifest.json"
_FORMAT = 1


def write(folder: Path, evidence: Mapping[str, Any]) -> Path:
    """Write the manifest of a folder. evidence: by run its folder and the digests of its files."""
    files = {
        path.relative_to(folder).as_posix(): {"sha256": file_digest(path), "bytes": path.stat().st_size}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != NAME and not path.name.endswith(".partial")
    }
    write_json(folder / NAME, {"format": _FORMAT, "files": files, "evidence": dict(evidence)})
    return folder / NAME


def verify(folder: Path) -> list[str]:
    """What of a dossier is not as it was written, a sentence each: files that changed, are missing or were added.
    Run folders that lie where they did are checked too; those that do not are no fault."""
    path = folder / NAME
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        files = {str(name): str(entry["sha256"]) for name, entry in stored["files"].items()}
        evidence = {str(one["folder"]): dict(one["files"]) for one in stored["evidence"].values()}
    except FileNotFoundError:
        raise UserError(f"{folder} is no dossier: it has no {NAME}. Write one with classwise dossier RUN.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error}). Write the dossier again, or restore it from a copy.") from error
    there = {one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file() and one.name != NAME}
    added = [f"{name} is not in the manifest." for name in sorted(there - {*files})]
    found = _differing(folder, files, required=True)
    for run, digests in evidence.items():
        found += _differing(Path(run), digests, required=False)
    return found + added


def _differing(folder: Path, digests: Mapping[str, str], required: bool) -> list[str]:
    found = []
    for name, digest in digests.items():
        path = folder / name
        if not path.is_file():
            found += [f"{path} is missing."] if required or folder.is_dir() else []
        elif file_digest(path) != digest:
            found.append(f"{path} is not what it was when the dossier was written.")
    return found
