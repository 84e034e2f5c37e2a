"""Threads, and memory that runs out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from classwise.attacks.attack import Attack
from classwise.attacks.nattack import Nattack
from classwise.core.errors import UserError
from classwise.core.records import CLEAN
from classwise.data.images import Images
from classwise.engine import run
from classwise.engine.attack_copy import AttackCopy
from made_job import job_of


def test_threads_are_put_back(net: nn.Module, images: Images) -> None:
    before = torch.get_num_threads()
    run.evaluate(job_of(net, images, workers=2, batch=8))
    assert torch.get_num_threads() == before


class TestMemory:
    """A model that fails above some batch size, as one does whose activations do not fit."""

    @staticmethod
    def small(net: nn.Module, most: int, sizes: list[int], patience: int = 0) -> Callable[[Tensor], Tensor]:
        def model(x: Tensor) -> Tensor:
            sizes.append(len(x))
            if len(x) > most and len(sizes) > patience:  # at first there is still room
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return net(x)

        return model

    @pytest.mark.slow
    @pytest.mark.parametrize("workers", [1, 2])
    def test_the_batch_halves_until_it_fits(self, net: nn.Module, images: Images, workers: int) -> None:
        sizes: list[int] = []
        done: Counter[str] = Counter()
        tight = self.small(net, 10, sizes, patience=1)
        changes: dict[str, Any] = {"report": lambda name, n: done.update({name: n}), "workers": workers, "part": 120}
        found = run.evaluate(job_of(tight, images, batch=32, **changes))
        expected = run.evaluate(job_of(net, images, batch=8, workers=workers))
        too_large = {size for size in sizes if size > 10}
        assert {32, 16} <= too_large <= {32, 28, 16}  # 28: what a worker has left after its first batch
        assert 8 in sizes
        for attack in expected.attacks:
            columns = ["index", "prediction", "step"]
            assert found.of(attack).frame[columns].equals(expected.of(attack).frame[columns])
        assert done == {CLEAN: 120, "fgsm": 120, "pgd-5": 120}

    @pytest.mark.slow
    def test_what_an_attack_asks_at_once_halves_too(self, net: nn.Module, images: Images) -> None:
        sizes: list[int] = []
        attacks: dict[str, Attack] = {"nattack": Nattack(rounds=2, population=20)}
        few = images.take(np.arange(20))
        found, expected = (
            run.evaluate(job_of(net, few, attacks, batch=1, fast=AttackCopy(model=model, most=16)))
            for model in (self.small(net, 3, sizes), net)
        )
        assert max(size for size in sizes if size <= 3) == 2
        assert set(sizes) - {1, 2} == {10, 7, 4}  # pieces of twenty, of at most 16, 8 and 4
        pd.testing.assert_frame_equal(found.frame, expected.frame, rtol=1e-5)  # sums of other sizes round otherwise

    def test_a_single_image_that_does_not_fit_is_an_error(self, net: nn.Module, images: Images) -> None:
        with pytest.raises(UserError, match="out of memory with a batch of 1"):
            run.evaluate(job_of(self.small(net, 0, []), images))

    @pytest.mark.parametrize("workers", [1, 2])
    def test_other_errors_come_through(self, images: Images, workers: int) -> None:
        def broken(x: Tensor) -> Tensor:
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            run.evaluate(job_of(broken, images, workers=workers, batch=8))
