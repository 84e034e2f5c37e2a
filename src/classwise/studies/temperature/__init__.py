"""What does a sharper softmax add to PGD, and what is only rounding? (Tian et al. 2021, Table 3 and Figure 3.)

Temperature-PGD over a grid of 1/T, twice: in plain float32, as in the papers, and in the sound variant, the same attack
in exact arithmetic. Where more images survive in float32, its gradient has vanished: counted at the start of the
attacks. Also how flat the models' outputs are (CVC, on clean images), which is supposed to explain the gain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.metrics import cv, mcd, overall
from classwise.show.figures import confidence_path
from classwise.show.figures.style import Chart
from classwise.studies.runner.graph import StudyJob
from classwise.studies.runner.models_under_study import ModelUnderStudy
from classwise.studies.runner.result import Done, StudyResult
from classwise.studies.shared.temperature_sweep import VARIANTS, OfTemperatures, Sweep, gap, gap_by_class
from classwise.studies.shared.together import WIDEST, by_name, cv_change, interval, resampled, smallest
from classwise.studies.temperature import claims, derived
from classwise.studies.temperature.derived import PGD


@dataclass(frozen=True, kw_only=True)
class Temperature(OfTemperatures):
    """Temperature-PGD over 1/T, and what of it is rounding.

    image: the test image whose confidences are plotted; by default one that survives PGD and is broken by
    Temperature-PGD. followed: the 1/T of Temperature-PGD for that image; by default the best. steps: steps of the
    attack to plot; by default the first, the middle one and the last.
    """

    image: int | None = None
    followed: float | None = None
    steps: tuple[int, ...] = ()

    def jobs_of(self, model: ModelUnderStudy) -> list[StudyJob]:
        audit = self.sweep(model)
        common: dict[str, Any] = {"data": model.data, **model.threat_arguments, "attack": self.attack}
        common |= {"inv_temperature": self.grid, "seed": self.seed}
        followed: dict[str, Any] = {"audit": f"{{{audit.name}}}", "image": self.image}
        if (inverse := self._followed()) is not None:
            followed["followed"] = inverse
        gradients = model.derive("gradients", f"{derived.__name__}:gradients", **common, per_class=self.per_class)
        return [audit, gradients, model.derive("path", f"{derived.__name__}:path", **common, **followed)]

    def _followed(self) -> float | None:
        if self.followed is not None and (self.followed == 1 or self.followed not in self.grid):
            others = ", ".join(f"{t:g}" for t in self.grid if t != 1)
            raise UserError(f"--followed {self.followed:g} is not in the grid of 1/T other than 1: {others}.")
        return self.followed

    def result(self, done: Done) -> StudyResult:
        sweeps = self.sweeps(done)
        sweep = pd.concat([_sweep(name, own, _dead(done, name)) for name, own in sweeps.items()], ignore_index=True)
        best = pd.DataFrame([_best(name, own, variant) for name, own in sweeps.items() for variant in VARIANTS])
        shared = self.curves(sweeps)
        tables = {"sweep": sweep, "best": best, "best_by_class": _best_by_class(sweeps)}
        tables |= {variant: _printed(sweeps, sound) for variant, sound in VARIANTS.items()}
        followed = {name: done.table(f"{name}-path", "path.csv").astype({"class": str}) for name in sweeps}
        found = [*claims.breaks_more(best), claims.spreads(best), claims.rise(sweeps, sweep)]
        if "confidence" in shared.tables:
            found += [claims.flat_classes(sweeps), claims.flat_models(shared.tables["confidence"], best)]
        paths = pd.concat([own.assign(model=name) for name, own in followed.items()], ignore_index=True)
        charts = {f"path_{name}": self._path(own) for name, own in followed.items()}
        if len(followed) > 1 and (beside := _beside(followed)) is not None:
            charts["path_of_models"] = self._path(beside)
        return dataclasses.replace(
            shared,
            tables={**tables, **shared.tables},
            figures={**shared.figures, **charts},
            claims=found,
            data={**shared.data, "confidence_path": paths},
        )

    def _path(self, path: pd.DataFrame) -> Chart:
        """The confidences at the chosen steps."""
        last = int(path["step"].max())
        wanted = self.steps or confidence_path.usual_steps(path)
        if wrong := [step for step in wanted if not 0 <= step <= last]:
            raise UserError(f"--steps {wrong[0]}: the attack takes {last} steps; 0 is its start.")
        return confidence_path.draw(path, str(path["true_class"].iloc[0]), list(wanted))


def _beside(followed: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
    """All models' confidences in one image under PGD, if it is the same image for all."""
    if len({int(own["image"].iloc[0]) for own in followed.values()}) > 1:
        return None
    under = {name: own[own["attack"] == PGD] for name, own in followed.items()}
    return pd.concat([own.assign(attack=f"{name}, {PGD}") for name, own in under.items()], ignore_index=True)


def _dead(done: Done, name: str) -> list[float]:
    """The share of images without a gradient, in percent, along the grid."""
    counted = done.table(f"{name}-gradients", "gradients.csv").groupby("inv_temperature")[["zero", "n"]].sum()
    return list(100 * counted["zero"] / counted["n"])


def _sweep(name: str, own: Sweep, dead: Sequence[float]) -> pd.DataFrame:
    rows = []
    for t, share in zip(own.grid, dead, strict=True):
        row: dict[str, Any] = {"model": name, "inv_temperature": t, "images": len(own.clean)}
        for variant, sound in VARIANTS.items():
            total = overall.compute(own.rows[t, sound])
            row |= {variant: 100 * total.value, f"{variant}_low": 100 * total.low, f"{variant}_high": 100 * total.high}
        row |= _with_ends("float32_minus_sound", gap(own.rows[t, True], own.rows[t, False]))
        rows.append({**row, "no_gradient": share})
    return pd.DataFrame(rows)


def _best(name: str, own: Sweep, variant: str) -> dict[str, Any]:
    """The best 1/T other than 1 against PGD; intervals with Bonferroni over the grid."""
    level = 1 - 0.05 / len(own.others)
    t = own.best(VARIANTS[variant], own.others)
    rows = own.rows[t, VARIANTS[variant]]
    row = {"model": name, "variant": variant, "inv_temperature": t, "images": len(rows), "smallest": smallest(rows)}
    row |= {"pgd": 100 * own.pgd.correct.mean(), "accuracy": 100 * rows.correct.mean()}
    row |= _with_ends("change", gap(own.pgd, rows, level))
    row |= {"cv_percent2": cv.compute(rows), **_with_ends("cv_change", cv_change(own.pgd, rows, level))}
    drawn = resampled([own.pgd, rows])
    extent = 100 * (np.nanmax(drawn, axis=2) - np.nanmin(drawn, axis=2))
    change = 100 * (mcd.compute(rows) - mcd.compute(own.pgd))
    ends = interval(extent[:, 1] - extent[:, 0], level)
    return row | {"mcd": 100 * mcd.compute(rows), **_with_ends("mcd_change", (change, *ends))}


def _best_by_class(sweeps: Mapping[str, Sweep]) -> pd.DataFrame:
    parts = []
    for name, own in sweeps.items():
        for variant, sound in VARIANTS.items():
            t = own.best(sound, own.others)
            frame = gap_by_class(own.pgd, own.rows[t, sound])
            frame = frame.rename(columns={"first": "pgd", "second": "accuracy", "difference": "change"})
            parts.append(pd.DataFrame({"model": name, "variant": variant, "inv_temperature": t, **frame}))
    return pd.concat(parts, ignore_index=True)


def _printed(sweeps: Mapping[str, Sweep], sound: bool) -> pd.DataFrame:
    """As the papers print it: total, classes (unless they are too many), CV and MCD, and their changes against PGD."""
    rows = []
    for name, own in sweeps.items():
        before = _measures(own.pgd)
        for t in own.grid:
            now = _measures(own.rows[t, sound])
            changes = {f"change_{key}": now[key] - before[key] for key in now}
            rows.append({"model": name, "inv_temperature": t, **now, **changes})
    return pd.DataFrame(rows)


def _measures(rows: Records) -> dict[str, float]:
    found = {"total": 100 * float(rows.correct.mean()), "cv_percent2": cv.compute(rows), "mcd": 100 * mcd.compute(rows)}
    return {**found, **by_name(rows), **found} if rows.num_classes <= WIDEST else found  # last, so that its columns win


def _with_ends(name: str, found: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), found, strict=True))
