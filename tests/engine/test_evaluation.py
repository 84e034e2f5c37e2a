"""How the work is cut up, and what is written down of an attack."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from classwise.attacks.attack import Attack
from classwise.attacks.nattack import Nattack
from classwise.attacks.noise import Noise
from classwise.attacks.pgd import Pgd
from classwise.core.errors import UserError
from classwise.core.meta import Meta
from classwise.engine import evaluation
from made_job import ATTACKS


class TestPlan:
    @pytest.mark.parametrize(("rate", "part", "parts"), [(1e6, 91, 11), (1e4, 16, 63)])
    def test_its_parts_take_about_as_long_as_they_may(
        self, monkeypatch: pytest.MonkeyPatch, rate: float, part: int, parts: int
    ) -> None:
        """A pass there and back of 64·78 products and sums is 0.02 s at 10⁶ a second; 16 steps are 9 passes."""
        monkeypatch.setattr(evaluation, "_SECONDS_PER_PART", 18)
        monkeypatch.setattr(evaluation, "_CPU_RATE", rate / torch.get_num_threads())
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 78))  # 2 · 64 · 78 = 9984 operations
        attacks: dict[str, Attack] = {"pgd": Pgd(steps=8, restarts=2)}
        assert evaluation.pass_seconds(net, torch.rand(4, 1, 8, 8), gradient=True) == pytest.approx(2 * 9984 / rate)
        planned = evaluation.plan(net, torch.rand(4, 1, 8, 8), 1000, attacks, batch=4, workers=2)
        # 18 s / (0.02 s · 9) = 100 images, at most 96 in rounds of 8: 11 parts, of 1000 / 11 images
        assert planned == evaluation.BatchPlan(batch=4, part=part, workers=2, parts=parts)

    @pytest.mark.parametrize(("shares", "parts"), [(1, 63), (4, 64), (50, 100), (700, 700), (4000, 1000)])
    def test_every_process_gets_as_many_parts(self, monkeypatch: pytest.MonkeyPatch, shares: int, parts: int) -> None:
        monkeypatch.setattr(evaluation, "pass_seconds", lambda *_: 1e6)
        planned = evaluation.plan(nn.Flatten(), torch.rand(4, 1, 8, 8), 1000, {}, 4, 2, shares)
        assert planned.parts == parts
        assert planned.part == -(-1000 // parts)

    def test_it_never_cuts_smaller_than_a_batch_nor_larger_than_the_data(self, net: nn.Module) -> None:
        x = torch.rand(8, 1, 8, 8)
        assert evaluation.plan(net, x, 100, {}, batch=16, workers=1).part == 100
        assert evaluation.plan(net, x, 5, ATTACKS, batch=16, workers=2).part == 5

    def test_attacks_of_many_questions_get_short_parts(self) -> None:
        """A step of N Attack asks 300 times: 500 rounds of a model that takes milliseconds are minutes per image."""

        def black_box(x: Tensor) -> Tensor:
            return x.flatten(1)[:, :2]

        attacks: dict[str, Attack] = {"nattack": Nattack()}
        assert evaluation.plan(black_box, torch.rand(4, 1, 8, 8), 5000, attacks, batch=256, workers=1).part == 16
        short: dict[str, Attack] = {"nattack": Nattack(rounds=1, population=2)}
        assert evaluation.plan(black_box, torch.rand(4, 1, 8, 8), 5000, short, batch=256, workers=1).part > 512

    def test_it_does_not_depend_on_how_long_a_pass_takes(self, net: nn.Module) -> None:
        attacks: dict[str, Attack] = {"pgd": Pgd(steps=100_000)}
        first = evaluation.plan(net, torch.rand(8, 1, 8, 8), 10**6, attacks, 16, 1)
        net.register_forward_pre_hook(lambda *_: time.sleep(0.02))
        assert evaluation.plan(net, torch.rand(8, 1, 8, 8), 10**6, attacks, 16, 1) == first

    def test_programs_count_by_their_parameters(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(evaluation, "_CPU_RATE", 1.0 / torch.get_num_threads())
        layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 3, bias=False))
        x = torch.rand(8, 1, 8, 8)
        program = torch.jit.trace(layers, x)  # type: ignore[no-untyped-call]
        assert evaluation.pass_seconds(layers, x, gradient=False) == 2 * 64 * 3
        assert evaluation.pass_seconds(program, x, gradient=False) == 50 * 64 * 3
        assert not any(module._forward_hooks for module in layers.modules())

    @pytest.mark.parametrize("size", [-5, 0, 2.5, "many", True, None])
    def test_sizes_are_whole_numbers(self, size: Any) -> None:
        with pytest.raises(UserError, match="part of a plan must be a whole number of at least 1"):
            evaluation.BatchPlan(8, size)

    @pytest.mark.parametrize("labels", ["sorted", "in turn", "at random", "one rare"])
    def test_each_part_has_its_share_of_every_class(self, labels: str) -> None:
        """Also of labels that repeat with the number of parts, of which every n-th example would be one class."""
        of = {
            "sorted": np.repeat(np.arange(5), 20),
            "in turn": np.arange(100) % 5,
            "at random": np.random.default_rng(0).integers(0, 5, 100),
            "one rare": np.r_[np.zeros(97, int), 1, 1, 1],
        }[labels]
        plan = evaluation.BatchPlan(8, 20, 1, parts=5)
        rows = [plan.rows(number, of) for number in range(plan.count(100))]
        assert sorted(np.concatenate(rows)) == list(range(100))
        assert all((np.diff(own) > 0).all() for own in rows)
        counts = np.array([np.bincount(of[own], minlength=5) for own in rows])
        assert (counts.max(0) - counts.min(0) <= 1).all()
        assert len({len(own) for own in rows}) == 1

    def test_folders_of_before_have_consecutive_parts(self) -> None:
        plan = evaluation.BatchPlan(batch=8, part=40, workers=1)
        assert [plan.rows(n, np.zeros(100, int)).tolist() for n in range(plan.count(100))] == [
            list(range(40)), list(range(40, 80)), list(range(80, 100)),
        ]  # fmt: skip


def test_settings_of_any_attack_can_be_written_down() -> None:
    @dataclasses.dataclass(frozen=True)
    class Odd(Noise):
        helper: Any = dataclasses.field(default_factory=lambda: nn.Linear(1, 1))

    info = evaluation.attack_infos({"odd": Odd()}, "any", "all")["odd"]
    assert info.settings["draws"] == 10
    assert "Linear" in info.settings["helper"]
    assert Meta(class_names=("a",), attacks={"odd": info}).to_json()
