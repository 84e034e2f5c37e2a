"""Do broken images become robust when the class they are misclassified as is not trained on? (Tian et al. 2021, Figure
4.)

Homing (Definition 6.1): an image of class i that the attack breaks into the confound class j has the homing property if
it is robust on the model trained again, by the same recipe, without class j. The model without j has one output fewer;
the other classes are renumbered and matched by name, the images by their index. H_ij counts the images of M_ij, the
misclassified matrix, that have it. One control that the paper lacks: how many of the same images become robust when a
class other than their confound is left out, which is the effect of training again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from classwise.core.errors import UserError, index_of
from classwise.core.meta import Protocol
from classwise.core.records import Records
from classwise.core.threat import Norm
from classwise.data import class_names as known_classes
from classwise.metrics import misclassified
from classwise.show.figures import misclassified as figure
from classwise.studies.homing import claims, tables
from classwise.studies.runner.epochs import at_epoch
from classwise.studies.runner.graph import StudyJob, job_name
from classwise.studies.runner.models_under_study import ModelUnderStudy, Setting, from_recipe
from classwise.studies.runner.result import Done, StudyResult
from classwise.studies.runner.study import Study
from classwise.training.recipe import Recipe, load


@dataclass(frozen=True, kw_only=True)
class Homing(Study):
    """Homing: what leaving out the confound class does to broken images.

    recipe: the training, repeated without each class. set: settings of it to change. classes: leave out only these.
    attack, eps, norm, per_class, seed: of the audits, all on the same test images. which: the checkpoint audited, best
    or last. epoch: the one after this epoch instead. protocol: "final" judges the last step alone, as the papers' code
    does.
    """

    recipe: tuple[str, ...] = ()
    set: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    attack: str = "pgd-20"
    eps: str | None = None
    norm: Norm | None = None
    per_class: int | None = None
    which: str = "best"
    epoch: int | None = None
    protocol: Protocol = "any"
    seed: int = 0

    def jobs(self) -> list[StudyJob]:
        options = {"seed": self.seed, "protocol": None if self.protocol == "any" else self.protocol}
        models = [self._base(), *self._without().values()]
        return [job for model in models for job in (*model.jobs, model.audit("audit", [self.attack], **options))]

    def result(self, done: Done) -> StudyResult:
        base = done.rows(f"{self._base().name}-audit")
        without = {name: done.rows(f"{model.name}-audit") for name, model in self._without().items()}
        broken = tables.fates(base, without)
        counts, home = misclassified.compute(base), tables.matrix(broken, base.class_names)
        effect = tables.changes(base, without)
        return StudyResult(
            {
                "classes": tables.by_class(base, broken),
                "pairs": tables.by_pair(broken),
                "relations": tables.relations(base, broken),
                "advice": tables.advice(base, effect),
                "misclassified": tables.wide(counts, base.class_names),
                "homing": tables.wide(home, base.class_names),
                "change_of_each_class": effect,
            },
            figures={"homing": figure.draw(base, home)},
            claims=claims.claims(base, broken),
            notes=_notes(base, without),
        )

    def _recipe(self) -> Recipe:
        if len(self.recipe) != 1:
            raise UserError(f"homing repeats one training: give one --recipe, got {len(self.recipe)}.")
        chosen = load(self.recipe[0], self.set)
        if chosen.data.exclude:
            raise UserError(
                f"{self.recipe[0]} already leaves out {', '.join(chosen.data.exclude)}; homing leaves out each class "
                "itself. Take data.exclude out of the recipe."
            )
        return chosen

    def _base(self) -> ModelUnderStudy:
        return self._model(Path(self.recipe[0]).stem, self._data())

    def _model(self, name: str, data: str, *changes: str) -> ModelUnderStudy:
        setting = Setting(data, self.eps, self.norm)
        return at_epoch(from_recipe(name, self.recipe[0], (*self.set, *changes), setting, self.which), self.epoch)

    def _data(self, *extra: str) -> str:
        """The data with so many images of each class, the same ones whatever class is left out."""
        name = self._recipe().data.name
        options = [*([] if self.per_class is None else [f"per_class={self.per_class}"]), *extra]
        return name if not options else f"{name}{',' if ':' in name else ':'}{','.join(options)}"

    def _without(self) -> dict[str, ModelUnderStudy]:
        """The model of each retraining, by the class it lacks."""
        found = {}
        for name, known in self._left_out().items():
            change = f"data.exclude={json.dumps([name], ensure_ascii=False)}"
            found[name] = self._model(f"without-{job_name(name)}", self._data(f"exclude={known}"), change)
        return found

    def _left_out(self) -> dict[str, str]:
        """The classes to leave out, and how a data spec says each: by number if the name contains a separator."""
        data = self._recipe().data.name
        known = known_classes(data)
        if known is None:
            if not self.classes:
                raise UserError(
                    f"the classes of {data} are only known once it is read: give those to leave out, --classes A,B."
                )
            return {name: name for text in self.classes for name in text.split(",")}
        asked = [part for text in self.classes for part in ([text] if text in known else text.split(","))]
        numbers = sorted({index_of(text, known, f"class of {data}") for text in asked}) or range(len(known))
        return {known[n]: str(n) if re.search(r"[,|]", known[n]) else known[n] for n in numbers}


def _notes(base: Records, without: Mapping[str, Records]) -> list[str]:
    kept = [name for name in base.class_names if name not in without]
    empty = f"Not left out, so that their columns of the homing matrix are empty: {', '.join(kept)}."
    return [
        "The paper does not say what the model without a class predicts; here it has one output fewer.",
        "Each class is left out in a single training: the intervals are over images, not over trainings.",
        "Leaving out a class also removes its training images: the models without it see fewer images.",
        *([empty] if kept else []),
    ]
