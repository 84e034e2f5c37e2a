"""Is the same class the worst for every network, optimiser and data set? (Benz et al. 2020, Section 3.1.)

A recipe as it is and with each of the variations, one at a time; several recipes, such as one for each data set. For
every training: do its classes differ beyond chance (χ² test of equal accuracies), and which is the worst? For those
of one data set: how well they agree on the order of the classes (pairwise Spearman's ρ), and whether one class is the
worst in all of them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
import pandas as pd
import scipy  # its stats are loaded at their first use

from classwise.core.errors import UserError
from classwise.core.records import CLEAN, Records
from classwise.core.storage import safe_name
from classwise.metrics import accuracy, cv, mcd, overall
from classwise.show.figures import forest
from classwise.stats.comparisons import holm
from classwise.stats.intervals import Array
from classwise.studies.runner.models_under_study import CHANGE_OF, PARTS
from classwise.studies.runner.result import Claim, Done, StudyResult, named_charts
from classwise.studies.shared import extremes
from classwise.studies.shared.together import halves, interval, resampled, smallest
from classwise.studies.shared.variants import Variant, Variants
from classwise.studies.shared.verdicts import LEVEL, images, omnibus, tails
from classwise.studies.shared.verdicts import classes as classes_of

T = TypeVar("T")

#: The records of each seed of each variant, by the variant's name.
Runs: TypeAlias = Mapping[str, Sequence[Records]]

_SOURCE = "benz2020:section3.1"
_BASE = "base"
_PERMUTATIONS = 9999


@dataclass(frozen=True, kw_only=True)
class Universality(Variants):
    """The order of the classes under variations of the training.

    recipe: one or more, NAME=RECIPE to name one. vary: a setting to change, model.spec=resnet-18, or several with
    semicolons between them; NAME=… to name it; as often as there are variations, each on top of every recipe.
    """

    recipe: tuple[str, ...] = ()
    vary: tuple[str, ...] = ()

    def variants(self) -> list[Variant]:
        if not self.recipe:
            raise UserError(
                "no training to vary: give --recipe RECIPE and variations such as --vary model.spec=resnet-18."
            )
        changes: dict[str, tuple[str, ...]] = {_BASE: (), **_unique((_varied(text) for text in self.vary), "vary")}
        recipes = _unique((_recipe(text) for text in self.recipe), "recipe")
        if len(recipes) * len(changes) < 2:
            raise UserError("there is only one training, nothing to compare it with: give --vary or another --recipe.")
        return [
            Variant(change if len(recipes) == 1 else name if change == _BASE else f"{name}-{change}", recipe, settings)
            for name, recipe in recipes.items()
            for change, settings in changes.items()
        ]

    def result(self, done: Done) -> StudyResult:
        variants = self.variants()
        robust, clean = (
            {variant.name: self.rows(done, variant, attack) for variant in variants} for attack in (None, CLEAN)
        )
        families: dict[str, dict[str, Sequence[Records]]] = {}  # variants of one data set, which can be compared
        for variant in variants:
            data = self._model(variant, self.seeds[0]).data
            families.setdefault(data, {})[variant.name] = robust[variant.name]
        compared = {name: own for name, own in families.items() if len(own) > 1}
        pairs = [
            agreements({name: runs[name] for name in own}, self.seed).assign(accuracy=kind)
            for kind, runs in (("robust", robust), ("clean", clean))
            for own in compared.values()
        ]
        found = by_variant(robust, clean, self.seed)
        tables = {"variants": found, **({"agreement": pd.concat(pairs, ignore_index=True)} if pairs else {})}
        charts = {
            safe_name(name): forest.draw({variant: runs[0] for variant, runs in own.items()})
            for name, own in families.items()
        }
        judged = [test(own, name, self.seed) for name, own in compared.items() for test in (same_worst, same_order)]
        notes = ["The paper is a pre-registration without results.", *self.notes()]
        claims = [differ_everywhere(found, robust), *judged]
        return StudyResult(tables, figures=named_charts("robustness", charts), claims=claims, notes=notes)


def _recipe(text: str) -> tuple[str, str]:
    """The name and the recipe of ``NAME=RECIPE`` or ``desk/cifar10/madry``, which is cifar10-madry."""
    name, equals, recipe = text.partition("=")
    return (name, recipe) if equals else ("-".join(Path(text).with_suffix("").parts[-2:]), text)


def _varied(text: str) -> tuple[str, tuple[str, ...]]:
    """The name and the settings of ``NAME=model.spec=vgg-16;train.epochs=20``, or named by its values."""
    named = CHANGE_OF.fullmatch(text)
    settings = tuple(re.split(rf";\s*(?=(?:{PARTS})\.)", named[2] if named else text))
    for setting in settings:
        if not re.match(rf"({PARTS})\.\w+=.", setting):
            raise UserError(
                f"--vary {text!r}: {setting!r} is not of the form part.key=value, such as model.spec=vgg-16."
            )
        if setting.startswith("train.seed="):
            raise UserError("every training is repeated with each seed; give them as --seeds 0,1,2 instead of --vary.")
    values = "-".join(setting.partition("=")[2] for setting in settings)
    return named[1] if named else re.sub(r"[^A-Za-z0-9_.+]+", "-", values).strip("-"), settings


def _unique(pairs: Iterable[tuple[str, T]], option: str) -> dict[str, T]:
    """Things by their names, which must differ."""
    found: dict[str, T] = {}
    for name, item in pairs:
        if name in (*found, _BASE):
            raise UserError(f"two trainings would be called {name!r}; name this one yourself: --{option} NAME=…")
        found[name] = item
    return found


def by_variant(robust: Runs, clean: Runs, seed: int = 0) -> pd.DataFrame:
    """One row per variant, means over its seeds; p of "all classes are equally robust" is the largest of its seeds'.

    "worst in draws": in what percentage of resamplings of the images that class is the worst.
    """
    rows = []
    for name, runs in robust.items():
        mean = _means({name: runs})[0]
        worst = int(np.nanargmin(mean))
        drawn = _drawn({name: runs}, seed)[:, 0]
        lowest = np.nanargmin(np.where(np.isnan(drawn), np.inf, drawn), axis=1)
        rows.append(
            {
                "variant": name,
                "n": len(runs[0]),
                "clean (%)": 100 * np.mean([overall.compute(run).value for run in clean[name]]),
                "robust (%)": 100 * np.mean([overall.compute(run).value for run in runs]),
                "CV (%²)": np.mean([cv.compute(run) for run in runs]),
                "MCD (points)": 100 * np.mean([mcd.compute(run) for run in runs]),
                "worst class": runs[0].class_names[worst],
                "worst (%)": 100 * mean[worst],
                "worst in draws (%)": 100 * np.mean(lowest == worst),
                "p": max(equal_classes(run) for run in runs),
            }
        )
    table = pd.DataFrame(rows)
    return table.assign(p_holm=holm(table["p"].to_numpy()))


def equal_classes(records: Records) -> float:
    """p of Pearson's χ² test that all classes have the same accuracy; 1 where every image is right, or none."""
    correct, support = accuracy.counts(records)
    right, n = correct[support > 0], support[support > 0]
    if right.sum() in (0, n.sum()) or len(n) < 2:
        return 1.0
    return float(scipy.stats.chi2_contingency(np.stack([right, n - right])).pvalue)


def agreements(runs: Runs, seed: int = 0) -> pd.DataFrame:
    """Spearman's ρ and Kendall's τ of the class accuracies of each pair of variants; ρ's interval by resampling.

    Resampling adds noise to both orders, so the interval is biased towards lower agreement.
    """
    means, ranks = _means(runs), _centred_ranks(_drawn(runs, seed))
    rows = []
    for i, j in itertools.combinations(range(len(runs)), 2):
        names = list(runs)
        seen = np.isfinite(means[[i, j]]).all(axis=0)
        first, second = means[i, seen], means[j, seen]
        tied = np.ptp(first) == 0 or np.ptp(second) == 0
        low, high = interval((ranks[:, i] * ranks[:, j]).sum(axis=-1))
        rows.append(
            {
                "first": names[i],
                "second": names[j],
                "classes": int(seen.sum()),
                "rho": np.nan if tied else float(scipy.stats.spearmanr(first, second).statistic),
                "low": low,
                "high": high,
                "tau": np.nan if tied else float(scipy.stats.kendalltau(first, second).statistic),
            }
        )
    return pd.DataFrame(rows)


def differ_everywhere(found: pd.DataFrame, runs: Runs) -> Claim:
    """That the classes of every variant differ; tests of several variants are corrected together."""
    differ = found["p_holm"] < LEVEL
    least = found.sort_values("p_holm").iloc[-1]
    sample = images(smallest(*(run for own in runs.values() for run in own)))
    return Claim(
        _SOURCE,
        "Classes differ in robustness whatever the data set, the network, the optimiser, the schedule or weight decay.",
        omnibus(float(least["p_holm"]), test="χ² test of equal accuracies in each training, Holm", sample=sample),
        f"beyond chance in {differ.sum()} of {len(found)} trainings (Holm); weakest in {least['variant']}, "
        f"p = {least['p_holm']:.2g}",
    )


def same_worst(runs: Runs, name: str, seed: int = 0) -> Claim:
    """That one class is the worst in every training, of every seed."""
    every = [run for own in runs.values() for run in own]
    chosen, p, p_none = extremes.always_least([accuracy.counts(run) for run in every])
    worst = np.nanargmin(_means(runs), axis=1)
    numbers = (
        f"{every[0].class_names[chosen]} in {int((worst == chosen).sum())} of {len(runs)}, p = {p:.2g}; that no class "
        f"is, p = {p_none:.2g}"
    )
    ruling = tails(p, p_none, test=extremes.TEST, sample=images(smallest(*every)))
    return Claim(_SOURCE, f"The same class is the worst in every training ({name}).", ruling, numbers)


def same_order(runs: Runs, name: str, seed: int = 0) -> Claim:
    """That the trainings agree on the order of the classes: the mean pairwise ρ, each training on its own half of the
    images, against permutations of the classes of one half. On the same images, hard ones alone make orders similar."""
    every = [run for own in runs.values() for run in own]
    ends = np.cumsum([len(own) for own in runs.values()])[:-1]
    parts = [np.stack([accuracy.compute(run).values for run in half]) for half in halves(every)]
    one, other = _centred_ranks(np.stack([[own.mean(axis=0) for own in np.split(part, ends)] for part in parts]))
    p, p_less = _agreement_test(one, other, seed)
    ranks = _centred_ranks(_means(runs)[None])[0]
    pairs = list(itertools.combinations(range(len(runs)), 2))
    mean = float(np.mean([(ranks[i] * ranks[j]).sum(axis=-1) for i, j in pairs]))
    agreement = f"mean ρ {mean:.2f}" if np.isfinite(mean) else "ρ is undefined: the classes of a training are equal"
    sample = (images(smallest(*every)), classes_of(ranks.shape[1]))
    test = "permutation of the classes between two halves of the images"
    numbers = f"{agreement}; between halves p = {p:.2g}" if np.isfinite(p) else agreement
    ruling = tails(p, p_less, test=test, sample=sample)
    return Claim(_SOURCE, f"Trainings agree on the order of the classes ({name}).", ruling, numbers)


def _agreement_test(one: Array, other: Array, seed: int) -> tuple[float, float]:
    """One-sided p-values of the mean ρ of a training on one half and another on the other; ranks, (trainings, classes).

    NaN where some training has all its classes equal in a half.
    """
    if not np.isfinite([*one.ravel(), *other.ravel()]).all():
        return float("nan"), float("nan")
    # Σ_{i≠j} ⟨one_i, other_j⟩ = ⟨Σ one, Σ other⟩ − Σ_i ⟨one_i, other_i⟩, also for permuted classes of other.
    weights = one.sum(axis=0)[:, None] * other.sum(axis=0)[None, :] - one.T @ other
    generator, place = np.random.default_rng(seed), np.arange(len(weights))
    drawn = np.array([weights[place, generator.permutation(place)].sum() for _ in range(_PERMUTATIONS)])
    seen, rounding = np.trace(weights), 1e-9
    counts = (drawn >= seen - rounding).sum(), (drawn <= seen + rounding).sum()
    return (1 + int(counts[0])) / (1 + _PERMUTATIONS), (1 + int(counts[1])) / (1 + _PERMUTATIONS)


def _means(runs: Runs) -> Array:
    """The accuracy of each class over a variant's seeds, (variants, classes)."""
    return np.array([np.mean([accuracy.compute(run).values for run in own], axis=0) for own in runs.values()])


def _drawn(runs: Runs, seed: int) -> Array:
    """The same for each resampling of the images, (draws, variants, classes)."""
    drawn = resampled([run for own in runs.values() for run in own], seed=seed)
    ends = np.cumsum([len(own) for own in runs.values()])[:-1]
    return np.stack([part.mean(axis=1) for part in np.split(drawn, ends, axis=1)], axis=1)


def _centred_ranks(values: Array) -> Array:
    """Ranks along the classes minus their mean, of the classes with images; scaled so that their squares sum to 1."""
    seen = values[..., np.isfinite(values).all(axis=(0, 1))]
    ranks = scipy.stats.rankdata(seen, axis=-1)
    ranks = ranks - ranks.mean(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.asarray(ranks / np.linalg.norm(ranks, axis=-1, keepdims=True))
