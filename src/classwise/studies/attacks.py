"""Does every attack find the same weak classes, and do stronger attacks gain mainly there? (Tian et al. 2021, Table 1.)

Any models under any attacks, class by class. Whether a stronger attack gains mainly on vulnerable classes is measured
by the slope b of the loss of robustness l_c on the robustness under the weaker attack x_c, over the classes c: negative
if the vulnerable classes lose most. Both contain the sampling errors of the same images, so that the plain regression
of one on the other is biased (regression to the mean). The images are therefore split into halves A and B, and

    b = (cov(x_A, l_B) + cov(x_B, l_A)) / (2 cov(x_A, x_B)),        cov over the classes,

in which no product contains the same error twice: x of one half is an instrument for that of the other (Wald 1940).
The interval is over the sampling of images, for these classes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from classwise.attacks import parse
from classwise.core import spec
from classwise.core.errors import UserError
from classwise.core.records import CLEAN, Records
from classwise.metrics import accuracy, agreement, cv, mcd, overall
from classwise.models.zoo import is_zoo
from classwise.show.figures import discrepancy
from classwise.stats.intervals import Array, ratio
from classwise.studies.runner.graph import AuditJob, StudyJob, job_name
from classwise.studies.runner.models_under_study import ModelUnderStudy, Setting, from_checkpoint
from classwise.studies.runner.result import Claim, Done, StudyResult
from classwise.studies.runner.study import OfModels
from classwise.studies.shared import extremes
from classwise.studies.shared.together import WIDEST, by_name, covariance, halves, interval, resampled, smallest
from classwise.studies.shared.verdicts import Sample, all_held, falls_short, images, tails

Runs = Mapping[tuple[str, str], Records]  # by model and attack

_PAPERS_SLOW = 200  # images of each class
_SOURCE = "tian2021:table1"


@dataclass(frozen=True, kw_only=True)
class Attacks(OfModels):
    """Defences against attacks, class by class.

    attack: as often as you like. surrogate: the model with standard training that transfer attacks are crafted on, a
    checkpoint or the name of one of the models, which then is not attacked itself. slow_per_class: images of each class
    for cw and nattack. protocol: "final" judges the last step alone, as the papers do.
    """

    attack: tuple[str, ...] = ("fgsm", "pgd-20", "cw", "transfer", "nattack")
    surrogate: str = "standard"
    slow_per_class: int = 20
    protocol: Literal["any", "final"] = "any"

    def jobs(self) -> list[StudyJob]:
        surrogate, defences = self._roles()
        found: list[StudyJob] = [*surrogate.jobs] if surrogate else []
        for model in defences:
            found += [*model.jobs, *(self._audit(model, attack, surrogate) for attack in self.attack)]
        return found

    def result(self, done: Done) -> StudyResult:
        defences = [model.name for model in self._roles()[1]]
        audits = {(d, a): done.audit(f"{d}-{job_name(a)}") for d in defences for a in self.attack}
        runs: Runs = {key: audit.rows() for key, audit in audits.items()}
        clean = {(d, CLEAN): audits[d, max(self.attack, key=lambda a: len(runs[d, a]))].rows(CLEAN) for d in defences}
        shown = dict(sorted({**clean, **runs}.items(), key=lambda item: defences.index(item[0][0])))
        by_class = pd.concat([_by_class(*key, rows) for key, rows in shown.items()], ignore_index=True)
        gains = pd.DataFrame([gain for d in defences for gain in self._gains(d, runs)], columns=_GAIN)
        percent = {column: 100 * by_class[column] for column in ("accuracy", "low", "high")}
        tables = {
            "robustness": pd.DataFrame([_summary(*key, rows) for key, rows in shown.items()]),
            "classes": by_class.assign(**percent),
            "gains": gains,
            "agreement": _agreements(runs, defences, self.attack),
        }
        chart = discrepancy.draw(by_class.rename(columns={"n": "images"}))
        claims = [*_extremes(runs), *self._claims(gains, runs)]
        return StudyResult(tables, figures={"discrepancy": chart}, claims=claims, notes=self._notes())

    def _roles(self) -> tuple[ModelUnderStudy | None, list[ModelUnderStudy]]:
        """The surrogate, where transfer needs one, and the models that are attacked."""
        found = self.models()
        if not any(_needs_surrogate(attack) for attack in self.attack):
            return None, found
        named = {model.name: model for model in found}
        if self.surrogate in named:
            chosen = named.pop(self.surrogate)
            if not named:
                raise UserError(f"{chosen.name} is the surrogate of transfer; no other model is left to attack.")
            return chosen, list(named.values())
        given = self.surrogate.partition("=")[2] or self.surrogate
        if not is_zoo(given) and not Path(given).exists():
            raise UserError(
                f"transfer crafts on a model with standard training, and there is no {self.surrogate!r}: give "
                f"--surrogate one of {', '.join(named)}, a checkpoint or zoo:NAME; or leave transfer out of --attack."
            )
        same = Setting(found[0].data, found[0].eps, found[0].norm)
        return from_checkpoint(self.surrogate, same), found

    def _audit(self, model: ModelUnderStudy, attack: str, surrogate: ModelUnderStudy | None) -> AuditJob:
        given = attack
        if surrogate is not None and _needs_surrogate(attack):
            given = f"{attack}{',' if ':' in attack else ':'}model={surrogate.checkpoint}"
        size = self.per_class
        if _is_slow(attack):
            size = min(self.slow_per_class, size or self.slow_per_class)
        return model.audit(job_name(attack), [given], per_class=size, seed=self.seed, protocol=self.protocol)

    def _gains(self, defence: str, runs: Runs) -> list[tuple[Any, ...]]:
        """For each two attacks the slope of the loss on the robustness under the weaker one."""
        confidence = 1 - 0.05 / len({model for model, _ in runs})  # for all models together (Bonferroni)
        found = []
        for first, second in itertools.combinations(self.attack, 2):
            shared = [_only(runs[defence, a], runs[defence, b]) for a, b in ((first, second), (second, first))]
            losses = [100 * (1 - rows.correct.mean()) for rows in shared]
            weaker, stronger = (first, second) if losses[0] <= losses[1] else (second, first)
            slope = gain_slope(runs[defence, weaker], runs[defence, stronger], confidence, self.seed)
            found.append((defence, weaker, stronger, len(shared[0]), abs(losses[1] - losses[0]), *slope))
        return found

    def _claims(self, gains: pd.DataFrame, runs: Runs) -> Iterator[Claim]:
        for first, second in itertools.combinations(self.attack, 2):
            if _white(first) != _white(second):
                continue  # the papers compare attacks of the same kind
            pair = gains["weaker"].isin([first, second]) & gains["stronger"].isin([first, second])
            own = gains[pair].to_dict("records")
            numbers = "; ".join(
                f"{row['model']}: {row['stronger']} breaks {row['loss']:.1f} points more than {row['weaker']}, "
                + _describe_slope(row["slope"], row["low"], row["high"])
                for row in own
            )
            kind = "white-box" if _white(first) else "black-box"
            text = f"Of the {kind} attacks {first} and {second} the stronger gains mainly on vulnerable classes."
            test = "bootstrap of the slope between two halves of the images, Bonferroni over the models"
            support = {row["model"]: smallest(runs[row["model"], first], runs[row["model"], second]) for row in own}
            rulings = [
                falls_short(row["low"], row["high"], test=test, sample=images(support[row["model"]])) for row in own
            ]
            yield Claim(_SOURCE, text, all_held(*rulings), numbers)

    def _notes(self) -> list[str]:
        notes = []
        if self.protocol == "any":
            notes.append("An image is broken if any step of an attack breaks it; the papers judge the last step.")
        if (size := self.slow_per_class) != _PAPERS_SLOW and any(map(_is_slow, self.attack)):
            notes.append(f"{size} images of each class under cw and nattack; the papers use {_PAPERS_SLOW}.")
        return notes


_GAIN = ["model", "weaker", "stronger", "images", "loss", "slope", "low", "high", "plain_slope"]


def gain_slope(
    weaker: Records, stronger: Records, confidence: float = 0.95, seed: int = 0
) -> tuple[float, float, float, float]:
    """The slope b of this module's docstring, its interval, and the plain least-squares slope on all images beside it.

    NaN if the classes do not differ significantly in robustness: the halves' covariance is not positive.
    """
    shared = _only(weaker, stronger)
    parts = halves([weaker, shared, stronger])
    seen = [np.stack([accuracy.compute(rows).values for rows in half])[None] for half in parts]
    slope = float(_slope(*seen)[0])
    drawn = _slope(*(resampled(half, seed=2 * seed + place) for place, half in enumerate(parts)))
    low, high = interval(drawn, confidence)
    x, y = accuracy.compute(shared).values, accuracy.compute(_only(stronger, weaker)).values
    plain = float(covariance(x, x - y) / covariance(x, x)) if np.nanstd(x) > 0 else np.nan
    return (slope, low, high, plain) if np.isfinite([slope, low]).all() else (np.nan, np.nan, np.nan, plain)


def _slope(first: Array, second: Array) -> Array:
    """b of every draw; along a half's second axis: the weaker attack, the same on shared images, the stronger."""
    (x_a, l_a), (x_b, l_b) = ((half[:, 0], half[:, 1] - half[:, 2]) for half in (first, second))
    known = np.isfinite(x_a + l_a + x_b + l_b)  # a class must be measured in both halves
    x_a, l_a, x_b, l_b = (np.where(known, part, np.nan) for part in (x_a, l_a, x_b, l_b))
    below = covariance(x_a, x_b)
    above = (covariance(x_a, l_b) + covariance(x_b, l_a)) / 2
    return np.asarray(np.divide(above, below, out=np.full_like(below, np.nan), where=below > 0))


def _only(rows: Records, other: Records) -> Records:
    """The rows of images that the other run has too."""
    return rows.take(np.flatnonzero(np.isin(rows.index, other.index)))


def _summary(model: str, attack: str, rows: Records) -> dict[str, Any]:
    total, values = overall.compute(rows), accuracy.compute(rows)
    row = {"model": model, "attack": attack, "images": total.support, "total": 100 * total.value}
    row |= {"low": 100 * total.low, "high": 100 * total.high, "cv_percent2": cv.compute(rows)}
    row |= {"mcd": 100 * mcd.compute(rows), "worst": values.class_names[values.worst]}
    return {**row, **by_name(rows), **row} if rows.num_classes <= WIDEST else row  # row last, so that its columns win


def _by_class(model: str, attack: str, rows: Records) -> pd.DataFrame:
    found = accuracy.compute(rows, simultaneous=True).to_frame().rename(columns={"value": "accuracy"})
    return found.assign(model=model, attack=attack)[["model", "attack", "class", "n", "accuracy", "low", "high"]]


def _agreements(runs: Runs, models: Sequence[str], attacks: Sequence[str]) -> pd.DataFrame:
    """How well the orders of the classes agree: mean and least pairwise Spearman, and Kendall's W."""
    groups = {f"attacks on {m}": [runs[m, a] for a in attacks] for m in models}
    groups |= {f"models under {a}": [runs[m, a] for m in models] for a in attacks}
    rows = []
    for name, members in groups.items():
        pairs = [agreement.compute(*pair).spearman for pair in itertools.combinations(members, 2)]
        if pairs:
            mean, m = float(np.mean(pairs)), len(members)
            rows.append((name, m, mean, float(np.min(pairs)), ((m - 1) * mean + 1) / m))
    return pd.DataFrame(rows, columns=["between", "runs", "spearman", "least_spearman", "kendall_w"])


def _extremes(runs: Runs) -> list[Claim]:
    """Is the same class the least robust in every setting, and the same class the most robust?"""
    counts = [accuracy.counts(rows) for rows in runs.values()]
    names, sample = next(iter(runs.values())).class_names, images(smallest(*runs.values()))
    broken = [(n - right, n) for right, n in counts]
    return [_always(counts, names, "least", sample), _always(broken, names, "most", sample)]


def _always(settings: Sequence[extremes.Counts], names: Sequence[str], which: str, sample: Sample) -> Claim:
    """settings: counts of robust images of each class in each setting, or of broken ones for the most robust class."""
    chosen, p, p_none = extremes.always_least(settings)
    lowest = [np.flatnonzero(shares == np.nanmin(shares)) for shares in (ratio(*counts) for counts in settings)]
    seen = sum(chosen in places for places in lowest)
    numbers = f"{names[chosen]}: in {seen} of {len(settings)} settings, p = {p:.2g}; that none is, p = {p_none:.2g}"
    ruling = tails(p, p_none, test=extremes.TEST, sample=sample)
    return Claim(_SOURCE, f"One class is the {which} robust in all settings.", ruling, numbers)


def _describe_slope(slope: float, low: float, high: float) -> str:
    if not np.isfinite(slope):
        return "no slope: the classes do not differ enough"
    return f"slope {slope:.2f} ({low:.2f} to {high:.2f})"


def _needs_surrogate(attack: str) -> bool:
    name, settings = spec.split(attack)
    return spec.leading(name)[0] == "transfer" and "model" not in settings


def _is_slow(attack: str) -> bool:
    return any(each.slow for each in parse(attack).values())


def _white(attack: str) -> bool:
    return any(each.needs_gradient for each in parse(attack).values())
