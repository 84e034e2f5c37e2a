"""Is the robustness that hypersphere embedding gains real? (Tian et al. 2020, Tables 5 and 6.)

HE, HE-LIS and HE-CMP against a base under PGD, and again with each model under the Temperature-PGD that is worst for
it. The papers find a gain of 9 to 18 points that is gone once 1/T is large enough: outputs that are flat by
construction had misled PGD. Every difference is paired, image by image. That 1/T is chosen on the images it is tested
on is corrected for (Bonferroni over the grid of both models); two more comparisons need no choice: one in which an
image is broken if any 1/T breaks it, and whether the gain at the largest 1/T is less than under PGD.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from classwise.core.errors import UserError, index_of
from classwise.core.records import Records
from classwise.metrics import average, overall
from classwise.studies.runner.graph import StudyJob
from classwise.studies.runner.models_under_study import ModelUnderStudy
from classwise.studies.runner.result import Claim, Done, StudyResult
from classwise.studies.shared.temperature_sweep import VARIANTS, OfTemperatures, Sweep, gap, gap_by_class
from classwise.studies.shared.together import (
    BOOTSTRAP,
    PAIRED,
    WIDEST,
    by_name,
    columns_in_percent,
    interval_between,
    require_same_setting,
    resampled,
    smallest,
)
from classwise.studies.shared.verdicts import Ruling, exceeds, falls_short, given, images

_BEST, _ANY = "best for each", "any"


@dataclass(frozen=True, kw_only=True)
class Hypersphere(OfTemperatures):
    """Hypersphere embedding under PGD and under Temperature-PGD.

    base: the name of the model that the others are compared with. margin: points of accuracy below which a gain counts
    as vanished.
    """

    base: str = "madry"
    inv_temperature: tuple[float, ...] = (1.0, 5.0, 10.0, 50.0, 100.0, 300.0)
    margin: float = 2.0

    def models(self) -> list[ModelUnderStudy]:
        found = super().models()
        at = index_of(self.base, [model.name for model in found], "model for --base")
        if len(found) < 2:
            raise UserError(f"{found[at].name} is the base; give a model to compare with it, such as one of recipe he.")
        require_same_setting(found)
        return [found[at], *(model for place, model in enumerate(found) if place != at)]

    def jobs_of(self, model: ModelUnderStudy) -> list[StudyJob]:
        return [self.sweep(model)]

    def result(self, done: Done) -> StudyResult:
        sweeps = self.sweeps(done)
        gains = pd.DataFrame([row for name in list(sweeps)[1:] for row in _gains(name, sweeps)])
        found = self.curves(sweeps)
        swept = columns_in_percent(found.data["temperature"], "accuracy", "low", "high")
        tables = {"gains": gains, "classes": _classes(sweeps), "sweep": swept, "pgd": _under_pgd(sweeps)}
        tables |= {variant: _grid(sweeps, sound) for variant, sound in VARIANTS.items()}
        return dataclasses.replace(found, tables={**tables, **found.tables}, claims=[*self._claims(gains, sweeps)])

    def _claims(self, gains: pd.DataFrame, sweeps: Mapping[str, Sweep]) -> Iterator[Claim]:
        for name, own in gains.groupby("model", sort=False):
            pgd = own[(own["inv_temperature"] == "1") & (own["variant"] == "float32")].iloc[0]
            seen = f"{pgd['gain']:+.1f} points ({pgd['low']:.1f} to {pgd['high']:.1f}) under PGD"
            text = f"{name} is more robust than {self.base} under PGD."
            gained = exceeds(pgd["low"], pgd["high"], test=PAIRED, sample=images(pgd["images"], "images"))
            yield Claim("tian2020:table5", text, gained, seen)
            for variant in VARIANTS:
                best = own[(own["inv_temperature"] == _BEST) & (own["variant"] == variant)].iloc[0]
                numbers = f"{seen}, {best['gain']:+.1f} ({best['low']:.1f} to {best['high']:.1f}) at {best['chosen']}"
                text = f"The gain of {name} vanishes when 1/T is large enough ({variant})."
                yield Claim("tian2020:table6", text, given(gained, self._vanished(best)), numbers)
            yield from (self._shrinks(str(name), gained, sweeps, variant) for variant in VARIANTS)

    def _shrinks(self, name: str, gained: Ruling, sweeps: Mapping[str, Sweep], variant: str) -> Claim:
        """The gain at the largest 1/T of the grid minus that under PGD, on the same images; nothing is chosen here."""
        base, own = sweeps[self.base], sweeps[name]
        largest, sound = own.grid[-1], VARIANTS[variant]
        runs = [base.pgd, own.pgd, base.rows[largest, sound], own.rows[largest, sound]]
        seen = [100 * average.compute(rows) for rows in runs]
        drawn = 100 * np.nanmean(resampled(runs, seed=self.seed), axis=2)
        before, after = seen[1] - seen[0], seen[3] - seen[2]
        low, high = interval_between(drawn)
        return Claim(
            "tian2020:table6",
            f"At the largest 1/T {name} gains less than under PGD ({variant}).",
            given(gained, falls_short(low, high, test=BOOTSTRAP, sample=images(smallest(*runs)))),
            f"{before:+.1f} points under PGD, {after:+.1f} at 1/T = {largest:g}, {after - before:+.1f} ({low:.1f} to "
            f"{high:.1f}) between them",
        )

    def _vanished(self, best: Mapping[str, Any] | pd.Series[Any]) -> Ruling:
        """Whether the remaining gain is below the margin."""
        test = f"{PAIRED}, Bonferroni over the grid, margin {self.margin:g} points"
        return falls_short(best["low"], best["high"], self.margin, test=test, sample=images(best["images"], "images"))


def _gains(name: str, sweeps: Mapping[str, Sweep]) -> list[dict[str, Any]]:
    """The model against the base at the same 1/T, each at its own best, and with any 1/T breaking an image."""
    base, own = next(iter(sweeps.values())), sweeps[name]
    rows = []
    for variant, sound in VARIANTS.items():
        for t in own.grid:
            rows.append(_gain(name, variant, f"{t:g}", "", base.rows[t, sound], own.rows[t, sound]))
        of_base, of_own = base.best(sound), own.best(sound)
        chosen, level = f"1/T = {of_own:g} (base: {of_base:g})", 1 - 0.05 / len(own.grid) ** 2
        best = base.rows[of_base, sound], own.rows[of_own, sound]
        rows.append(_gain(name, variant, _BEST, chosen, *best, level=level))
        rows.append(_gain(name, variant, _ANY, "", _worst(base, sound), _worst(own, sound)))
    return rows


def _gain(
    name: str, variant: str, t: str, chosen: str, base: Records, own: Records, level: float = 0.95
) -> dict[str, Any]:
    row: dict[str, Any] = {"model": name, "variant": variant, "inv_temperature": t, "chosen": chosen}
    row |= {"images": len(own), "base": 100 * overall.compute(base).value, "accuracy": 100 * overall.compute(own).value}
    return row | dict(zip(("gain", "low", "high"), gap(base, own, level), strict=True))


def _worst(own: Sweep, sound: bool) -> Records:
    """Each image's row under the 1/T that broke it."""
    return Records.concat([own.rows[t, sound] for t in own.grid]).worst_case()


def _classes(sweeps: Mapping[str, Sweep]) -> pd.DataFrame:
    """The gain of each class under PGD, and with each model at its best 1/T in the sound variant."""
    base = next(iter(sweeps.values()))
    parts = []
    for name in list(sweeps)[1:]:
        own = sweeps[name]
        at = {
            "PGD": (base.pgd, own.pgd),
            _BEST: (base.rows[base.best(True), True], own.rows[own.best(True), True]),
        }
        for attack, (first, second) in at.items():
            frame = gap_by_class(first, second)
            frame = frame.rename(columns={"first": "base", "second": "accuracy", "difference": "gain"})
            parts.append(pd.DataFrame({"model": name, "inv_temperature": attack, **frame}))
    return pd.concat(parts, ignore_index=True)


def _under_pgd(sweeps: Mapping[str, Sweep]) -> pd.DataFrame:
    """Table 5 as printed: of the base the classes' accuracies, of the others their gains over these."""
    rows = []
    base = by_name(next(iter(sweeps.values())).pgd)
    for place, (name, own) in enumerate(sweeps.items()):
        row = {"model": name, "natural": 100 * own.clean.correct.mean(), "pgd": 100 * own.pgd.correct.mean()}
        if len(base) <= WIDEST:
            gains = {c: value - base[c] if place else value for c, value in by_name(own.pgd).items()}
            row = {**row, **gains, **row}
        rows.append(row)
    return pd.DataFrame(rows)


def _grid(sweeps: Mapping[str, Sweep], sound: bool) -> pd.DataFrame:
    """Table 6 as printed: a row for each model, a column for each 1/T."""
    rows = []
    for name, own in sweeps.items():
        accuracies = {f"inv_temperature_{t:g}": 100 * own.rows[t, sound].correct.mean() for t in own.grid}
        rows.append({"model": name, **accuracies})
    return pd.DataFrame(rows)
