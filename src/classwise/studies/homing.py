"""Do broken images come home once the class they were taken for is not trained on? (Tian et al. 2021, Figure 4.)

Homing (Definition 6.1): an image of class i that the attack breaks into the confound class j has the homing property if
it is robust on the model trained again, by the same recipe, without class j. The model without j answers one class
fewer; the others are numbered anew and matched by name, the images by their index. H_ij counts the images of M_ij, the
misclassified matrix, that come home. One control the paper lacks: how many of the same images turn robust when another
class than their confound is left out, which is what training once more does by itself.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import special

from classwise.core.errors import UserError, index_of
from classwise.core.records import Protocol, Records
from classwise.core.threat import Norm
from classwise.data import class_names as known_classes
from classwise.metrics import accuracy, confound, difference, misclassified, paired, vulnerable
from classwise.show import figures
from classwise.show.figures import misclassified as figure
from classwise.stats import intervals
from classwise.stats.intervals import Array
from classwise.studies.runner.epochs import at_epoch
from classwise.studies.runner.graph import StudyJob
from classwise.studies.runner.models_under_study import ModelUnderStudy, Setting, from_recipe
from classwise.studies.runner.result import Claim, Done, StudyResult
from classwise.studies.runner.study import Study
from classwise.studies.shared.together import EXACT, exact, mean_interval, smallest
from classwise.studies.shared.verdicts import LEVEL, exceeds, images, omnibus, undecided
from classwise.studies.shared.verdicts import classes as classes_of
from classwise.training.recipe import Recipe, load

_HALF = 0.5  # "most" is more than this share
_SOURCE = "tian2021:figure4b"


@dataclass(frozen=True, kw_only=True)
class Homing(Study):
    """Homing: what leaving out the confound class does to broken images.

    recipe: the training, repeated without each class. set: settings of it to change. classes: leave out only these.
    attack, eps, norm, per_class, seed: of the audits, all on the same test images. which: the checkpoint audited, best
    or last. epoch: the one after this epoch instead. protocol: "final" judges the last step alone, as the papers' code
    does.
    """

    recipe: tuple[str, ...] = ()
    set: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    attack: str = "pgd-20"
    eps: str | None = None
    norm: Norm | None = None
    per_class: int | None = None
    which: str = "best"
    epoch: int | None = None
    protocol: Protocol = "any"
    seed: int = 0

    def jobs(self) -> list[StudyJob]:
        options = {"seed": self.seed, "protocol": None if self.protocol == "any" else self.protocol}
        models = [self._base(), *self._without().values()]
        return [job for model in models for job in (*model.jobs, model.audit("audit", [self.attack], **options))]

    def result(self, done: Done) -> StudyResult:
        base = done.audit(f"{self._base().name}-audit").rows()
        without = {name: done.audit(f"{model.name}-audit").rows() for name, model in self._without().items()}
        broken = fates(base, without)
        counts, home = misclassified.compute(base), matrix(broken, base.class_names)
        effect = changes(base, without)
        return StudyResult(
            {
                "classes": by_class(base, broken),
                "pairs": by_pair(broken),
                "relations": relations(base, broken),
                "advice": advice(base, effect),
                "misclassified": _wide(counts, base.class_names),
                "homing": _wide(home, base.class_names),
                "change_of_each_class": effect,
            },
            {"homing": figures.styled(figure.draw(base, home))},
            claims(base, broken),
            _notes(base, without),
        )

    def _recipe(self) -> Recipe:
        if len(self.recipe) != 1:
            raise UserError(f"homing repeats one training: give one --recipe, got {len(self.recipe)}.")
        chosen = load(self.recipe[0], self.set)
        if chosen.data.exclude:
            raise UserError(
                f"{self.recipe[0]} already leaves out {', '.join(chosen.data.exclude)}; homing leaves out each class "
                "itself. Take data.exclude out of the recipe."
            )
        return chosen

    def _base(self) -> ModelUnderStudy:
        return self._model(Path(self.recipe[0]).stem, self._data())

    def _model(self, name: str, data: str, *changes: str) -> ModelUnderStudy:
        setting = Setting(data, self.eps, self.norm)
        made = from_recipe(name, self.recipe[0], (*self.set, *changes), setting, self.which)
        return at_epoch(made, self.epoch)

    def _data(self, *extra: str) -> str:
        """The data with so many images of each class, the same ones whatever class is left out."""
        name = self._recipe().data.name
        options = [*([] if self.per_class is None else [f"per_class={self.per_class}"]), *extra]
        return name if not options else f"{name}{',' if ':' in name else ':'}{','.join(options)}"

    def _without(self) -> dict[str, ModelUnderStudy]:
        """The model of each retraining, by the class it lacks."""
        found = {}
        for name, known in self._left_out().items():
            change = f"data.exclude={json.dumps([name], ensure_ascii=False)}"
            job = "without-" + re.sub(r"[^A-Za-z0-9_.+-]+", "-", name)
            found[name] = self._model(job, self._data(f"exclude={known}"), change)
        return found

    def _left_out(self) -> dict[str, str]:
        """The classes to leave out, and how a data spec says each: by number where the name would part the spec."""
        data = self._recipe().data.name
        known = known_classes(data)
        if known is None:
            if not self.classes:
                raise UserError(
                    f"{data} names its classes only once it is read: give those to leave out, --classes A,B."
                )
            return {name: name for text in self.classes for name in text.split(",")}
        asked = [part for text in self.classes for part in ([text] if text in known else text.split(","))]
        numbers = sorted({index_of(text, known, f"class of {data}") for text in asked}) or range(len(known))
        return {known[n]: str(n) if re.search(r"[,|]", known[n]) else known[n] for n in numbers}


def fates(base: Records, without: Mapping[str, Records]) -> pd.DataFrame:
    """One row per image the base model is broken on, of those whose confound was left out of a training.

    Columns: class, confound, home (robust without the confound), elsewhere (the share of the models without another
    class, neither its own nor its confound, on which it is robust; NaN if there is none).
    """
    names = np.asarray(base.class_names, dtype=object)
    rows = base.take(np.flatnonzero(~base.correct))
    robust = pd.DataFrame(
        {
            name: pd.Series(other.correct.astype(float), other.index).reindex(rows.index)
            for name, other in without.items()
        }
    ).to_numpy()
    own, confounds = names[rows.label], names[rows.prediction]
    at = pd.Index(list(without)).get_indexer(pd.Index(confounds))
    removed = np.asarray(list(without), dtype=object)[None, :]
    lost = np.isnan(robust) & (removed != own[:, None])
    if lost.any():
        raise UserError(
            f"the audit without {removed[0, np.argwhere(lost)[0, 1]]} lacks {int(lost.sum())} of the images that the "
            "base model is broken on: audit all models on the same images."
        )
    others = ~np.isnan(robust) & (removed != confounds[:, None])
    elsewhere = intervals.ratio(np.where(others, robust, 0).sum(axis=1), others.sum(axis=1))
    kept = np.flatnonzero(at >= 0)
    return pd.DataFrame(
        {
            "class": own[kept],
            "confound": confounds[kept],
            "home": robust[kept, at[kept]],
            "elsewhere": elsewhere[kept],
        },
        index=pd.Index(rows.index[kept], name="index"),
    )


def matrix(broken: pd.DataFrame, class_names: tuple[str, ...]) -> Array:
    """The homing matrix: rows true class, columns the class left out; 0 where a class never was."""
    counts = broken.pivot_table(index="class", columns="confound", values="home", aggfunc="sum")
    return counts.reindex(index=class_names, columns=class_names).fillna(0).to_numpy().astype(np.int64)


def by_class(base: Records, broken: pd.DataFrame) -> pd.DataFrame:
    """What becomes of the broken images of each class; intervals of all classes hold together (Šidák)."""
    robust, weak = accuracy.compute(base), vulnerable.compute(base).vulnerable
    table = _rates(broken, ["class"], simultaneous=True).set_index("class").reindex(list(base.class_names))
    front = pd.DataFrame(
        {
            "class": base.class_names,
            "n": robust.support,
            "robust (%)": 100 * robust.values,
            "vulnerable": ["yes" if name in weak else "no" for name in base.class_names],
        }
    )
    counted = table.fillna({"broken": 0, "home": 0}).astype({"broken": int, "home": int})
    return pd.concat([front, counted.reset_index(drop=True)], axis=1)


def by_pair(broken: pd.DataFrame) -> pd.DataFrame:
    """What becomes of the images of each class broken into each class, the most frequent first; an interval each."""
    return _rates(broken, ["class", "confound"]).sort_values(
        "broken", ascending=False, kind="stable", ignore_index=True
    )


def _rates(broken: pd.DataFrame, by: list[str], simultaneous: bool = False) -> pd.DataFrame:
    table = (
        broken.groupby(by, sort=False)
        .agg(broken=("home", "size"), home=("home", "sum"), elsewhere=("elsewhere", "mean"))
        .reset_index()
    )
    home, n = table["home"].to_numpy(), table["broken"].to_numpy()
    low, high = intervals.bounds(home, n, intervals.sidak(0.95, len(table)) if simultaneous else 0.95)
    shown = 100 * pd.DataFrame({"home (%)": intervals.ratio(home, n), "low": low, "high": high})
    shown["another class left out (%)"] = 100 * table["elsewhere"]
    return pd.concat([table.drop(columns="elsewhere").astype({"home": int}), shown], axis=1)


def mutual(base: Records) -> list[tuple[int, int]]:
    """The pairs of class numbers that are each other's most frequent confound."""
    into = confound.compute(base).number
    return [(i, int(j)) for i, j in enumerate(into) if i < j and into[j] == i]


def relations(base: Records, broken: pd.DataFrame) -> pd.DataFrame:
    """The pairs of classes that are each other's confound: how many images go each way, and how many come home."""
    names = base.class_names
    counts, home = misclassified.compute(base), matrix(broken, names)
    return pd.DataFrame(
        [
            {
                "first": names[i],
                "second": names[j],
                "first into second": counts[i, j],
                "of these home": home[i, j],
                "second into first": counts[j, i],
                "of those home": home[j, i],
            }
            for i, j in mutual(base)
        ],
        columns=["first", "second", "first into second", "of these home", "second into first", "of those home"],
    )


def changes(base: Records, without: Mapping[str, Records]) -> pd.DataFrame:
    """The change of each class's robustness when another is left out, paired by image; p corrected by Holm over all."""
    tables = []
    for removed, rows in without.items():
        table = difference.compute(base, _renumbered(rows, base)).query("`class` not in [@removed, @difference.ALL]")
        tables.append(table.assign(without=removed))
    whole = pd.concat(tables, ignore_index=True)
    percent = {column: 100 * whole[column] for column in ("first", "second", "difference", "low", "high")}
    whole = whole.assign(**percent, p_holm=paired.holm(whole["p"].to_numpy()))
    columns = {
        "n_first": "n",
        "first": "robust before (%)",
        "second": "robust after (%)",
        "difference": "change (points)",
    }
    return whole.rename(columns=columns)[["without", "class", *columns.values(), "low", "high", "p", "p_holm"]]


def _renumbered(rows: Records, base: Records) -> Records:
    """The same rows with the class numbers of the base model."""
    new = np.array([base.class_names.index(name) for name in rows.class_names])
    frame = rows.frame.assign(label=new[rows.label], prediction=new[rows.prediction])
    meta = dataclasses.replace(rows.meta, class_names=base.class_names, superclasses=base.meta.superclasses)
    return Records(frame, meta)


def advice(base: Records, effect: pd.DataFrame) -> pd.DataFrame:
    """For each vulnerable class the one whose absence helps it most: the class to weaken, if the gain is no chance."""
    own = effect[effect["class"].isin(vulnerable.compute(base).vulnerable) & effect["change (points)"].notna()]
    best = own.loc[own.groupby("class", sort=False)["change (points)"].idxmax()].sort_values(
        "robust before (%)", kind="stable"
    )
    sure = (best["change (points)"] > 0) & (best["p_holm"] < LEVEL)
    told = best.assign(weaken=best["without"].where(sure, "none for certain")).rename(
        columns={"without": "most helped by"}
    )
    shown = ["class", "robust before (%)", "most helped by", "change (points)", "low", "high", "p_holm", "weaken"]
    return told[shown].reset_index(drop=True)


def claims(base: Records, broken: pd.DataFrame) -> list[Claim]:
    """The paper's three sentences about Figure 4."""
    weak = broken[broken["class"].isin(vulnerable.compute(base).vulnerable)]
    return [_most(weak), _confound_matters(broken), _in_pairs(base)]


def _most(weak: pd.DataFrame) -> Claim:
    home, n = float(weak["home"].sum()), len(weak)
    text = "Most misclassified examples of vulnerable classes turn robust once their confound class is left out."
    if not n:
        return Claim(_SOURCE, text, undecided("no errors"), "no image of a vulnerable class was broken")
    low, high = exact(home / n, n)
    return Claim(
        _SOURCE,
        text,
        exceeds(low, high, _HALF, test=EXACT, sample=images(n, "broken images")),
        f"{home:.0f} of {n} ({home / n:.1%}), 95% interval {low:.1%} to {high:.1%}",
    )


def _confound_matters(broken: pd.DataFrame) -> Claim:
    """The mean over the images of home − elsewhere, which lies between −1 and 1, with the interval of a mean."""
    text = "It is the confound class that matters: leaving out another class brings fewer of the same images home."
    judged = broken.dropna(subset=["elsewhere"])
    gains = (judged["home"] - judged["elsewhere"]).to_numpy()
    if len(gains) < 2:
        return Claim(_SOURCE, text, undecided("nothing to compare"), "needs retrainings without two classes at least")
    mean, n = float(gains.mean()), len(gains)
    low, high = mean_interval(gains)
    numbers = (
        f"{judged['home'].mean():.1%} home, {judged['elsewhere'].mean():.1%} without another class: "
        f"{100 * mean:+.1f} points, 95% interval {100 * low:+.1f} to {100 * high:+.1f}"
    )
    ruling = exceeds(low, high, test="Student's t over the images", sample=images(n, "broken images"))
    return Claim(_SOURCE, text, ruling, numbers)


def _in_pairs(base: Records) -> Claim:
    """Of the classes that have one most frequent confound; where several are as frequent, none is chosen."""
    errors = misclassified.compute(base)
    alone = (errors == errors.max(axis=1, keepdims=True)).sum(axis=1) == 1
    pairs = [(i, j) for i, j in mutual(base) if alone[i] and alone[j]]
    choosing = int(alone.sum())
    p = chance_of_pairs(len(pairs), choosing, base.num_classes)
    named = ", ".join(f"{base.class_names[i]}-{base.class_names[j]}" for i, j in pairs) or "none"
    return Claim(
        "tian2021:figure4a",
        "Classes confuse one to one: many are each other's most frequent confound.",
        omnibus(p, test="exact chance of as many pairs", sample=(images(smallest(base)), classes_of(choosing))),
        f"{len(pairs)} pairs ({named}); as many by chance with probability {p:.2g}",
    )


def chance_of_pairs(pairs: int, classes: int, among: int | None = None) -> float:
    """The probability of at least so many mutual pairs if every class chose its confound blindly among the others,
    which are more than those that choose where `among` says so.

    Of c classes that choose among C any m disjoint pairs are mutual with probability (C−1)^{−2m}; with S_m the sum of
    that over all sets of m disjoint pairs, P(at least k) = Σ_{m≥k} (−1)^{m−k} binom(m−1, k−1) S_m.
    """
    if pairs == 0 or classes < 2:
        return 1.0
    others = (among or classes) - 1
    total, term = 0.0, 1.0
    for m in range(1, classes // 2 + 1):
        term *= (classes - 2 * m + 2) * (classes - 2 * m + 1) / (2 * m * others**2)
        if m >= pairs:
            total += (-1) ** (m - pairs) * float(special.comb(m - 1, pairs - 1)) * term
    return float(np.clip(total, 0.0, 1.0))


def _wide(counts: Array, names: tuple[str, ...]) -> pd.DataFrame:
    return pd.DataFrame({"true class": names, **{name: counts[:, place] for place, name in enumerate(names)}})


def _notes(base: Records, without: Mapping[str, Records]) -> list[str]:
    kept = [name for name in base.class_names if name not in without]
    notes = [
        "The paper does not say how the model without a class answers; here it has one output fewer.",
        "One training stands for each class left out: the intervals are over images, not over trainings.",
        "A class that is left out also leaves its training images out: the models without it see fewer images.",
    ]
    return notes + (
        [f"Never left out, so their columns of the homing matrix are empty: {', '.join(kept)}."] if kept else []
    )
