"""What a training warns of: settings that never take effect, flips that may change a class, a score without a signal.

Sentences for `warnings` before the first epoch, and for the remarks at the end; a pure function of recipe and history.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from classwise import data as data_sets
from classwise import methods
from classwise.core.format import listed, percent
from classwise.metrics import tail
from classwise.training import averaging, schedule
from classwise.training.augment import Flip
from classwise.training.augment import parse as parse_augment
from classwise.training.awp import parse as parse_awp
from classwise.training.recipe import Recipe

_MOST = 5  # classes named
_BEHIND = 0.05  # of the average, that is worth a remark
#: Names of classes that a mirrored image may leave: a side, a single digit or letter, a number with a unit of speed.
_SIDED = re.compile(r"(?<![a-z])(left|right)(?![a-z])|^[a-z0-9]$|(limit|speed|km|mph).*\d|\d.*(limit|speed|km|mph)")


def cautions(chosen: Recipe, class_names: Sequence[str]) -> list[str]:
    """All that is to be said before the first epoch."""
    return [*idle(chosen), *flipped(chosen, class_names), *tested(chosen)]


def idle(chosen: Recipe) -> list[str]:
    """A sentence for each setting of the recipe that begins only after its last epoch, or rises beyond it."""
    part, method = chosen.train, chosen.method
    averages = None if part.averaging is None else averaging.parse(part.averaging)
    awp = None if part.awp is None else parse_awp(part.awp)
    waits = (
        (methods.name_of(method), method.idle_epochs(), "what it adds to its base method never begins"),
        (f"train.averaging = {part.averaging}", averages.start - 1 if averages else 0, "nothing is averaged"),
        (f"train.awp = {part.awp}", awp.start if awp else 0, "no weight is perturbed"),
    )
    sentences = [
        f"{what} would begin after the last of this training's {part.epochs} epochs (train.epochs): {effect}. Train "
        "longer, or let it begin earlier."
        for what, epochs, effect in waits
        if epochs >= part.epochs
    ]
    if (rise := schedule.parse(part.schedule).warmup) >= part.epochs:
        sentences.append(
            f"train.schedule = {part.schedule} warms up for {rise:g} of this training's {part.epochs} epochs: the rate "
            "never reaches its full value. Train longer, or with a shorter warmup."
        )
    return sentences


def flipped(chosen: Recipe, class_names: Sequence[str]) -> list[str]:
    """A sentence where images are flipped although a mirrored one may be of another class.

    That is so for data sets of digits, by their `FLIPS`; where a data set does not say, for classes whose names have
    the word left or right, are a single digit or letter, or hold a number and limit, speed, km or mph.
    """
    used = [chosen.data.augment, *(phase.augment or () for phase in chosen.train.phases)]
    transforms = [one for names in used for one in parse_augment(list(names)).transforms]
    if not any(isinstance(one, Flip) and one.chance > 0 for one in transforms):
        return []
    remedy = "Leave flip out of data.augment."
    known = data_sets.flips(chosen.data.name)
    if known is False:
        return [f"data.augment flips images of {chosen.data.name}: a mirrored one may be of another class. {remedy}"]
    sided = [name for name in class_names if _SIDED.search(name.lower())] if known is None else []
    if not sided:
        return []
    return [f"data.augment flips images, and by their names these classes may change: {listed(sided, _MOST)}. {remedy}"]


def tested(chosen: Recipe) -> list[str]:
    """A sentence where the images to train on are those that audits use by default."""
    if chosen.data.split != "test":
        return []
    return [
        "data.split = test: the model is trained on the images that an audit attacks by default. Such an audit says "
        "nothing of new images: train on another split."
    ]


def without_signal(rows: pd.DataFrame, rule: str, best_epoch: int) -> list[str]:
    """A sentence where the worst class was never above 0 on the held-out images, so that it could not select."""
    if rule != "worst" or "worst" not in rows or rows["worst"].dropna().empty or rows["worst"].max() > 0:
        return []
    own = rows.loc[rows["epoch"] == best_epoch].iloc[0]
    names = [str(column) for column in rows if str(column).startswith("robust:")]
    known = own[names].to_numpy(dtype=float)
    fifth = tail.lowest(known[~np.isnan(known)])
    among = f"{len(fifth)} lowest of {len(names)} classes"
    how = f"the average of the {among} did, {percent(fifth.mean())} in epoch {best_epoch}"
    if not fifth.any():
        how = f"nor could the {among}, so the average of all images did, in epoch {best_epoch}"
    return [
        "The worst class was at 0% on the held-out images after every epoch, so it could not select the best one; "
        f"{how}. Train longer, from robust weights, or at a smaller eps, or hold more images out."
    ]


def undertrained(rows: pd.DataFrame, rule: str, best_epoch: int) -> list[str]:
    """A sentence where an epoch was selected by its worst class although its average is far below that of another: the
    classes change places from epoch to epoch while the rate is high, and by chance the lowest may be high early."""
    if rule != "worst" or not {"worst", "robust"} <= {*rows} or rows["robust"].dropna().empty:
        return []
    own, best = rows.loc[rows["epoch"] == best_epoch].iloc[0], rows.iloc[int(np.nanargmax(rows["robust"]))]
    if not own["robust"] < best["robust"] - _BEHIND:
        return []
    return [
        f"Epoch {best_epoch} was selected for its worst class, {percent(own['worst'])} with an average of "
        f"{percent(own['robust'])}; epoch {best['epoch']:.0f} has {percent(best['worst'])} with an average of "
        f"{percent(best['robust'])}. With validate.select = average that one is selected."
    ]
