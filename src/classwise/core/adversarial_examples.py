"""Adversarial images on disk: exact, rounded to 8 bits, and whether they are still misclassified when rounded.

One ``.npz`` per part and attack, of the examples the attack broke:

    index, label     the example                         exact       float32, N×C×H×W, as attacked
    prediction       of the rounded image                rounded     uint8, N×H×W×C, as an image file would hold it
    survives         still misclassified when rounded    clean       float32, N×C×H×W, as it was before

An example that the same attack broke at a smaller radius is stored with that radius only. Rounding
moves a pixel by up to 0.5/255, so a rounded image may lie that much outside the ball. Nothing here needs torch.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

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
    values = (index, label, prediction, prediction != label, exact, rounded(exact).transpose(0, 2, 3, 1), clean)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, attack=np.array(attack), **dict(zip(KEYS, values, strict=True)))
    with atomic_write(path) as handle:
        handle.write(buffer.getvalue())
    return hashlib.sha256(buffer.getvalue()).hexdigest()


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
        part = {key: stored[key] for key in ("attack", *KEYS) if key in stored or key not in ("attack", "clean")}
    if len({len(part[key]) for key in KEYS if key in part}) != 1:
        raise ValueError("its arrays are of different lengths")
    return part
