"""The images of each class that a report shows besides the adversarial ones, kept in the run folder with those."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from classwise.core import example_images
from classwise.core.adversarial_examples import rounded
from classwise.data.images import Images
from classwise.results.audit_result import Audit
from classwise.results.notable import notable

_MOST = 4  # images of each kind and class
_BYTES = 48_000_000  # of all images, before they are compressed
_BATCH = 256


def keep(audit: Audit, images: Images, folder: Path) -> None:
    """Write the most robust images of each class, and the most confident errors without attack.

    Of fragile ones the adversarial images are kept already, with the clean ones beside them.
    """
    room = max(1, _BYTES // max(1, images.first(1).numel()))
    chosen = notable(audit, _MOST)
    chosen = chosen[chosen["kind"] != "fragile"].head(room)
    if chosen.empty:
        return
    places = {int(index): place for place, index in enumerate(images.positions)}
    rows = np.array([places[int(index)] for index in chosen["index"]])
    pixels = [images.batch(rows[at : at + _BATCH])[0].cpu().numpy() for at in range(0, len(rows), _BATCH)]
    columns = {key: chosen[key].to_numpy() for key in ("index", "label", "prediction")}
    image = rounded(np.concatenate(pixels)).transpose(0, 2, 3, 1)
    example_images.write(folder, {**columns, "kind": chosen["kind"].to_numpy(dtype="U8"), "image": image})
