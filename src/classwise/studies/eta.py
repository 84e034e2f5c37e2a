"""How does WAT's step size η trade the average for the worst class? (Li and Liu 2023, Table 3.)

Average and worst class, clean and under each attack, of WAT with several η and of TRADES, and

    ρ = (W − W₀)/W₀ − (A₀ − A)/A₀        W worst class, A average; W₀, A₀ those of TRADES

The paper finds that a larger η raises the worst class and lowers the average, and that no η is best for every attack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from classwise.core.errors import UserError
from classwise.core.records import CLEAN, Records
from classwise.studies.runner.graph import StudyJob
from classwise.studies.runner.result import Claim, Done, StudyResult
from classwise.studies.shared import over_seeds
from classwise.studies.shared.over_seeds import change_of, points
from classwise.studies.shared.variants import Variant, Variants, check_sweep, sweep_chart, sweep_rows, with_setting
from classwise.studies.shared.verdicts import all_held

_SUITE = "autoattack"


@dataclass(frozen=True, kw_only=True)
class Eta(Variants):
    """WAT's η swept.

    recipe: of wat. base: the recipe it is measured against, of TRADES. eta: the values. autoattack_per_class: images of
    each class for an additional AutoAttack, 0 for none.
    """

    recipe: str = "desk/cifar10/wat"
    base: str = "desk/cifar10/trades"
    eta: tuple[float, ...] = (0.01, 0.05, 0.1, 0.5)
    autoattack_per_class: int = 0

    def jobs(self) -> list[StudyJob]:
        if not self.autoattack_per_class:
            return super().jobs()
        models = [self._model(variant, seed) for variant in self.variants() for seed in self.seeds]
        size = self.autoattack_per_class
        return [*super().jobs(), *(each.audit(_SUITE, [_SUITE], per_class=size, seed=self.seed) for each in models)]

    def variants(self) -> list[Variant]:
        own = float(with_setting(self.recipe, self.set, "eta").method.eta)  # type: ignore[attr-defined]
        check_sweep("eta", self.eta)
        if min(self.eta) == 0:
            raise UserError("--eta 0: with constant weights WAT is TRADES, which is the base; leave it out.")
        changed = {value: () if value == own else (f"method.eta={value!r}",) for value in sorted(set(self.eta))}
        return [
            Variant("base", self.base),
            *(Variant(f"eta-{value:g}", self.recipe, change) for value, change in changed.items()),
        ]

    def result(self, done: Done) -> StudyResult:
        base, *others = self.variants()
        etas = dict(zip(sorted(set(self.eta)), others, strict=True))
        table = []
        attacked = done.audit(f"{self._name(base, self.seeds[0])}-audit").attacks
        attacks = [CLEAN, *attacked, *([_SUITE] if self.autoattack_per_class else [])]
        for attack in attacks:
            start = self.rows(done, base, attack)
            for eta, variant in {float("nan"): base, **etas}.items():
                method, rows = "base" if variant is base else "wat", self.rows(done, variant, attack)
                table.append({"attack": attack, "method": method, "eta": eta, **over_seeds.level(rows, start)})
        runs = {eta: self.rows(done, variant) for eta, variant in etas.items()}
        return StudyResult(
            {"eta": pd.DataFrame(table)},
            figures={"sweep": sweep_chart(runs, "η")},
            claims=list(_claims(self.rows(done, base), runs)),
            notes=self.notes(),
            data={"sweep": sweep_rows(runs, "η")},
        )

    def rows(self, done: Done, variant: Variant, attack: str | None = None) -> list[Records]:
        if attack != _SUITE or not self.autoattack_per_class:
            return super().rows(done, variant, attack)
        return [done.rows(f"{self._name(variant, seed)}-{_SUITE}") for seed in self.seeds]


def _claims(base: Sequence[Records], runs: Mapping[float, Sequence[Records]]) -> Iterator[Claim]:
    source, least, most = "li2023:table3", min(runs), max(runs)
    for eta, rows in runs.items():
        gain = over_seeds.worst_change(base, rows)
        text = f"WAT with η = {eta:g} has a more robust worst class than TRADES."
        yield Claim(source, text, over_seeds.rises(gain, len(rows), worst=True), f"worst class {points(gain)}")
    gain = over_seeds.worst_change(runs[least], runs[most])
    cost = change_of(over_seeds.changes(runs[least], runs[most]))
    text = "A larger η raises the worst class and lowers the average."
    ruling = all_held(over_seeds.rises(gain, len(base), worst=True), over_seeds.falls(cost, len(base)))
    numbers = f"η {least:g} to {most:g}: worst class {points(gain)}; average {points(cost)}"
    yield Claim(source, text, ruling, numbers)
