"""Does robustness depend on the background? (Tian et al. 2021, Section 6.2, Figures 5, 6 and Table 4.)

Two parts. `mnist`: digits in front of a colour that two classes share are trained and attacked at ε = 0.5; errors under
attack are expected to follow the background and natural ones are not (`digits`). `white`: the background of photos is
replaced at inference; white is expected to make the weakest class more robust without changing natural predictions, and
a training adjusted for that class to add to it (`views`). Controls are ours: other pairings, colours and masks.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from classwise.core.errors import UserError, index_of, unknown
from classwise.core.meta import Protocol
from classwise.data import class_names as known_classes
from classwise.data.background import MEAN, NOISE, rgb
from classwise.studies.background import claims, digits, pictures, tables
from classwise.studies.background.pictures import GRABCUT
from classwise.studies.background.views import ORIGINAL, View, chosen_class, read_views, views
from classwise.studies.runner.graph import DeriveJob, StudyJob
from classwise.studies.runner.models_under_study import ModelUnderStudy, from_recipe
from classwise.studies.runner.result import Done, StudyResult, merged
from classwise.studies.runner.study import OfModels
from classwise.studies.shared.temperature_sweep import PAPERS_ATTACK, is_the_papers
from classwise.studies.shared.together import require_same_setting
from classwise.training.recipe import load

_MASKS, _PICTURES, _DIGITS = "masks", "pictures", "digits"


@dataclass(frozen=True, kw_only=True)
class Background(OfModels):
    """Robustness and the background.

    part: mnist, white, or both; without a model or recipe only mnist. protocol: "final" judges the last step alone, as
    the paper does, and attacks misclassified images too; "any" stops at the first point that breaks an image.
    Of mnist: mnist_recipe, mnist_set: the training, of any grey data set, and settings of it to change; mnist_eps: of
    training and attack; mnist_attack: what robustness is measured by; pairing: which classes share a background
    (pairs, shifted, both, halves), and controls (random, black), each trained once.
    Of white: attack: what robustness is measured by; class_name: the class in question, by default the first model's
    weakest; masks: a file, a folder or grabcut; colour: backgrounds, the one in question first, then controls (a
    colour, noise, mean); others: images of each other class; adjusted: the name of the model trained for the class.
    """

    part: Literal["mnist", "white", "both"] = "both"
    protocol: Protocol = "final"
    mnist_recipe: str = "desk/mnist/trades"
    mnist_set: tuple[str, ...] = ("method.step=0.04", "validate.attack=pgd:steps=10,step=0.04")
    mnist_eps: str = "0.5"
    mnist_attack: str = "pgd:steps=40,step=0.01"
    pairing: tuple[str, ...] = ("pairs", "shifted")
    attack: str = "pgd-20"
    class_name: str | None = None
    masks: str = GRABCUT
    colour: tuple[str, ...] = ("white", "grey", "black")
    others: int = 100
    adjusted: str | None = None

    def __post_init__(self) -> None:
        digits.check_pairings(self._pairings)
        if not self._colours:
            raise UserError("no background: give at least one --colour, such as white.")
        for colour in self._colours:
            if colour not in (NOISE, MEAN):
                rgb(colour)
        if self.others < 0:
            raise UserError(f"--others must be 0 or more images of each other class, got {self.others}.")
        if self.masks != GRABCUT and not Path(self.masks).expanduser().exists():
            raise UserError(f"there are no masks at {self.masks}; give a .npy or .npz file, a folder, or {GRABCUT}.")

    def jobs(self) -> list[StudyJob]:
        return [*(self._mnist_jobs() if self._has_mnist else ()), *(self._white_jobs() if self._has_white else ())]

    def result(self, done: Done) -> StudyResult:
        parts = []
        if self._has_mnist:
            audits = {pairing: done.audit(f"on-{pairing}-audit") for pairing in self._pairings}
            parts += [digits.result(audits), pictures.chart(_DIGITS, pictures.read(done.folder(_DIGITS)))]
        if self._has_white:
            parts.append(self._white(done))
        return merged([("", part) for part in parts])

    def _audit(self, model: ModelUnderStudy, suffix: str, attack: str, per_class: int | None = None) -> StudyJob:
        return model.audit(suffix, [attack], per_class=per_class, seed=self.seed, protocol=self.protocol)

    @property
    def _has_mnist(self) -> bool:
        return self.part != "white"

    @property
    def _pairings(self) -> list[str]:
        return _listed(self.pairing)

    def _mnist_jobs(self) -> list[StudyJob]:
        grey = load(self.mnist_recipe, self.mnist_set).data.name.replace(",", ";")
        coloured = {pairing: f"coloured:of={grey},colours={pairing}" for pairing in self._pairings}
        made: list[StudyJob] = []
        for pairing, data in coloured.items():
            changes = (f"threat.eps={self.mnist_eps}", *self.mnist_set, f"data.name={json.dumps(data)}")
            model = from_recipe(f"on-{pairing}", self.mnist_recipe, changes)
            audit = model.audit("audit", [self.mnist_attack], per_class=self.per_class, seed=self.seed)
            made += [*model.jobs, audit]
        return [*made, DeriveJob(_DIGITS, f"{pictures.__name__}:take_digits", {"data": coloured})]

    @property
    def _has_white(self) -> bool:
        return self.part == "white" or (self.part == "both" and bool(self.model or self.recipe))

    @property
    def _colours(self) -> list[str]:
        return _listed(self.colour)

    @property
    def _views(self) -> list[View]:
        return views(self._colours)

    def _checked(self) -> list[ModelUnderStudy]:
        """The models, all for one data set, the adjusted one among them; one that is not comes first."""
        found = self.models()
        require_same_setting(found)
        names = [model.name for model in found]
        if self.adjusted is not None and self.adjusted not in names:
            raise unknown("model (--adjusted)", self.adjusted, names)
        if [self.adjusted] == names:
            raise UserError(f"{self.adjusted} is the only model; give one to compare it with as well.")
        known = known_classes(found[0].data)
        if self.class_name is not None and known is not None:
            index_of(self.class_name, known, f"class of {found[0].data}")
        return sorted(found, key=lambda model: model.name == self.adjusted)

    def _white_jobs(self) -> list[StudyJob]:
        found = self._checked()
        first, data = found[0], found[0].data
        source = self.masks if self.masks == GRABCUT else str(Path(self.masks).expanduser().resolve())
        arguments = {key: getattr(self, key) for key in ("class_name", "per_class", "others", "seed")}
        arguments |= {"data": data, "source": source, "audit": f"{{{first.name}-audit}}"}
        made: list[StudyJob] = [DeriveJob(_MASKS, f"{pictures.__name__}:make_masks", arguments)]
        for model in found:
            made += model.jobs
            made.append(self._audit(model, "audit", self.attack, self.per_class))
            made += [self._audit(self._on(model, view), view.job, self.attack) for view in self._views]
        shown = {
            "data": data,
            "replaced": self._on(first, self._views[0]).data,
            "original": f"{{{first.name}-audit}}",
            "changed": f"{{{first.name}-{self._views[0].job}}}",
            "class_name": self.class_name,
        }
        return [*made, DeriveJob(_PICTURES, f"{pictures.__name__}:take_pictures", shown)]

    def _on(self, model: ModelUnderStudy, view: View) -> ModelUnderStudy:
        """The same model for images on another background."""
        data = view.data(model.data, f"{{{_MASKS}}}", self.seed)
        return dataclasses.replace(model, data=data)

    def _white(self, done: Done) -> StudyResult:
        names = [model.name for model in self._checked()]
        models = {}
        for model in names:
            suffixes = {ORIGINAL: "audit", **{view.name: view.job for view in self._views}}
            models[model] = read_views({view: done.audit(f"{model}-{suffix}") for view, suffix in suffixes.items()})
        first, quality = models[names[0]], done.table(_MASKS, "quality.csv")
        audit = done.audit(f"{names[0]}-audit")
        name = chosen_class(audit, self.class_name)
        left_out = int(quality["refused"].notna().sum())
        grid = pictures.read(done.folder(_PICTURES), {"changed": f"{self._colours[0]} background"})
        chart = pictures.chart(_PICTURES, grid)
        return StudyResult(
            {
                "predictions": tables.predictions(models, name),
                "changes": tables.changes(models, name),
                "every_class": tables.by_class(models),
                "misclassified_as_the_class": tables.misclassified_as(models, name),
                "most_robust": tables.most_robust(first, quality, name),
                "masks": tables.quality_by_class(quality, audit.records.class_names),
            },
            figures=chart.figures,
            claims=[*claims.claims(models, name, self.adjusted), claims.bright(names[0], first, quality, name)],
            notes=[
                f"The class in question is {name}; {left_out} of {len(quality)} images have no usable mask and were "
                "left out everywhere. The paper uses all images, with masks made by hand.",
                *([] if is_the_papers(self.attack) else [PAPERS_ATTACK.format(self.attack)]),
            ],
            data=chart.data,
        )


def _listed(given: Sequence[str]) -> list[str]:
    """Words given several times or separated by commas, each once."""
    return list(dict.fromkeys(part.strip() for text in given for part in text.split(",") if part.strip()))
