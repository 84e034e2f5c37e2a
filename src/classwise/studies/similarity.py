"""Are classes with similar logits those that are confused under attack? (Benz et al. 2020, Section 3.2.)

z̄_i is the mean logit vector of the clean test images of class i, and cos(z̄_i, z̄_j) the similarity of two classes. It is
compared with the share of class i that is misclassified as class j under attack. Pairs share classes, so their
correlation is tested by permuting the classes of one matrix (Mantel 1967), over unordered pairs, both directions of
confusion averaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import scipy  # its stats are loaded at their first use
import torch

from classwise.auditing.inputs import device_of, module_of
from classwise.core.csv_files import write_csv
from classwise.core.errors import UserError
from classwise.core.records import Records
from classwise.data import load as load_data
from classwise.metrics import accuracy, confusion
from classwise.show.figures import similarity as figure
from classwise.stats.correlation import rank_test
from classwise.stats.intervals import Array
from classwise.studies.runner.graph import StudyJob
from classwise.studies.runner.models_under_study import ModelUnderStudy
from classwise.studies.runner.result import Claim, Done, StudyResult, named_charts
from classwise.studies.runner.study import OfModels
from classwise.studies.runner.work import Environment
from classwise.studies.shared.together import RANKS, columns_in_percent
from classwise.studies.shared.verdicts import classes as classes_of
from classwise.studies.shared.verdicts import images, inapplicable, tails

_SOURCE = "benz2020:section3.2-similarity"
_LEAST = 4  # classes: three have 3 pairs and 6 permutations, too few for a test
_BATCH = 256
_ROUNDING = 1e-12  # sums of the same numbers in another order


@dataclass(frozen=True, kw_only=True)
class Similarity(OfModels):
    """Similarity of the classes' mean logits against their confusion under attack.

    attack: the attack that confuses them. permutations: of the classes, drawn by the test.
    """

    attack: str = "pgd-20"
    permutations: int = 9999

    def jobs_of(self, model: ModelUnderStudy) -> list[StudyJob]:
        selection = {"per_class": self.per_class, "seed": self.seed}
        logits = model.derive("logits", f"{__name__}:mean_logits", data=model.data, **selection)
        return [logits, model.audit("audit", [self.attack], **selection)]

    def result(self, done: Done) -> StudyResult:
        names = [model.name for model in self.models()]
        pairs = {name: self._pairs(done, name) for name in names}
        tests = pd.DataFrame([{"model": name, **self._test(own)} for name, own in pairs.items()])
        classes = pd.concat([self._classes(done, name, own) for name, own in pairs.items()], ignore_index=True)
        return StudyResult(
            {"correlation": tests, "pairs": pd.concat(map(_unordered, pairs.values())), "classes": _percent(classes)},
            figures=named_charts("similarity", {name: figure.draw(own) for name, own in pairs.items()}),
            claims=[claim for name in names for claim in self._claims(name, tests, classes)],
            notes=["Adding a constant to all logits changes only the cosine; the logits are used as they are."],
            data={"similarity": pd.concat(list(pairs.values()), ignore_index=True)},
        )

    def _pairs(self, done: Done, name: str) -> pd.DataFrame:
        vectors = done.table(f"{name}-logits", "logits.csv").to_numpy()
        return ordered_pairs(done.rows(f"{name}-audit"), vectors).assign(model=name)

    def _test(self, pairs: pd.DataFrame) -> dict[str, float]:
        likeness, share = (_square(pairs, column) for column in ("cosine", "share"))
        rho, p, p_less = mantel(likeness, (share + share.T) / 2, self.permutations, self.seed)
        return {"classes": len(likeness), "pairs": len(pairs) // 2, "rho": rho, "p": p, "p_less": p_less}

    def _classes(self, done: Done, name: str, pairs: pd.DataFrame) -> pd.DataFrame:
        """The mean similarity of each class to the others, and its robustness."""
        robust = accuracy.compute(done.rows(f"{name}-audit"))
        values = pd.DataFrame({"class": robust.class_names, "n": robust.support, "robust": robust.values})
        near = pairs.loc[pairs.groupby("true")["cosine"].idxmax()].set_index("true")["predicted"]
        mean = pairs.groupby("true")["cosine"].mean()
        kept = values[values["class"].isin(mean.index)]
        return kept.assign(model=name, mean_cosine=kept["class"].map(mean), nearest=kept["class"].map(near))

    def _claims(self, name: str, tests: pd.DataFrame, classes: pd.DataFrame) -> Iterator[Claim]:
        test = tests[tests["model"] == name].iloc[0]
        own = classes[classes["model"] == name]
        less = rank_test(own["mean_cosine"].to_numpy(), own["robust"].to_numpy())
        sample = (images(own["n"].min()), classes_of(len(own)))
        rho = f"Spearman {test['rho']:.2f}" if np.isfinite(test["rho"]) else "Spearman undefined: all pairs are equal"
        p = f" over {test['pairs']:.0f} pairs, one-sided p = {test['p']:.2g}" if np.isfinite(test["p"]) else ""
        text = f"Classes with similar mean logits are confused with each other under attack ({name})."
        ruling = tails(test["p"], test["p_less"], test="Mantel's test, permuting the classes", sample=sample)
        yield Claim(_SOURCE, text, ruling, rho + p)
        text = f"A class whose mean logits are close to other classes' is less robust ({name})."
        ruling = tails(less.p_less, less.p_greater, test=RANKS, sample=sample)
        if own["robust"].nunique() == 1:
            ruling = inapplicable("all classes are equally robust", sample[0])
        yield Claim(_SOURCE, text, ruling, f"{less}, over {len(own)} classes")


def ordered_pairs(rows: Records, logits: Array) -> pd.DataFrame:
    """One row per ordered pair of classes that have images: true, predicted, cosine, share."""
    rates, likeness = confusion.rates(rows), cosines(logits)
    seen = np.flatnonzero(np.isfinite(likeness).any(axis=1) & np.isfinite(rates).all(axis=1))
    if len(seen) < _LEAST:
        raise UserError(
            f"similarity needs images of at least {_LEAST} classes to compare pairs; there are {len(seen)}."
        )
    i, j = (place.ravel() for place in np.meshgrid(seen, seen, indexing="ij"))
    i, j = i[i != j], j[i != j]
    names = np.asarray(rows.class_names, dtype=object)
    return pd.DataFrame({"true": names[i], "predicted": names[j], "cosine": likeness[i, j], "share": rates[i, j]})


def cosines(vectors: Array) -> Array:
    """cos of each two rows; NaN for a row that is NaN or zero."""
    with np.errstate(invalid="ignore"):
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(unit @ unit.T)


def mantel(one: Array, other: Array, permutations: int, seed: int = 0) -> tuple[float, float, float]:
    """Spearman's ρ between the entries of two symmetric matrices below the diagonal, and the one-sided p-values of a
    positive and of a negative correlation.

    p = (1 + #{permutations of the classes of `other` with ρ at least as large}) / (1 + permutations), the other counts
    those at most as large: pairs that share a class still do after a permutation. NaN if either matrix is constant.
    """
    size = len(one)
    below = np.tril_indices(size, -1)
    ranks = np.zeros((2, size, size))
    for own, matrix in zip(ranks, (one, other), strict=True):
        own[below] = scipy.stats.rankdata(matrix[below])
        own += own.T
    left, right = (own[below] - own[below].mean() for own in ranks)
    scale = np.sqrt((left**2).sum() * (right**2).sum())
    if scale == 0:
        return float("nan"), float("nan"), float("nan")
    rho = float(left @ right / scale)
    generator = np.random.default_rng(seed)
    as_large = as_small = 0
    for _ in range(permutations):
        order = generator.permutation(size)
        found = left @ ranks[1][np.ix_(order, order)][below] / scale
        as_large, as_small = as_large + (found >= rho - _ROUNDING), as_small + (found <= rho + _ROUNDING)
    return rho, (1 + as_large) / (1 + permutations), (1 + as_small) / (1 + permutations)


def _square(pairs: pd.DataFrame, column: str) -> Array:
    wide = pairs.pivot_table(index="true", columns="predicted", values=column)
    return wide.fillna(0).to_numpy()


def _unordered(pairs: pd.DataFrame) -> pd.DataFrame:
    """Each two classes once, the most confused first."""
    back = pairs.rename(columns={"true": "predicted", "predicted": "true", "share": "back"}).drop(columns="cosine")
    both = pairs.merge(back, on=["model", "true", "predicted"])
    both = both[both["true"] < both["predicted"]].assign(mean=lambda rows: (rows["share"] + rows["back"]) / 2)
    both = both.sort_values("mean", ascending=False, kind="stable", ignore_index=True)
    shares = {"share": "first as second (%)", "back": "second as first (%)", "mean": "mean (%)"}
    names = {"model": "model", "true": "first", "predicted": "second", "cosine": "cosine", **shares}
    return columns_in_percent(both, *shares)[list(names)].rename(columns=names)


def _percent(classes: pd.DataFrame) -> pd.DataFrame:
    shown = columns_in_percent(classes, "robust")[["model", "class", "n", "mean_cosine", "nearest", "robust"]]
    return shown.rename(columns={"mean_cosine": "mean cosine", "robust": "robust (%)"})


def mean_logits(
    folder: Path, environment: Environment, model: str, data: str, per_class: int | None = None, seed: int = 0
) -> None:
    """logits.csv: a row per class, the mean logits of its clean test images; empty for a class without any."""
    images = load_data(data, environment.root, "test", environment.download).subset(per_class=per_class, seed=seed)
    module = module_of(model, images, device=environment.device)
    device = device_of(module)
    answers = []
    with torch.no_grad():
        for begin in range(0, len(images), _BATCH):
            x, _ = images.batch(np.arange(begin, min(begin + _BATCH, len(images))))
            answers.append(module(x.to(device)).double().cpu().numpy())
    logits = pd.DataFrame(np.concatenate(answers))
    table = logits.groupby(images.labels).mean().reindex(range(logits.shape[1]))
    write_csv(folder / "logits.csv", table)
