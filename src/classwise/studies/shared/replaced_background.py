"""Another background at inference: what it does to a class, and what a control does. (The second part of `background`.)

Each image is audited as it is and on other backgrounds, and only images whose mask is usable count. White helps

    as white         if it raises the class more than other colours do
    as background    if it does so behind the object's own mask more than behind one that knows nothing of the object:
                     another image's of the class (shuffled), or a random shape of the same area (random)

and not by making the model say the class's name, if the images of other classes are not taken for it more often.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from classwise.core.errors import index_of
from classwise.core.records import CLEAN, Records
from classwise.data import mask_quality
from classwise.metrics import confusion, difference, paired, worst
from classwise.results.audit_result import Audit
from classwise.stats.correlation import rank_test
from classwise.stats.intervals import Array
from classwise.studies.runner.result import Claim
from classwise.studies.shared.together import BOOTSTRAP, PAIRED, RANKS, interval_between, resampled
from classwise.studies.shared.verdicts import LEVEL, Ruling, Sample, all_held, exceeds, images, tails

Kind: TypeAlias = Literal["natural", "adversarial"]
#: The rows of one model by what is behind the object, and by whether they are attacked; the original first.
Views: TypeAlias = "Mapping[str, Mapping[Kind, Records]]"

ORIGINAL = "original"
KINDS: tuple[Kind, ...] = ("natural", "adversarial")
_TABLE, _FIGURE = "tian2021:table4", "tian2021:figure6"
_LISTED = 10  # images in the table of the most robust ones
NO_MASK = "no mask"  # why an image without one is left out
_MASKS = " masks"
_WIDEST = 20  # classes that have columns of their own


@dataclass(frozen=True)
class View:
    """A background: its colour, and which masks it is put behind."""

    colour: str
    masks: Literal["own", "shuffled", "random"] = "own"

    @property
    def name(self) -> str:
        return self.colour if self.masks == "own" else f"{self.colour}, {self.masks}{_MASKS}"

    @property
    def job(self) -> str:
        """What a job may be called after."""
        plain = re.sub(r"[^A-Za-z0-9]+", "", self.colour)
        return plain if self.masks == "own" else f"{plain}-{self.masks}"

    def data(self, of: str, folder: str, seed: int) -> str:
        """The data set of these images, with the masks in a folder of `make_masks`."""
        nested = of.replace(",", ";")
        return f"replaced:of={nested},masks={folder}/{self.masks}.npz,colour={self.colour},seed={seed}"


def views(colours: Sequence[str]) -> list[View]:
    """The colours behind the objects' own masks, and the first of them behind the masks that know nothing of it."""
    return [*map(View, colours), View(colours[0], "shuffled"), View(colours[0], "random")]


def chosen_class(audit: Audit, name: str | None) -> str:
    """The class as the data set calls it; the weakest of the audit where none is named."""
    names = audit.records.class_names
    return worst.compute(audit.rows()).name if name is None else names[index_of(name, names, "class")]


def read_views(audits: Mapping[str, Audit]) -> Views:
    """The rows of one model's audits, the original ones of those images only that have another background."""
    masked = next(audit for name, audit in audits.items() if name != ORIGINAL).rows(CLEAN).index
    return {
        name: {"natural": _only(audit.rows(CLEAN), masked), "adversarial": _only(audit.rows(), masked)}
        for name, audit in audits.items()
    }


def behind_own_masks(own: Views) -> list[str]:
    """The backgrounds that are none of the controls' masks, the one in question first."""
    return [view for view in own if view != ORIGINAL and not view.endswith(_MASKS)]


def _only(rows: Records, index: Array) -> Records:
    return rows.take(np.flatnonzero(np.isin(rows.index, index)))


# ---- tables ----------------------------------------------------------------------------------------------------------


def predictions(models: Mapping[str, Views], name: str) -> pd.DataFrame:
    """Table 4: how many images of the class are predicted to be each class; the commonest ones where they are many."""
    front, rows = [], []
    for model, own in models.items():
        for kind in KINDS:
            for view, records in own.items():
                rows.append(confusion.compute(records[kind])[records[kind].class_names.index(name)])
                front.append({"model": model, "background": view, "prediction": kind, "n": int(rows[-1].sum())})
    counts = pd.DataFrame(rows, columns=list(next(iter(models.values()))[ORIGINAL]["natural"].class_names))
    often = counts.sum().drop(name).sort_values(ascending=False, kind="stable").index[: _WIDEST - 1]
    kept = counts[[column for column in counts if column == name or column in often]]
    if len(kept.columns) < len(counts.columns):
        kept = kept.assign(**{"(others)": counts.sum(axis=1) - kept.sum(axis=1)})
    return pd.concat([pd.DataFrame(front), kept], axis=1)


def changes(models: Mapping[str, Views], name: str) -> pd.DataFrame:
    """The class on each background against the original, and on the first against every control, image by image."""
    rows = []
    for model, own in models.items():
        first, *others = [view for view in own if view != ORIGINAL]
        pairs = [(ORIGINAL, view) for view in (first, *others)] + [(view, first) for view in others]
        for kind in KINDS:
            for against, view in pairs:
                row = _compared(own[against][kind], own[view][kind], name)
                shown = {"model": model, "background": view, "against": against, "prediction": kind}
                rows.append({**shown, "n": int(row["n_first"]), **_change(row), "p": row["p"]})
    table = pd.DataFrame(rows)
    holm = table.groupby(["model", "prediction"])["p"].transform(lambda p: paired.holm(p.to_numpy()))
    return table.drop(columns="p").assign(**{"p (Holm)": holm})


def _compared(before: Records, after: Records, name: str, confidence: float = 1 - LEVEL) -> pd.Series[Any]:
    """The class's row of the paired difference."""
    table = difference.compute(before, after, confidence=confidence)
    return table[table["class"] == name].iloc[0]


def _change(row: pd.Series[Any]) -> dict[str, float]:
    names = {
        "first": "before (%)",
        "second": "after (%)",
        "difference": "change (points)",
        "low": "low",
        "high": "high",
    }
    return {shown: 100 * float(row[column]) for column, shown in names.items()}


def by_class(models: Mapping[str, Views]) -> pd.DataFrame:
    """What the first background does to each class, natural and adversarial."""
    tables = []
    for model, own in models.items():
        first = behind_own_masks(own)[0]
        for kind in KINDS:
            found = difference.compute(own[ORIGINAL][kind], own[first][kind]).iloc[:-1]
            rows = [
                {"class": row["class"], "n": int(row["n_first"]), **_change(row), "p (Holm)": row["p_holm"]}
                for _, row in found.iterrows()
            ]
            tables.append(pd.DataFrame(rows).assign(model=model, prediction=kind))
    table = pd.concat(tables, ignore_index=True)
    front = ["model", "prediction"]
    return table[[*front, *(column for column in table if column not in front)]]


def taken_for(models: Mapping[str, Views], name: str) -> pd.DataFrame:
    """How many images of other classes the model calls by the class's name, before and after."""
    rows = []
    for model, own in models.items():
        for view in (view for view in own if view != ORIGINAL):
            for kind in KINDS:
                before, after = (_says(own[which][kind], name) for which in (ORIGINAL, view))
                if not len(before):
                    continue
                row = _compared(before, after, name)
                shown = {"model": model, "background": view, "prediction": kind, "n": len(before)}
                rows.append({**shown, **_change(row)})
    return pd.DataFrame(rows)


def _says(records: Records, name: str) -> Records:
    """The images of other classes, "right" where they are taken for this one."""
    number = records.class_names.index(name)
    others = records.take(np.flatnonzero(records.label != number))
    return replace(others, frame=others.frame.assign(label=number))


def most_robust(own: Views, quality: pd.DataFrame, name: str) -> pd.DataFrame:
    """The images of the class with the highest probability of it under attack, and how bright their background is."""
    rows = _ranked(own, quality, name).head(_LISTED)
    return pd.DataFrame(
        {
            "rank": np.arange(1, len(rows) + 1),
            "index": rows.index,
            "attacked: probability (%)": 100 * rows["attacked"].to_numpy(),
            "natural: probability (%)": 100 * rows["natural"].to_numpy(),
            "background brightness (%)": 100 * rows["brightness"].to_numpy(),
        }
    )


def _ranked(own: Views, quality: pd.DataFrame, name: str) -> pd.DataFrame:
    """The class's images by index: probability of the class, attacked and natural, and background brightness."""
    parts = {}
    for column, kind in (("attacked", "adversarial"), ("natural", "natural")):
        records = own[ORIGINAL][kind]  # type: ignore[index]
        inside = records.label == records.class_names.index(name)
        parts[column] = pd.Series(records.frame["true_prob"].to_numpy()[inside], index=records.index[inside])
    bright = quality.set_index("index")["brightness"]
    return pd.DataFrame(parts).join(bright).sort_values("attacked", ascending=False, kind="stable")


def quality_by_class(quality: pd.DataFrame, class_names: Sequence[str]) -> pd.DataFrame:
    """The masks' measures by class for reading; images without a mask and refused ones were left out."""
    given = quality[quality["refused"] != NO_MASK].fillna({"refused": ""}).astype({"border": float})
    table = mask_quality.by_class(given, class_names)
    shares = ["share", "border", "converged", "empty", "too small", "too large", "refused"]
    table[shares] *= 100
    absent = quality[quality["refused"] == NO_MASK].groupby("label").size().reindex(range(len(class_names)))
    table["edge of random masks"] = (
        given.groupby("label")["edge_of_random"].median().reindex(range(len(class_names))).to_numpy()
    )
    table["without a mask"] = absent.fillna(0).astype(int).to_numpy()
    return table.rename(columns={column: f"{column} (%)" for column in shares})


# ---- claims ----------------------------------------------------------------------------------------------------------


def claims(models: Mapping[str, Views], name: str, adjusted: str | None) -> Iterator[Claim]:
    """Of every model but the adjusted one, and what that adds to the first."""
    for model, own in models.items():
        if model != adjusted:
            yield _raises(model, own, name)
            yield from _colours(model, own, name)
            yield _natural(model, own, name)
    if adjusted is not None:
        yield _adjusted(models, name, adjusted)


def _raises(model: str, own: Views, name: str) -> Claim:
    first = behind_own_masks(own)[0]
    shuffled, shapes = View(first, "shuffled").name, View(first, "random").name
    gain, beyond, blind = (_gain(own[against], own[first], name) for against in (ORIGINAL, shuffled, shapes))
    said = taken_for({model: {ORIGINAL: own[ORIGINAL], first: own[first]}}, name)
    others = "; no images of other classes"
    if len(said):
        row = said[said["prediction"] == "adversarial"].iloc[0]
        others = f"; images of other classes taken for {name}: {row['before (%)']:.1f}% to {row['after (%)']:.1f}%"
    return Claim(
        _TABLE,
        f"A {first} background makes {name} more robust ({model}), and more so behind the object's own outline than "
        f"behind another image's.",
        all_held(gain.above(), beyond.above()),
        f"{gain}; against shuffled masks {beyond}; against random masks {blind}{others}",
    )


def _colours(model: str, own: Views, name: str) -> Iterator[Claim]:
    first, *others = behind_own_masks(own)
    if others:
        gains = {view: _gain(own[view], own[first], name, 1 - LEVEL / len(others)) for view in others}
        yield Claim(
            _TABLE,
            f"It is {first} that makes {name} more robust ({model}): other backgrounds do it less.",
            all_held(
                _gain(own[ORIGINAL], own[first], name).above(),
                *(gain.above(", Bonferroni over the backgrounds") for gain in gains.values()),
            ),
            "; ".join(f"against {view} {gain}" for view, gain in gains.items()),
        )


def _natural(model: str, own: Views, name: str) -> Claim:
    """The difference of two differences of the same images, resampled together."""
    first = behind_own_masks(own)[0]
    runs = [own[view][kind] for kind in KINDS for view in (ORIGINAL, first)]
    drawn = resampled(runs)[:, :, runs[0].class_names.index(name)]
    low, high = interval_between(drawn)
    natural, adversarial = (_gain(own[ORIGINAL], own[first], name, kind=kind) for kind in KINDS)
    more = 100 * (adversarial.value - natural.value)
    return Claim(
        _TABLE,
        f"A {first} background changes adversarial predictions of {name} more than natural ones ({model}).",
        exceeds(low, high, test=BOOTSTRAP, sample=_images_of(adversarial.n)),
        f"adversarial {adversarial}; natural {natural}; {more:+.1f} more "
        + (f"({100 * low:+.1f} to {100 * high:+.1f})" if np.isfinite(low) else "(no interval)"),
    )


def _adjusted(models: Mapping[str, Views], name: str, adjusted: str) -> Claim:
    base = next(model for model in models if model != adjusted)
    first = behind_own_masks(models[base])[0]
    gain = _gain(models[base][first], models[adjusted][first], name)
    return Claim(
        _TABLE,
        f"On a {first} background the adjusted training ({adjusted}) makes {name} more robust still.",
        gain.above(),
        f"against {base} on {first} {gain}",
    )


def bright(model: str, own: Views, quality: pd.DataFrame, name: str) -> Claim:
    """Whether probability under attack goes with brightness, over all images of the class."""
    rows = _ranked(own, quality, name)
    found = rank_test(rows["brightness"].to_numpy(), rows["attacked"].to_numpy())
    top, every = rows["brightness"].head(_LISTED).mean(), rows["brightness"].mean()
    return Claim(
        _FIGURE,
        f"The brighter the background, the more robust an image of {name} ({model}).",
        tails(found.p_greater, found.p_less, test=RANKS, sample=_images_of(found.n)),
        f"{found}, {len(rows)} images; mean brightness of the "
        f"{min(_LISTED, len(rows))} most robust {top:.0%}, of all {every:.0%}",
    )


@dataclass(frozen=True)
class _Gain:
    """A change of a class's accuracy on the same images, as a fraction."""

    value: float
    low: float
    high: float
    n: int

    def above(self, correction: str = "") -> Ruling:
        """Whether it is above 0; `correction` says what its level allows for."""
        return exceeds(self.low, self.high, test=PAIRED + correction, sample=_images_of(self.n))

    def __str__(self) -> str:
        return f"{100 * self.value:+.1f} points ({100 * self.low:+.1f} to {100 * self.high:+.1f})"


def _gain(
    before: Mapping[Kind, Records],
    after: Mapping[Kind, Records],
    name: str,
    confidence: float = 1 - LEVEL,
    kind: Kind = "adversarial",
) -> _Gain:
    row = _compared(before[kind], after[kind], name, confidence)
    value, low, high = (float(row[column]) for column in ("difference", "low", "high"))
    return _Gain(value, low, high, int(row["n_first"]))


def _images_of(n: int) -> Sample:
    return images(n, "images of the class with a usable mask")
