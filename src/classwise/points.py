"""Adversarial images on disk: exact, rounded to 8 bits, and whether rounding them mended the model's mistake.

One ``.npz`` per part and attack, of the examples the attack broke:

    index, label     the example                         exact       float32, N×C×H×W, as attacked
    prediction       of the rounded image                rounded     uint8, N×H×W×C, as an image file would hold it
    survives         still misclassified when rounded    clean       float32, N×C×H×W, as it was before

What an attack found broken already, by the same attack at a smaller radius, is among that one's points only. Rounding
moves a pixel by up to 0.5/255, so a rounded image may lie that much outside the ball. Nothing here needs torch.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from classwise.errors import UserError
from classwise.records import Array
from classwise.storage import safe_name, whole_file

KEYS = ("index", "label", "prediction", "survives", "exact", "rounded", "clean")


def rounded(exact: Array) -> Array:
    """Pixels in [0,1] as the nearest of 256 levels."""
    levels: Array = np.rint(exact * 255).clip(0, 255).astype(np.uint8)
    return levels


def write(path: Path, index: Array, label: Array, prediction: Array, exact: Array, clean: Array) -> None:
    """Store the points of a part, whole or not at all; `prediction` is that of the rounded images."""
    values = (index, label, prediction, prediction != label, exact, rounded(exact).transpose(0, 2, 3, 1), clean)
    with whole_file(path) as handle:
        np.savez_compressed(handle, **dict(zip(KEYS, values, strict=True)))


def read(folder: Path, place: int, attack: str) -> dict[str, Array]:
    """All parts of one attack of a run folder, `place` being its number in the order the attacks ran.

    Folders written before clean images were kept have no `clean`.
    """
    parts = sorted((folder / "adversarial").glob(f"{place:02d}-{safe_name(attack)}-*.npz"))
    if not parts:
        raise UserError(f"no adversarial images of {attack} in {folder}; audit with --save-adversarial.")
    try:
        loaded = [np.load(path, allow_pickle=False) for path in parts]
        keys = [key for key in KEYS if key != "clean" or all("clean" in part for part in loaded)]
        return {key: np.concatenate([part[key] for part in loaded]) for key in keys}
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"cannot read the adversarial images of {attack} in {folder}: {error}") from error
