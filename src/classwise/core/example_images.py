"""Clean images of an audit that are worth a look, on disk: those that survive, and those misclassified without attack.

One ``examples.npz`` in the run folder, beside the adversarial images and kept with them:

    index, label     the example                        kind    "robust" or "wrong", see `classwise.results.notable`
    prediction       what the model predicted           image   uint8, N×H×W×C

Nothing here needs torch.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from classwise.core.records import Array
from classwise.core.run_folder import AuditFolder
from classwise.core.storage import atomic_write

KEYS = ("index", "label", "kind", "prediction", "image")


def write(folder: Path, columns: Mapping[str, Array]) -> None:
    """Store the images, whole or not at all."""
    buffer = io.BytesIO()
    named: dict[str, Any] = {key: columns[key] for key in KEYS}
    np.savez_compressed(buffer, **named)
    with atomic_write(AuditFolder(folder).examples_file) as handle:
        handle.write(buffer.getvalue())


def read(folder: Path | None) -> dict[str, Array]:
    """The images of a run folder; empty where there are none, or the file is damaged: a page can do without them."""
    if folder is None or not AuditFolder(folder).examples_file.is_file():
        return {}
    try:
        with np.load(AuditFolder(folder).examples_file, allow_pickle=False) as stored:
            found = {key: stored[key] for key in KEYS}
    except Exception:  # a damaged file makes zipfile, zlib and numpy raise anything
        return {}
    return found if len({len(column) for column in found.values()}) == 1 else {}
