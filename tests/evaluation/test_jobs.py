"""How the work is cut up, and what is written down of an attack."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest
import torch
from made_job import ATTACKS
from torch import Tensor, nn

from classwise.attacks.nattack import Nattack
from classwise.attacks.noise import Noise
from classwise.attacks.pgd import Pgd
from classwise.attacks.rows import Attack
from classwise.evaluation import jobs
from classwise.records import Meta


class TestPlan:
    @pytest.mark.parametrize(("seconds", "part"), [(0.02, 96), (2.0, 16)])
    def test_it_cuts_whole_rounds_of_batches(
        self, net: nn.Module, monkeypatch: pytest.MonkeyPatch, seconds: float, part: int
    ) -> None:
        """The quickest of three passes counts; an attack of 16 steps takes 9 passes on average; at least two rounds."""
        clock = iter([0, 5 * seconds, 0, 8 * seconds, 0, 4 * seconds])  # of 4 images
        monkeypatch.setattr(jobs.time, "perf_counter", lambda: next(clock))
        monkeypatch.setattr(jobs, "_SECONDS_PER_PART", 18)
        attacks: dict[str, Attack] = {"pgd": Pgd(steps=8, restarts=2)}
        planned = jobs.plan(net, torch.rand(4, 1, 8, 8), 1000, attacks, batch=4, workers=2)
        assert planned == jobs.Plan(batch=4, part=part, workers=2)  # 18 s / (0.02 s · 9) = 100 images, of rounds of 8

    def test_it_never_cuts_smaller_than_a_batch_nor_larger_than_the_data(self, net: nn.Module) -> None:
        x = torch.rand(8, 1, 8, 8)
        assert jobs.plan(net, x, 100, {}, batch=16, workers=1).part == 100
        assert jobs.plan(net, x, 5, ATTACKS, batch=16, workers=2).part == 5

    def test_attacks_of_many_questions_get_short_parts(self) -> None:
        """A step of N Attack asks 300 times: 500 rounds of a model that takes a millisecond are minutes per image."""

        def slow(x: Tensor) -> Tensor:
            time.sleep(0.004)
            return x.flatten(1)[:, :2]

        attacks: dict[str, Attack] = {"nattack": Nattack()}
        assert jobs.plan(slow, torch.rand(4, 1, 8, 8), 5000, attacks, batch=256, workers=1).part == 16
        short: dict[str, Attack] = {"nattack": Nattack(rounds=1, population=2)}
        assert jobs.plan(slow, torch.rand(4, 1, 8, 8), 5000, short, batch=256, workers=1).part > 512


def test_settings_of_any_attack_can_be_written_down() -> None:
    @dataclasses.dataclass(frozen=True)
    class Odd(Noise):
        helper: Any = dataclasses.field(default_factory=lambda: nn.Linear(1, 1))

    info = jobs.attack_infos({"odd": Odd()}, "any", "all")["odd"]
    assert info.settings["draws"] == 10
    assert "Linear" in info.settings["helper"]
    assert Meta(("a",), attacks={"odd": info}).to_json()
