"""Trainings simulated with a known truth: probit effects of image, seed and both, answers drawn from them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from classwise.stats import resampling
from classwise.stats.over_seeds import Measured

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Run r with seed s is right about image i of class c if a_c + shift + u_i + v_sc + w_ri + e > 0, all normal, the
    standard deviations of u, v, w those given and that of e 1. coupled: the correlation of v in two groups. others: how
    many times as large v is in the groups after the second."""

    levels: tuple[float, ...] = (-0.8, -0.3, 0.2, 0.8)
    shift: float = 0.2
    images: int = 100
    image: float = 1.0
    seed: float = 0.1
    both: float = 0.5
    coupled: float = 0.5
    others: float = 1.0

    def truth(self, draws: int = 200_000) -> Array:
        """The difference second − first of the first class, of the average and of the worst class."""
        rng = np.random.default_rng(0)
        scale = np.sqrt(1 + self.image**2 + self.both**2)
        shifts = self.seed * rng.standard_normal((draws, len(self.levels)))
        first, second = (special.ndtr((np.array(self.levels) + s + shifts) / scale) for s in (0.0, self.shift))
        each = (second - first).mean(axis=0)
        return np.array([each[0], each.mean(), second.min(axis=1).mean() - first.min(axis=1).mean()])

    def answers(self, rng: np.random.Generator, seeds: int, groups: int = 2) -> Array:
        """(groups · seeds runs, classes, images): the runs of the first group, then those of the others."""
        size = (seeds, len(self.levels))
        easy = self.image * rng.standard_normal((1, size[1], self.images))
        common = rng.standard_normal(size)
        made = []
        for group in range(groups):
            shift, scale = self.shift * (group > 0), self.seed * (self.others if group > 1 else 1)
            own = rng.standard_normal(size)
            v = scale * (np.sqrt(self.coupled) * common + np.sqrt(1 - self.coupled) * own)
            noise = np.sqrt(1 + self.both**2) * rng.standard_normal((*size, self.images))
            made.append(np.array(self.levels)[:, None] + shift + easy + v[:, :, None] + noise > 0)
        return np.concatenate(made).astype(np.float64)


def measured(answers: Array, draws: int = 200) -> Measured:
    """The first class, the average and the worst class of every run."""
    runs, classes, images = answers.shape
    accuracy = answers.mean(axis=2)
    rest = answers - accuracy[:, :, None]
    covariance = np.einsum("rcn,tcn->crt", rest, rest, optimize=True) / (images * (images - 1))
    label = np.repeat(np.arange(classes), images)
    drawn = resampling.class_accuracies(answers.reshape(runs, -1).T, label, classes, draws).min(axis=2)
    lowest = accuracy.min(axis=1)
    return Measured(
        values=np.stack([accuracy[:, 0], accuracy.mean(axis=1), lowest]),
        covariance=np.stack([covariance[0], covariance.sum(axis=0) / classes**2, np.cov(drawn.T)]),
        bias=np.stack([np.zeros(runs), np.zeros(runs), drawn.mean(axis=0) - lowest]),
        least=np.array([1, 1 / classes, 1]) * 2 / (images + 2) ** 2,
    )


def coverage(setting: Setting, seeds: int, repetitions: int, paired: bool, start: int = 0, groups: int = 2) -> Array:
    """How often the 95% intervals of the second group's differences from the first contain the truth; of more than two
    groups the variance over seeds is pooled."""
    truth, hits = setting.truth(), np.zeros(3)
    for number in range(repetitions):
        found = measured(setting.answers(np.random.default_rng([start, number]), seeds, groups))
        runs = np.split(np.arange(groups * seeds), groups)
        difference = found.difference(runs[0], runs[1], paired)
        if groups > 2:
            difference = replace(difference, spread=found.pooled(runs)[None], pooled=groups - 1)
        low, high = difference.interval(0.95)
        hits += (low <= truth) & (truth <= high)
    return hits / repetitions


#: What is simulated: seeds that do nothing, a little, as much as in practice, a lot; images alike; classes that tie.
SETTINGS = {
    "no effect of the seed": Setting(seed=0.0),
    "small": Setting(seed=0.05),
    "large": Setting(seed=0.3),
    "images alike": Setting(image=0.1, both=0.1),
    "rare": Setting(levels=(-2.5, -1.5, 0.0)),
    "classes tie": Setting(levels=(-0.8, -0.8, -0.8, -0.8, 0.5)),
    "independent seeds": Setting(coupled=0.0),
    "many images": Setting(levels=(-0.8, 0.5), images=500),
}

if __name__ == "__main__":
    pooled = {**SETTINGS, "the others half": Setting(seed=0.2, others=0.5), "twice": Setting(seed=0.2, others=2.0)}
    kinds = {"paired": (SETTINGS, True, 2), "unpaired": (SETTINGS, False, 2), "pooled": (pooled, True, 5)}
    for kind, (settings, paired, groups) in kinds.items():
        for name, setting in settings.items():
            for seeds in (3, 5, 10):
                found = coverage(setting, seeds, 1000, paired, groups=groups)
                print(f"{name:25} {kind:9} {seeds:3}", *(f"{100 * x:5.1f}" for x in found), flush=True)
