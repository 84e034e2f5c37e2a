"""Carlini and Wagner's L∞ attack: against the loops of the paper written out for one image, and what it promises."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from classwise import attacks
from classwise.attacks.attack import Model, Rows, final_point, finished, initial_rows, join, select
from classwise.attacks.cw import Cw
from classwise.core.errors import UserError
from classwise.core.threat import LINF, Threat

Linear = Callable[..., Model]

ZERO = torch.tensor([0])
THREE = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]


def network(dtype: torch.dtype = torch.float64) -> nn.Module:
    """Smooth enough that the last bit of a sum decides nothing, and not linear."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 4))
    generator = torch.Generator().manual_seed(3)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.7, generator=generator)
    return net.to(dtype).requires_grad_(False)


def images(count: int, model: Model, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Images that touch 0 and 1, with the labels the model gives them."""
    generator = torch.Generator().manual_seed(1)
    x = (1.3 * torch.rand(count, 3, 2, 2, generator=generator, dtype=dtype) - 0.15).clamp(0, 1)
    return x, model(x).argmax(1)


def begun(attack: Cw, model: Model, x: Tensor, y: Tensor, eps: float = 0.0) -> Rows:
    return attack.begin(model, initial_rows(x, y, eps, torch.arange(len(x))), LINF)


def to_the_end(attack: Cw, model: Model, rows: Rows) -> Rows:
    while not finished(rows, attack.steps).all():
        rows = attack.advance(model, rows, LINF)
    return rows


class OneImage:
    """The published loops for one image, in numpy; `points` are all it evaluates, `best` the nearest adversarial."""

    def __init__(self, attack: Cw, model: Model, x: Tensor, y: int) -> None:
        self.attack, self.model, self.y = attack, model, y
        self.x = x[0].numpy()
        self.points: list[np.ndarray] = []
        self.best = math.inf
        self.constants: list[float] = []
        self._search()

    def ask(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logits, and the gradient of z_y − max_{j≠y} z_j."""
        self.points.append(x)
        point = torch.from_numpy(x)[None].requires_grad_()
        z = self.model(point)
        others = [z[0, j] for j in range(z.shape[1]) if j != self.y]
        (gradient,) = torch.autograd.grad(z[0, self.y] - torch.stack(others).max(), point)
        answer = z[0].detach().numpy()
        if answer.argmax() != self.y:
            self.best = min(self.best, float(np.abs(x - self.x).max()))
        return answer, gradient[0].numpy()

    def _search(self) -> None:
        lower, upper, c, start_tau = 0.0, math.inf, self.attack.const, 1.0
        w0 = np.arctanh(0.999999 * (2 * self.x - 1))
        for _ in range(self.attack.binary_steps):
            self.constants.append(c)
            w, tau, good = w0, start_tau, False
            while tau > 1 / 256:
                found, x = self._minimise(w, c, tau)
                if not found:
                    good = tau < start_tau
                    start_tau = tau
                    break
                good = True
                tau = self.attack.tau_decay * min(tau, float(np.abs(x - self._origin()).max()))
                w = np.arctanh(0.999999 * (2 * x - 1))
            lower, upper = (lower, c) if good else (c, upper)
            c = 10 * c if math.isinf(upper) else (lower + upper) / 2

    def _origin(self) -> np.ndarray:
        return (np.tanh(np.arctanh(0.999999 * (2 * self.x - 1))) + 1) / 2

    def _minimise(self, warm: np.ndarray, c: float, tau: float) -> tuple[bool, np.ndarray]:
        delta, m, v = np.zeros_like(warm), np.zeros_like(warm), np.zeros_like(warm)
        found, previous = False, math.inf
        for number in range(self.attack.iterations):
            x = (np.tanh(warm + delta) + 1) / 2
            z, slope = self.ask(x)
            found |= z.argmax() != self.y
            hinge = max(0.0, z[self.y] - np.delete(z, self.y).max())
            far = np.abs(x - self._origin()) - tau
            loss = np.maximum(far, 0).sum() + c * hinge
            g = np.sign(x - self._origin()) * (far > 0) + (c * slope if hinge > 0 else 0)
            g = g * (1 - np.tanh(warm + delta) ** 2) / 2
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            rates = 1 - 0.9 ** (number + 1), 1 - 0.999 ** (number + 1)
            delta = delta - self.attack.lr * (m / rates[0]) / (np.sqrt(v / rates[1]) + 1e-7)
            if self.attack.abort_early and number % math.ceil(self.attack.iterations / 10) == 0:
                if not previous - loss > 1e-4:
                    break
                previous = loss
        return found, (np.tanh(warm + delta) + 1) / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "attack",
    [
        Cw(iterations=25, binary_steps=4, lr=0.05, tau_decay=0.5),
        Cw(iterations=6, binary_steps=3, lr=0.1, const=3.0, tau_decay=0.5, abort_early=False),
        Cw(iterations=1, binary_steps=6, lr=1.0, const=1e-4, tau_decay=0.5),
    ],
)
def test_it_is_the_published_search_for_every_image_of_a_batch(attack: Cw) -> None:
    model = network()
    x, y = images(4, model)
    rows = begun(attack, model, x, y)
    evaluated: list[list[Tensor]] = [[] for _ in x]
    while not rows["done"].all():
        for place in (~rows["done"]).nonzero()[:, 0].tolist():
            evaluated[place].append(rows["x_adv"][place])
        rows = attack.advance(model, rows, LINF)
    lengths = set()
    for place, points in enumerate(evaluated):
        alone = OneImage(attack, model, x[place : place + 1], int(y[place]))
        assert len(points) == len(alone.points) <= attack.steps
        assert np.allclose(torch.stack(points).numpy(), np.stack(alone.points), rtol=0, atol=1e-6)
        assert float(rows["best"][place]) == pytest.approx(alone.best, abs=1e-6)
        lengths.add(len(points))
    assert len(lengths) > 1 or attack.iterations == 1  # they are not all in step


def test_the_constant_grows_tenfold_until_it_is_enough_and_is_then_halved(linear: Linear) -> None:
    """z = (0, x − 0.9) at x = 0.5: with a small c the charge for leaving τ wins, with a large one the hinge."""
    model = linear([[0.0], [1.0]], [0.0, -0.9])
    attack = Cw(iterations=60, binary_steps=6, lr=0.1, const=1e-3)
    x = torch.full((1, 1), 0.5, dtype=torch.float64)
    rows, seen = begun(attack, model, x, ZERO), list[float]()
    while not rows["done"].all():
        if not seen or seen[-1] != float(rows["const"]):
            seen.append(float(rows["const"]))
        rows = attack.advance(model, rows, LINF)
    assert seen == pytest.approx(OneImage(attack, model, x, 0).constants)
    assert float(rows["best"]) == pytest.approx(0.4, abs=0.02)  # the boundary is at 0.9
    assert float(rows["best"]) > 0.4


def test_the_nearest_point_of_a_linear_model_is_nearly_found(linear: Linear) -> None:
    """z = (0, 2a + b − 2): from (0.5, 0.5) the margin is −0.5, and ‖w‖₁ = 3, so the L∞ distance is 1/6."""
    model = linear([[0.0, 0.0], [2.0, 1.0]], [0.0, -2.0])
    attack = Cw(iterations=80, binary_steps=4, lr=0.02)
    rows = to_the_end(attack, model, begun(attack, model, torch.full((1, 2), 0.5), ZERO))
    assert 1 / 6 < float(rows["best"]) < 1.1 / 6
    assert float((rows["x_best"] - 0.5).abs().max()) == float(rows["best"])
    assert int(model(rows["x_best"]).argmax(1)) == 1


def test_points_stay_among_the_pixels_even_in_single_precision() -> None:
    model = network(torch.float32)
    x, y = images(8, model, torch.float32)
    attack = Cw(iterations=30, binary_steps=2, lr=0.5, const=100.0)  # far out, where tanh rounds to one
    rows = begun(attack, model, x, y)
    for _ in range(100):
        assert rows["x_adv"].min() >= 0
        assert rows["x_adv"].max() <= 1
        rows = attack.advance(model, rows, LINF)
        reached = rows["best"].isfinite()
        assert torch.equal((rows["x_best"] - x).flatten(1).abs().amax(1)[reached], rows["best"][reached])
        assert (model(rows["x_best"]).argmax(1) != y)[reached].all()
    assert reached.any()


def test_best_never_grows_and_is_kept_after_the_end() -> None:
    model = network()
    x, y = images(5, model)
    attack = Cw(iterations=5, binary_steps=2, lr=0.1, const=1.0, tau_decay=0.5)
    rows, before = begun(attack, model, x, y), torch.full((5,), math.inf)
    while not rows["done"].all():
        rows = attack.advance(model, rows, LINF)
        assert (rows["best"] <= before).all()
        before = rows["best"]
    after = attack.advance(model, rows, LINF)
    assert torch.equal(after["t"], rows["t"] + 1)
    assert all(torch.equal(after[name], rows[name]) for name in rows if name not in ("t", "logits"))


def test_an_example_may_join_when_others_are_half_way() -> None:
    model = network()
    x, y = images(4, model)
    attack = Cw(iterations=8, binary_steps=2, lr=0.1, const=0.5, tau_decay=0.5)
    whole = to_the_end(attack, model, begun(attack, model, x, y))
    waiting, active = list(range(4)), list[Rows]()
    best, steps = torch.zeros(4, dtype=x.dtype), 0
    while waiting or active:
        if waiting and steps % 7 == 0:
            place = torch.tensor([waiting.pop()])
            active.append({**begun(attack, model, x[place], y[place]), "place": place})
        rows = join(active)
        best[rows["place"][rows["done"]]] = rows["best"][rows["done"]]
        active = [] if rows["done"].all() else [attack.advance(model, select(rows, ~rows["done"]), LINF)]
        steps += 1
    assert torch.allclose(best, whole["best"], rtol=0, atol=1e-9)


def test_it_hands_over_only_what_is_in_the_ball(linear: Linear) -> None:
    model = linear([[0.0, 0.0], [2.0, 1.0]], [0.0, -2.0])
    attack = Cw(iterations=60, lr=0.02)
    x = torch.full((2, 2), 0.5)
    rows = begun(attack, model, x, torch.tensor([0, 0]))
    rows = to_the_end(attack, model, {**rows, "eps": torch.tensor([0.1, 0.3])})
    point = final_point(rows)
    assert torch.equal(point[0], x[0])
    assert int(model(point)[1].argmax()) == 1
    assert float((final_point(rows, seeking=True)[0] - 0.5).abs().max()) == float(rows["best"][0])


def test_a_level_ends_after_two_checks_without_progress(linear: Linear) -> None:
    """A model that never changes its mind: no slope. Checks at 0 and 3 of 30; five constants, one τ each."""
    attack = Cw(iterations=30)
    model = linear([[0.0, 0.0]] * 2, [1.0, 0.0])
    rows = to_the_end(attack, model, begun(attack, model, torch.full((1, 2), 0.5), ZERO))
    assert int(rows["t"]) == 5 * 4
    assert float(rows["best"]) == math.inf
    assert float(rows["const"]) == pytest.approx(0.01 * 10**5)
    patient = Cw(iterations=30, abort_early=False)
    rows = to_the_end(patient, model, begun(patient, model, torch.full((1, 2), 0.5), ZERO))
    assert int(rows["t"]) == 5 * 30


def test_the_published_constants_and_the_most_steps_they_can_take() -> None:
    assert attacks.parse("cw") == {"cw-1000": Cw()}
    assert (Cw().iterations, Cw().binary_steps, Cw().lr, Cw().const, Cw().tau_decay) == (1000, 5, 0.005, 0.01, 0.9)
    levels = sum(0.9**k > 1 / 256 for k in range(100))
    assert Cw().steps == 5 * levels * 1000
    assert Cw(tau_decay=0.5, binary_steps=1, iterations=1).steps == 8


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cw-0", "iterations must be at least 1, got 0"),
        ("cw:binary_steps=0", "binary_steps must be at least 1, got 0"),
        ("cw:lr=0", "lr must be positive, got 0"),
        ("cw:const=-1", "const must be positive, got -1"),
        ("cw:tau_decay=1", "tau_decay must be positive and below 1, got 1"),
    ],
)
def test_settings_are_checked(spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        attacks.parse(spec)


def test_it_is_an_attack_on_pixels_only(linear: Linear) -> None:
    with pytest.raises(UserError, match=r"cw .* no l2 form; use norm linf"):
        attacks.craft(Cw(), linear(THREE), torch.full((1, 2), 0.5), ZERO, Threat("l2", 0.5))
