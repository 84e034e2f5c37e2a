"""A row of history.csv for every epoch, and the score of its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from torch import Tensor

from classwise.core.errors import UserError
from classwise.core.records import CLEAN, Array, Records
from classwise.methods.method import State
from classwise.metrics import accuracy, cv, mcd, tail

Row: TypeAlias = dict[str, float | int | str]


def row(epoch: int, train: Records, valid: Records | None, attacks: Sequence[str], state: State) -> Row:
    """The columns of one epoch: accuracies by class and the state it was trained with.

    attacks: the recipe's validation attacks; where there are several, robust means under the worst of them.
    """
    names = train.class_names
    made: Row = {"epoch": epoch, "train_accuracy": float(train.correct.mean())}
    if valid is not None:
        made |= accuracies(valid.of(CLEAN), robust_rows(valid, attacks))
    for name, values in state.items():
        if values.shape == (len(names),):
            made |= _by_class(name, values.cpu().numpy(), names)
        elif values.ndim == 0:
            made[name] = float(values)
    return made


def accuracies(clean: Records, robust: Records) -> Row:
    """Clean and robust accuracy, overall and of each class."""
    names, by_class, on_clean = robust.class_names, accuracy.compute(robust), accuracy.compute(clean)
    made: Row = {"clean": float(clean.correct.mean()), "robust": float(robust.correct.mean())}
    made |= {"worst_class": names[by_class.worst], "worst": float(by_class.values[by_class.worst])}
    made |= {"cv": cv.compute(robust), "mcd": mcd.compute(robust)}
    return made | _by_class("clean", on_clean.values, names) | _by_class("robust", by_class.values, names)


def _by_class(what: str, values: Array, names: Sequence[str]) -> Row:
    return {f"{what}:{name}": float(value) for name, value in zip(names, values, strict=True)}


def robust_rows(valid: Records, attacks: Sequence[str]) -> Records:
    """Each example under the recipe's validation attack, or the worst of them where there are several."""
    return valid.of(attacks[0]) if len(attacks) == 1 else valid.worst_case([CLEAN, *attacks])


def score(rule: str, epoch: int, valid: Records | None, attacks: Sequence[str], losses: Tensor | None) -> list[float]:
    """The score of a checkpoint by a rule: larger is better, later numbers break ties.

    A worst class at 0 says nothing; the mean of the lowest fifth of the classes breaks that tie. losses: the method's
    own validation loss of each class, for "minimax"; by default cross entropy under attack.
    """
    if rule == "last" or valid is None:
        return [float(epoch)]
    robust = robust_rows(valid, attacks)
    average = float(robust.correct.mean())
    if rule == "average":
        return [average]
    if rule == "worst":
        worst = float(np.nanmin(accuracy.compute(robust).values))
        return [worst, average] if worst > 0 else [worst, tail.compute(robust), average]
    if rule != "minimax":
        raise UserError(f"unknown rule {rule!r} to select a checkpoint: worst, average, minimax or last.")
    if losses is not None:
        return [-float(losses.max())]
    return [-float(robust.frame.groupby("label")["loss"].mean().max())]


def frame(rows: Sequence[Mapping[str, float | int | str]]) -> pd.DataFrame:
    """The whole history, an epoch to a row."""
    return pd.DataFrame(list(rows))
