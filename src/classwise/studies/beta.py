"""Does one class's β of TRADES change the robustness of another? (Tian et al. 2021, Figure 4c.)

    loss = (1/B) Σ CE(z(x), y) + β_y KL(p(x) ‖ p(x'))        β_y = `beta` for the named classes, else the recipe's

The paper lowers the β of dog from 6 to 0.5: dog loses robustness and cat, which is most often misclassified as dog,
gains. Here a class's partner is the one that the base model most often misclassifies as it under attack, and all
classes are ranked by that: the more often a class is misclassified as the one with the lower β, the more it should
gain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from classwise.core.format import percent
from classwise.core.records import Records
from classwise.metrics import confusion
from classwise.stats.correlation import rank_test
from classwise.studies.runner.result import Claim, Done, StudyResult
from classwise.studies.shared import over_seeds
from classwise.studies.shared.over_seeds import change_of, points
from classwise.studies.shared.temperature_sweep import PAPERS_ATTACK, is_the_papers
from classwise.studies.shared.together import RANKS, halves, smallest
from classwise.studies.shared.variants import Variant, Variants, check_sweep, class_setting, class_values, sweep_result
from classwise.studies.shared.verdicts import classes, either, images, tails


@dataclass(frozen=True, kw_only=True)
class Beta(Variants):
    """Class-wise β of TRADES, one class's swept.

    recipe: of trades or a method built on it; its own β is the base and is added to the sweep. class_name: the class or
    classes whose β is changed. beta: the values. margin: points of accuracy below which the partner's gain counts as
    none.
    """

    recipe: str = "desk/cifar10/trades"
    class_name: tuple[str, ...] = ()
    beta: tuple[float, ...] = (0.5, 2.0, 6.0)
    margin: float = 2.0

    def variants(self) -> list[Variant]:
        names, base = class_setting(self.recipe, self.set, "beta", self.class_name)
        check_sweep("beta", (*self.beta, base))
        changed = {value: (class_values("beta", names, value, base),) for value in self._values(base) if value != base}
        return [Variant(f"beta-{value:g}", self.recipe, changed.get(value, ())) for value in self._values(base)]

    def result(self, done: Done) -> StudyResult:
        names, base = class_setting(self.recipe, self.set, "beta", self.class_name)
        runs = self.runs(done, self._values(base))
        partners, lowest = _partners(runs[base], names), min(runs)
        highlight = [*names, partners.index[0]] if len(partners) else names
        found = sweep_result(runs, base, "beta", f"β of {' and '.join(names)}", highlight)
        ranking = _ranking(over_seeds.changes(runs[base], runs[lowest]) if lowest < base else None, partners)
        return dataclasses.replace(
            found,
            tables={**found.tables, "partners": ranking},
            claims=list(_claims(runs, names, lowest, base, self.margin / 100)) if lowest < base else (),
            notes=self.notes(),
        )

    def notes(self) -> tuple[str, ...]:
        """What the intervals do not cover, and an attack that is not the paper's."""
        here = "" if all(map(is_the_papers, self.attack)) else ", ".join(self.attack)
        return (*super().notes(), *([PAPERS_ATTACK.format(here)] if here else ()))

    def _values(self, base: float) -> list[float]:
        return sorted({*self.beta, base})


def _partners(runs: Sequence[Records], names: Sequence[str]) -> pd.Series:
    """For each other class the share of its images that the base misclassifies as the named ones, the largest first."""
    rates = np.mean([confusion.rates(run) for run in runs], axis=0)
    classes = runs[0].class_names
    into = rates[:, [classes.index(name) for name in names]].sum(axis=1)
    found = pd.Series(into, index=list(classes)).drop(list(names)).dropna()
    return found.sort_values(ascending=False, kind="stable")


def _ranking(changes: pd.DataFrame | None, partners: pd.Series) -> pd.DataFrame:
    """The other classes by how often they are misclassified as the swept ones, and how the lowest β changes them."""
    table = pd.DataFrame({"class": partners.index, "misclassified as it (%)": 100 * partners.to_numpy()})
    if changes is not None:
        table["change at lowest (points)"] = [100 * change_of(changes, name).value for name in partners.index]
    return table


def _claims(
    runs: Mapping[float, Sequence[Records]], names: Sequence[str], lowest: float, base: float, margin: float
) -> Iterator[Claim]:
    """The partner and the confusion rates are estimated on one half of the images, the gains on the other: an image
    that the base happens to get wrong would otherwise count for both."""
    source, from_to, seeds = "tian2021:figure4c", f"β from {base:g} to {lowest:g}", len(runs[base])
    whole = over_seeds.changes(runs[base], runs[lowest])
    for name in names:
        own = change_of(whole, name)
        text = f"A lower β of {name} makes {name} less robust."
        yield Claim(source, text, over_seeds.falls(own, seeds), f"{from_to}: {points(own)}")
    first, second = halves([*runs[base], *runs[lowest]])
    partners = _partners(first[:seeds], names)
    if not len(partners):
        return
    changes = over_seeds.changes(second[:seeds], second[seeds:])
    partner, rate = str(partners.index[0]), percent(partners.iloc[0])
    gain = change_of(changes, partner)
    text = f"It makes {partner}, most often misclassified as {' or '.join(names)}, more robust."
    numbers = f"{from_to}: {points(gain)}; misclassification rate {rate}, on the other half of the images"
    ruling = either(over_seeds.rises(gain, seeds), over_seeds.falls(gain, seeds, margin=margin))
    yield Claim(source, text, ruling, numbers)
    found = rank_test(partners.to_numpy(), np.array([change_of(changes, name).value for name in partners.index]))
    sample = (images(smallest(*runs[base], *runs[lowest])), classes(found.n))
    ruling = tails(found.p_greater, found.p_less, test=RANKS, sample=sample)
    text = "The classes gain in the order in which they are misclassified as it."
    yield Claim(source, text, ruling, f"{found}, {found.n} classes, between two halves of the images")
