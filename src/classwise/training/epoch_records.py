"""The predictions of a training epoch as records, like those of validation and audits; the attack is "train"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from classwise.core.errors import UserError
from classwise.core.losses import cross_entropy
from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import COLUMNS, MOST_PROBS, Records
from classwise.core.threat import Threat
from classwise.methods.method import Loss
from classwise.training.processes import Processes

TRAIN = "train"

_STEPS = 64  # whose columns are moved from the GPU at a time

_NOT_RECORDED = ("batch", "objective", "probs")  # columns of an epoch that are none of its records' frame


@dataclass
class EpochRecords:
    """Columns that grow batch by batch; only labelled examples count. Of many classes the probabilities are kept only
    where `probs` asks for them."""

    parts: list[dict[str, Tensor]] = field(default_factory=list)
    probs: bool = False
    _on_device: list[dict[str, Tensor]] = field(default_factory=list)

    @torch.no_grad()
    def add(self, step: int, index: Tensor, y: Tensor, loss: Loss, more: Mapping[str, Tensor] | None = None) -> None:
        """The batch of a step: the examples' numbers and labels, the method's loss, and what its attack noted."""
        known, z = y.clamp_min(0), loss.logits.detach().float()
        probs = z.softmax(1)
        confidence, prediction = probs.max(1)
        columns = {
            "batch": torch.full_like(y, step),
            "index": index.to(y.device, non_blocking=True),
            "label": y,
            "prediction": prediction,
            "confidence": confidence,
            "true_prob": probs.gather(1, known[:, None])[:, 0],
            "loss": cross_entropy(z, known),
            "objective": loss.value.detach().float(),
        }
        if self.probs or z.shape[1] <= MOST_PROBS:
            columns["probs"] = probs
        noted = {name: column.detach() for name, column in {**(more or {}), **loss.columns}.items()}
        if taken := [name for name in noted if name in {*COLUMNS, *columns}]:
            raise UserError(f"training records have a column {taken[0]} already: give the method's another name.")
        self._on_device.append(columns | noted)
        if len(self._on_device) >= _STEPS:
            self._fetch()

    def _fetch(self) -> None:
        """Move the last steps' columns to the host: reading one waits for the GPU, so it is not done every step."""
        if not self._on_device:
            return
        whole = {name: torch.cat([part[name] for part in self._on_device]).cpu() for name in self._on_device[0]}
        labelled = whole["label"] >= 0
        self.parts.append({name: column[labelled] for name, column in whole.items()})
        self._on_device.clear()

    def columns(self, processes: Processes) -> dict[str, Tensor]:
        """All columns so far, those of other processes too, in the order of the steps."""
        self._fetch()
        mine = {name: torch.cat([part[name] for part in self.parts]) for name in (self.parts or [{}])[0]}
        everyone = [part for part in processes.gather(mine) if part]
        whole = {name: torch.cat([part[name] for part in everyone]) for name in (everyone or [{}])[0]}
        if not whole:
            return whole
        order = whole["batch"].argsort(stable=True)
        return {name: column[order] for name, column in whole.items()}


def to_records(columns: dict[str, Tensor], meta: Meta) -> Records:
    """The columns as records, by example; of an example drawn twice (with replacement) the last one counts. A method's
    own columns follow the usual ones."""
    index = columns["index"].numpy()
    last = len(index) - 1 - np.unique(index[::-1], return_index=True)[1]
    count = len(last)
    fill = {
        "attack": np.full(count, TRAIN, object),
        "eps": np.full(count, meta.eps),
        "distance": np.full(count, np.nan, np.float32),
        "minimal": np.full(count, np.inf, np.float32),
        "step": np.zeros(count, np.int32),
        "queries": np.zeros(count, np.int64),
    }
    known = {name: columns[name].numpy()[last] for name in columns if name in COLUMNS}
    frame = pd.DataFrame({**known, **fill})[list(COLUMNS)]
    own = {name: columns[name].numpy()[last] for name in columns if name not in {*COLUMNS, *_NOT_RECORDED}}
    frame = frame.assign(**own)
    probs = columns["probs"].numpy()[last] if "probs" in columns else None
    return Records(frame, meta, probs)


def meta_of(class_names: tuple[str, ...], threat: Threat, seed: int) -> Meta:
    """The metadata of training records."""
    return Meta(
        class_names=class_names,
        superclasses=None,
        norm=threat.norm,
        eps=threat.eps,
        seed=seed,
        attacks={TRAIN: AttackInfo(settings={}, protocol="final", coverage="all")},
    )
