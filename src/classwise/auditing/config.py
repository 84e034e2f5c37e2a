"""Every setting of an audit, stated once: its type and bounds, its default, what it means, and its option.

    cw.audit(model, data, limit=100)              the arguments in Python, their defaults and documentation
    classwise audit … --limit 100                 the options of the command line, in panels by group
    [command] limit = 100                         config.toml, and by it the command that the report shows
    Audit(…, options={"limit": 100})              the audit jobs of a study

To add a setting, add its field in `classwise.auditing.parts` and its key to `AuditSettings`, which editors read; then
use it. Nothing here needs torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from classwise.auditing.parts import (
    Amp,
    AttackPart,
    AuditedData,
    AuditedModel,
    GatePart,
    OutputPart,
    ResourcesPart,
    StatisticsPart,
    ThreatPart,
)
from classwise.core.errors import UserError
from classwise.core.meta import Coverage, Norm, Protocol
from classwise.core.settings import Config
from classwise.core.shard import Shard

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class AuditConfig(Config):
    """What an audit, or a search for the worst class, was asked for."""

    called = "an audit"

    model: AuditedModel
    data: AuditedData
    threat: ThreatPart = field(default_factory=ThreatPart)
    attacks: AttackPart = field(default_factory=AttackPart)
    statistics: StatisticsPart = field(default_factory=StatisticsPart)
    resources: ResourcesPart = field(default_factory=ResourcesPart)
    output: OutputPart = field(default_factory=OutputPart)
    gate: GatePart = field(default_factory=GatePart)

    @classmethod
    def of_search(cls, **given: Any) -> AuditConfig:
        """The config of a search for the worst class with these settings."""
        return cls.of(**given, find_worst=True, coverage="survivors", probs=False)

    @property
    def folder(self) -> Path | None:
        """The run folder."""
        return None if self.output.out is None else Path(self.output.out)

    def in_folder(self, folder: Path | None) -> AuditConfig:
        """The same in another run folder, the copy here of one elsewhere, which only this machine's processes reach."""
        name = self.resources.engine.partition(":")[0]
        if name in ("ray", "slurm"):
            raise UserError(
                f"--out {self.output.out} is copied on this machine, which those of --engine {name} do not reach: give "
                "a folder that all of them share, or start shards (--shard k/n) there."
            )
        return dataclasses.replace(self, output=dataclasses.replace(self.output, out=folder))

    @property
    def shard(self) -> Shard | None:
        """The share of the parts to compute; None for all."""
        given = None if self.resources.shard is None else Shard.parse(self.resources.shard)
        return None if given is None or given.count == 1 else given


class CommonSettings(TypedDict, total=False):
    """The settings that `audit` and `find_worst` share, as editors and type checkers are to know them."""

    weights: str | Path | None
    normalize: str | Sequence[Sequence[float]] | None
    num_classes: int | None
    force: bool
    trust: bool
    limit: int | None
    per_class: int | None
    root: str | Path | None
    split: str
    download: bool
    classes: Sequence[str | int] | None
    class_names: Sequence[str] | None
    norm: Norm
    eot: int
    seed: int
    confidence: float
    batch_size: int | None
    workers: int | None
    device: str | torch.device | None
    amp: Amp | None
    fold: bool
    engine: str
    jobs: int | None
    cpus: int | None
    gpus: float
    devices: str | None
    out: str | Path | None
    overwrite: bool
    progress: bool | None


class AuditSettings(CommonSettings, total=False):
    """The settings of `audit`."""

    eps_grid: int | None
    protocol: Protocol
    coverage: Coverage | None
    distances: bool
    save_adversarial: bool
    landscape: int | None
    probs: bool | None
    compile: bool
    shard: str | None


class SearchSettings(CommonSettings, total=False):
    """The settings of `find_worst`."""

    tolerance: float
