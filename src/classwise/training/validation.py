"""The validation after an epoch: the audit's engine on the held-out examples, divided among the processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from torch import nn

from classwise.attacks.attack import Attack
from classwise.core.meta import Meta, Protocol
from classwise.core.records import CLEAN, Records
from classwise.core.threat import Threat
from classwise.data.images import Images
from classwise.engine import evaluation, run
from classwise.engine.attack_copy import SyncedAttackCopy
from classwise.engine.batch_size import at_most, choose_batch, choose_workers
from classwise.training.processes import Processes


@dataclass(frozen=True, kw_only=True)
class Validation:
    """attacks: the recipe's, by short name. own: the method's, judged at their last iterate as `update` expects."""

    images: Images
    attacks: Mapping[str, Attack]
    own: Mapping[str, Attack]
    protocol: Protocol
    threat: Threat
    seed: int
    processes: Processes

    def __call__(self, model: nn.Module, synced_copy: SyncedAttackCopy, report: Callable[[str, int], None]) -> Records:
        """Clean and attacked records of every held-out example. The model must be in eval mode, the copy refreshed."""
        mine = self.images.take(np.arange(len(self.images))[self.processes.share])
        found = self._attacked(mine, model, synced_copy, report) if len(mine) else None
        parts = [part for part in self.processes.gather(found) if part is not None]
        return parts[0] if len(parts) == 1 else _join(parts)

    def _attacked(
        self, mine: Images, model: nn.Module, synced_copy: SyncedAttackCopy, report: Callable[[str, int], None]
    ) -> Records:
        """The records of this process's share of the examples."""
        device = next(model.parameters()).device
        example = mine.first().to(device)
        workers = choose_workers(device)
        room = choose_batch(model, example, workers)
        plan = evaluation.BatchPlan(at_most(room, len(mine)), len(mine), workers)
        attack_copy = dataclasses.replace(synced_copy.attack_copy, most=room)
        together = self.protocol == "final"
        groups = [(self.protocol, {**self.attacks, **self.own} if together else self.attacks)]
        if self.own and not together:
            groups.append(("final", self.own))
        parts: list[Records] = []
        for protocol, attacks in groups:
            fitted = {name: attack.for_classes(mine.num_classes) for name, attack in attacks.items()}
            infos = evaluation.attack_infos(fitted, protocol, "all")
            meta = Meta(
                class_names=mine.class_names,
                superclasses=mine.superclasses,
                norm=self.threat.norm,
                eps=self.threat.eps,
                seed=self.seed,
                attacks=infos,
            )
            job = evaluation.Evaluation(
                model=model,
                attack_copy=attack_copy,
                images=mine,
                attacks=fitted,
                threat=self.threat,
                eps=np.full(len(mine), self.threat.eps),
                meta=meta,
                plan=plan,
                device=device,
                protocol=protocol,
                report=report,
            )
            found = run.evaluate(job)
            parts.append(found if not parts else _without_clean(found))
        return _join(parts)


def _without_clean(records: Records) -> Records:
    return records.take(np.flatnonzero((records.frame["attack"] != CLEAN).to_numpy()))


def _join(parts: list[Records]) -> Records:
    """Records of different attacks or examples in one table, by attack and then by example."""
    infos = {name: info for part in parts for name, info in part.meta.attacks.items()}
    whole = Records.concat(parts)
    place = {name: number for number, name in enumerate(infos)}
    order = np.lexsort((whole.index, whole.frame["attack"].map(place).to_numpy()))
    return dataclasses.replace(whole.take(order), meta=dataclasses.replace(whole.meta, attacks=infos))
