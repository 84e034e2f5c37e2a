"""Auto-PGD: iterates on paper, against an independent implementation for every loss and norm, targets and fields."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from classwise import attacks, audit
from classwise.attacks.apgd_ce import Apgd, ApgdCe, windows
from classwise.attacks.apgd_dlr import ApgdDlr
from classwise.attacks.apgd_t import ApgdT
from classwise.attacks.attack import Model, Rows, final_point, initial_rows
from classwise.attacks.pgd import Pgd
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.threat import LINF, Norm, Threat, ball_of

Linear = Callable[..., Model]
Iterates = Callable[..., list[Rows]]

EPS: dict[Norm, float] = {"linf": 0.08, "l2": 0.7}
ZERO = torch.tensor([0])


def ridge(x: Tensor) -> Tensor:
    """Two classes of one pixel: the loss of class 0 has its peak at 0.55."""
    z = -(x.flatten(1) - 0.55).abs()
    return torch.cat([torch.zeros_like(z), z], 1)


class Net(nn.Module):
    """A small network on which step sizes matter, in double precision."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 6, 3), nn.Linear(6 * 4 * 4, classes)
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.8, generator=generator)
        self.double().eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head((2 * self.conv(x)).sin().flatten(1))
        return logits


def images(net: nn.Module, count: int = 10) -> tuple[Tensor, Tensor]:
    x = torch.rand(count, 3, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        return x, net(x).argmax(1)


def test_windows_of_a_hundred_iterations_are_the_published_ones() -> None:
    ends = {at: length for at, length in enumerate(windows(100)) if length}
    assert ends == {22: 22, 41: 19, 57: 16, 70: 13, 80: 10, 87: 7, 93: 6, 99: 6}


@pytest.mark.parametrize("iterations", [1, 2, 5, 33])
def test_windows_of_few_iterations_follow_one_another(iterations: int) -> None:
    table = windows(iterations)
    assert len(table) == iterations + 1
    at = 0
    for end, length in enumerate(table):
        if length:
            assert end - length == at
            at = end
    assert at > 0


def test_iterates_on_paper(iterates: Iterates) -> None:
    """Momentum from the second step on; at 4 and 7, the ends of windows, the step is halved (0.4, 0.2, 0.1).

    From 4 the search goes back to x_3, from 7 to x_6: the best points so far. There the momentum is zero.
    """
    x = torch.tensor([[0.5]], dtype=torch.float64)
    seen = iterates(ApgdCe(iterations=20, start="none"), ridge, x, ZERO, 0.2)
    assert windows(20)[:9] == (0, 0, 0, 0, 4, 0, 0, 3, 0)
    found = [rows["x_adv"].item() for rows in seen[:9]]
    assert found == pytest.approx([0.5, 0.7, 0.45, 0.575, 0.4, 0.425, 0.5375, 0.6875, 0.6125])
    assert [rows["size"].item() for rows in seen[4:9]] == pytest.approx([0.4, 0.2, 0.2, 0.2, 0.1])
    assert seen[8]["x_best"].item() == pytest.approx(0.5375)


def test_the_first_rise_is_over_the_start(iterates: Iterates) -> None:
    """From the peak the first step loses: had it been compared with a loss of zero it would count as a rise."""
    seen = iterates(ApgdCe(iterations=20, start="none"), ridge, torch.tensor([[0.55]]), ZERO, 0.2)
    assert [rows["rises"].item() for rows in seen[1:3]] == [0, 0]
    assert seen[1]["loss"].item() == pytest.approx(np.log(2))


def test_the_point_handed_over_is_the_one_of_largest_loss(iterates: Iterates) -> None:
    net = Net()
    x, y = images(net)
    seen = iterates(ApgdCe(iterations=12), net, x, y, 0.08)
    points = torch.stack([rows["x_adv"] for rows in seen[:-1]])
    with torch.no_grad():
        loss = torch.stack([F.cross_entropy(net(point), y, reduction="none") for point in points])
    best = points[loss.argmax(0), torch.arange(len(x))]
    assert torch.equal(final_point(seen[-1]), best)
    assert (loss.argmax(0) < 12).any()


def project(x_adv: Tensor, x: Tensor, eps: float, norm: Norm) -> Tensor:
    delta = x_adv - x
    delta = delta.clamp(-eps, eps) if norm == "linf" else delta * min(1.0, eps / max(delta.norm().item(), 1e-300))
    return (x + delta).clamp(0, 1)


class Reference:
    """Auto-PGD on one example after Croce and Hein's Algorithm 1 with the whole history kept, not its summary."""

    def __init__(self, net: nn.Module, objective: Callable[[Tensor], Tensor], norm: Norm, rho: float) -> None:
        self.net, self.objective, self.norm, self.rho = net, objective, norm, rho
        self.only_second = 0  # halvings that condition 2 alone asked for

    def value(self, point: Tensor) -> tuple[float, Tensor]:
        point = point.detach().requires_grad_()
        f = self.objective(self.net(point[None])[0])
        (g,) = torch.autograd.grad(f, point)
        return f.item(), g.sign() if self.norm == "linf" else g / g.norm()

    def run(self, x: Tensor, start: Tensor, eps: float, iterations: int) -> list[Tensor]:
        point = previous = start
        f, direction = self.value(point)
        history, bests, size = [f], [f], 2 * eps
        best, best_direction = point, direction
        checks, k = [0], max(int(0.22 * iterations), 1)
        halved, points = True, [start]
        for t in range(1, iterations + 1):
            a = 1.0 if t == 1 else 0.75
            v = project(point + size * direction, x, eps, self.norm)
            moved = project(point + a * (v - point) + (1 - a) * (point - previous), x, eps, self.norm)
            previous, point = point, moved
            points.append(point)
            f, direction = self.value(point)
            history.append(f)
            if f > bests[-1]:
                best, best_direction = point, direction
            bests.append(max(bests[-1], f))
            if t - checks[-1] == k:
                first = sum(history[i] > history[i - 1] for i in range(checks[-1] + 1, t + 1)) <= self.rho * k
                second = not halved and bests[t] == bests[checks[-1]]
                self.only_second += second and not first
                halved = first or second
                if halved:
                    size, point, direction = size / 2, best, best_direction
                checks.append(t)
                k = max(k - max(int(0.03 * iterations), 1), max(int(0.06 * iterations), 1))
        return points


def published_loss(attack: Apgd, y: int, target: int) -> Callable[[Tensor], Tensor]:
    def loss(z: Tensor) -> Tensor:
        falling = z.sort(descending=True).values
        if isinstance(attack, ApgdT):
            return (z[target] - z[y]) / (falling[0] - (falling[2] + falling[3]) / 2)
        if isinstance(attack, ApgdDlr):
            rival = falling[1] if z[y] == falling[0] else falling[0]
            return (rival - z[y]) / (falling[0] - falling[2])
        return torch.logsumexp(z, 0) - z[y]

    return loss


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize(
    ("attack", "share"),
    [(ApgdCe(40), 1), (ApgdCe(40, rho=0.3), 1), (ApgdDlr(40), 1 / 16), (ApgdT(40), 1), (ApgdCe(3), 1)],
    ids=["ce", "ce-rho", "dlr", "targeted", "short"],
)
def test_every_iterate_equals_an_independent_implementation(
    attack: Apgd, share: float, norm: Norm, iterates: Iterates
) -> None:
    net, eps = Net(), EPS[norm] * share
    x, y = images(net)
    seen = iterates(attack, net, x, y, eps, norm)
    found = torch.stack([rows["x_adv"] for rows in seen[:-1]], 1)
    ranks = torch.stack([rows["logits"].argsort(1, True) for rows in seen[1:]])
    # Where the label comes third the ratio is exactly 1, and the sign of its gradient is that of rounding errors.
    flat = (ranks[:, :, 2] == y).any(0) & isinstance(attack, ApgdDlr)
    second = net(x).topk(2).indices[:, 1]
    alone = 0
    for place in torch.nonzero(~flat)[:, 0].tolist():
        objective = published_loss(attack, int(y[place]), int(second[place]))
        reference = Reference(net, objective, norm, attack.rho)
        expected = reference.run(x[place], found[place, 0], eps, attack.iterations)
        assert torch.allclose(found[place], torch.stack(expected), rtol=0, atol=1e-9)
        alone += reference.only_second
    assert (~flat).sum() > 5
    assert (alone > 0) == (attack.rho < 0.5)
    assert len(set(seen[-1]["size"].tolist())) > 1 or attack.iterations < 10


def test_starts_lie_on_the_surface_and_follow_the_key() -> None:
    x, y = torch.full((50, 30), 0.5), torch.zeros(50, dtype=torch.int64)
    eps = torch.linspace(0.05, 0.4, 50)
    rows = initial_rows(x, y, eps, rng.keys(0, torch.arange(50)))
    for norm in EPS:
        delta = ApgdCe().begin(ridge, rows, ball_of(norm))["x_adv"] - x
        assert torch.allclose(ball_of(norm).norm(delta), eps, rtol=1e-5)
        assert delta.sign().mean(0).abs().max() < 0.7  # no pixel is favoured
    inside = (ApgdCe().begin(ridge, rows, LINF)["x_adv"] - x).abs() / eps[:, None]
    assert inside.mean().item() == pytest.approx(0.5, abs=0.05)  # scaled from a uniform draw, not corners
    assert torch.equal(ApgdCe(start="none").begin(ridge, rows, LINF)["x_adv"], x)


def test_rows_at_different_steps_keep_their_own_windows() -> None:
    """The batch as an audit keeps it: examples of different age, some of them at the end of a window."""
    net, attack = Net(), ApgdCe(iterations=20)
    x, y = images(net, 6)

    def begun(place: int) -> Rows:
        one = slice(place, place + 1)
        return attack.begin(net, initial_rows(x[one], y[one], 0.08, rng.keys(3, torch.tensor([place]))), LINF)

    alone, mixed = [], []
    for place in range(6):
        rows = begun(place)
        for _ in range(place):
            rows = attack.advance(net, rows, LINF)
        mixed.append(rows)
        for _ in range(8):
            rows = attack.advance(net, rows, LINF)
        alone.append(rows)
    batch = {name: torch.cat([rows[name] for rows in mixed]) for name in begun(0)}
    for _ in range(8):
        batch = attack.advance(net, batch, LINF)
    for name in ("x_adv", "x_best", "size", "halved", "rises", "best_loss"):
        assert torch.allclose(batch[name].double(), torch.cat([rows[name] for rows in alone]).double(), atol=1e-9), name
    assert len(set(batch["size"].tolist())) > 1


def test_the_loss_of_several_draws_is_their_mean() -> None:
    """A model that alternates between z and 3z: the loss kept is the mean of both, not the last."""
    calls: list[int] = []

    def noisy(x: Tensor) -> Tensor:
        calls.append(1 + 2 * (len(calls) % 2))
        return calls[-1] * ridge(x)

    rows = ApgdCe(start="none", eot=2).begin(noisy, initial_rows(torch.tensor([[0.75]]), ZERO, 0.1, ZERO), LINF)
    rows = ApgdCe(start="none", eot=2).advance(noisy, rows, LINF)
    assert calls == [1, 3]
    assert rows["queries"].item() == 2
    assert rows["loss"].item() == pytest.approx((np.log1p(np.exp(-0.2)) + np.log1p(np.exp(-0.6))) / 2)
    assert rows["logits"].tolist() == [[0.0, pytest.approx(-0.4)]]


def test_targets_are_the_wrong_classes_from_the_strongest_on(linear: Linear) -> None:
    model = linear([[0.0, 0.0]] * 4, [5.0, 1.0, 3.0, -2.0])

    def targets(attack: ApgdT, y: int) -> list[int]:
        x, count = torch.zeros(attack.restarts, 2), attack.restarts
        rows = initial_rows(x, torch.full((count,), y), 0.1, torch.arange(count), torch.arange(count))
        chosen: list[int] = attack.begin(model, rows, LINF)["target"].tolist()
        return chosen

    assert targets(ApgdT(targets=3), 0) == [2, 1, 3]
    assert targets(ApgdT(targets=2, starts=2), 0) == [2, 1, 2, 1]
    assert targets(ApgdT(targets=3), 2) == [0, 1, 3]  # already misclassified: never its own class
    assert targets(ApgdT(), 0) == [2, 1, 3] * 3  # nine restarts in a plain call, however few classes


@pytest.mark.parametrize(("classes", "targets"), [(2, 1), (5, 4), (10, 9), (100, 9)])
def test_targets_are_cut_to_the_classes(classes: int, targets: int) -> None:
    fitted = ApgdT(50, starts=2).for_classes(classes)
    assert fitted == ApgdT(50, targets=targets, starts=2)
    assert fitted.restarts == 2 * targets


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("attack", [ApgdDlr(5, start="none"), ApgdT(5, start="none")], ids=["dlr", "targeted"])
def test_few_classes_still_have_a_gradient(attack: Apgd, classes: int) -> None:
    net = Net(classes)
    x, y = images(net)
    for target in range(classes - 1):
        rows = attack.begin(net, initial_rows(x, y, 0.05, torch.arange(len(x)), target), LINF)
        moved = attack.advance(net, rows, LINF)
        assert (moved["best_gradient"].abs().flatten(1).amax(1) > 1e-3).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_it_climbs_higher_than_as_many_steps_of_pgd(norm: Norm) -> None:
    net = Net()
    x, y = images(net, 80)
    pgd, apgd = (
        F.cross_entropy(
            net(
                attacks.craft(
                    attack,
                    net,
                    x,
                    y,
                    Threat(norm, EPS[norm]),
                    generator=torch.Generator().manual_seed(0),
                )
            ),
            y,
        )
        for attack in (Pgd(steps=20), ApgdCe(iterations=20))
    )
    assert apgd > 1.005 * pgd


def test_an_audit_tries_every_class_there_is_and_no_target_twice() -> None:
    net = Net().float()
    x, y = (tensor.float() if tensor.is_floating_point() else tensor for tensor in images(Net()))
    attack = ApgdT(iterations=6)
    standing = audit(net, (x, y), attack, eps=1e-6, num_classes=5, workers=1, progress=False).records
    assert set(standing.of("apgd_t-6").frame["queries"]) == {4 * (1 + 7)}  # the clean image ranks the targets
    broken = audit(net, (x, y), attack, eps=0.1, num_classes=5, workers=1, progress=False).records
    assert not broken.of("apgd_t-6").correct.any()
    assert broken.of("apgd_t-6").frame["queries"].max() <= 8  # any misclassification ends it


def test_large_logits_stop_cross_entropy_but_not_the_ratio() -> None:
    net = Net().float()
    x, y = images(Net())
    x = x.float()

    def scaled(x: Tensor) -> Tensor:
        return 1e4 * net(x)  # type: ignore[no-any-return]

    generator = torch.Generator().manual_seed(0)
    broken = {
        type(attack): int(
            (net(attacks.craft(attack, scaled, x, y, Threat("linf", 0.02), generator=generator)).argmax(1) != y).sum()
        )
        for attack in (ApgdCe(10, start="none"), ApgdDlr(10, start="none"))
    }
    assert broken[ApgdDlr] > broken[ApgdCe]


@pytest.mark.parametrize(
    ("text", "attack", "name", "steps"),
    [
        ("apgd_ce", ApgdCe(), "apgd_ce-100", 101),
        ("apgd-ce-50:restarts=5,rho=0.5", ApgdCe(50, 0.5, restarts=5), "apgd_ce-50", 51),
        ("apgd-dlr:eot=20,start=none", ApgdDlr(start="none", eot=20), "apgd_dlr-100", 101),
        ("apgd-t-20:targets=3,starts=2", ApgdT(20, targets=3, starts=2), "apgd_t-20", 21),
    ],
)
def test_specs(text: str, attack: attacks.Attack, name: str, steps: int) -> None:
    assert attacks.parse(text) == {name: attack}
    assert attack.steps == steps


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("apgd_ce-0", "iterations must be at least 1, got 0"),
        ("apgd_ce:restarts=0", "restarts must be at least 1, got 0"),
        ("apgd_dlr:eot=-1", "eot must be at least 1, got -1"),
        ("apgd_t:targets=0", "targets must be at least 1, got 0"),
        ("apgd_t:starts=0", "starts must be at least 1, got 0"),
        ("apgd_ce:rho=1.5", "rho must be at least 0 and at most 1, got 1.5"),
        ("apgd_ce:start=uniform", "unknown value of apgd_ce.start 'uniform'"),
        ("apgd_t:restarts=2", "unknown setting of apgd_t 'restarts'"),
    ],
)
def test_mistakes_are_named(text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        attacks.parse(text)
    assert said in str(caught.value)
