"""Which methods raise the worst class? Every method from the same robust base, over seeds, at equal training cost.

For each seed a base is trained from scratch, and every method fine-tunes it for the same number of epochs with the same
optimiser, inner attack and images. Much of what a fairness method seems to gain, fine-tuning gains without it, so that
one of the methods is the `control`: differences are to it, paired by seed and by test image. Each base and each
fine-tuned model is also repaired (`classwise repair`), on the images that its training held out. Other methods may be
trained from scratch beside the base, which they are compared with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from classwise.core.errors import UserError, index_of
from classwise.core.repair_folder import RepairFolder
from classwise.studies.runner.graph import DeriveJob, StudyJob
from classwise.studies.runner.models_under_study import ModelUnderStudy, from_recipe
from classwise.studies.runner.study import Study

_RECIPES = "protocol/cifar10"
_METHODS = ("trades", "frl_rwrm", "csl", "wat", "cfa", "dafa", "csr", "faal", "cfol")
_TUNED = "tuned"
_REPAIRED = "repaired"
_ALL, _STRONG = "audit", "strong"  # of all images, and under strong attacks of some


@dataclass(frozen=True, kw_only=True)
class Group:
    """The models of one method, one for each seed, and what makes them. against: the group it is compared with."""

    name: str
    models: tuple[ModelUnderStudy, ...]
    makers: tuple[StudyJob, ...]
    against: str | None = None


@dataclass(frozen=True, kw_only=True)
class WorstClass(Study):
    """Methods that raise the worst class, over seeds.

    base: the recipe that the others fine-tune. tuned: recipes that fine-tune it, of the same budget; control: the name
    of the one that the others are compared with. scratch: recipes trained from scratch, compared with the base. seeds:
    every model is trained once with each. repair: also repair the base and every fine-tuned model by a bias;
    keep_average: of the average a repair may cost at most this. set: settings to change in all recipes. attack: on all
    test images, or on per_class of each class. strong: on strong_per_class of each class, 0 for none. seed: of the
    audits.
    """

    base: str = f"{_RECIPES}/trades"
    tuned: tuple[str, ...] = tuple(f"{_RECIPES}/tuned/{name}" for name in _METHODS)
    control: str = "trades"
    scratch: tuple[str, ...] = tuple(f"{_RECIPES}/{name}" for name in ("fast", "madry", "wat"))
    seeds: tuple[int, ...] = (0, 1, 2)
    repair: bool = True
    keep_average: float | None = None
    set: tuple[str, ...] = ()
    attack: tuple[str, ...] = ("pgd-20", "margin_pgd-30")
    per_class: int | None = None
    strong: tuple[str, ...] = ("apgd_ce", "apgd_t")
    strong_per_class: int = 300
    seed: int = 0

    def jobs(self) -> list[StudyJob]:
        if not self.seeds:
            raise UserError("no seed to train with: give at least one, such as --seeds 0.")
        groups = self.groups()
        audits = [audit for group in groups for model in group.models for audit in self._audits(model)]
        return [*(job for group in groups for job in group.makers), *audits]

    def groups(self) -> list[Group]:
        """The base, what is trained from scratch beside it, and what fine-tunes it; then the repaired models."""
        base = self._trained(_name(self.base), self.base)
        scratch = [self._trained(_name(recipe), recipe, against=base.name) for recipe in self.scratch]
        control = self._control()
        tuned = [
            self._trained(name, recipe, base, control if name != control else base.name)
            for recipe in self.tuned
            for name in (f"{_name(recipe)}-{_TUNED}",)
        ]
        found = [base, *scratch, *tuned]
        return [*found, *(self._repaired(group) for group in (base, *tuned) if self.repair)]

    def _control(self) -> str:
        """The group that fine-tuned models are compared with."""
        names = [_name(recipe) for recipe in self.tuned]
        return f"{names[index_of(self.control, names, 'recipe of --tuned for --control')]}-{_TUNED}" if names else ""

    def _trained(self, name: str, recipe: str, base: Group | None = None, against: str | None = None) -> Group:
        """A recipe trained with every seed, from scratch or from the base of that seed."""
        models = []
        for place, seed in enumerate(self.seeds):
            start = () if base is None else (f"model.weights={base.models[place].checkpoint}",)
            models.append(from_recipe(f"{name}-{seed}", recipe, (*self.set, *start, f"train.seed={seed}")))
        makers = tuple(job for model in models for job in model.jobs)
        return Group(name=name, models=tuple(models), makers=makers, against=against)

    def _repaired(self, group: Group) -> Group:
        """The same models with a bias fitted on the images that their trainings held out."""
        found = [self._repair(model) for model in group.models]
        return Group(
            name=f"{group.name}-{_REPAIRED}",
            models=tuple(model for model, _ in found),
            makers=tuple(job for _, job in found),
            against=group.name,
        )

    def _repair(self, model: ModelUnderStudy) -> tuple[ModelUnderStudy, DeriveJob]:
        assert model.training is not None
        training = model.training
        arguments = {"recipe": training.recipe, "changes": training.changes, "keep_average": self.keep_average}
        job = model.derive(_REPAIRED, "classwise.studies.worst_class.repaired:repaired", **arguments)
        best = RepairFolder(Path(f"{{{job.name}}}")).best.as_posix()
        return replace(model, name=job.name, checkpoint=best, training=None), job

    def _audits(self, model: ModelUnderStudy) -> list[StudyJob]:
        audits: list[StudyJob] = [model.audit(_ALL, self.attack, per_class=self.per_class, seed=self.seed)]
        if self.strong_per_class:
            options = {"per_class": self.strong_per_class, "seed": self.seed, "coverage": "survivors"}
            audits.append(model.audit(_STRONG, self.strong, **options))
        return audits


def _name(recipe: str) -> str:
    return Path(recipe).stem
