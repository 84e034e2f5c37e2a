"""Do superclasses stay separate under attack while their classes mix? (Tian et al. 2020, Figure 8.)

The penultimate vectors of clean and of adversarial test images on one t-SNE map (van der Maaten and Hinton 2008). A map
may show clusters that do not exist, so the study also computes numbers from the vectors themselves: the silhouette
(Rousseeuw 1987), and the share s of an image's nearest neighbours of the same kind that are of its class or superclass,
also as κ = (s − chance)/(1 − chance): 0 if they mix as if drawn at random, 1 if they are separate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn

from classwise import attacks
from classwise.attacks.attack import craft
from classwise.auditing.inputs import device_of, module_of
from classwise.core import rng
from classwise.core.csv_files import write_csv
from classwise.core.errors import UserError
from classwise.core.spec import number
from classwise.core.threat import Norm, Threat
from classwise.data import load as load_data
from classwise.data.images import Images
from classwise.models.penultimate import penultimate
from classwise.show.figures import features as figure
from classwise.stats.intervals import Array, ratio
from classwise.studies.runner.graph import StudyJob
from classwise.studies.runner.models_under_study import ModelUnderStudy
from classwise.studies.runner.result import Claim, Done, StudyResult, named_charts
from classwise.studies.runner.study import OfModels
from classwise.studies.runner.work import Environment
from classwise.studies.shared.together import mean_interval, of_models
from classwise.studies.shared.verdicts import exceeds, falls_short, images, undecided

_SOURCE = "tian2020:figure8"
_HALFWAY = 0.5  # of κ: closer to separate than to mixed
_BATCH = 256
_KINDS = ("clean", "adversarial")


@dataclass(frozen=True, kw_only=True)
class Tsne(OfModels):
    """A map of the features of clean and adversarial images.

    attack: what makes the adversarial images. perplexity: of t-SNE, about the number of neighbours that count.
    neighbours: how many nearest neighbours are counted.
    """

    attack: str = "pgd-20"
    per_class: int | None = 100
    perplexity: float = 30.0
    neighbours: int = 10

    def jobs_of(self, model: ModelUnderStudy) -> list[StudyJob]:
        settings = {key: getattr(self, key) for key in ("attack", "per_class", "perplexity", "neighbours", "seed")}
        return [model.derive("map", f"{__name__}:mapped", data=model.data, **model.threat_arguments, **settings)]

    def result(self, done: Done) -> StudyResult:
        names = [model.name for model in self.models()]
        maps = {name: done.table(f"{name}-map", "map.csv").astype({"class": str}) for name in names}
        means = of_models({name: separation(own) for name, own in maps.items()})
        classes = of_models({name: by_class(own) for name, own in maps.items()})
        whole = pd.concat([own.assign(model=name) for name, own in maps.items()], ignore_index=True)
        drawn = ("index", "kind", "class", "group", "x", "y", "model")
        return StudyResult(
            {"separation": means, "classes": classes},
            figures=named_charts("map", {name: figure.draw(own) for name, own in maps.items()}),
            claims=[claim for name in names for claim in _claims(name, means[means["model"] == name])],
            notes=["The paper shows only the map; the numbers are those of the feature space, whose distances matter."],
            data={"features": whole[[column for column in drawn if column in whole]]},
        )


def separation(images: pd.DataFrame) -> pd.DataFrame:
    """One row per kind of image and level: the mean silhouette, the share of such neighbours, κ with its interval.

    Levels: class, superclass, and class inside superclass, for which only neighbours of the image's superclass count.
    The interval is Student's; it assumes independent images, which neighbours are not quite.
    """
    rows = []
    for (kind, level), silhouette, share, chance in _levels(images):
        kappa = ((share - chance) / (1 - chance)).dropna()
        low, high = mean_interval(kappa.to_numpy())
        rows.append(
            {
                "images": kind,
                "level": level,
                "n": len(kappa),
                "silhouette": silhouette.mean(),
                "same neighbours (%)": 100 * share.mean(),
                "kappa": kappa.mean(),
                "low": low,
                "high": high,
            }
        )
    return pd.DataFrame(rows)


def _levels(images: pd.DataFrame) -> Iterator[tuple[tuple[str, str], pd.Series, pd.Series, pd.Series]]:
    for kind in _KINDS:
        own = images[images["kind"] == kind]
        size = own.groupby("class")["class"].transform("size")
        yield (kind, "class"), own["silhouette_class"], own["alike_class"], (size - 1) / (len(own) - 1)
        if "group" not in own:
            continue
        whole = own.groupby("group")["group"].transform("size")
        yield (kind, "superclass"), own["silhouette_group"], own["alike_group"], (whole - 1) / (len(own) - 1)
        inside = pd.Series(ratio(own["alike_class"].to_numpy(), own["alike_group"].to_numpy()), own.index)
        several = whole > size  # a superclass of one class has nothing to mix
        chance = ((size - 1) / (whole - 1)).where(several)
        yield (kind, "class inside superclass"), own["silhouette_inside"], inside.where(several), chance


def by_class(images: pd.DataFrame) -> pd.DataFrame:
    names = {"alike_class": "neighbours of its class (%)", "alike_group": "neighbours of its superclass (%)"}
    shown = images.assign(**{column: 100 * images[column] for column in names if column in images})
    columns = [column for column in ("silhouette_class", "silhouette_group", *names) if column in images]
    grouped = shown.groupby(["class", "kind"], sort=False)
    table = grouped[columns].mean().assign(n=grouped.size()).reset_index()
    silhouettes = {"silhouette_class": "silhouette", "silhouette_group": "silhouette of superclass"}
    return table.rename(columns={**names, **silhouettes, "kind": "images"})


def _claims(name: str, means: pd.DataFrame) -> Iterator[Claim]:
    for kind in _KINDS:
        by_level = means[means["images"] == kind].set_index("level")
        for level, text, test in (
            ("superclass", f"Superclasses stay separate, {kind} images ({name}).", exceeds),
            ("class inside superclass", f"Classes of one superclass mix, {kind} images ({name}).", falls_short),
        ):
            if level not in by_level.index:
                yield Claim(_SOURCE, text, undecided("no superclasses"), "the data set names no superclasses")
                return
            n, kappa, low, high = by_level.loc[[level], ["n", "kappa", "low", "high"]].to_numpy()[0]
            numbers = f"κ = {kappa:.2f}, 95% CI {low:.2f} to {high:.2f}; 0 mixed, 1 separate, threshold {_HALFWAY}"
            if not np.isfinite([kappa, low]).all():
                numbers = "κ has no interval: too few images"
            ruling = test(low, high, _HALFWAY, test="Student's t over the images", sample=images(n, "images"))
            yield Claim(_SOURCE, text, ruling, numbers)


def mapped(
    folder: Path,
    environment: Environment,
    model: str,
    data: str,
    eps: str | float,
    attack: str,
    per_class: int | None,
    perplexity: float,
    neighbours: int,
    seed: int,
    norm: Norm = "linf",
) -> None:
    """map.csv: one row per image and kind: index, kind, class, group, position on the map, silhouettes, neighbours."""
    from sklearn.manifold import TSNE

    images = load_data(data, environment.root, "test", environment.download).subset(per_class=per_class, seed=seed)
    if not 0 < perplexity < 2 * len(images):
        raise UserError(
            f"perplexity must lie between 0 and the number of points, {2 * len(images)}; got {perplexity:g}."
        )
    if not 0 < neighbours < len(images):
        raise UserError(f"neighbours must lie between 1 and the number of images less 1; got {neighbours}.")
    module = module_of(model, images, device=environment.device)
    names = np.asarray(images.class_names, dtype=object)[images.labels]
    group = {member: name for name, members in (images.superclasses or {}).items() for member in members}
    groups = np.array([group[name] for name in names], dtype=object) if group else None
    vectors = _vectors(module, images, Threat(norm, number(eps)), attack, seed)
    both = np.concatenate([vectors[kind] for kind in _KINDS])  # on one map, which shows what moved
    points = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(both)
    tables = []
    for kind, (x, y) in zip(_KINDS, points.reshape(len(_KINDS), -1, 2).transpose(0, 2, 1), strict=True):
        front = {"index": images.positions, "kind": kind, "class": names}
        front |= {} if groups is None else {"group": groups}
        tables.append(pd.DataFrame({**front, "x": x, "y": y, **closeness(vectors[kind], names, groups, neighbours)}))
    write_csv(folder / "map.csv", pd.concat(tables))


def _vectors(module: nn.Module, images: Images, threat: Threat, attack: str, seed: int) -> dict[str, Array]:
    """The penultimate vectors of clean and adversarial images, by kind."""
    chosen = list(attacks.parse(attack).values())
    if len(chosen) != 1:
        raise UserError(f"a map shows the images of one attack; {attack!r} names {len(chosen)}.")
    ready, features, device = chosen[0].for_classes(images.num_classes), penultimate(module), device_of(module)
    found: dict[str, list[Array]] = {kind: [] for kind in _KINDS}
    for begin in range(0, len(images), _BATCH):
        rows = np.arange(begin, min(begin + _BATCH, len(images)))
        x, y = (tensor.to(device) for tensor in images.batch(rows))
        key = rng.keys(seed, torch.from_numpy(images.positions[rows]).to(device))
        adversarial = craft(ready, module, x, y, threat, key=key)
        with torch.no_grad():
            for kind, batch in zip(_KINDS, (x, adversarial), strict=True):
                found[kind].append(features(batch).double().cpu().numpy())
    return {kind: np.concatenate(parts) for kind, parts in found.items()}


def closeness(vectors: Array, names: Array, groups: Array | None, neighbours: int) -> dict[str, Array]:
    """Silhouettes and shares of same-class neighbours of each image, and of its superclass if there are any.

    `silhouette_inside` is that of the classes among the images of the image's own superclass. NaN if there is only
    one class.
    """
    from sklearn.neighbors import NearestNeighbors

    near = NearestNeighbors(n_neighbors=neighbours).fit(vectors).kneighbors(return_distance=False)
    found = {"silhouette_class": _silhouette(vectors, names), "alike_class": _same_share(names, near)}
    if groups is None:
        return found
    inside = np.full(len(names), np.nan)
    for group in np.unique(groups):
        own = groups == group
        inside[own] = _silhouette(vectors[own], names[own])
    return {
        **found,
        "silhouette_group": _silhouette(vectors, groups),
        "silhouette_inside": inside,
        "alike_group": _same_share(groups, near),
    }


def _same_share(names: Array, near: Array) -> Array:
    return np.asarray((names[near] == names[:, None]).mean(axis=1))


def _silhouette(vectors: Array, names: Array) -> Array:
    from sklearn.metrics import silhouette_samples

    if not 1 < len(np.unique(names)) < len(names):
        return np.full(len(names), np.nan)
    return np.asarray(silhouette_samples(vectors, names))
