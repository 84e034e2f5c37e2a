"""Are the classes that are weak under attack also weak under natural corruptions? (Benz et al. 2020, Section 3.4.)

For every model: the accuracy of each class under each corruption of CIFAR-C at each severity, and its clean and robust
accuracy; Spearman's correlation of class accuracy under a corruption with class robustness, and how often the class
that is weakest under attack is the weakest under a corruption.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from classwise.core.csv_files import write_csv
from classwise.core.errors import UserError, unknown
from classwise.core.format import percent
from classwise.core.records import CLEAN, Records
from classwise.data.corruptions import NAMES, SEVERITIES, STANDARD, category
from classwise.metrics import accuracy
from classwise.results.audit_result import Audit
from classwise.show.figures import corruptions as figure
from classwise.stats import intervals
from classwise.stats.correlation import Correlation, correlation, rank_test
from classwise.stats.intervals import Array, sidak
from classwise.studies.runner.graph import StudyJob
from classwise.studies.runner.models_under_study import ModelUnderStudy
from classwise.studies.runner.result import Claim, Done, StudyResult
from classwise.studies.runner.study import OfModels
from classwise.studies.runner.work import Environment
from classwise.studies.shared import extremes
from classwise.studies.shared.together import RANKS, halves, in_percent, of_models, smallest
from classwise.studies.shared.verdicts import LEVEL, Ruling, Sample, either, exceeds, images, tails, undecided
from classwise.studies.shared.verdicts import classes as classes_of

_SOURCE = "benz2020:section3.4"


@dataclass(frozen=True, kw_only=True)
class Corruptions(OfModels):
    """Natural corruptions and attacks, class by class.

    corruption: which ones, by default all fifteen of the benchmark. severity: from 1 to 5. released: read the authors'
    files (cifar10_c, cifar100_c) instead of corrupting the test images here. frost: a folder of photographs of frost.
    attack: the attack robustness is measured by.
    """

    corruption: tuple[str, ...] = STANDARD
    severity: tuple[int, ...] = SEVERITIES
    released: bool = False
    frost: str | None = None
    attack: str = "pgd-20"

    def __post_init__(self) -> None:
        for name in self.corruption:
            if name not in NAMES:
                raise unknown("corruption", name, NAMES)
        for level in self.severity:
            if level not in SEVERITIES:
                raise UserError(f"severity goes from 1 to {max(SEVERITIES)}, got {level}.")

    def jobs_of(self, model: ModelUnderStudy) -> list[StudyJob]:
        images = {"per_class": self.per_class, "seed": self.seed}
        which = {"corruptions": self.corruption, "severities": self.severity}
        source = {"data": model.data, "released": self.released, "frost": self.frost}
        answered = model.derive("corrupted", f"{__name__}:answers", **source, **which, **images)
        return [model.audit("audit", [self.attack], **images), answered]

    def result(self, done: Done) -> StudyResult:
        audits = self.audits(done)
        names = list(audits)
        right = {name: done.table(f"{name}-corrupted", "corrupted.csv").astype({"class": str}) for name in names}
        same = [row for name in names for row in _agreement(name, right[name], audits[name])]
        notes = () if self.released or self.frost else ("Frost is a generated texture, not the authors' photographs.",)
        return StudyResult(
            {
                "by_class": pd.concat([_by_class(name, right[name], audits[name]) for name in names]),
                "agreement_with_the_attack": pd.DataFrame(same),
                "by_corruption": pd.DataFrame([row for name in names for row in _by_corruption(name, right[name])]),
            },
            figures={f"corruptions_{name}": figure.draw(right[name], _attacked(audits[name])) for name in names},
            claims=[claim for name in names for claim in _claims(name, right[name], audits[name])],
            notes=notes,
            data={
                "corruptions": pd.concat([right[name].assign(model=name) for name in names], ignore_index=True),
                "corruptions_attacks": pd.concat([_attacked(audits[name]).assign(model=name) for name in names]),
            },
        )


def _attacked(audit: Audit) -> pd.DataFrame:
    found = {attack: accuracy.compute(audit.rows(attack)) for attack in audit.names}
    tables = {attack: pd.DataFrame({"class": own.class_names, "accuracy": own.values}) for attack, own in found.items()}
    return of_models(tables, "attack")


def _mean_by_class(right: pd.DataFrame, classes: Sequence[str]) -> pd.Series[float]:
    return right.groupby("class")["accuracy"].mean().reindex(list(classes))


def _by_class(name: str, right: pd.DataFrame, audit: Audit) -> pd.DataFrame:
    """Each class's accuracy: clean, under attack, and averaged over the corruptions of each category."""
    classes = list(audit.records.class_names)
    robust, clean = (accuracy.compute(audit.rows(attack)) for attack in (None, CLEAN))
    table = pd.DataFrame(
        {
            "model": name,
            "class": classes,
            "n": clean.support,
            "clean (%)": 100 * clean.values,
            **in_percent("robust", robust),
            "corrupted (%)": 100 * _mean_by_class(right, classes).to_numpy(),
        }
    )
    for kind, own in right.groupby(right["corruption"].map(category), sort=False):
        table[f"{kind} (%)"] = 100 * _mean_by_class(own, classes).to_numpy()
    return table


def _by_corruption(name: str, right: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Average and worst class of every corruption and severity, the worst with its simultaneous interval."""
    for (kind, severity), own in right.groupby(["corruption", "severity"], sort=False):
        low, high = intervals.bounds(own["correct"].to_numpy(), own["n"].to_numpy(), sidak(0.95, len(own)))
        place = int(np.argmin(own["accuracy"].to_numpy()))
        yield {
            "model": name,
            "corruption": kind,
            "severity": severity,
            "average (%)": 100 * own["accuracy"].mean(),
            "worst class": own["class"].iloc[place],
            "worst (%)": 100 * own["accuracy"].iloc[place],
            "low": 100 * low[place],
            "high": 100 * high[place],
        }


def _agreement(name: str, right: pd.DataFrame, audit: Audit) -> Iterator[dict[str, str | float]]:
    """Rank correlation of class accuracy under each corruption, over its severities, with class robustness."""
    classes = list(audit.records.class_names)
    robust = accuracy.compute(audit.rows()).values
    weakest = classes[int(np.nanargmin(robust))] if np.nanmax(robust) > np.nanmin(robust) else "none"
    for kind, own in right.groupby("corruption", sort=False):
        mean = _mean_by_class(own, classes)
        rho, low, high = correlation(mean.to_numpy(), robust)
        yield {
            "model": name,
            "corruption": str(kind),
            "category": category(str(kind)),
            "accuracy (%)": 100 * float(mean.mean()),
            "rho": rho,
            "low": low,
            "high": high,
            "worst class": str(mean.idxmin()),
            "worst under attack": weakest,
        }


def _claims(name: str, right: pd.DataFrame, audit: Audit) -> Iterator[Claim]:
    names, rows = list(audit.records.class_names), audit.rows()
    robust, mean = accuracy.compute(rows).values, _mean_by_class(right, names)
    found = rank_test(mean.to_numpy(), robust)
    sample = (images(min(smallest(rows), int(right.loc[right["n"] > 0, "n"].min()))), classes_of(found.n))
    halved = _between_halves(right, rows)
    yield Claim(
        _SOURCE,
        f"The classes of {name} that are weak under attack are weak under corruptions.",
        either(_correlated(halved, sample), tails(found.p_less, found.p_greater, test=RANKS, sample=sample)),
        f"of mean corrupted and robust accuracy {found}"
        + ("" if halved is None else f"; between two halves of the images {halved}"),
    )
    if np.nanmax(robust) == np.nanmin(robust):
        return  # all classes are equal
    weakest = int(np.nanargmin(robust))
    groups = right.set_index("class").groupby(["corruption", "severity"], sort=False)
    cells = [own.reindex(names)[["correct", "n"]].to_numpy().T for _, own in groups]
    low, high = extremes.share_least([(correct, n) for correct, n in cells], weakest, LEVEL)
    lowest = right.loc[right.groupby(["corruption", "severity"])["accuracy"].idxmin(), "class"]
    share, chance = float((lowest == names[weakest]).mean()), 1 / len(names)
    yield Claim(
        _SOURCE,
        f"{names[weakest]}, the weakest class of {name} under attack, is the weakest under most corruptions.",
        exceeds(low, high, 0.5, test=f"{extremes.TEST}, Bonferroni over the corruptions", sample=sample[0]),
        f"in {percent(share, 0)} of {len(lowest)} corruptions and severities, {percent(chance, 0)} by chance; 95% CI "
        f"{percent(low, 0)} to {percent(high, 0)}",
    )


def _correlated(halved: Correlation | None, sample: tuple[Sample, Sample]) -> Ruling:
    """That both are correlated: an image that is hard without any attack counts for both, so each is measured on its
    own half of the images."""
    if halved is None:
        return undecided("the stored answers lack the halves of the images; delete the job NAME-corrupted")
    return tails(halved.p_greater, halved.p_less, test=f"{RANKS} between two halves of the images", sample=sample)


def _between_halves(right: pd.DataFrame, rows: Records) -> Correlation | None:
    """Robustness on every first image of a class against the mean accuracy under corruptions on every second one."""
    if "correct_second" not in right:
        return None
    first = accuracy.compute(halves([rows])[0][0]).values
    second = right.assign(accuracy=intervals.ratio(right["correct_second"].to_numpy(), right["n_second"].to_numpy()))
    return rank_test(_mean_by_class(second, rows.class_names).to_numpy(), first)


def second_half(labels: Array, positions: Array) -> Array:
    """Whether each image is the second, fourth, … of its class, as `shared.together.halves` splits an audit."""
    place = pd.DataFrame({"label": labels, "index": positions}).sort_values("index").groupby("label").cumcount()
    return np.asarray(place.sort_index().to_numpy() % 2 == 1)


def answers(
    folder: Path,
    environment: Environment,
    model: str,
    data: str,
    corruptions: Sequence[str],
    severities: Sequence[int],
    per_class: int | None,
    seed: int,
    released: bool,
    frost: str | None,
) -> None:
    """corrupted.csv: images and correct answers of each class under each corruption and severity, and the same for
    every second image (`second_half`)."""
    from classwise.auditing.inputs import module_of
    from classwise.data import load
    from classwise.training.pseudo import label

    photographs = f",frost={frost}" if frost else ""
    source, end = (f"{data}_c:", "") if released else (f"corruption:of={data},", f",seed={seed}{photographs}")
    frames = []
    for kind, severity in itertools.product(corruptions, severities):
        spec = f"{source}kind={kind},severity={severity}{end}"
        found = load(spec, environment.root, download=environment.download).subset(per_class=per_class, seed=seed)
        network = module_of(model, found, device=environment.device)
        right = label(network, found)[0] == found.labels
        odd = second_half(found.labels, found.positions)
        every = np.ones_like(right)
        n, correct, n_second, correct_second = (
            np.bincount(found.labels[some], minlength=found.num_classes) for some in (every, right, odd, odd & right)
        )
        own = {"corruption": kind, "severity": severity, "class": list(found.class_names), "n": n, "correct": correct}
        own |= {"accuracy": correct / np.maximum(n, 1), "n_second": n_second, "correct_second": correct_second}
        frames.append(pd.DataFrame(own))
    write_csv(folder / "corrupted.csv", pd.concat(frames))
