"""The game on the bias of the logits: attack z + b, raise the classes below, lower those above, attack again.

    b ← b + s·d,  then b ← b − mean b           d_k = mean(a) − a_k,  a_k the class's accuracy under a fresh attack

Where minimums are asked for, d_k = max(min_k − a_k, 0) for those classes and 0 for all others: the game ends once they
are reached. A class without images has d_k = 0.

The step s is halved whenever it proved too long: the worst class did not rise, or the classes that were to rise are now
those to fall (Σ_k d_k d'_k < 0). Nothing here attacks anything; every number comes from the rounds before.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from classwise.core.records import Array, Records

_SMALLEST = 1e-3  # of the first step, below which another round would change nothing
_MOST_CERTAIN = 1e-6  # 1 − p beyond which single-precision probabilities say no more


def unit_of(clean: Records) -> float:
    """The standard deviation of log(p_y / (1 − p_y)) over the clean images: the scale on which logits differ.

    Networks trained against attacks have small logit gaps, others large ones; a step of the game must fit both.
    """
    p = clean.frame["true_prob"].to_numpy(np.float64).clip(_MOST_CERTAIN, 1 - _MOST_CERTAIN)
    return max(float(np.std(np.log(p / (1 - p)))), _MOST_CERTAIN)


def deficits(accuracy: Array, minimums: Mapping[int, float]) -> Array:
    """d_k: by how much each class is to rise; 0 where it has no images."""
    if minimums:
        found = np.zeros(len(accuracy))
        for number, least in minimums.items():
            found[number] = max(least - accuracy[number], 0.0)
    else:
        found = np.nanmean(accuracy) - accuracy
    return np.nan_to_num(found)


def step_after(accuracies: Sequence[Array], first: float, minimums: Mapping[int, float]) -> float:
    """The step for the next round, after rounds with these class accuracies."""
    step = first
    for before, after in itertools.pairwise(accuracies):
        rose = np.nanmin(after) > np.nanmin(before)
        turned = deficits(before, minimums) @ deficits(after, minimums) < 0
        step /= 2 if turned or not rose else 1
    return step


def next_bias(
    rounds: Sequence[tuple[Array, Array]], first: float, minimums: Mapping[int, float]
) -> tuple[Array, float] | None:
    """The bias to try next and the step that led there, from the rounds so far, each a bias and the class accuracies
    under it; None where nothing is left to change."""
    bias, accuracy = rounds[-1]
    step = step_after([found for _, found in rounds], first, minimums)
    move = step * deficits(accuracy, minimums)
    if np.abs(move).max() < _SMALLEST * first:
        return None
    moved = bias + move
    return moved - moved.mean(), step
