"""Run folders for tests of the page, written without a model: two or more runs of the same examples, with images."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from classwise.core import adversarial_examples, example_images
from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import CLEAN, COLUMNS, Records
from classwise.core.storage import safe_name
from classwise.results.audit_result import Audit
from classwise.results.finding import Finding

SCRIPT = "<script>alert(1)</script>"
NAMES = ("cat", "dog", "ship & sail", SCRIPT)
_IMAGES = 40  # of each class


def write_run(
    folder: Path,
    right: Sequence[int] = (8, 20, 36, 30),
    names: Sequence[str] = NAMES,
    superclasses: Mapping[str, tuple[str, ...]] | None = None,
    images: bool = True,
    infos: Mapping[str, AttackInfo] | None = None,
) -> Audit:
    """A finished audit in its folder: so many of each class right under pgd-20. Errors go to the next class, but the
    last of each class to the one before."""
    finding = Finding("train_mode", "warning", f"Train mode of {names[-1]}.", "Call model.eval().")
    attacks = {CLEAN: AttackInfo(), "pgd-20": AttackInfo(settings={"name": "pgd"})} | dict(infos or {})
    meta = Meta(class_names=tuple(names), superclasses=superclasses, eps=8 / 255, attacks=attacks)
    rows = [_rows(CLEAN, [_IMAGES] * len(names)), _rows("pgd-20", right)]
    audit = Audit(Records(pd.concat(rows, ignore_index=True), meta))
    audit.records.write(folder / "records" / "00-all-00000.parquet")
    if images:
        write_images(folder, audit)
    summary = {"findings": [finding.to_dict()], "timing": {"wall_seconds": 1.5}, "confidence": 0.95}
    (folder / "summary.json").write_text(json.dumps(summary))
    return Audit.load(folder)


def _rows(attack: str, right: Sequence[int]) -> pd.DataFrame:
    label = np.repeat(np.arange(len(right)), _IMAGES)
    rank = np.tile(np.arange(_IMAGES), len(right))
    away = np.where(rank == _IMAGES - 1, -1, 1)
    stands = rank < np.asarray(right)[label]
    given = {
        "index": np.arange(len(label)),
        "label": label,
        "attack": attack,
        "prediction": np.where(stands, label, (label + away) % len(right)),
        "confidence": np.linspace(0.3, 0.9, len(label)),
    }
    return pd.DataFrame({**dict.fromkeys(COLUMNS, 0), **given})


def write_images(folder: Path, audit: Audit) -> None:
    """Images of what pgd-20 broke: clean ones of one grey, attacked ones 8/255 lighter in their first pixel."""
    rows = audit.records.of("pgd-20")
    broken = rows.frame[~rows.correct]
    index, label = broken["index"].to_numpy(), broken["label"].to_numpy()
    before = np.repeat((index % 200 / 255).astype(np.float32), 3 * 4 * 4).reshape(-1, 3, 4, 4)
    exact = before.copy()
    exact[:, 0, 0, 0] += np.float32(8 / 255)
    place = folder / "adversarial" / "01-pgd-20-00000.npz"
    prediction = broken["prediction"].to_numpy()
    columns = {"index": index, "label": label, "prediction": prediction, "exact": exact, "clean": before}
    adversarial_examples.write(place, "pgd-20", **columns)
    robust = rows.frame[rows.correct]
    grey = np.broadcast_to(
        (robust["index"].to_numpy() % 200).astype(np.uint8)[:, None, None, None], (len(robust), 4, 4, 3)
    )
    kept = {key: robust[key].to_numpy() for key in ("index", "label", "prediction")}
    example_images.write(folder, {**kept, "kind": np.full(len(robust), "robust"), "image": grey})


def write_curve(folder: Path, steps: Sequence[Sequence[int]], names: Sequence[str] = NAMES) -> Audit:
    """A finished audit under pgd-20 at 2, 4, … /255, with so many of each class right at each radius; clean all but the
    last two of the first class, which are misclassified as the second."""
    radii = {f"pgd-20@{2 * k}/255": 2 * k / 255 for k in range(1, len(steps) + 1)}
    infos = {name: AttackInfo(settings={"name": "pgd"}, eps=eps, family="pgd-20") for name, eps in radii.items()}
    clean = _rows(CLEAN, [_IMAGES] * len(names))
    clean.loc[_IMAGES - 2 : _IMAGES - 1, "prediction"] = 1
    rows = [clean, *(_rows(name, right) for name, right in zip(radii, steps, strict=True))]
    meta = Meta(class_names=tuple(names), eps=max(radii.values()), attacks={CLEAN: AttackInfo(), **infos})
    audit = Audit(Records(pd.concat(rows, ignore_index=True), meta))
    for place, name in enumerate((CLEAN, *radii)):
        audit.records.of(name).write(folder / "records" / f"{place:02d}-{safe_name(name)}-00000.parquet")
    (folder / "summary.json").write_text(json.dumps({"findings": [], "timing": {}, "confidence": 0.95}))
    wrong = clean[clean["prediction"] != clean["label"]]
    kept = {key: wrong[key].to_numpy() for key in ("index", "label", "prediction")}
    image = np.full((len(wrong), 4, 4, 3), 90, np.uint8)
    example_images.write(folder, {**kept, "kind": np.full(len(wrong), "wrong"), "image": image})
    return Audit.load(folder)


#: The settings of a training as its run folder has them, as far as the page reads them.
CONFIG = """
[method]
name = "wat"
eta = 0.5
[data]
name = "folder:resize=32"
validation = 20
[threat]
eps = 0.03137254901960784
norm = "linf"
[train]
epochs = 3
[validate]
attack = ["pgd-10"]
select = "worst"
[run]
root = "photos"
given = []
"""


def write_training(folder: Path, epochs: int = 3, config: str = "") -> Path:
    """A training with three epochs, cat behind dog, and its settings if they are given."""
    folder.mkdir(parents=True)
    lines = ["epoch,clean,robust,clean:cat,clean:dog,robust:cat,robust:dog,weight:cat,weight:dog"]
    lines += [f"{e},0.5,0.{e}5,0.4,0.6,0.{e},0.{e + 1},1.{e},0.9" for e in range(1, epochs + 1)]
    (folder / "history.csv").write_text("\n".join(lines) + "\n")
    if config:
        (folder / "config.toml").write_text(config)
    return folder
