"""Do robust or non-robust features make the classes differ? (Benz et al. 2020, Section 3.2, after Ilyas et al. 2019.)

Training sets of one kind of feature are built from the same images by optimisation, a model is trained on each, and the
classes are compared on the original test images, clean and under a small L2 attack:

    robust       x_r = argmin ‖g(x_r) − g(x)‖₂ from another image's pixels, g the penultimate vector of a robust model;
                 label y
    non-robust   the same with g of a standard model
    rand         x + argmin_{‖δ‖₂ ≤ ε} CE(z(x + δ), t) of a standard model, t drawn from all classes; label t
    det          the same with t = y + 1 (mod C)
    original     x; label y: the control

Steps follow the normalised gradient. Departure from Ilyas et al.'s code: the ReLU before g keeps its true gradient.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from classwise.core.errors import UserError, unknown
from classwise.core.format import percent
from classwise.core.records import CLEAN, Records
from classwise.core.threat import Norm
from classwise.metrics import accuracy, agreement, cv, difference, mcd, overall, worst
from classwise.show.figures import forest
from classwise.studies.features import building
from classwise.studies.features.building import ORIGINAL
from classwise.studies.runner.graph import DeriveJob, StudyJob
from classwise.studies.runner.models_under_study import ModelUnderStudy, Setting, from_recipe
from classwise.studies.runner.result import Claim, Done, StudyResult
from classwise.studies.runner.study import OfModels
from classwise.studies.shared.together import EXACT, HALVES, PAIRED, cv_change, exact, in_percent, of_models, smallest
from classwise.studies.shared.verdicts import all_held, exceeds, images

_SOURCE = "benz2020:section3.2-features"
#: Each set and the model its features are of.
_SETS = {"robust": "robust", "non-robust": "standard", "rand": "standard", "det": "standard", ORIGINAL: "standard"}


@dataclass(frozen=True, kw_only=True)
class Features(OfModels):
    """Training on robust and on non-robust features.

    model, recipe: one called robust and one called standard, robust=PATH. retrain: the recipe for the models trained on
    the sets, by default that of standard. sets: which to build in addition to the original. train_per_class: training
    images of each class they are built from. iterations, step: of the inversion of g. attack_iterations, attack_eps:
    of rand and det, also in steps of `step`, in L2. attack, eps, norm: of the audits.
    """

    eps: str | None = "0.25"
    norm: Norm | None = "l2"
    retrain: str | None = None
    sets: tuple[str, ...] = ("robust", "non-robust", "rand", "det")
    train_per_class: int = 500
    iterations: int = 100
    step: float = 0.1
    attack_iterations: int = 50
    attack_eps: float = 0.5
    attack: str = "pgd-20"

    def jobs(self) -> list[StudyJob]:
        sources = self._sources()
        found = [job for source in sources.values() for job in source.jobs]
        for kind, model in self._trained().items():
            iterations = self.iterations if kind in ("robust", "non-robust") else self.attack_iterations
            settings = {"kind": kind, "model": sources[_SETS[kind]].checkpoint, "data": model.data, "seed": self.seed}
            settings |= {"step": self.step, "eps": self.attack_eps, "iterations": iterations}
            settings |= {"per_class": self.train_per_class}
            audit = model.audit("audit", [self.attack], per_class=self.per_class, seed=self.seed)
            found += [DeriveJob(f"{kind}-data", f"{building.__name__}:build", settings), *model.jobs, audit]
        return found

    def result(self, done: Done) -> StudyResult:
        audits = {kind: done.audit(f"{model.name}-audit") for kind, model in self._trained().items()}
        clean = {kind: audit.rows(CLEAN) for kind, audit in audits.items()}
        robust = {kind: audit.rows() for kind, audit in audits.items()}
        return StudyResult(
            {"sets": by_set(clean, robust), "classes": by_class(clean, robust)},
            figures={"accuracy_on_clean_images": forest.draw(clean)},
            claims=claims(clean, robust, self.seed),
            notes=[
                f"The sets are built from {self.train_per_class} images of each class with {self.iterations} steps "
                f"(rand, det: {self.attack_iterations}); Ilyas et al. take all of CIFAR-10 and 1000 (100) steps.",
                "The paper is a pre-registration without results; each set was built and trained on once.",
            ],
        )

    def _sources(self) -> dict[str, ModelUnderStudy]:
        found = {model.name: model for model in self.models()}
        for name in ("robust", "standard"):
            if name not in found:
                raise UserError(
                    f"features needs a model called {name}: give --model {name}=CHECKPOINT or --recipe {name}=RECIPE. "
                    f"There is {', '.join(found)}."
                )
        if found["robust"].data != found["standard"].data:
            raise UserError(
                f"the robust model is for {found['robust'].data}, the standard one for {found['standard'].data}; both "
                "must be for the same data."
            )
        return found

    def _trained(self) -> dict[str, ModelUnderStudy]:
        """The models trained on each set, the control first."""
        sets = [kind for text in self.sets for kind in text.split(",")]
        for kind in sets:
            if kind not in _SETS:
                raise unknown("set of features", kind, _SETS)
        standard = self._sources()["standard"]
        recipe = self.retrain or (standard.training.recipe if standard.training else None)
        if recipe is None:
            raise UserError("no recipe to train on the sets with: give --retrain RECIPE.")
        setting, found = Setting(standard.data, self.eps, self.norm), {}
        for kind in dict.fromkeys((ORIGINAL, *sets)):
            name = json.dumps(f"arrays:file={{{kind}-data}}/images.npz")
            changes = (*self.set, f"data.name={name}")
            found[kind] = from_recipe(f"on-{kind}", recipe, changes, setting)
        return found


def by_set(clean: Mapping[str, Records], robust: Mapping[str, Records]) -> pd.DataFrame:
    """One row per set: accuracy, spread of the classes, the worst class, and agreement with the control."""
    rows = []
    for kind, own in clean.items():
        total, attacked = overall.compute(own), overall.compute(robust[kind])
        rows.append(
            {
                "trained on": kind,
                "n": total.support,
                **in_percent("clean", total, ""),
                **in_percent("robust", attacked),
                "CV (%²)": cv.compute(own),
                "MCD (points)": 100 * mcd.compute(own),
                "worst class": worst.compute(own).name,
                "order as original (rho)": agreement.compute(clean[ORIGINAL], own).spearman,
            }
        )
    return pd.DataFrame(rows)


def by_class(clean: Mapping[str, Records], robust: Mapping[str, Records]) -> pd.DataFrame:
    """One row per set and class, with simultaneous intervals over the classes of a set."""
    tables = {}
    for kind in clean:
        own, attacked = (accuracy.compute(runs[kind], simultaneous=True) for runs in (clean, robust))
        front = pd.DataFrame({"class": own.class_names, "n": own.support})
        tables[kind] = front.assign(**in_percent("clean", own, ""), **in_percent("robust", attacked))
    return of_models(tables, "trained on")


def claims(clean: Mapping[str, Records], robust: Mapping[str, Records], seed: int = 0) -> list[Claim]:
    """The claims about the two kinds of features, if both were built."""
    if not {"robust", "non-robust"} <= clean.keys():
        return []
    return [_useful(clean), _gives_robustness(robust), _spread(clean, seed)]


def _useful(clean: Mapping[str, Records]) -> Claim:
    chance = 1 / clean[ORIGINAL].num_classes
    shown, rulings = [], []
    for kind in ("robust", "non-robust"):
        total = overall.compute(clean[kind])
        low, high = exact(total.value, total.support)
        shown.append(f"{kind} {percent(total.value)} ({percent(low)} to {percent(high)})")
        rulings.append(exceeds(low, high, chance, test=EXACT, sample=images(total.support, "images")))
    return Claim(
        _SOURCE,
        "Robust and non-robust features are both useful for classification.",
        all_held(*rulings),
        f"clean accuracy after training on them: {', '.join(shown)}; chance {percent(chance)}",
    )


def _gives_robustness(robust: Mapping[str, Records]) -> Claim:
    change = difference.compute(robust[ORIGINAL], robust["robust"]).iloc[-1]
    low, high = float(change["low"]), float(change["high"])
    return Claim(
        _SOURCE,
        "Standard training on robust features alone gives robustness that the original images do not.",
        exceeds(low, high, test=PAIRED, sample=images(change["n_first"], "images")),
        f"robust {percent(change['first'])} and {percent(change['second'])}: {100 * change['difference']:+.1f} points, "
        f"95% CI {100 * low:+.1f} to {100 * high:+.1f}",
    )


def _spread(clean: Mapping[str, Records], seed: int) -> Claim:
    """The difference of the two CVs, without the sampling noise of few images."""
    kinds = ("robust", "non-robust")
    more, low, high = cv_change(clean["non-robust"], clean["robust"], seed=seed)
    first, second = (cv.compute(clean[kind]) for kind in kinds)
    ends = f"95% CI {low:+.0f} to {high:+.0f}" if np.isfinite(low) else "no interval"
    return Claim(
        _SOURCE,
        "Robust features make the classes differ more than non-robust features do.",
        exceeds(low, high, test=HALVES, sample=images(smallest(*(clean[kind] for kind in kinds)))),
        f"CV of clean accuracy {first:.0f} and {second:.0f} %²; difference without sampling noise {more:+.0f}, {ends}",
    )
