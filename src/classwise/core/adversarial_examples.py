"""Adversarial images on disk: exact, rounded to 8 bits, and whether they are still misclassified when rounded.

`read` gives, of the examples the attack broke:

    index, label     the example                         exact       float32, N×C×H×W, as attacked
    prediction       of the rounded image                rounded     uint8, N×H×W×C, as an image file would hold it
    survives         still misclassified when rounded    clean       float32, N×C×H×W, as it was before

There is one ``.npz`` per part and attack. It holds the clean images, in 8 bits where they are such, and the difference
of the attacked ones, which takes a third to two thirds of the room: exact = clean + difference in float32, but for the
few pixels `at` whose sum is rounded otherwise, which have their `value` (`at` counts through the array). Files of
earlier versions hold exact and rounded images themselves.

An example that the same attack broke at a smaller radius is stored with that radius only. Rounding
moves a pixel by up to 0.5/255, so a rounded image may lie that much outside the ball. Nothing here needs torch.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from classwise.core.errors import UserError
from classwise.core.records import Array
from classwise.core.run_folder import AuditFolder
from classwise.core.storage import atomic_write, file_digest

KEYS = ("index", "label", "prediction", "survives", "exact", "rounded", "clean")


def rounded(exact: Array) -> Array:
    """Pixels in [0,1] as the nearest of 256 levels."""
    levels: Array = np.rint(exact * 255).clip(0, 255).astype(np.uint8)
    return levels


def write(path: Path, attack: str, *, index: Array, label: Array, prediction: Array, exact: Array, clean: Array) -> str:
    """Store the images of a part atomically; return the file's SHA-256. `prediction` is that of the rounded images."""
    difference = exact - clean
    at = np.flatnonzero(clean + difference != exact)
    given: dict[str, Any] = {"index": index, "label": label, "prediction": prediction, "survives": prediction != label}
    given |= {"clean": _in_bytes(clean), "difference": difference, "at": at, "value": exact.reshape(-1)[at]}
    with atomic_write(path) as handle:
        hashing = _Hashing(handle)
        np.savez_compressed(cast(IO[bytes], hashing), attack=np.array(attack), **given)
    return hashing.digest.hexdigest()


class _Hashing:
    """A file to write from beginning to end, which hashes what is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.digest = file, hashlib.sha256()

    def write(self, content: bytes) -> int:
        self.digest.update(content)
        return self.file.write(content)

    def flush(self) -> None:
        self.file.flush()

    def read(self, size: int = -1) -> bytes:
        raise io.UnsupportedOperation("this file is only written")  # numpy takes what has a method read for a file


def _in_bytes(clean: Array) -> Array:
    """Images as bytes where that loses nothing."""
    levels = rounded(clean)
    return levels if np.array_equal(_in_floats(levels), clean) else clean


def _in_floats(images: Array) -> Array:
    return images.astype(np.float32) / np.float32(255) if images.dtype == np.uint8 else images


def intact(path: Path, digest: str | None) -> bool:
    """Whether a file is as it was written; without a digest, whether it can be read."""
    try:
        if digest is not None:
            return file_digest(path) == digest
        return bool(_load(path))
    except Exception:  # a damaged file makes zipfile, zlib and numpy raise anything
        return False


def read(folder: Path, attack: str) -> dict[str, Array]:
    """All parts of one attack of a run folder. Folders written before clean images were kept have no `clean`."""
    loaded = []
    for path in AuditFolder(folder).adversarial_files(attack):
        try:
            loaded.append(_load(path))
        except Exception as error:
            raise UserError(
                f"cannot read the adversarial images {path}: {str(error) or type(error).__name__}. The file is "
                "damaged: repeat the audit's command, which computes it again."
            ) from error
    mine = [part for part in loaded if str(part.get("attack", attack)) == attack]  # file names may coincide
    if not mine:
        raise UserError(f"no adversarial images of {attack} in {folder}; audit with --save-adversarial.")
    keys = [key for key in KEYS if key != "clean" or all("clean" in part for part in mine)]
    return {key: np.concatenate([part[key] for part in mine]) for key in keys}


def _load(path: Path) -> dict[str, Array]:
    """One file's arrays, each of as many rows as the first; an error of any kind where it is damaged."""
    with np.load(path, allow_pickle=False) as stored:
        part = {key: stored[key] for key in stored}
    if "difference" in part:
        part["clean"] = clean = _in_floats(part["clean"])
        part["exact"] = clean + part["difference"]
        part["exact"].reshape(-1)[part["at"]] = part["value"]
        part["rounded"] = rounded(part["exact"]).transpose(0, 2, 3, 1)
    found = {key: part[key] for key in ("attack", *KEYS) if key in part or key not in ("attack", "clean")}
    if len({len(found[key]) for key in KEYS if key in found}) != 1:
        raise ValueError("its arrays are of different lengths")
    return found
