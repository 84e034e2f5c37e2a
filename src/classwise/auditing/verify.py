"""`verify`: audit some images of a submission again, with its own settings, and compare row by row.

A submission is the run folder of an audit and its model. The attacks, the radius, the seed and the protocol are those
that the folder records; the random numbers of an image depend on the seed and the image alone, so that an honest
submission is repeated but for rounding (`results.verification`).
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from classwise.auditing.audit import audit_by
from classwise.auditing.config import AuditConfig
from classwise.auditing.fingerprints import fingerprint_data, fingerprint_model
from classwise.auditing.prepare import examples, module_by
from classwise.auditing.recorded import config_of
from classwise.core.arguments import checked
from classwise.core.records import CLEAN
from classwise.core.run_config import same
from classwise.core.spec import check_keys
from classwise.core.trust import trusting
from classwise.data.images import Images
from classwise.results.audit_result import Audit
from classwise.results.verification import TOLERANCE, Verification, compare, refused

#: What a verification decides for itself, whatever the submission asked for.
_OWN = ("save_adversarial", "landscape", "probs", "device", "batch_size", "workers", "amp", "trust")
#: Settings that replace those of the submission where they are given.
_REPLACED = ("model", "weights", "normalize", "num_classes", "data", "root")
_SETTINGS = (*_REPLACED[1:4], "root", "trust", "device", "batch_size", "workers", "progress")


@checked
def verify(
    run: str | Path,
    model: Any = None,
    data: Any = None,
    per_class: int = 20,
    seed: int | None = None,
    tolerance: float = TOLERANCE,
    **settings: Any,
) -> Verification:
    """Audit `per_class` random images of each class again and compare each with the submission in this run folder.

    model, data: by default those that the folder names. seed: by which the images are drawn; by default one that nobody
    could know. tolerance: the share of images that may be broken here and robust in the submission. settings: of
    `audit`, about where things are and what it runs on: weights, normalize, num_classes, root, trust, device,
    batch_size, workers, progress.
    """
    stored, name = Audit.load(run), Path(run).resolve().name
    check_keys(settings, dict.fromkeys(_SETTINGS), "a verification")
    drawn = secrets.randbelow(2**31) if seed is None else seed
    given = {"model": model, "data": data, **settings}
    leave = [key for key in _REPLACED if given.get(key) is not None]
    leave += ["weights", "normalize"] if model is not None else []  # which belong to the model
    asked = config_of(stored.config, leave=(*_OWN, *leave), **given)
    whole = examples(asked)
    if wrong := list(_wrong_images(stored, whole)):
        return refused(name, stored, wrong, tolerance, drawn)
    part = whole.subset(per_class=per_class, seed=drawn)
    with trusting(asked.model.trust):
        module = module_by(asked, part)
    mark = stored.config.get("model", {}).get("fingerprint")
    if mark is not None and not same(mark, fingerprint_model(module)):
        wrong.append("The weights are not those that the submission was audited with: another fingerprint.")
    return compare(name, stored, audit_by(_on(part, asked), module), wrong, tolerance, drawn)


def _wrong_images(stored: Audit, whole: Images) -> Iterator[str]:
    """What shows that the submission's rows are not of these images."""
    clean = stored.rows(CLEAN)
    if clean.class_names[: whole.num_classes] != whole.class_names:
        yield "Its classes are not those of the data."
        return
    labels = dict(zip(whole.positions.tolist(), whole.labels.tolist(), strict=True))
    known = [labels.get(index) for index in clean.index.tolist()]
    if len(known) != len(labels) or None in known:
        yield f"It has rows of {len(known):,} images, and its settings select {len(labels):,}: not the same ones."
    elif known != clean.label.tolist():
        other = int(np.count_nonzero(np.asarray(known) != clean.label))
        yield f"{other:,} of its {len(known):,} rows have another label than the data."
    mark = stored.config.get("data", {}).get("fingerprint")
    if mark is not None and not same(mark, fingerprint_data(whole)):
        yield "The images are not those that the submission was audited on: another fingerprint."


def _on(part: Images, asked: AuditConfig) -> AuditConfig:
    """The same audit of these images, keeping all probabilities, of a model that is loaded already."""
    data = dataclasses.replace(asked.data, name=part, limit=None, per_class=None, classes=None, class_names=None)
    model = dataclasses.replace(asked.model, num_classes=None)
    return dataclasses.replace(asked, data=data, model=model, output=dataclasses.replace(asked.output, probs=True))
