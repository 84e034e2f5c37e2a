"""Do fairness methods improve the worst class, and at what cost? (Li & Liu 2023, Tables 1, 2, 4 and 5, Theorem 3.)

TRADES and methods that build on it, on natural images, under PGD-100, PGD on the margin and AutoAttack: average and
worst class accuracy, ρ against the base, CV. Intervals of ρ and of gains in the worst class are over the sampling of
images, the same ones for all models (`shared.together`); they do not cover the variance between training seeds. In
addition the paper's bound for linear classifiers, computed for one trained here (`linear_bound`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from classwise.attacks import parse
from classwise.core.errors import UserError, index_of
from classwise.core.records import CLEAN, Records
from classwise.core.storage import safe_name
from classwise.metrics import average, cv, rho, worst
from classwise.show.figures import radar, scatter
from classwise.stats.intervals import Array
from classwise.studies.runner.graph import DeriveJob, StudyJob
from classwise.studies.runner.models_under_study import ModelUnderStudy
from classwise.studies.runner.result import Claim, Done, StudyResult
from classwise.studies.runner.study import OfModels
from classwise.studies.shared.together import (
    BOOTSTRAP,
    columns_in_percent,
    interval,
    require_same_setting,
    resampled,
    rhos,
    smallest,
)
from classwise.studies.shared.verdicts import all_held, exceeds, falls_short, images, undecided
from classwise.training.recipe import load

_SUITE = "autoattack"
_BOUND = "linear"
_PAPERS_STEP = 0.003  # at 8/255


@dataclass(frozen=True, kw_only=True)
class Fairness(OfModels):
    """Fairness methods against their base.

    base: the name of the model that ρ is measured against; recipes that fine-tune start from it, and those that distil
    learn from it. claimed: the model whose ρ is claimed to be the best. attack: in addition to AutoAttack.
    autoattack_per_class: images of each class for it, 0 for none. linear_epochs: of the linear classifier for the
    bound, 0 for none. protocol: "final" judges the last step alone, as the paper's code does.
    """

    base: str = "trades"
    claimed: str = "wat"
    attack: tuple[str, ...] = ("pgd-100", "margin_pgd-30")
    autoattack_per_class: int = 20
    linear_epochs: int = 10
    protocol: Literal["any", "final"] = "any"

    def models(self) -> list[ModelUnderStudy]:
        """The base first; recipes that fine-tune start from it, those that distil learn from it."""
        found = super().models()
        base = found.pop(index_of(self.base, [model.name for model in found], "model for --base"))
        if not found:
            raise UserError(f"{base.name} is the base; give a model to compare with it, such as one of recipe wat.")
        require_same_setting([base, *found])
        return [base, *(_after_base(model, base) for model in found)]

    def jobs(self) -> list[StudyJob]:
        found: list[StudyJob] = []
        for model in self.models():
            options = {"seed": self.seed, "protocol": self.protocol}
            found += [*model.jobs, model.audit("audit", self.attack, per_class=self.per_class, **options)]
            if self.autoattack_per_class:
                found.append(model.audit(_SUITE, [_SUITE], per_class=self.autoattack_per_class, seed=self.seed))
        if self._bounded:
            first = self.models()[0]
            settings = {"data": first.data, "eps": first.eps, "epochs": self.linear_epochs, "seed": self.seed}
            found.append(DeriveJob(_BOUND, "classwise.studies.fairness.linear_bound:linear", settings))
        return found

    @property
    def _bounded(self) -> bool:
        """Theorem 3 is about the L∞ ball."""
        return self.linear_epochs > 0 and self.models()[0].norm == "linf"

    def result(self, done: Done) -> StudyResult:
        runs = self._runs(done)
        drawn = {attack: resampled(list(own.values()), seed=self.seed) for attack, own in runs.items()}
        rows = [row for attack, own in runs.items() for row in _rows(attack, own, drawn[attack])]
        tables = {"methods": pd.DataFrame(rows), "summary": _summary(pd.DataFrame(rows))}
        robust = {attack: own for attack, own in runs.items() if attack != CLEAN}
        claims = [self._raises(place, robust, drawn) for place in range(1, len(next(iter(runs.values()))))]
        claims += self._best(robust, drawn)
        charts = {f"radar_{safe_name(attack)}": radar.draw(own) for attack, own in robust.items()}
        charts |= {f"scatter_{safe_name(attack)}": scatter.draw(own) for attack, own in robust.items()}
        if self._bounded:
            bound, classes = done.table(_BOUND, "bound.csv"), done.table(_BOUND, "classes.csv")
            tables["bound"] = bound.assign(vacuous=np.where(bound["total"] >= 1, "yes", "no"))  # no error is above 1
            tables["linear"] = columns_in_percent(classes, "error").drop(columns="wrong")
            claims.append(_theorem(tables["bound"], tables["linear"]))
        return StudyResult(tables, figures=charts, claims=claims, notes=self._notes())

    def _runs(self, done: Done) -> dict[str, dict[str, Records]]:
        """The rows of every model, the base first, by attack."""
        audits = self.audits(done)
        attacks = (CLEAN, *parse(list(self.attack)))
        runs = {attack: {name: audit.rows(attack) for name, audit in audits.items()} for attack in attacks}
        if self.autoattack_per_class:
            runs[_SUITE] = {name: done.rows(f"{name}-{_SUITE}") for name in audits}
        return runs

    def _raises(self, place: int, runs: Mapping[str, Mapping[str, Records]], drawn: Mapping[str, Array]) -> Claim:
        """The gain in the worst class under every attack; Bonferroni over the methods."""
        first = next(iter(runs.values()))
        name, level = list(first)[place], 1 - 0.05 / (len(first) - 1)
        rulings, numbers = [], []
        test = f"{BOOTSTRAP}, Bonferroni over the methods"
        for attack, own in runs.items():
            lowest = [worst.compute(rows).value for rows in own.values()]
            least = 100 * np.nanmin(drawn[attack], axis=2)
            low, high = interval(least[:, place] - least[:, 0], level)
            rulings.append(exceeds(low, high, test=test, sample=images(smallest(*own.values()))))
            ends = f"{low:.1f} to {high:.1f}" if np.isfinite(low) else "no interval: too few images"
            numbers.append(f"{attack}: {100 * (lowest[place] - lowest[0]):+.1f} points ({ends})")
        text = f"{name} has a more robust worst class than {self.base}."
        return Claim("li2023:table1", text, all_held(*rulings), "; ".join(numbers))

    def _best(self, runs: Mapping[str, Mapping[str, Records]], drawn: Mapping[str, Array]) -> list[Claim]:
        """ρ of the claimed model minus the best of the others', the base's 0 among them, under every attack."""
        names = list(next(iter(runs.values())))
        if self.claimed not in names[1:]:
            return []
        at = names.index(self.claimed)
        rulings, numbers = [], []
        for attack, own in runs.items():
            seen = {name: rho.compute(rows, own[names[0]]) for name, rows in own.items()}
            found = rhos(drawn[attack])
            low, high = interval(found[:, at] - np.delete(found, at, axis=1).max(axis=1))
            rival = max((name for name in names if name != self.claimed), key=lambda name: np.nan_to_num(seen[name]))
            rulings.append(exceeds(low, high, test=BOOTSTRAP, sample=images(smallest(*own.values()))))
            text = f"{seen[self.claimed]:.3f}, next {rival} {seen[rival]:.3f}, ahead by {low:.3f} to {high:.3f}"
            numbers.append(f"{attack}: {text if np.isfinite(low) else 'a class of the base has accuracy 0'}")
        return [Claim("li2023:table1", f"{self.claimed} has the best rho.", all_held(*rulings), "; ".join(numbers))]

    def _notes(self) -> list[str]:
        notes = []
        if any(getattr(attack, "step", None) != _PAPERS_STEP for attack in parse(list(self.attack)).values()):
            notes.append("Steps are those given in the attacks, by default a quarter of eps; the paper's are 0.003.")
        if self.protocol == "any":
            notes.append("An image is broken if any step of an attack breaks it; the paper judges the last step.")
        if self.autoattack_per_class:
            notes.append(f"AutoAttack on {self.autoattack_per_class} images of each class; the paper uses all.")
        if self.linear_epochs and not self._bounded:
            notes.append("The bound for linear classifiers is left out: it holds for the L∞ ball, not for L2.")
        return notes


def _after_base(model: ModelUnderStudy, base: ModelUnderStudy) -> ModelUnderStudy:
    """A recipe of a method that fine-tunes, without weights of its own, starts from the base's; one that distils,
    without weights for its teacher, distils the base where that has the teacher's network."""
    if model.training is None:
        return model
    chosen = load(model.training.recipe, model.training.changes)
    lacking = ["model"] if chosen.method.fine_tunes and chosen.model.weights is None else []
    if "teacher" in chosen.method.needs_teacher() and chosen.teacher.weights is None and base.training is not None:
        own = load(base.training.recipe, base.training.changes).model.spec
        lacking += ["teacher"] if chosen.teacher.spec in (None, own) else []
    if not lacking:
        return model
    changes = (*model.training.changes, *(f"{part}.weights={base.checkpoint}" for part in lacking))
    return dataclasses.replace(model, training=dataclasses.replace(model.training, changes=changes))


def _rows(attack: str, own: Mapping[str, Records], drawn: Array) -> list[dict[str, Any]]:
    base = next(iter(own.values()))
    found = []
    for place, (name, rows) in enumerate(own.items()):
        mean, lowest = average.estimate(rows), worst.compute(rows)
        row: dict[str, Any] = {"attack": attack, "model": name, "images": len(rows)}
        row |= {"average": 100 * mean.value, "average_low": 100 * mean.low, "average_high": 100 * mean.high}
        row |= {"worst_class": lowest.name, "worst": 100 * lowest.value}
        row |= {"worst_low": 100 * lowest.low, "worst_high": 100 * lowest.high, "rho": rho.compute(rows, base)}
        row |= dict(zip(("rho_low", "rho_high"), interval(rhos(drawn)[:, place]), strict=True))
        found.append({**row, "cv_percent2": cv.compute(rows)})
    return found


def _summary(methods: pd.DataFrame) -> pd.DataFrame:
    """As the paper prints it: a row for each model; average, worst, rho and CV of each attack side by side."""
    names = {"average": "avg", "worst": "worst", "rho": "rho", "cv_percent2": "cv_percent2"}
    found: dict[str, dict[str, Any]] = {}
    for row in methods.to_dict("records"):
        attack = "natural" if row["attack"] == CLEAN else row["attack"]
        own = found.setdefault(row["model"], {"model": row["model"]})
        own |= {f"{attack}_{short}": row[key] for key, short in names.items()}
    return pd.DataFrame(list(found.values()))


def _theorem(table: pd.DataFrame, classes: pd.DataFrame) -> Claim:
    stated, tight = (table[table["form"] == form] for form in ("as stated", "tightened"))
    row = stated.iloc[int(stated["total"].argmin())]
    tested = classes[(classes["split"] == "test") & (classes["n"] > 0)]
    ruling = undecided("no error is above 1, so a bound above 1 is vacuous")
    if row["total"] < 1:
        test, sample = "exact bounds of the worst class's error (Šidák)", images(tested["n"].min())
        ruling = falls_short(row["measured_low"], row["measured_high"], row["total"], test=test, sample=sample)
    says = "vacuous, being above 1" if row["total"] >= 1 else "not vacuous"
    numbers = (
        f"bound {row['total']:.3g} ({says}), tightened {tight['total'].min():.3g}; measured error of the worst class "
        f"{row['measured']:.3f} ({row['measured_low']:.3f} to {row['measured_high']:.3f})"
    )
    text = "The bound for linear classifiers limits the worst class's robust error."
    return Claim("li2023:theorem3", text, ruling, numbers)
