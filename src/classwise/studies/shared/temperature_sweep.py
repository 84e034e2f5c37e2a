"""Temperature-PGD over a grid of 1/T: the audits along it, and what studies compute from their rows.

Each 1/T twice: in plain float32, as in the papers, and in the sound variant, the same attack in exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from classwise.attacks import parse
from classwise.attacks.pgd import Pgd
from classwise.attacks.temperature_pgd import TemperaturePgd
from classwise.core import spec
from classwise.core.errors import UserError
from classwise.core.records import CLEAN, Records
from classwise.metrics import cvc, difference, overall
from classwise.results.audit_result import Audit
from classwise.show.figures import confidence
from classwise.show.figures import temperature as figure
from classwise.studies.runner.graph import AuditJob
from classwise.studies.runner.models_under_study import ModelUnderStudy
from classwise.studies.runner.result import Done, StudyResult
from classwise.studies.runner.study import OfModels
from classwise.studies.shared.together import columns_in_percent, of_models

VARIANTS = {"float32": False, "sound": True}
PAPERS_ATTACK = "The paper attacks with Temperature-PGD at 1/T = 5; here with {}."


@dataclass(frozen=True)
class Sweep:
    """A model's rows at each 1/T, in both variants, and on clean images."""

    rows: Mapping[tuple[float, bool], Records]
    clean: Records

    @property
    def grid(self) -> list[float]:
        return sorted({t for t, _ in self.rows})

    @property
    def pgd(self) -> Records:
        """1/T = 1 in float32 is PGD."""
        return self.rows[1.0, False]

    def best(self, sound: bool, among: Iterable[float] | None = None) -> float:
        """The 1/T that the fewest images survive; of equals the smallest."""
        return min(among or self.grid, key=lambda t: (int(self.rows[t, sound].correct.sum()), t))

    @property
    def others(self) -> list[float]:
        return [t for t in self.grid if t != 1]

    @classmethod
    def of(cls, audit: Audit, attack: str, grid: Sequence[float]) -> Sweep:
        """The rows of an audit with the attacks of `specs`."""
        wanted = specs(attack, grid)
        named = zip(wanted, parse(list(wanted.values())), strict=True)
        return cls({key: audit.rows(name) for key, name in named}, audit.rows(CLEAN))


@dataclass(frozen=True, kw_only=True)
class OfTemperatures(OfModels):
    """A study of models under Temperature-PGD.

    inv_temperature: the grid of 1/T; 1, which is PGD, is always in it. attack: the PGD it is a variant of. protocol:
    "final" judges the last step alone, as the papers do.
    """

    inv_temperature: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 50.0)
    attack: str = "pgd-20"
    protocol: Literal["any", "final"] = "any"

    @property
    def grid(self) -> list[float]:
        if bad := [t for t in self.inv_temperature if not t > 0]:
            raise UserError(f"1/T must be positive, got {bad[0]:g} in --inv-temperature.")
        found = sorted({1.0, *self.inv_temperature})
        if len(found) < 2:
            raise UserError("--inv-temperature holds only 1, which is PGD itself; give others, such as 1,2,5,10,50.")
        return found

    def sweep(self, model: ModelUnderStudy) -> AuditJob:
        """The audit of a model at each 1/T, in both variants."""
        options = {"per_class": self.per_class, "seed": self.seed, "protocol": self.protocol}
        return model.audit("temperature", list(specs(self.attack, self.grid).values()), **options)

    def sweeps(self, done: Done) -> dict[str, Sweep]:
        names = [model.name for model in self.models()]
        return {name: Sweep.of(done.audit(f"{name}-temperature"), self.attack, self.grid) for name in names}

    def curves(self, sweeps: Mapping[str, Sweep]) -> StudyResult:
        """What every such study shows: accuracy over 1/T, and the confidence on clean images where it was kept."""
        drawn, flat = lines(sweeps), confidences(sweeps)
        charts = {"temperature": figure.draw(drawn)}
        if flat is not None:
            charts["confidence"] = confidence.draw({name: own.clean for name, own in sweeps.items()})
        tables = {} if flat is None else {"confidence": flat}
        return StudyResult(tables, figures=charts, notes=self.notes(), data={"temperature": drawn})

    def notes(self) -> list[str]:
        found = [
            "CVC is computed on clean images; the papers do not say on which.",
            "Changes of CV are those of the true accuracies: the sampling noise of few images is removed from both.",
        ]
        if self.protocol == "any":
            found.append("An image is broken if any step of an attack breaks it; the papers judge the last step.")
        return found


def specs(attack: str, grid: Sequence[float]) -> dict[tuple[float, bool], str]:
    """Temperature-PGD as a variant of the given PGD, by 1/T and whether it is sound."""
    given = list(parse(attack).values())
    if len(given) != 1 or type(given[0]) is not Pgd:
        raise UserError(
            f"Temperature-PGD is a variant of pgd: give such as pgd-20 or pgd:steps=20,step=0.003, not {attack!r}."
        )
    options = {"steps": str(given[0].steps), **spec.split(attack)[1]}
    written = ",".join(f"{key}={value}" for key, value in options.items())
    return {
        (t, sound): f"temperature_pgd:{written},inv_temperature={t},sound={str(sound).lower()}"
        for t in grid
        for sound in VARIANTS.values()
    }


def is_the_papers(attack: str) -> bool:
    """Whether an attack is Temperature-PGD at 1/T = 5, with which Tian et al. (2021, Section 6) attack."""
    given = list(parse(attack).values())
    return all(isinstance(own, TemperaturePgd) and own.inv_temperature == 5 and not own.sound for own in given)


def lines(sweeps: Mapping[str, Sweep]) -> pd.DataFrame:
    """Accuracy over all images by model, variant and 1/T, as fractions, for the figure."""
    found = []
    for name, own in sweeps.items():
        for variant, sound in VARIANTS.items():
            for t in own.grid:
                total = overall.compute(own.rows[t, sound])
                found.append((name, variant, t, total.value, total.low, total.high))
    return pd.DataFrame(found, columns=["model", "variant", "inv_temperature", "accuracy", "low", "high"])


def confidences(sweeps: Mapping[str, Sweep]) -> pd.DataFrame | None:
    """CVC of each model's classes on clean images; None where an audit did not keep the probabilities."""
    if any(own.clean.probs is None for own in sweeps.values()):
        return None
    whole = of_models({name: cvc.compute(own.clean).to_frame() for name, own in sweeps.items()})
    return whole.rename(columns={"value": "cvc"})[["model", "class", "n", "cvc", "low", "high"]]


def gap(first: Records, second: Records, confidence: float = 0.95) -> tuple[float, float, float]:
    """The second run's accuracy over all images minus the first's, with the interval of paired runs; in points."""
    row = difference.compute(first, second, confidence=confidence).iloc[-1]
    return 100 * row["difference"], 100 * row["low"], 100 * row["high"]


def gap_by_class(first: Records, second: Records) -> pd.DataFrame:
    """The same for every class and over all, in percent: class, n, first, second, difference, low, high, p_holm."""
    columns = ("first", "second", "difference", "low", "high")
    frame = columns_in_percent(difference.compute(first, second), *columns).rename(columns={"n_first": "n"})
    return frame[["class", "n", *columns, "p_holm"]]
