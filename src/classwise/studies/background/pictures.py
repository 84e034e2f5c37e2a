"""What `background` derives from images: their masks and those of the controls, and pictures that show the effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from classwise.core.adversarial_examples import rounded
from classwise.core.csv_files import read_csv, write_csv
from classwise.core.errors import UserError
from classwise.core.format import percent
from classwise.core.records import Records
from classwise.core.storage import atomic_write
from classwise.data import load as load_data
from classwise.data import masks
from classwise.data.coloured import colours_of, drawn
from classwise.data.images import Images
from classwise.data.masks import Masks
from classwise.results.audit_result import Audit
from classwise.show.figures import panels
from classwise.stats.intervals import Array
from classwise.studies.background import mask_quality, segmentation
from classwise.studies.background.tables import NO_MASK
from classwise.studies.background.views import KINDS, ORIGINAL, Views, chosen_class, read_views
from classwise.studies.runner.result import StudyResult
from classwise.studies.runner.work import Environment

GRABCUT = "grabcut"
_SHOWN = 3  # images of either kind
_MANY, _SMALL, _LARGE = 6, 60, 120  # columns from which pictures are small, and their sides in points


def make_masks(
    folder: Path,
    environment: Environment,
    data: str,
    source: str,
    audit: str,
    class_name: str | None,
    per_class: int | None,
    others: int,
    seed: int,
) -> None:
    """own.npz, shuffled.npz, random.npz: masks of the class's images and of `others` of every other class, those that
    are usable; quality.csv: every mask's measures, and how bright the background is.

    Shuffled within the class, so that a class's masks stay as large as they are.
    """
    audited = Audit.load(audit)
    images = load_data(data, environment.root, "test", environment.download).subset(per_class=per_class, seed=seed)
    number = images.class_number(chosen_class(audited, class_name))
    wanted = images.labels == number
    if others:
        wanted |= np.isin(images.positions, images.subset(per_class=others, seed=seed).positions)
    images = images.take(np.flatnonzero(wanted))
    found = segmentation.grabcut(images) if source == GRABCUT else masks.read(source)
    measures = _measured(images, found)
    kept = _usable(images, measures, images.class_names[number])
    own = Masks(found.of(kept.positions), kept.positions, name="own masks")
    shapes = masks.blobs(own, seed=seed)
    edges = mask_quality.measure(kept, shapes)[["index", "edge"]].rename(columns={"edge": "edge_of_random"})
    for name, made in (("own", own), ("shuffled", _shuffled(kept, own, seed)), ("random", shapes)):
        masks.write(made, folder / f"{name}.npz")
    write_csv(folder / "quality.csv", measures.merge(edges, how="left", on="index"))


def _measured(images: Images, found: Masks) -> pd.DataFrame:
    """The measures of each mask with the background's brightness; images without a mask are refused."""
    there = np.isin(images.positions, found.positions)
    masked, bare = images.take(np.flatnonzero(there)), images.take(np.flatnonzero(~there))
    refused = pd.DataFrame({"index": bare.positions, "label": bare.labels, "refused": NO_MASK})
    if not len(masked):
        return refused
    measures = mask_quality.measure(masked, found).assign(brightness=_brightness(masked, found))
    return pd.concat([measures, refused], ignore_index=True) if len(bare) else measures


def _brightness(images: Images, found: Masks) -> list[float]:
    """The mean over the background's pixels and channels; NaN where the mask leaves none."""
    means = []
    for row, mask in enumerate(found.of(images.positions)):
        pixels = images.batch(np.array([row]))[0][0].cpu().numpy()
        means.append(float(pixels[:, ~mask].mean()) if not mask.all() else float("nan"))
    return means


def _usable(images: Images, measures: pd.DataFrame, name: str) -> Images:
    """The images whose masks are usable, of classes that have two or more."""
    good = measures[measures["refused"] == ""]
    often = good.groupby("label")["index"].transform("size") > 1
    kept = images.take(np.flatnonzero(np.isin(images.positions, good.loc[often, "index"])))
    number = images.class_number(name)
    if not (kept.labels == number).any():
        total, usable = int((images.labels == number).sum()), int((good["label"] == number).sum())
        raise UserError(
            f"of {total} images of {name} {usable} have a usable mask, and at least 2 are needed. Give other masks "
            "(--masks FILE), more images (--per-class), or another class (--class-name)."
        )
    return kept


def _shuffled(images: Images, own: Masks, seed: int) -> Masks:
    of_classes = [images.positions[images.labels == label] for label in np.unique(images.labels)]
    parts = [masks.shuffled(Masks(own.of(index), index), seed=seed) for index in of_classes]
    arrays, positions = (np.concatenate([getattr(part, name) for part in parts]) for name in ("array", "positions"))
    return Masks(arrays, positions, name="shuffled masks")


def take_pictures(
    folder: Path,
    environment: Environment,
    data: str,
    replaced: str,
    original: str,
    changed: str,
    class_name: str | None,
) -> None:
    """pictures.npz and pictures.csv: the class's most robust images and those that the background made robust, with
    the two likeliest classes of each, natural and attacked (Figure 6)."""
    audits = {ORIGINAL: Audit.load(original), "changed": Audit.load(changed)}
    name, own = chosen_class(audits[ORIGINAL], class_name), read_views(audits)
    index = _most_affected(own, name)
    rows: list[dict[str, str]] = []
    pictures: list[Array] = []
    for title, spec in ((ORIGINAL, data), ("changed", replaced)):
        images = load_data(spec, environment.root, "test", environment.download)
        places = [int(np.flatnonzero(images.positions == one)[0]) for one in index]
        pictures.append(rounded(images.batch(np.array(places))[0].permute(0, 2, 3, 1).cpu().numpy()))
        for one in index:
            caption = "\n".join(f"{kind}: {_likeliest(own[title][kind], one)}" for kind in KINDS)
            rows.append({"row": f"{name} {one}", "column": title, "caption": caption})
    _write(folder, rows, pictures)


def take_digits(folder: Path, environment: Environment, data: Mapping[str, str]) -> None:
    """pictures.npz and pictures.csv: a test image of each class in front of each of its colours, a row for each way
    to give colours to classes (Figure 5a)."""
    rows: list[dict[str, str]] = []
    pictures: list[Array] = []
    for pairing, spec in data.items():
        images = load_data(spec, environment.root, "test", environment.download)
        colours = colours_of(images.class_names, pairing)
        behind = drawn(images.labels, images.positions, [len(own) for own in colours.values()])
        for label, (name, own) in enumerate(colours.items()):
            for number, colour in enumerate(own):
                places = np.flatnonzero((images.labels == label) & (behind == number))[:1]
                if places.size:
                    pictures.append(rounded(images.batch(places)[0].permute(0, 2, 3, 1).cpu().numpy()))
                    row = pairing if len(own) == 1 else f"{pairing}, colour {number + 1}"
                    rows.append({"row": row, "column": name, "caption": colour})
    _write(folder, rows, pictures)


def _write(folder: Path, rows: Sequence[Mapping[str, str]], pictures: Sequence[Array]) -> None:
    with atomic_write(folder / "pictures.npz") as handle:
        np.savez_compressed(handle, image=np.concatenate(pictures))
    write_csv(folder / "pictures.csv", pd.DataFrame(rows))


def read(folder: Path, columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """The table of a grid of pictures that a job left; columns: other words for the heads of its columns."""
    table = read_csv(folder / "pictures.csv", dtype=str, keep_default_na=False)
    with np.load(folder / "pictures.npz", allow_pickle=False) as held:
        images = [panels.data_uri(image) for image in held["image"]]
    return table.assign(column=table["column"].replace(dict(columns or {})), image=images)


def chart(name: str, pictures: pd.DataFrame) -> StudyResult:
    """The figure of a grid of pictures, and the table it is drawn from."""
    cell = _LARGE if pictures["column"].nunique() < _MANY else _SMALL
    return StudyResult(
        {}, figures={name: panels.draw(pictures, cell=cell)}, data={"panels": pictures.assign(model=name)}
    )


def _most_affected(own: Views, name: str) -> list[int]:
    """The images most robust as they are, then those broken as they are and most robust on the other background."""
    number = own[ORIGINAL]["natural"].class_names.index(name)
    before, after = (
        rows.frame.assign(right=rows.correct)[rows.label == number].set_index("index")
        for rows in (own[ORIGINAL]["adversarial"], own["changed"]["adversarial"])
    )
    turned = after[after["right"] & ~before["right"].reindex(after.index)]
    best = [frame.sort_values("true_prob", ascending=False, kind="stable").index[:_SHOWN] for frame in (before, turned)]
    return list(dict.fromkeys(int(one) for some in best for one in some))


def _likeliest(records: Records, index: int) -> str:
    """The two likeliest classes of an image in words; one where only the prediction's probability was kept."""
    row = int(np.flatnonzero(records.index == index)[0])
    if records.probs is None:
        ranks = [(int(records.prediction[row]), float(records.frame["confidence"].iloc[row]))]
    else:
        ranks = [(int(number), float(records.probs[row, number])) for number in np.argsort(-records.probs[row])[:2]]
    return ", ".join(f"{records.class_names[number]} {percent(share, 0)}" for number, share in ranks)
