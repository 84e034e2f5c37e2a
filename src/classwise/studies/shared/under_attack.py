"""Studies of models under one attack each: the same for all, or a different one for some of them.

    --attack pgd:steps=20,step=0.007 --attack-for mnist=pgd:steps=40,step=0.01

A radius and a step belong to a data set, so that models of several data sets need several attacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from classwise.core import spec
from classwise.core.errors import UserError, unknown
from classwise.core.meta import Protocol
from classwise.studies.runner.graph import StudyJob
from classwise.studies.runner.models_under_study import ModelUnderStudy
from classwise.studies.runner.study import OfModels


@dataclass(frozen=True, kw_only=True)
class UnderAttack(OfModels):
    """A study of models under an attack.

    attack: what robustness is measured by. attack_for: another one for some of the models, NAME=ATTACK; a name is that
    of a model or of its data set. protocol: "final" judges the last step alone, as the papers' code does.
    """

    attack: str = "pgd-20"
    attack_for: tuple[str, ...] = ()
    protocol: Protocol = "any"

    def attack_on(self, model: ModelUnderStudy) -> str:
        """The attack for a model: the one for its name, else for its data set, else the one for all."""
        own = self._own_attacks()
        return own.get(model.name, own.get(spec.split(model.data)[0], self.attack))

    def jobs(self) -> list[StudyJob]:
        found = self.models()
        known = [*(model.name for model in found), *(spec.split(model.data)[0] for model in found)]
        for name in self._own_attacks():
            if name not in known:
                raise unknown("model or data set of --attack-for", name, dict.fromkeys(known))
        return super().jobs()

    def jobs_of(self, model: ModelUnderStudy) -> list[StudyJob]:
        """The audit of a model, called NAME-audit."""
        return [model.audit("audit", [self.attack_on(model)], **self.audit_options())]

    def audit_options(self) -> dict[str, Any]:
        """Options of every audit. The usual protocol is left out, so that jobs of earlier runs are recognised."""
        protocol = None if self.protocol == "any" else self.protocol
        return {"per_class": self.per_class, "seed": self.seed, "protocol": protocol}

    def _own_attacks(self) -> dict[str, str]:
        pairs = [text.partition("=")[::2] for text in self.attack_for]
        for text, (name, attack) in zip(self.attack_for, pairs, strict=True):
            if not attack or ":" in name:
                raise UserError(f"--attack-for {text!r} is not of the form NAME=ATTACK, such as mnist=pgd-40.")
        return dict(pairs)
