"""Which classes lose when weak classes, or one critical class, are given more weight? (Benz et al. 2020, section 3.3.)

Cost-sensitive training (`methods.csl`) in the paper's two scenarios, against the base: all classes are to be equally
robust ("equal"), or one class is critical and only its weight is raised ("protect-CLASS"). The paper is a
pre-registration: it asks whether the classes become more equal, whether the critical class gains, and what the others
lose; it also plans a regulariser and a targeted attack, which are variants here (cosine=0.1, target=weakest).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from classwise.core.records import CLEAN, Records
from classwise.metrics import widening
from classwise.show.figures import forest
from classwise.show.figures.style import Chart
from classwise.studies.runner.graph import job_name
from classwise.studies.runner.result import Claim, Done, StudyResult
from classwise.studies.shared import over_seeds
from classwise.studies.shared.over_seeds import AVERAGE, change_of, points
from classwise.studies.shared.together import CV_RATIO, of_models, smallest, times
from classwise.studies.shared.variants import Variant, Variants, changes_in_percent, chosen, with_setting
from classwise.studies.shared.verdicts import either, falls_short, images, omnibus

_SOURCE = "benz2020:section3.3"
_BASE = "base"


@dataclass(frozen=True, kw_only=True)
class CriticalClass(Variants):
    """Cost-sensitive training for equal classes, or for a critical one.

    recipe: of csl. base: the recipe it is measured against. class_name: critical classes, each protected in a training
    of its own; without any only "equal" is trained. variant: settings of csl to try in addition, such as
    target=weakest, cosine=0.1 or rule=inverse, each in one more training per scenario.
    """

    recipe: str = "desk/cifar10/csl"
    base: str = "desk/cifar10/trades"
    class_name: tuple[str, ...] = ()
    variant: tuple[str, ...] = ()

    def variants(self) -> list[Variant]:
        scenarios = {"equal": (), **{f"protect-{name}": (_critical(name),) for name in self._critical_classes()}}
        made = [Variant(_BASE, self.base)]
        for scenario, change in scenarios.items():
            settings = {scenario: change, **{f"{scenario}-{own}": (*change, f"method.{own}") for own in self.variant}}
            made += [Variant(job_name(name), self.recipe, changes) for name, changes in settings.items()]
        return made

    def result(self, done: Done) -> StudyResult:
        levels, moved = [], {}
        for kind, attack in (("robust", None), ("clean", CLEAN)):
            runs = {variant.name: self.rows(done, variant, attack) for variant in self.variants()}
            levels += [{"accuracy": kind, "training": n, **over_seeds.level(r, runs[_BASE])} for n, r in runs.items()]
            moved[kind] = {name: over_seeds.changes(runs[_BASE], rows) for name, rows in runs.items() if name != _BASE}
        shown = {
            kind: of_models({name: changes_in_percent(table) for name, table in own.items()}, "training")
            for kind, own in moved.items()
        }
        changes = of_models(shown, "accuracy").rename(columns={"robust (%)": "now (%)"})
        return StudyResult(
            {"trainings": pd.DataFrame(levels), "changes": changes},
            figures={"changes": _chart(moved["robust"])},
            claims=list(self._claims(done, moved["robust"])),
            notes=self.notes(),
        )

    def _critical_classes(self) -> list[str]:
        recipe = with_setting(self.recipe, self.set, "critical")
        return chosen(recipe, self.class_name) if self.class_name else []

    def _claims(self, done: Done, changes: Mapping[str, pd.DataFrame]) -> Iterator[Claim]:
        base, *others = self.variants()
        seeds = len(self.seeds)
        for variant in others:
            table = changes[variant.name]
            critical = next((name for name in self._critical_classes() if _critical(name) in variant.changes), None)
            if critical is None:
                yield _equal(variant.name, self.rows(done, base), self.rows(done, variant))
            else:
                gain = change_of(table, critical)
                text = f"{variant.name}: {critical} becomes more robust."
                yield Claim(_SOURCE, text, over_seeds.rises(gain, seeds), points(gain))
            yield _lost(variant.name, critical, table, seeds)


def _chart(changes: Mapping[str, pd.DataFrame]) -> Chart:
    """Change of each class's robustness against the base, with intervals."""
    frame = of_models(changes, "run").rename(columns={"change": "value"})
    return forest.dots(frame[frame["class"] != AVERAGE], "change of robust accuracy", domain=None, percent=True)


def _critical(name: str) -> str:
    return f"method.critical={json.dumps(name)}"


def _equal(training: str, base: Sequence[Records], runs: Sequence[Records]) -> Claim:
    """With several seeds, the least favourable of their intervals."""
    found = [widening.compute(run, start) for run, start in zip(runs, base, strict=True)]
    low, high = min(each.ratio_low for each in found), max(each.ratio_high for each in found)
    ratio = float(np.median([each.ratio for each in found]))
    text = f"{training}: the classes become more equal in robustness."
    ruling = falls_short(low, high, 1.0, test=CV_RATIO, sample=images(smallest(*runs, *base)))
    return Claim(_SOURCE, text, ruling, f"CV against the base's {times(ratio, low, high)}")


def _lost(training: str, critical: str | None, table: pd.DataFrame, seeds: int) -> Claim:
    """Whether others lose: a class does if Holm's p-value says so, and none does if all of them significantly gain."""
    others = table[~table["class"].isin([critical, AVERAGE]) & (table["n"] > 0)]
    losing = others[others["effect"] == "loses"]
    test = f"{'exact McNemar test' if seeds == 1 else over_seeds.OF_SEEDS} of each class, Holm"
    sample = images(others["n"].min() if len(others) else 0)
    losses = others["p_holm"].where(others["change"] < 0, 1.0)
    ruling = either(
        omnibus(float(losses.min()), test=test, sample=sample),
        omnibus(float(others["p_holm"].where(others["change"] > 0, 1.0).max()), test=test, sample=sample),
    )
    names = ", ".join(
        f"{name} {100 * change:+.1f}" for name, change in zip(losing["class"], losing["change"], strict=True)
    )
    numbers = f"beyond chance: {names or 'none'}; average {points(change_of(table))}"
    return Claim(_SOURCE, f"{training}: {'other' if critical else 'some'} classes lose robustness.", ruling, numbers)
