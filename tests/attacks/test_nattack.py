"""N Attack: one round by hand, when the mean is tested, what it costs, and that it finds what it looks for."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from classwise import attacks
from classwise.attacks import nattack
from classwise.attacks.attack import Model, Rows, initial_rows
from classwise.attacks.nattack import Nattack
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.threat import LINF, Norm, Threat, ball_of

Linear = Callable[..., Model]
Iterates = Callable[..., list[Rows]]

SHAPE = (2, 3, 3)
WEIGHT = torch.randn(3, 18, generator=torch.Generator().manual_seed(4)).tolist()


def batch(model: Model, count: int = 4) -> tuple[Tensor, Tensor]:
    x = torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    x[0, 0] = torch.tensor([0.0, 1.0, 0.5])  # the borders, where artanh is barely finite
    return x, model(x).argmax(1)


def begun(attack: Nattack, model: Model, norm: Norm = "linf", eps: float = 0.05) -> Rows:
    x, y = batch(model)
    return attack.begin(model, initial_rows(x, y, eps, torch.arange(len(x))), ball_of(norm))


def test_the_start_is_nearly_the_image(linear: Linear) -> None:
    rows = begun(Nattack(), linear(WEIGHT))
    assert torch.equal(rows["mean"], 0.001 * rng.normal(rows["key"], SHAPE, 0).double())
    assert 0 < LINF.norm(rows["x_adv"] - rows["x"]).max() < 0.002
    assert torch.equal(rows["logits"], linear(WEIGHT)(rows["x_adv"]))
    assert rows["queries"].tolist() == [1] * 4


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_one_round_is_the_papers(norm: Norm, linear: Linear) -> None:
    model, attack, eps = linear(WEIGHT), Nattack(population=7, sigma=0.3, lr=0.05), 0.05
    rows = begun(attack, model, norm, eps)
    after = attack.advance(model, rows, ball_of(norm))
    for k in range(4):
        seed = rng.keys(0, rng.keys(0, rows["key"], 1))[k].item()
        noise = torch.randn(7, *SHAPE, generator=torch.Generator().manual_seed(int(seed))).double().numpy()
        x, y, mean = rows["x"][k].numpy(), int(rows["y"][k]), rows["mean"][k].numpy()
        delta = np.tanh(np.arctanh((2 * x - 1) * (1 - 1e-6)) + mean + 0.3 * noise) / 2 + 0.5 - x
        if norm == "linf":
            delta = delta.clip(-eps, eps)
        else:
            delta *= np.minimum(1, eps / np.sqrt((delta**2).sum((1, 2, 3), keepdims=True)))
        p = model(torch.from_numpy(x + delta)).softmax(1).numpy()
        others = np.delete(p, y, 1).max(1)
        reward = -0.5 * np.maximum(0, np.log(p[:, y] + 1e-30) - np.log(others + 1e-30))
        weights = (reward - reward.mean()) / (reward.std() + 1e-7)
        expected = mean + 0.05 / (7 * 0.3) * np.tensordot(weights, noise, 1)
        assert np.allclose(after["mean"][k].numpy(), expected, atol=1e-9)


def test_where_everything_is_adversarial_the_mean_stays(linear: Linear) -> None:
    model = linear(WEIGHT)
    x, y = batch(model)
    attack = Nattack(population=5)
    rows = {**begun(attack, model, eps=1e-3), "t": torch.full_like(y, 3)}
    wrong = attack.advance(model, {**rows, "y": model(x).argmin(1)}, LINF)
    assert torch.equal(wrong["mean"], rows["mean"])
    assert (wrong["queries"] == rows["queries"] + 5).all()
    assert not torch.equal(attack.advance(model, rows, LINF)["mean"], rows["mean"])


@pytest.mark.parametrize("t", [0, 1, 11])
def test_what_a_test_finds_broken_costs_no_further_round(t: int, linear: Linear) -> None:
    model, attack = linear(WEIGHT), Nattack(population=5)
    rows = {**begun(attack, model), "t": torch.full((4,), t)}
    rows["y"] = torch.where(torch.tensor([True, False, True, True]), rows["y"], (rows["y"] + 1) % 3)
    after = attack.advance(model, rows, LINF)
    assert (after["queries"] - rows["queries"]).tolist() == [5 + (t > 0), t > 0, 5 + (t > 0), 5 + (t > 0)]
    assert torch.equal(after["mean"][1], rows["mean"][1])
    assert (after["mean"] != rows["mean"]).flatten(1).any(1).tolist() == [True, False, True, True]
    all_wrong = attack.advance(model, {**rows, "y": (model(rows["x"]).argmax(1) + 1) % 3}, LINF)
    assert torch.equal(all_wrong["mean"], rows["mean"])


@pytest.mark.parametrize(("check", "tested"), [(10, [1, 11, 21]), (1, list(range(1, 23))), (4, [1, 5, 9, 13, 17, 21])])
def test_the_mean_is_tested_after_the_first_round_and_every_tenth_from_there(
    check: int, tested: list[int], linear: Linear, iterates: Iterates
) -> None:
    calls: list[Tensor] = []

    def model(x: Tensor) -> Tensor:
        calls.append(x)
        return linear(WEIGHT)(x)

    x, y = batch(linear(WEIGHT))
    seen = iterates(Nattack(rounds=23, population=6, check=check), model, x, y, 0.05)
    asked = [call for call in calls if len(call) == 4]
    assert len(asked) == 1 + len(tested)
    for t, call in zip(tested, asked[1:], strict=True):
        now = torch.tanh(torch.atanh((2 * x - 1) * (1 - 1e-6)) + seen[t]["mean"]) / 2 + 0.5
        assert torch.allclose(call, torch.maximum(torch.minimum(now, x + 0.05), x - 0.05).clamp(0, 1))
        assert torch.equal(call, seen[t]["x_adv"])
    for before, after in itertools.pairwise(seen):  # also in between, the answer is that of the point shown
        assert torch.allclose(after["logits"], linear(WEIGHT)(before["x_adv"]))
    last = torch.tanh(torch.atanh((2 * x - 1) * (1 - 1e-6)) + seen[-1]["mean"]) / 2 + 0.5
    assert torch.allclose(seen[-1]["x_adv"], torch.maximum(torch.minimum(last, x + 0.05), x - 0.05).clamp(0, 1))
    assert sum(map(len, calls)) == seen[-1]["queries"].sum() == 4 * (1 + 23 * 6 + len(tested))


def test_rounds_of_different_examples_need_not_agree(linear: Linear) -> None:
    model, attack = linear(WEIGHT), Nattack(rounds=30, population=6)
    rows = begun(attack, model)
    ages, alone = [0, 1, 5, 11], []
    for place, age in enumerate(ages):
        one = {name: column[place : place + 1] for name, column in rows.items()}
        for _ in range(age):
            one = attack.advance(model, one, LINF)
        alone.append(one)
    mixed = attack.advance(model, {name: torch.cat([one[name] for one in alone]) for name in rows}, LINF)
    for place, one in enumerate(alone):
        moved = attack.advance(model, one, LINF)
        assert all(torch.allclose(mixed[name][place], moved[name][0]) for name in rows)


def test_memory_bounds_what_the_model_is_given_at_once(linear: Linear, monkeypatch: pytest.MonkeyPatch) -> None:
    attack, sizes = Nattack(population=9), list[int]()

    def model(x: Tensor) -> Tensor:
        sizes.append(len(x))
        return linear(WEIGHT)(x)

    rows = begun(attack, linear(WEIGHT))
    whole = attack.advance(model, rows, LINF)["mean"]
    assert sizes == [36]  # all examples' samples together
    for at_once, expected in ((2 * 9 * 18, [18, 18]), (4 * 18, [4, 4, 1] * 4), (1, [1] * 36)):
        monkeypatch.setattr(nattack, "_AT_ONCE", at_once)
        sizes.clear()
        assert torch.allclose(attack.advance(model, rows, LINF)["mean"], whole)
        assert sizes == expected


def test_noise_is_normal_and_of_its_example_and_round(linear: Linear) -> None:
    rows = begun(Nattack(), linear(WEIGHT))
    drawn = nattack._noise(rows, 200)
    assert drawn.shape == (4, 200, *SHAPE)
    assert stats.kstest(drawn.flatten().numpy(), "norm").pvalue > 1e-3
    later = nattack._noise({**rows, "t": rows["t"] + torch.tensor([0, 1, 0, 5])}, 200)
    assert [torch.equal(a, b) for a, b in zip(drawn, later, strict=True)] == [True, False, True, False]
    assert len(torch.unique(torch.cat([drawn, later]).flatten(1)[:, 0])) == 6


def test_log_probabilities_are_as_good_as_logits_and_zero_is_no_trouble(linear: Linear) -> None:
    model, attack = linear(WEIGHT), Nattack(population=8)
    rows = begun(attack, model)
    by_logits = attack.advance(model, rows, LINF)["mean"]
    assert torch.allclose(attack.advance(lambda x: model(x).log_softmax(1), rows, LINF)["mean"], by_logits)

    def certain(x: Tensor) -> Tensor:
        return (1000 * model(x)).softmax(1).log()

    assert torch.isfinite(attack.advance(certain, rows, LINF)["mean"]).all()


@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.08), ("l2", 0.3)])
def test_it_comes_close_to_a_linear_models_worst_point(norm: Norm, eps: float, linear: Linear) -> None:
    weight = torch.tensor(WEIGHT[:1])
    x, y = torch.full((3, *SHAPE), 0.5), torch.zeros(3, dtype=torch.int64)
    middle = float(weight.sum() / 2)
    worst = eps * float(weight.abs().sum() if norm == "linf" else weight.norm())
    model = linear([weight[0].tolist(), [0.0] * 18], [worst - middle, 0.0])  # broken exactly at the worst point
    attack = Nattack(rounds=150, population=60, lr=0.05)
    point = attacks.craft(attack, model, x, y, Threat(norm), eps=eps, generator=torch.Generator().manual_seed(0))
    assert (ball_of(norm).norm(point - x) <= eps + 1e-6).all()
    assert (model(point)[:, 0] < 0.1 * worst).all()


def test_scores_are_enough(linear: Linear) -> None:
    def box(x: Tensor) -> Tensor:
        assert not torch.is_grad_enabled()
        return linear(WEIGHT)(x)

    assert not Nattack().needs_gradient
    x, y = batch(linear(WEIGHT))
    attacks.craft(Nattack(rounds=3, population=4), box, x, y, Threat("linf", 0.05))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"population": 1}, "population must be at least 2, got 1"),
        ({"check": 0}, "check must be at least 1, got 0"),
        ({"sigma": 0}, "sigma must be positive, got 0"),
        ({"lr": -0.02}, "lr must be positive, got -0.02"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, float], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Nattack(**settings)  # type: ignore[arg-type]


def test_the_short_name_is_the_number_of_rounds() -> None:
    assert attacks.parse("nattack") == {"nattack-500": Nattack()}
    assert attacks.parse("nattack-20:population=50") == {"nattack-20": Nattack(20, 50)}
