"""Which classes are confused with each other under attack, and are they related? (Tian et al. 2021, Figure 2.)

For every model, on clean images and under attack: how symmetric the confusion is and the share of errors inside a
superclass, both compared with chance, and the groups of classes found in the confusion compared with the known
superclasses. The paper shows this in figures; the tests are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from classwise.core.format import percent
from classwise.core.records import CLEAN, Records
from classwise.metrics import accuracy, confusion, groups, kinship, misclassified, reciprocity, superclass
from classwise.results.audit_result import Audit
from classwise.show.figures import confusion as figure
from classwise.show.figures.style import Chart
from classwise.stats.intervals import ratio
from classwise.studies.runner.result import Claim, Done, StudyResult
from classwise.studies.shared.together import EXACT, exact, of_models, smallest
from classwise.studies.shared.under_attack import UnderAttack
from classwise.studies.shared.verdicts import exceeds, images, tails

_SOURCE = "tian2021:figure2"
_PAIRS = 10  # of classes most often confused with each other
_HALF = 0.5  # "most" is more than this share


@dataclass(frozen=True, kw_only=True)
class Relations(UnderAttack):
    """Confusion between classes, its symmetry, and superclasses.

    groups: how many groups to look for; by default the number
    that the confusion itself suggests.
    """

    groups: int | None = None

    def result(self, done: Done) -> StudyResult:
        audits = self.audits(done)
        attacks = {model.name: self.attack_on(model) for model in self.models()}
        attacked = {name: audit.rows() for name, audit in audits.items()}
        clean = {name: audit.rows(CLEAN) for name, audit in audits.items()}
        found = pd.DataFrame(
            [
                {"model": name, "images": kind, **self._row(rows)}
                for name, attack in attacks.items()
                for kind, rows in ((attack, attacked[name]), (CLEAN, clean[name]))
            ]
        )
        return StudyResult(
            {
                "relations": found,
                "pairs": of_models({name: _pairs(rows) for name, rows in attacked.items()}),
                "groups": of_models({name: self._groups(rows) for name, rows in attacked.items()}),
            },
            figures=_charts(audits),
            claims=[claim for name, rows in attacked.items() for claim in _claims(name, rows)],
        )

    def _row(self, rows: Records) -> dict[str, float]:
        mutual, found = reciprocity.compute(rows), groups.compute(rows, self.groups)
        made = {
            "n": len(rows),
            "errors": int((~rows.correct).sum()),
            "symmetry": mutual.symmetry,
            "symmetry by chance": mutual.chance,
            "p of symmetry": mutual.p,
            "groups": len(found.members),
        }
        if not rows.meta.superclasses or found.superclasses is None:
            return made
        kin = kinship.compute(rows)
        return made | {
            "inside superclass (%)": 100 * kin.inside,
            "low": 100 * kin.low,
            "high": 100 * kin.high,
            "inside by chance (%)": 100 * kin.chance,
            "p of superclasses": kin.p,
            "Rand index of groups": found.superclasses.rand,
            "p of groups": found.superclasses.p,
        }

    def _groups(self, rows: Records) -> pd.DataFrame:
        """The groups, the least robust first: classes, mean robustness, and the share of errors inside the group."""
        found, robust = groups.compute(rows, self.groups), accuracy.compute(rows)
        errors = misclassified.compute(rows).sum(axis=1)
        table = []
        for number, members in enumerate(found.members):
            own = found.number == number
            inside = float(np.nansum(found.inside[own] * errors[own]))
            n, mean = int(robust.support[own].sum()), 100 * float(robust.values[own].mean())
            share = 100 * float(ratio(np.array(inside), errors[own].sum()))
            table.append((number + 1, ", ".join(members), n, mean, share))
        return pd.DataFrame(table, columns=["group", "classes", "n", "robust (%)", "errors inside (%)"])


def _pairs(rows: Records) -> pd.DataFrame:
    """The pairs of classes most often confused with each other, with the rates in both directions."""
    rates, names = confusion.rates(rows), rows.class_names
    support = np.bincount(rows.label, minlength=len(names))
    both = np.triu(np.nan_to_num(rates + rates.T), k=1)
    most = [divmod(int(place), len(names)) for place in np.argsort(-both, axis=None, kind="stable")[:_PAIRS]]
    pairs = [(i, j) if rates[i, j] >= rates[j, i] else (j, i) for i, j in most if both[i, j] > 0]
    group = superclass.superclass_of(rows) if rows.meta.superclasses else None
    columns = ["class", "misclassified as", "n", "share (%)", "other n", "reverse (%)", "same superclass"]
    table = []
    for i, j in pairs:
        same = "" if group is None else "yes" if group[i] == group[j] else "no"
        table.append((names[i], names[j], support[i], 100 * rates[i, j], support[j], 100 * rates[j, i], same))
    return pd.DataFrame(table, columns=columns)


def _charts(audits: Mapping[str, Audit]) -> dict[str, Chart]:
    """The confusion of the models of each data set, side by side."""
    by_classes: dict[tuple[str, ...], dict[str, Audit]] = {}
    for name, audit in audits.items():
        by_classes.setdefault(audit.records.class_names, {})[name] = audit
    charts = [figure.from_runs(own) for own in by_classes.values()]
    return {"confusion" if len(charts) == 1 else f"confusion-{place}": c for place, c in enumerate(charts, 1)}


def _claims(model: str, rows: Records) -> Iterator[Claim]:
    """The claims about one model; those about superclasses if the data have any and there are errors."""
    mutual, sample = reciprocity.compute(rows), images(smallest(rows))
    yield Claim(
        _SOURCE,
        f"The confusion of the classes of {model} is mutual.",
        tails(mutual.p, mutual.p_less, test="permutation of each class's errors", sample=sample),
        f"symmetry {mutual.symmetry:.2f}, by chance {mutual.chance:.2f}, p {mutual.p:.2g}"
        if np.isfinite(mutual.symmetry)
        else "there are no errors",
    )
    if not rows.meta.superclasses or not (kin := kinship.compute(rows)).errors:
        return
    low, high = exact(kin.inside, kin.errors)
    numbers = f"{percent(kin.inside)} of {kin.errors} errors, 95% CI {percent(low)} to {percent(high)}"
    yield Claim(
        _SOURCE,
        f"Most errors of {model} stay inside the superclass.",
        exceeds(low, high, _HALF, test=EXACT, sample=images(kin.errors, "errors")),
        numbers,
    )
    yield Claim(
        _SOURCE,
        f"Classes of one superclass are confused with each other more often than others are ({model}).",
        tails(kin.p, kin.p_less, test="permutation of the classes over the superclasses", sample=sample),
        f"{numbers}; {percent(kin.chance)} if errors were spread evenly, p {kin.p:.2g}",
    )
