"""PGD towards classes that are given or drawn, example by example."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from scipy import stats

from classwise import attacks
from classwise.attacks.attack import Model
from classwise.attacks.kl_pgd import KlPgd
from classwise.attacks.pgd import Pgd, draw_target
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.threat import Threat

Linear = Callable[..., Model]

THREE = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
ZERO = torch.tensor([0])


def test_drawn_targets_follow_the_distribution_of_the_other_classes() -> None:
    share = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    y, key = torch.arange(4).repeat(1000), rng.keys(0, torch.arange(4000))
    target = draw_target(key, y, share)
    for own in range(4):
        others = share.clone()
        others[own] = 0
        counts = torch.bincount(target[y == own], minlength=4)
        assert counts[own] == 0
        expected = (1000 * others / others.sum()).numpy()
        assert stats.chisquare(counts.numpy()[others > 0], expected[others > 0]).pvalue > 1e-3
    assert torch.equal(draw_target(key[7:10], y[7:10], share), target[7:10])  # whatever batch they are in


def test_targets_are_drawn_where_only_the_label_or_one_other_class_is_likely() -> None:
    y, key = torch.arange(3).repeat(300), rng.keys(1, torch.arange(900))
    target = draw_target(key, y, torch.tensor([0.0, 0.0, 7.0]))
    assert (target[y != 2] == 2).all()
    assert torch.bincount(target[y == 2], minlength=3).tolist()[2] == 0
    assert stats.chisquare(torch.bincount(target[y == 2], minlength=2).numpy()).pvalue > 1e-3


def test_given_targets_some_examples_without_on_paper(linear: Linear) -> None:
    """Towards 2, away from 0, towards 1, and one whose target is its own class."""
    x, y, target = torch.full((4, 2), 0.5), torch.tensor([0, 0, 0, 1]), torch.tensor([2, -1, 1, 1])
    attack = Pgd(steps=1, step=0.05, start="none")
    moved = attacks.craft(attack, linear(THREE), x, y, Threat("linf", 0.1), columns={"target": target})
    assert torch.allclose(moved, torch.tensor([[0.45, 0.55], [0.55, 0.55], [0.55, 0.45], [0.5, 0.5]]))
    plain = attacks.craft(
        attack, linear(THREE), x[:1], y[:1], Threat("linf", 0.1), columns={"target": torch.tensor([-1])}
    )
    assert torch.equal(plain, attacks.craft(attack, linear(THREE), x[:1], y[:1], Threat("linf", 0.1)))


def test_the_divergence_from_the_clean_answer_takes_no_targets(linear: Linear) -> None:
    with pytest.raises(UserError, match=r"kl_pgd .* takes no targets"):
        attacks.craft(KlPgd(), linear(THREE), torch.zeros(1, 2), ZERO, Threat("linf", 0.1), columns={"target": ZERO})
