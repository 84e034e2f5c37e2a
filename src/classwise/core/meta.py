"""What the rows of `Records` do not say themselves: the threat, the classes, how each attack ran and what it cost."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Norm = Literal["linf", "l2"]
Protocol = Literal["any", "final"]
Coverage = Literal["all", "survivors", "standing"]  # the last is an older word for survivors


@dataclass(frozen=True, kw_only=True)
class AttackInfo:
    """How an attack's rows came about: its settings, and which examples it saw and was judged on.

    protocol: "any" if a row is broken as soon as any point tried breaks it, "final" if the last iterate is judged.
    coverage: "all" if every example was attacked, "survivors" if only those no earlier attack had broken.
    eps: the (largest) radius it ran with; None where that is the run's.
    family: what attacks that differ only in eps have in common, so that their rows make a curve.
    needs_gradient: whether it differentiates the model.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    protocol: Protocol = "any"
    coverage: Coverage = "all"
    eps: float | None = None
    family: str | None = None
    needs_gradient: bool = True

    def __post_init__(self) -> None:
        if self.coverage == "standing":
            object.__setattr__(self, "coverage", "survivors")


@dataclass(frozen=True)
class Part:
    """Which piece of a run a file holds.

    covers: `digest` of the positions of the examples it is about; of some it has no row, where only survivors were
        attacked.
    points: SHA-256 of the file with its adversarial images, where they are kept.
    """

    attack: str
    number: int
    covers: str
    points: str | None = None


@dataclass(frozen=True, kw_only=True)
class Meta:
    """What the rows do not say: class names, threat, seed, versions, each attack's `AttackInfo`, and what it cost.

    The order of `attacks` is the order they ran in, and is kept on disk.
    """

    class_names: tuple[str, ...]
    superclasses: Mapping[str, tuple[str, ...]] | None = None
    norm: str = "linf"
    eps: float = 0.0
    seed: int = 0
    attacks: Mapping[str, AttackInfo] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    stats: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # per attack, summed over parts
    part: Part | None = None

    def to_json(self) -> str:
        """The attacks as a list of pairs, which keeps its order whoever rewrites the file."""
        raw = dataclasses.asdict(self)
        return json.dumps({**raw, "attacks": list(raw["attacks"].items())})

    @classmethod
    def from_json(cls, text: str | bytes) -> Meta:
        """Also of files written before the order was kept: there the attacks are a mapping, sorted by name."""
        raw = json.loads(text)
        groups, attacks, part = raw["superclasses"], raw["attacks"], raw.get("part")
        pairs = attacks.items() if isinstance(attacks, Mapping) else attacks
        raw["class_names"] = tuple(raw["class_names"])
        raw["superclasses"] = None if groups is None else {name: tuple(own) for name, own in groups.items()}
        raw["attacks"] = {name: AttackInfo(**_complete(name, info)) for name, info in pairs}
        raw["part"] = None if part is None else Part(**part)
        return cls(**raw)


def _complete(name: str, info: Mapping[str, Any]) -> dict[str, Any]:
    """An attack's entry, also of files written before attacks said whether they need a gradient."""
    without = info["settings"].get("name", name) in ("nattack", "noise", "square", "transfer")
    return {"needs_gradient": not without, **info}
