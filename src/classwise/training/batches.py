"""Which examples make up each batch: a function of the seed and the epoch alone, so a resumed run makes the same ones.

Without extra data an epoch is one permutation of the examples. With pseudo-labelled data (RST: Carmon et al., NeurIPS
2019) a fixed share of every batch is drawn from it with replacement, the labelled examples run through one
permutation after another, and an epoch has `epoch_size` examples. A method that samples classes draws every batch with
replacement, by probabilities that its state may change from step to step: `Source.draw`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from classwise.core.errors import UserError
from classwise.core.records import Array
from classwise.data.images import Images, IntArray
from classwise.training.pseudo import PseudoLabelled

_LABELLED, _EXTRA, _ORDER, _DRAWN = range(4)  # streams of random numbers
_APART = 1 << 40  # separates the numbers of extra examples from those of labelled ones


@dataclass(frozen=True)
class Examples:
    """A batch as it is read: images in [0,1], labels (−1: none), and the examples' numbers. draw: the number of each
    one's draw in the epoch, where an example may be drawn more than once: each time has random numbers of its own."""

    x: Tensor
    y: Tensor
    index: IntArray
    draw: IntArray | None = None


@dataclass(frozen=True)
class Source:
    """The examples of a training run: `train`, and `extra` as `fraction` of every batch."""

    train: Images
    extra: PseudoLabelled | None = None
    fraction: float = 0.0
    epoch_size: int | None = None

    def batches(self, epoch: int, size: int, seed: int, least: int = 2) -> list[IntArray]:
        """The rows of every batch of an epoch; those from len(train) on are extra ones. A last batch of fewer than
        `least` examples is left out: batch-norm needs more than one."""
        extra = 0 if self.extra is None else min(round(self.fraction * size), size - 1)
        total = self.epoch_size or len(self.train)
        steps, labelled = -(-total // size), size - extra
        amount = steps * labelled if extra else total
        rows = _permuted(len(self.train), epoch * amount, amount, seed)
        made = []
        for step in range(steps):
            own = rows[step * labelled : (step + 1) * labelled]
            if self.extra is not None and extra:
                random = np.random.default_rng([seed, _EXTRA, epoch, step])
                drawn = len(self.train) + random.integers(len(self.extra), size=extra)
                own = np.random.default_rng([seed, _ORDER, epoch, step]).permutation(np.concatenate([own, drawn]))
            if len(own) >= least:
                made.append(own)
        if not made:
            raise UserError(
                f"train.batch = {size} makes no batch of at least {least} of {total} examples, which batch-norm and "
                "the processes need. Give more examples, or larger batches."
            )
        return made

    def draw(self, probabilities: Array, count: int, seed: int, epoch: int, step: int) -> IntArray:
        """The rows of a batch of `count` drawn with replacement: a class by the probabilities, then one of its rows.
        Classes without examples are left out."""
        order, first, sizes = self._by_class
        wanted = np.where(sizes > 0, probabilities, 0.0).astype(np.float64)
        if not wanted.sum() > 0:
            raise UserError("no class that has training images can be drawn: their sampling probabilities are all 0.")
        random = np.random.default_rng([seed, _DRAWN, epoch, step])
        label = random.choice(len(wanted), size=count, p=wanted / wanted.sum())
        rows: IntArray = order[first[label] + random.integers(sizes[label])]
        return rows

    @functools.cached_property
    def _by_class(self) -> tuple[IntArray, IntArray, IntArray]:
        """All rows sorted by class, where each class begins, and how many it has."""
        sizes = np.bincount(self.train.labels, minlength=self.train.num_classes)
        return np.argsort(self.train.labels, kind="stable"), np.cumsum(sizes) - sizes, sizes

    def read(self, rows: IntArray) -> Examples:
        """The images of some rows."""
        own = rows < len(self.train)
        if self.extra is None or own.all():
            x, y = self.train.batch(rows)
            return Examples(x, y, self.train.positions[rows])
        x, y = self.train.batch(rows[own])
        more, labels = self.extra.batch(rows[~own] - len(self.train))
        order = torch.from_numpy(np.argsort(np.concatenate([np.flatnonzero(own), np.flatnonzero(~own)])))
        index = np.concatenate([self.train.positions[rows[own]], _APART + rows[~own]])
        return Examples(torch.cat([x, more])[order], torch.cat([y, labels])[order], index[order.numpy()])

    def stream(self, batches: list[IntArray]) -> Iterator[Examples]:
        """The batches one after the other, the next one read while the last one is used."""
        with ThreadPoolExecutor(1) as reader:
            ahead = [reader.submit(self.read, rows) for rows in batches[:1]]
            for place in range(len(batches)):
                ready = ahead.pop(0).result()
                if place + 1 < len(batches):
                    ahead.append(reader.submit(self.read, batches[place + 1]))
                yield ready


def _permuted(count: int, begin: int, amount: int, seed: int) -> IntArray:
    """`amount` rows from place `begin` on of one permutation after another."""
    first, last = begin // count, (begin + amount - 1) // count
    rounds = [np.random.default_rng([seed, _LABELLED, number]).permutation(count) for number in range(first, last + 1)]
    return np.concatenate(rounds)[begin - first * count :][:amount]
