"""What the panel of a class shows besides its numbers: the curve over the radii, and images worth a look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from classwise.core import example_images
from classwise.core.format import radius
from classwise.core.records import Array
from classwise.results.audit_result import Audit
from classwise.results.notable import KINDS, notable
from classwise.show.page import gallery
from classwise.show.page.data import shares
from classwise.show.page.gallery import Kept, Pool

_MOST = 4  # images of each kind
_SHARE = 0.45  # of the room for images, at most

#: By class and kind, the images of its panel.
Shown = dict[str, dict[str, list[dict[str, Any]]]]


def curves(audit: Audit) -> list[dict[str, Any]]:
    """Each attack that ran at several radii: the radii, and for each of them the classes' accuracies with intervals."""
    if not audit.has_curve:
        return []
    table, size = audit.curve(), audit.records.num_classes
    found = []
    for family, own in table.groupby("family", sort=False):
        radii = sorted(own["eps"].unique())
        if len(radii) < 3:  # clean and one radius are in the table already
            continue
        columns = {key: own.pivot(index="eps", columns="class", values=key) for key in ("accuracy", "low", "high", "n")}
        names = list(audit.records.class_names)
        values = {key: frame.reindex(index=radii, columns=names).to_numpy(float) for key, frame in columns.items()}
        total = np.nansum(values["accuracy"] * values["n"], axis=1) / np.nansum(values["n"], axis=1)
        assert values["accuracy"].shape == (len(radii), size)
        found.append(
            {
                "family": str(family),
                "eps": [float(eps) for eps in radii],
                "text": [radius(eps) if eps else "0" for eps in radii],
                "all": shares(total, 4),
                **{key: [shares(row, 4) for row in values[key]] for key in ("accuracy", "low", "high")},
            }
        )
    return found


def images(kept: Mapping[str, Kept], pool: Pool) -> dict[str, Shown]:
    """By run, the images of the panels, put into the pool until their share of its room is used.

    First one of every kind for the weakest class, for the next, and so on.
    """
    shown: dict[str, Shown] = {name: {} for name in kept}
    wanted = [
        (rank, name, row)
        for name, own in kept.items()
        for rank, row in enumerate(notable(own.audit, _MOST).to_dict("records"))
    ]
    stored = {name: example_images.read(own.audit.folder) for name, own in kept.items()}
    places = {name: _places(own) for name, own in stored.items()}
    least = pool.left * (1 - _SHARE)
    for _, name, row in sorted(wanted, key=lambda item: item[0]):
        if pool.left <= least:
            break
        made = _image(kept[name], stored[name], places[name], row, pool)
        if made is not None:
            shown[name].setdefault(str(row["label"]), {kind: [] for kind in KINDS})[row["kind"]].append(made)
    return shown


def _places(stored: Mapping[str, Array]) -> dict[tuple[int, str], int]:
    if not stored:
        return {}
    return {(int(i), str(kind)): at for at, (i, kind) in enumerate(zip(stored["index"], stored["kind"], strict=True))}


def _image(
    kept: Kept,
    stored: Mapping[str, Array],
    places: Mapping[tuple[int, str], int],
    row: Mapping[Any, Any],
    pool: Pool,
) -> dict[str, Any] | None:
    """One image; None where the audit did not keep it."""
    index, cell = int(row["index"]), (int(row["label"]), int(row["prediction"]))
    confidence = float(row["confidence"])
    if row["kind"] == "fragile":
        return gallery.entry(kept, pool, index, cell, confidence, str(row["attack"]))
    at = places.get((index, str(row["kind"])))
    if at is None:
        return None
    picture = pool.add(stored["image"][at])
    return {
        "true": cell[0],
        "predicted": cell[1],
        "index": index,
        "confidence": confidence,
        "images": [picture],
    }
