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

_NOT_RECORDED = ("batch", "objective", "probs")  # columns of an epoch that are none of its records' frame


@dataclass
class EpochRecords:
    """Columns that grow batch by batch; only labelled examples count. Of many classes the probabilities are kept only
    where `probs` asks for them."""

    parts: list[dict[str, Tensor]] = field(default_factory=list)
    probs: bool = False

    @torch.no_grad()
    def add(self, step: int, index: Tensor, y: Tensor, loss: Loss, more: Mapping[str, Tensor] | None = None) -> None:
        """The batch of a step: the examples' numbers and labels, the method's loss, and what its attack noted."""
        own = (y >= 0).nonzero()[:, 0]
        y, z = y[own], loss.logits.detach()[own].float()
        probs = z.softmax(1)
        confidence, prediction = probs.max(1)
        columns = {
            "batch": torch.full_like(y, step),
            "index": index.to(y.device)[own],
            "label": y,
            "prediction": prediction,
            "confidence": confidence,
            "true_prob": probs.gather(1, y[:, None])[:, 0],
            "loss": cross_entropy(z, y),
            "objective": loss.value.detach()[own].float(),
        }
        if self.probs or z.shape[1] <= MOST_PROBS:
            columns["probs"] = probs
        noted = {name: column.detach()[own] for name, column in {**(more or {}), **loss.columns}.items()}
        if taken := [name for name in noted if name in {*COLUMNS, *columns}]:
            raise UserError(f"training records have a column {taken[0]} already: give the method's another name.")
        columns |= noted
        self.parts.append({name: column.cpu() for name, column in columns.items()})

    def columns(self, processes: Processes) -> dict[str, Tensor]:
        """All columns so far, those of other processes too, in the order of the steps."""
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
