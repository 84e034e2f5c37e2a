"""Does a larger loss weight improve a class, and at whose cost? (Li and Liu 2023, Figure 3.)

    loss = (1/B) Σ w_y ℓ(x, y)        w_y = `weight` for the named classes; the others share the rest, so that the mean
                                      over the classes stays 1

The paper gives cat 0.05 to 0.25 of a total of 1 among ten classes, which is 0.5 to 2.5 here: up to 1.5 the worst class
gains 23.1 points and the average loses 0.09, beyond it both decrease.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.studies.runner.result import Claim, Done, StudyResult
from classwise.studies.shared import over_seeds, variants
from classwise.studies.shared.over_seeds import change_of, points
from classwise.studies.shared.variants import Variant, Variants, class_setting, class_values, sweep_result
from classwise.studies.shared.verdicts import all_held

_LITTLE = 0.01  # the loss of the average, as a fraction, that counts as small


@dataclass(frozen=True, kw_only=True)
class Weight(Variants):
    """Loss weight of one class swept.

    recipe: of any method; equal weights are the base and are added to the sweep. class_name: the class or classes whose
    weight is changed. weight: the values, 1 being an equal share. num_classes: where the data set does not say.
    """

    recipe: str = "desk/cifar10/trades"
    class_name: tuple[str, ...] = ()
    weight: tuple[float, ...] = (0.5, 1.0, 1.5, 2.0, 2.5)
    num_classes: int | None = None

    def variants(self) -> list[Variant]:
        names, scale = class_setting(self.recipe, self.set, "weight", self.class_name)
        classes = self._classes()
        variants.check_sweep("weight", (*self.weight, 1.0), most=classes / len(names))
        made = []
        for value in self._values():
            others = scale * (classes - value * len(names)) / max(classes - len(names), 1)
            change = () if value == 1 else (class_values("weight", names, scale * value, others),)
            made.append(Variant(f"weight-{value:g}", self.recipe, change))
        return made

    def result(self, done: Done) -> StudyResult:
        names, _ = class_setting(self.recipe, self.set, "weight", self.class_name)
        runs = self.runs(done, self._values())
        found = sweep_result(runs, 1.0, "weight", f"weight of {' and '.join(names)}")
        levels = pd.DataFrame([{"weight": v, **over_seeds.level(r, runs[1.0])} for v, r in runs.items()])
        tables = {"weights": levels, **found.tables}
        return dataclasses.replace(found, tables=tables, claims=list(_claims(runs, names)), notes=self.notes())

    def _values(self) -> list[float]:
        return sorted({*self.weight, 1.0})

    def _classes(self) -> int:
        recipe = variants.with_setting(self.recipe, self.set, "weight")
        known = variants.classes_of(recipe)
        if known is None and self.num_classes is None:
            raise UserError(f"{recipe.data.name} does not say how many classes it has: give --num-classes.")
        return self.num_classes or len(known or ())


def _claims(runs: Mapping[float, Sequence[Records]], names: Sequence[str]) -> Iterator[Claim]:
    """From the least weight to the one in the middle of the sweep, and from there to the largest, as the paper does."""
    source, own = "li2023:figure3", " and ".join(names)
    values = sorted(runs)
    least, middle, most = values[0], values[len(values) // 2], values[-1]
    seeds = len(runs[least])
    up, grown = over_seeds.changes(runs[least], runs[middle]), f"weight {least:g} to {middle:g}"
    for name in names:
        gain = change_of(up, name)
        text = f"More weight makes {name} more robust."
        yield Claim(source, text, over_seeds.rises(gain, seeds), f"{grown}: {points(gain)}")
    gain, cost = over_seeds.worst_change(runs[least], runs[middle]), change_of(up)
    yield Claim(
        source,
        f"Some weight on {own} improves the worst class, and the average loses less than a point.",
        all_held(over_seeds.rises(gain, seeds, worst=True), over_seeds.rises(cost, seeds, -_LITTLE)),
        f"{grown}: worst class {points(gain)}; average {points(cost)}",
    )
    if most > middle:
        drop = over_seeds.worst_change(runs[middle], runs[most])
        loss = change_of(over_seeds.changes(runs[middle], runs[most]))
        yield Claim(
            source,
            f"Even more weight on {own} lowers both the worst class and the average.",
            all_held(over_seeds.falls(drop, seeds, worst=True), over_seeds.falls(loss, seeds)),
            f"weight {middle:g} to {most:g}: worst class {points(drop)}; average {points(loss)}",
        )
