"""PGD: iterates computed on paper, against an independent implementation, and every field."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn

from classwise import attacks
from classwise.attacks.attack import Model, Rows, initial_rows
from classwise.attacks.pgd import Pgd, Start, choose_target, random_start
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.threat import L2, LINF, Norm, Threat, ball_of
from for_each import for_each

Linear = Callable[..., Model]
Iterates = Callable[..., list[Rows]]

TWO = [[1.0, -2.0], [0.0, 0.0]]  # for label 0 the loss rises along (−1, 2)
THREE = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
ZERO = torch.tensor([0])


def close(found: Tensor, expected: object) -> bool:
    return torch.allclose(found, torch.as_tensor(expected, dtype=found.dtype), rtol=0, atol=1e-6)


def test_linf_iterates_on_paper(linear: Linear, iterates: Iterates) -> None:
    x = torch.tensor([[0.5, 0.5], [0.02, 0.97]])
    seen = iterates(Pgd(steps=4, step=0.04, start="none"), linear(TWO), x, torch.tensor([0, 0]), 0.1)
    expected = [
        [[0.5, 0.5], [0.02, 0.97]],
        [[0.46, 0.54], [0.0, 1.0]],
        [[0.42, 0.58], [0.0, 1.0]],
        [[0.40, 0.60], [0.0, 1.0]],
        [[0.40, 0.60], [0.0, 1.0]],
    ]
    assert close(torch.stack([rows["x_adv"] for rows in seen]), expected)
    assert [rows["t"].tolist() for rows in seen] == [[t, t] for t in range(5)]


def test_the_other_label_goes_the_other_way(linear: Linear) -> None:
    x = torch.tensor([[0.5, 0.5]])
    moved = attacks.craft(Pgd(steps=2, step=0.04, start="none"), linear(TWO), x, torch.tensor([1]), Threat("linf", 0.1))
    assert close(moved, [[0.58, 0.42]])


def test_l2_iterates_on_paper(linear: Linear, iterates: Iterates) -> None:
    x = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    seen = iterates(Pgd(steps=3, step=0.1, start="none"), linear([[3.0, -4.0], [0.0, 0.0]]), x, ZERO, 0.15, "l2")
    # The loss rises along (−3, 4)/5: by 0.1, by 0.1 and back to 0.15, and there it stays.
    expected = [[[0.5, 0.5]], [[0.44, 0.58]], [[0.41, 0.62]], [[0.41, 0.62]]]
    assert close(torch.stack([rows["x_adv"] for rows in seen]), expected)


def test_the_logits_are_of_the_point_given(linear: Linear, iterates: Iterates) -> None:
    model = linear(TWO)
    seen = iterates(Pgd(steps=2, start="none"), model, torch.tensor([[0.5, 0.5]]), ZERO, 0.1)
    for before, after in itertools.pairwise(seen):
        assert torch.equal(after["logits"], model(before["x_adv"]))


def test_the_step_is_a_quarter_of_each_radius_unless_given(linear: Linear) -> None:
    x, y = torch.full((3, 2), 0.5), torch.zeros(3, dtype=torch.int64)
    eps = torch.tensor([0.04, 0.2, 0.4])
    default = attacks.craft(Pgd(steps=1, start="none"), linear(TWO), x, y, Threat(), eps=eps)
    assert close(default[:, 0], [0.49, 0.45, 0.40])
    given = attacks.craft(Pgd(steps=1, step=0.1, start="none"), linear(TWO), x, y, Threat(), eps=eps)
    assert close(given[:, 0], [0.46, 0.40, 0.40])  # the first is cut to its radius


class Net(nn.Module):
    """A small network with a convolution, a kink and a smooth layer."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4 * 4 * 4, 5)
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.4, generator=generator)
        self.double().eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(F.relu(self.conv(x)).flatten(1).tanh())
        return logits


def reference_linf(net: nn.Module, x: Tensor, y: Tensor, start: Tensor, eps: float, step: float, steps: int) -> Tensor:
    """PGD written out the usual way: mean loss, backward, sign, clamp."""
    adv = start.clone()
    for _ in range(steps):
        adv = adv.detach().requires_grad_()
        F.cross_entropy(net(adv), y).backward()
        assert adv.grad is not None
        delta = (adv.detach() + step * adv.grad.sign() - x).clamp(-eps, eps)
        adv = (x + delta).clamp(0, 1)
    return adv


def reference_l2(net: nn.Module, x: Tensor, y: Tensor, start: Tensor, eps: float, step: float, steps: int) -> Tensor:
    """The same for l2, one example at a time."""
    ends = []
    for image, label, adv in zip(x, y, start, strict=True):
        for _ in range(steps):
            point = adv.detach().requires_grad_()
            (g,) = torch.autograd.grad(F.cross_entropy(net(point[None]), label[None]), point)
            delta = adv + step * g / g.pow(2).sum().sqrt() - image
            delta = delta * min(1.0, eps / delta.pow(2).sum().sqrt().item())
            adv = (image + delta).clamp(0, 1)
        ends.append(adv.detach())
    return torch.stack(ends)


@pytest.mark.parametrize(("norm", "eps", "step"), [("linf", 0.1, 0.02), ("l2", 0.8, 0.2)])
@pytest.mark.parametrize("start", ["uniform", "gaussian", "none"])
def test_every_iterate_equals_an_independent_implementation(
    norm: Norm, eps: float, step: float, start: Start, iterates: Iterates
) -> None:
    net = Net()
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(8, 3, 6, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(5, (8,), generator=generator)
    seen = [rows["x_adv"] for rows in iterates(Pgd(steps=6, step=step, start=start), net, x, y, eps, norm)]
    reference = reference_linf if norm == "linf" else reference_l2
    for steps in range(7):
        assert torch.allclose(seen[steps], reference(net, x, y, seen[0], eps, step, steps), rtol=0, atol=1e-12)
    assert LINF.norm(seen[-1] - seen[0]).min() > 0.01


def test_pgd_finds_what_noise_does_not() -> None:
    net = Net()
    x = torch.rand(64, 3, 6, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    y = net(x).argmax(1)
    kept = {
        attack: (
            net(
                attacks.craft(attack, net, x, y, Threat("linf", 0.1), generator=torch.Generator().manual_seed(0))
            ).argmax(1)
            == y
        )
        for attack in (Pgd(steps=10), attacks.parse("noise")["noise-10"])
    }
    pgd, noise = (float(mask.double().mean()) for mask in kept.values())
    assert pgd < 0.5 * noise


def test_linf_start_is_uniform_in_the_cube() -> None:
    x, eps = torch.full((400, 30), 0.5), torch.full((400,), 0.2)
    delta = random_start(x, eps, rng.keys(0, torch.arange(400)), LINF, "uniform") - x
    assert stats.kstest(delta.flatten().numpy() / 0.2, "uniform", args=(-1, 2)).pvalue > 1e-3


def test_l2_start_is_uniform_in_the_ball() -> None:
    """In a uniform ball (‖δ‖/ε)^d is uniform, and so is the angle in any plane."""
    count, size = 3000, 5
    x, eps = torch.full((count, size), 0.5), torch.linspace(0.1, 0.4, count)
    delta = random_start(x, eps, rng.keys(0, torch.arange(count)), L2, "uniform") - x
    assert stats.kstest((L2.norm(delta) / eps).pow(size).numpy(), "uniform").pvalue > 1e-3
    angle = torch.atan2(delta[:, 0], delta[:, 1]).numpy()
    assert stats.kstest(angle, "uniform", args=(-torch.pi, 2 * torch.pi)).pvalue > 1e-3


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_gaussian_start_is_a_thousandth_wide(norm: Norm) -> None:
    x, eps = torch.full((200, 50), 0.5, dtype=torch.float64), torch.full((200,), 0.3)
    delta = random_start(x, eps, rng.keys(0, torch.arange(200)), ball_of(norm), "gaussian") - x
    assert stats.kstest(delta.flatten().numpy(), "norm", args=(0, 0.001)).pvalue > 1e-3


def test_no_start_is_the_image_but_not_the_same_memory() -> None:
    x = torch.rand(2, 3, generator=torch.Generator().manual_seed(0))
    start = random_start(x, torch.ones(2), torch.arange(2), LINF, "none")
    assert torch.equal(start, x)
    assert start.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("start", ["uniform", "gaussian"])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_an_unclamped_start_leaves_the_pixel_range_until_the_first_step(
    start: Start, norm: Norm, linear: Linear, iterates: Iterates
) -> None:
    x, y = torch.zeros(20, 2), torch.zeros(20, dtype=torch.int64)
    loose = iterates(Pgd(steps=1, start=start, clamp=False), linear(TWO), x, y, 0.1, norm)
    tight = iterates(Pgd(steps=1, start=start), linear(TWO), x, y, 0.1, norm)
    assert loose[0]["x_adv"].min() < 0
    assert loose[1]["x_adv"].min() >= 0
    assert tight[0]["x_adv"].min() >= 0
    assert torch.equal(loose[0]["x_adv"].clamp(0, 1), tight[0]["x_adv"])


@for_each("norm", ["linf", "l2"])
@for_each("start", ["uniform", "gaussian", "none"])
@for_each("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_start_has_the_type_of_the_images(norm: Norm, start: Start, dtype: torch.dtype) -> None:
    x = torch.full((3, 4), 0.5, dtype=dtype)
    assert random_start(x, torch.full((3,), 0.1, dtype=dtype), torch.arange(3), ball_of(norm), start).dtype == dtype


def test_a_target_on_paper(linear: Linear) -> None:
    """Descending CE(z, 2) raises z_2 against both others: along pixel 1, and against pixel 0."""
    x = torch.full((1, 2), 0.5)
    moved = attacks.craft(Pgd(steps=1, step=0.05, start="none", target=2), linear(THREE), x, ZERO, Threat("linf", 0.1))
    assert close(moved, [[0.45, 0.55]])


def test_an_example_of_the_target_class_stays_where_it_is(linear: Linear, iterates: Iterates) -> None:
    x, y = torch.full((3, 2), 0.5), torch.tensor([0, 2, 1])
    seen = iterates(Pgd(steps=3, target=2), linear(THREE), x, y, 0.1)
    assert torch.equal(seen[0]["x_adv"][1], seen[-1]["x_adv"][1])
    assert not torch.equal(seen[0]["x_adv"][::2], seen[-1]["x_adv"][::2])


def test_likely_and_unlikely_targets(linear: Linear) -> None:
    model = linear([[0.0, 0.0]] * 4, [5.0, 1.0, 3.0, -2.0])
    rows = initial_rows(torch.zeros(4, 2), torch.tensor([0, 2, 3, 1]), 0.1, torch.arange(4))
    assert choose_target(model, rows, "likely").tolist() == [2, 0, 0, 0]
    assert choose_target(model, rows, "unlikely").tolist() == [3, 3, 1, 3]


def test_random_targets_are_every_class_but_the_label(linear: Linear) -> None:
    model = linear([[0.0, 0.0]] * 4)
    y = torch.arange(4).repeat(250)
    rows = initial_rows(torch.zeros(1000, 2), y, 0.1, rng.keys(0, torch.arange(1000)))
    target = choose_target(model, rows, "random")
    assert (target != y).all()
    counts = torch.bincount((target - y) % 4, minlength=4)[1:]
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3
    again = initial_rows(torch.zeros(3, 2), y[7:10], 0.1, rows["key"][7:10])
    assert torch.equal(choose_target(model, again, "random"), target[7:10])


def test_a_target_the_model_does_not_have_is_named(linear: Linear) -> None:
    with pytest.raises(UserError, match=r"target 3 is not a class: the model has 3, counted from 0"):
        attacks.craft(Pgd(target=3), linear(THREE), torch.zeros(1, 2), ZERO, Threat("linf", 0.1))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"restarts": 0}, "restarts must be at least 1, got 0"),
        ({"eot": -1}, "eot must be at least 1, got -1"),
        ({"step": 0.0}, "step must be positive, got 0"),
        ({"step": "-1/255"}, "step must be positive, got -0.0039"),
        ({"target": -100}, "target must be at least 0, got -100"),
        ({"start": "trades"}, "unknown value of Pgd.start 'trades'"),
        ({"target": "unlikly"}, "did you mean 'unlikely'?"),
        ({"steps": 2.5}, "Pgd.steps must be a whole number, got 2.5"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UserError) as caught:
        Pgd(**settings)  # type: ignore[arg-type]
    assert said in str(caught.value)


def test_averaging_over_draws_follows_the_mean_gradient() -> None:
    """Two draws of a linear objective, alternating: (−3, 1) and (1, 1) have the mean (−1, 1)."""
    calls: list[int] = []

    def model(x: Tensor) -> Tensor:
        weight = ((-3.0, 1.0), (1.0, 1.0))[len(calls) % 2]
        calls.append(1)
        return torch.stack([torch.zeros(len(x)), x @ torch.tensor(weight)], 1)

    x = torch.full((1, 2), 0.5)
    # The log-odds of two classes are linear in the logits, so the two draws weigh the same.
    sound = attacks.parse("temperature_pgd:steps=2,step=0.1,start=none,sound=true,eot=2,inv_temperature=1")
    moved = attacks.craft(next(iter(sound.values())), model, x, ZERO, Threat("linf", 0.2))
    assert close(moved, [[0.3, 0.7]])
    assert len(calls) == 4
