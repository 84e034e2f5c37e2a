"""Which methods raise the worst class? Every method from the same robust base, over seeds, at equal training cost.

For each seed a base is trained from scratch, and every method fine-tunes it for the same number of epochs with the same
optimiser, inner attack and images. Much of what a fairness method seems to gain, fine-tuning gains without it, so that
one of the methods is the `control`: differences are to it, paired by seed and by test image. Bases and fine-tuned
models are also repaired (`classwise repair`), all or some of them, on the images that their trainings held out. Other
methods may be trained from scratch beside the base, which they are compared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from classwise import methods
from classwise.core.errors import UserError, index_of, lookup
from classwise.core.repair_folder import RepairFolder
from classwise.core.threat import Norm
from classwise.published import printed_gains
from classwise.results.audit_result import Audit
from classwise.results.compare_groups import GroupComparison, compare_groups, needed, verdict_text
from classwise.show.figures import forest
from classwise.show.figures.style import Chart
from classwise.studies.runner.graph import DeriveJob, StudyJob, job_name
from classwise.studies.runner.models_under_study import ModelUnderStudy, Setting, from_recipe
from classwise.studies.runner.result import Claim, Done, StudyResult
from classwise.studies.runner.study import Study
from classwise.studies.shared.together import smallest
from classwise.studies.shared.verdicts import images, tails
from classwise.training.recipe import load

_RECIPES = "protocol/cifar10"
_METHODS = ("trades", "frl_rwrm", "csl", "wat", "cfa", "dafa", "csr", "faal", "cfol", "class_offsets")
_TUNED = "tuned"
_REPAIRED = "repaired"
_EVERY = "all"
_COLUMNS = ("clean", "average", "worst", "cv")
_ALL, _STRONG = "audit", "strong"  # of all images, and under strong attacks of some


@dataclass(frozen=True, kw_only=True)
class Group:
    """The models of one method, one for each seed, and the jobs that make each. against: the group it is compared with,
    itself where others are compared with it."""

    name: str
    models: tuple[ModelUnderStudy, ...]
    makers: tuple[tuple[StudyJob, ...], ...]
    against: str


@dataclass(frozen=True, kw_only=True)
class WorstClass(Study):
    """Methods that raise the worst class, over seeds.

    base: the recipe that the others fine-tune. tuned: recipes that fine-tune it, of the same budget; control: the name
    of the one that the others are compared with. scratch: recipes trained from scratch, compared with the base,
    or none. seeds: every model is trained once with each. repair: whose models are also repaired by a bias: all, none,
    or groups by name, such as trades (the base) and trades-tuned (fine-tuned from it). repair_attack: what the bias is
    fitted against, by default what a repair takes. keep_average: of the average it may cost at most this. set: settings
    to change in all recipes. eps, norm: of audits and repairs, instead of what the recipes say. attack: on all test
    images. per_class: of these, so many of each class. strong: attacks on some test images. strong_per_class: how many
    of each class, 0 for none. seed: of the audits.
    """

    base: str = f"{_RECIPES}/trades"
    tuned: tuple[str, ...] = tuple(f"{_RECIPES}/tuned/{name}" for name in _METHODS)
    control: str = "trades"
    scratch: tuple[str, ...] = tuple(f"{_RECIPES}/{name}" for name in ("fast", "madry", "wat"))
    seeds: tuple[int, ...] = (0, 1, 2)
    repair: tuple[str, ...] = (_EVERY,)
    repair_attack: str | None = None
    keep_average: float | None = 0.015
    set: tuple[str, ...] = ()
    eps: str | None = None
    norm: Norm | None = None
    attack: tuple[str, ...] = ("pgd-20", "margin_pgd-30")
    per_class: int | None = None
    strong: tuple[str, ...] = ("apgd_ce:iterations=50", "apgd_t:iterations=25")
    strong_per_class: int = 300
    seed: int = 0

    def jobs(self) -> list[StudyJob]:
        if len(self.seeds) < 2:
            raise UserError("one seed says nothing about others: give at least two, such as --seeds 0,1.")
        groups, places = self.groups(), range(len(self.seeds))  # seed by seed, so that what is done is of whole seeds
        makers = [[job for group in groups for job in group.makers[place]] for place in places]
        audits = [[job for group in groups for job in self._audits(group.models[place])] for place in places]
        return [job for place in places for job in (*makers[place], *audits[place])]

    def groups(self) -> list[Group]:
        """The base, what is trained from scratch beside it, and what fine-tunes it; then the repaired models."""
        name = _name(self.base)
        base = self._trained(name, self.base, name)
        scratch = [self._trained(_name(recipe), recipe, base.name) for recipe in self.scratch]
        control = self._control()
        tuned = [self._trained(_tuned(recipe), recipe, control, base) for recipe in self.tuned]
        repairable = {group.name: group for group in (base, *tuned)}
        chosen = list(repairable) if self.repair == (_EVERY,) else self.repair
        repaired = [self._repaired(lookup("group to repair", name, repairable)) for name in chosen]
        return [base, *scratch, *tuned, *repaired]

    def _control(self) -> str:
        """The group that fine-tuned models are compared with."""
        names = [_name(recipe) for recipe in self.tuned]
        return _tuned(self.tuned[index_of(self.control, names, "recipe of --tuned for --control")]) if names else ""

    def _trained(self, name: str, recipe: str, against: str, base: Group | None = None) -> Group:
        """A recipe trained with every seed, from scratch or from the base of that seed."""
        models = []
        for place, seed in enumerate(self.seeds):
            start = () if base is None else (f"model.weights={base.models[place].checkpoint}",)
            changes, setting = (*self.set, *start, f"train.seed={seed}"), Setting(None, self.eps, self.norm)
            models.append(from_recipe(f"{name}-{seed}", recipe, changes, setting))
        makers = tuple(tuple(model.jobs) for model in models)
        return Group(name=name, models=tuple(models), makers=makers, against=against)

    def _repaired(self, group: Group) -> Group:
        """The same models with a bias fitted on the images that their trainings held out."""
        found = [self._repair(model) for model in group.models]
        return Group(
            name=f"{group.name}-{_REPAIRED}",
            models=tuple(model for model, _ in found),
            makers=tuple((job,) for _, job in found),
            against=group.against,
        )

    def _repair(self, model: ModelUnderStudy) -> tuple[ModelUnderStudy, DeriveJob]:
        assert model.training is not None
        training = model.training
        job = model.derive(
            _REPAIRED,
            "classwise.studies.worst_class.repaired:repaired",
            recipe=training.recipe,
            changes=training.changes,
            attack=self.repair_attack,
            keep_average=self.keep_average,
            **model.threat_arguments,
        )
        best = RepairFolder(Path(f"{{{job.name}}}")).best.as_posix()
        return replace(model, name=job.name, checkpoint=best, training=None), job

    def _audits(self, model: ModelUnderStudy) -> list[StudyJob]:
        options = {"seed": self.seed, "probs": False}  # without probabilities, as those that the zoo has
        audits: list[StudyJob] = [model.audit(_ALL, self.attack, per_class=self.per_class, **options)]
        if self.strong_per_class:
            few = {"per_class": self.strong_per_class, "coverage": "survivors", **options}
            audits.append(model.audit(_STRONG, self.strong, **few))
        return audits

    def result(self, done: Done) -> StudyResult:
        tables: dict[str, pd.DataFrame] = {"costs": self._costs(done), "printed": printed_gains(self._data)}
        charts: dict[str, Chart] = {}
        claims: list[Claim] = []
        for suffix in (_ALL, _STRONG) if self.strong_per_class else (_ALL,):
            for control, found in self._compared(done, suffix).items():
                name = job_name(f"{control}_{suffix}")
                tables[name], tables[f"{name}_classes"] = found.table(), found.by_class()
                charts[f"forest_{name}"] = forest.differences(found, self._printed([*found.pairs]))
                claims += _claims(found)
        return StudyResult(tables, figures=charts, claims=claims, notes=self._notes())

    def _compared(self, done: Done, suffix: str) -> dict[str, GroupComparison]:
        """Each group that others are compared with, and the comparison with it under all attacks of these audits."""
        families: dict[str, dict[str, dict[str, Audit]]] = {}
        for group in self.groups():
            audits = {
                f"seed{seed}": done.audit(f"{model.name}-{suffix}")
                for seed, model in zip(self.seeds, group.models, strict=True)
            }
            families.setdefault(group.against, {})[group.name] = audits
        return {
            control: compare_groups(own, control, columns=_COLUMNS, pair="name")
            for control, own in families.items()
            if len(own) > 1
        }

    def _printed(self, groups: Sequence[str]) -> pd.DataFrame:
        """What the papers print that the methods of these groups gain under AutoAttack, on the data of the base."""
        rows = printed_gains(self._data)
        found = [rows[rows["method"] == self._method(group)].assign(group=group) for group in groups]
        return pd.concat(found)[["group", "worst", "average"]]

    @property
    def _data(self) -> str:
        return load(self.base, self.set).data.name.partition(":")[0]

    def _method(self, group: str) -> str | None:
        """The method of a group that was trained; none for a repaired one."""
        recipes = {_tuned(recipe): recipe for recipe in self.tuned} | {_name(recipe): recipe for recipe in self.scratch}
        return methods.name_of(load(recipes[group], self.set).method) if group in recipes else None

    def _costs(self, done: Done) -> pd.DataFrame:
        """What each group took: seconds of its trainings and repairs, those of the base not counted again."""
        rows = []
        for group in self.groups():
            made = [job for jobs in group.makers for job in jobs]
            seconds = [float((done.workspace.finished(job) or {})["seconds"]) for job in made]
            rows.append({"group": group.name, "models": len(seconds), "minutes each": float(np.mean(seconds)) / 60})
        return pd.DataFrame(rows)

    def _notes(self) -> list[str]:
        return [
            f"Differences are over {len(self.seeds)} seeds and the test images together (classwise compare --group); "
            "p-values are corrected by Holm over all groups and metrics of a table.",
            "Printed are the gains under AutoAttack that papers print of these methods, of other networks and budgets.",
            "Repairs were fitted on the images that the trainings held out; no test image was used for any choice.",
        ]


def _claims(found: GroupComparison) -> Iterator[Claim]:
    """Of each group but the control, whether its worst class is more robust; the average beside it."""
    table = found.table()
    first = next(iter(found.audits[found.control].values()))
    sample, test = images(smallest(first.rows())), f"seeds and images together, Holm over {found.tests} tests"
    for name in found.pairs:
        own = table[table["group"] == name]
        worst, average = (own[own["metric"] == metric].iloc[0] for metric in ("worst", "average"))
        numbers = (verdict_text(row, found.shown[str(row["metric"])], found.confidence) for row in (worst, average))
        p = float(worst["p_holm"]) / 2
        up, down = (p, 1 - p) if float(worst["difference"]) > 0 else (1 - p, p)
        text = f"{name} has a more robust worst class than {found.control} under {found.attack}."
        ruling = tails(up, down, test=test, sample=sample, needs=needed(worst))
        yield Claim("protocol", text, ruling, "; ".join(numbers))


def _name(recipe: str) -> str:
    return Path(recipe).stem


def _tuned(recipe: str) -> str:
    """The name of the group that a recipe fine-tunes."""
    return f"{_name(recipe)}-{_TUNED}"
