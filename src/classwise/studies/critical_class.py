"""Which classes lose when weak classes, or one critical class, are given more weight? (Benz et al. 2020, section 3.3.)

Cost-sensitive training (`methods.csl`) in the paper's two scenarios, against the base: all classes are to be equally
robust ("equal"), or one class is critical and only its weight is raised ("protect-CLASS"). The paper is a
pre-registration: it asks whether the classes become more equal, whether the critical class gains, and what the others
lose; it also plans a regulariser and a targeted attack, which are variants here (cosine=0.1, target=weakest).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from classwise.core.records import CLEAN, Records
from classwise.metrics import widening
from classwise.show import figures
from classwise.show.figures import forest
from classwise.show.figures.style import Chart
from classwise.studies.runner.result import Claim, Done, StudyResult
from classwise.studies.shared import over_seeds
from classwise.studies.shared.over_seeds import AVERAGE, change_of, points
from classwise.studies.shared.together import CV_RATIO, smallest, times
from classwise.studies.shared.variants import Variant, Variants, changes_in_percent, chosen, with_setting
from classwise.studies.shared.verdicts import either, falls_short, images, omnibus

_SOURCE = "benz2020:section3.3"


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
        made = [Variant("base", self.base)]
        for scenario, change in scenarios.items():
            made.append(Variant(_job(scenario), self.recipe, change))
            made += [
                Variant(_job(f"{scenario}-{setting}"), self.recipe, (*change, f"method.{setting}"))
                for setting in self.variant
            ]
        return made

    def result(self, done: Done) -> StudyResult:
        base, *others = self.variants()
        levels, changes = [], []
        for kind, attack in (("robust", None), ("clean", CLEAN)):
            start = self.rows(done, base, attack)
            levels.append({"accuracy": kind, "training": base.name, **over_seeds.level(start, start)})
            for variant in others:
                rows = self.rows(done, variant, attack)
                levels.append({"accuracy": kind, "training": variant.name, **over_seeds.level(rows, start)})
                shown = changes_in_percent(over_seeds.changes(start, rows)).rename(columns={"robust (%)": "now (%)"})
                shown.insert(0, "training", variant.name)
                shown.insert(0, "accuracy", kind)
                changes.append(shown)
        return StudyResult(
            {"trainings": pd.DataFrame(levels), "changes": pd.concat(changes, ignore_index=True)},
            {"changes": figures.styled(self._chart(done))},
            list(self._claims(done)),
            self.notes(),
        )

    def _critical_classes(self) -> list[str]:
        recipe = with_setting(self.recipe, self.set, "critical")
        return chosen(recipe, self.class_name) if self.class_name else []

    def _chart(self, done: Done) -> Chart:
        """Change of each class's robustness against the base, with intervals."""
        base, *others = self.variants()
        start = self.rows(done, base)
        frame = pd.concat(
            over_seeds.changes(start, self.rows(done, variant)).assign(run=variant.name) for variant in others
        ).rename(columns={"change": "value"})
        return forest.dots(frame[frame["class"] != AVERAGE], "change of robust accuracy", domain=None, percent=True)

    def _claims(self, done: Done) -> Iterator[Claim]:
        base, *others = self.variants()
        start = self.rows(done, base)
        for variant in others:
            rows = self.rows(done, variant)
            table = over_seeds.changes(start, rows)
            critical = next((name for name in self._critical_classes() if _critical(name) in variant.changes), None)
            seeds = len(self.seeds)
            if critical is None:
                yield _equal(variant.name, start, rows)
            else:
                yield _protected(variant.name, critical, table, seeds)
            yield _lost(variant.name, critical, table, seeds)


def _critical(name: str) -> str:
    return f"method.critical={json.dumps(name)}"


def _job(name: str) -> str:
    """A name that a job may have."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", name)


def _equal(training: str, base: Sequence[Records], runs: Sequence[Records]) -> Claim:
    """With several seeds, the least favourable of their intervals."""
    found = [widening.compute(run, start) for run, start in zip(runs, base, strict=True)]
    low, high = min(each.ratio_low for each in found), max(each.ratio_high for each in found)
    ratio = float(np.median([each.ratio for each in found]))
    text = f"{training}: the classes become more equal in robustness."
    ruling = falls_short(low, high, 1.0, test=CV_RATIO, sample=images(smallest(*runs, *base)))
    return Claim(_SOURCE, text, ruling, f"CV against the base's {times(ratio, low, high)}")


def _protected(training: str, critical: str, table: pd.DataFrame, seeds: int) -> Claim:
    gain = change_of(table, critical)
    return Claim(_SOURCE, f"{training}: {critical} becomes more robust.", over_seeds.rises(gain, seeds), points(gain))


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
