"""The Square attack: its schedule, its windows, what it accepts, and the pyramids of its l2 version."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import classwise as cw
from classwise import attacks
from classwise.attacks.attack import Model, Rows, initial_rows, join
from classwise.attacks.square import Square, _eta
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.losses import margin
from classwise.core.threat import L2, LINF, Norm, Threat, ball_of

Linear = Callable[..., Model]
Iterates = Callable[..., list[Rows]]


def grey(count: int, *shape: int) -> Tensor:
    return torch.full((count, *shape), 0.5, dtype=torch.float64)


def zeros(count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.int64)


def at(attack: Square, t: Tensor, norm: Norm, *shape: int, eps: float = 0.1) -> tuple[Rows, Rows]:
    """Examples of which each has made `t` queries: before and after the step that draws window number t."""
    count = len(t)
    rows = attack.begin(
        _constant, initial_rows(grey(count, *shape), zeros(count), eps, torch.arange(count)), ball_of(norm)
    )
    before = {**rows, "t": t}
    return before, attack.advance(_constant, before, ball_of(norm))


def _constant(x: Tensor) -> Tensor:
    return torch.tensor([[1.0, 0.0]], dtype=x.dtype).expand(len(x), 2)


def test_the_schedule_is_autoattacks() -> None:
    square = Square()
    assert square.sides(32, 32, "linf") == (29, 20, 14, 10, 7, 5, 4, 3, 2, 1)
    assert square.sides(32, 32, "l2") == (29, 21, 15, 11, 7, 5, 5, 3, 3, 3)
    assert square.sides(4, 9, "linf")[0] == 4  # no wider than the shorter edge
    assert square.sides(2, 2, "l2") == (2,) * 10
    last = torch.tensor([0, 10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000])
    assert square.halvings(last).tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert square.halvings(last[1:] + 1).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert Square(1000, rescale_schedule=True).halvings(torch.tensor([1, 2, 20, 21, 999])).tolist() == [0, 1, 2, 3, 9]


def test_linf_starts_with_stripes() -> None:
    x = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64).repeat(60).reshape(1, 3, 6, 10).repeat(8, 1, 1, 1)
    eps = torch.linspace(0.05, 0.3, 8, dtype=x.dtype)
    point = Square().begin(_constant, initial_rows(x, zeros(8), eps, torch.arange(8)), LINF)["x_adv"]
    sign = torch.where(point == (x + eps[:, None, None, None]).clamp(0, 1), 1.0, -1.0)
    assert torch.equal(point, (x + eps[:, None, None, None] * sign).clamp(0, 1))
    moved = torch.where((point > 0) & (point < 1), sign, 0.0)  # at the borders both signs may give one value
    assert ((moved.amax(2) - moved.amin(2)) <= 1).all()  # never both signs in a column
    stripes = Square().begin(_constant, initial_rows(grey(500, 3, 6, 10), zeros(500), 0.1, torch.arange(500)), LINF)
    up = (stripes["x_adv"][:, :, 0] > 0.5).double()
    assert torch.equal(stripes["x_adv"], stripes["x_adv"][:, :, :1].expand(-1, -1, 6, -1))
    assert abs(up.mean() - 0.5) < 0.02
    assert torch.corrcoef(up.flatten(1).T).triu(1).abs().max() < 0.25  # columns, channels: each its own


def test_a_linf_window_is_the_schedules_square_at_plus_or_minus_eps() -> None:
    t = torch.tensor([0, 11, 51, 201, 501, 1001, 2001, 4001, 6001, 8001]).repeat(20)
    before, after = at(Square(), t, "linf", 3, 32, 32)
    changed = after["x_adv"] != before["x_adv"]
    sides = torch.tensor(Square().sides(32, 32, "linf")).repeat(20)
    for example, side in enumerate(sides.tolist()):
        rows, columns = (changed[example].any(0).any(axis).nonzero()[:, 0] for axis in (1, 0))
        if not len(rows):  # painted over in the colours it had
            continue
        assert max(rows.max() - rows.min(), columns.max() - columns.min()) < side
        delta = after["x_adv"][example] - 0.5
        values = [torch.unique(delta[c][changed[example, c]]) for c in range(3)]
        assert all(len(v) <= 1 for v in values)  # one sign per channel
        assert torch.allclose(delta.abs(), torch.full_like(delta, 0.1))
    assert changed.any(1).flatten(1).sum(1)[sides == 29].max() > 400


def test_every_place_for_a_window_is_as_likely_including_the_last() -> None:
    t = torch.arange(8001, 8001 + 4000)
    before, after = at(Square(p_init=0.5), t, "linf", 3, 4, 5)  # windows of one pixel
    seen = (after["x_adv"] != before["x_best"]).any(1).flatten(1).sum(0)
    assert seen.shape == (20,)
    assert seen.sum() > 2000
    assert stats.chisquare(seen.numpy()).pvalue > 1e-3
    assert Square(p_init=0.5).sides(4, 5, "linf")[-1] == 1


def test_the_best_point_is_the_one_of_largest_margin_so_far(iterates: Iterates) -> None:
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3)).double()
    generator = torch.Generator().manual_seed(0)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator)
    net.requires_grad_(False)
    x = torch.rand(6, 2, 6, 6, dtype=torch.float64, generator=generator)
    y = net(x).argmax(1)
    for norm, eps in (("linf", 0.05), ("l2", 0.3)):
        seen = iterates(Square(queries=40), net, x, y, eps, norm)
        tried = torch.stack([margin(net(rows["x_adv"]), y) for rows in seen[:-1]])
        for step, rows in enumerate(seen[1:], start=1):
            assert torch.allclose(margin(net(rows["x_best"]), y), tried[:step].amax(0))
        assert (tried.amax(0) > tried[0]).sum() >= 5
        assert [len(rows["t"]) for rows in seen] == [6] * 42


def test_a_linear_models_worst_point_is_approached(linear: Linear) -> None:
    x, y = grey(4, 2, 5, 5), zeros(4)
    square = Square(queries=250, rescale_schedule=True)
    per_channel = torch.tensor([1.0, -1.0]).repeat_interleave(25)
    model = linear([per_channel.tolist(), [0.0] * 50])
    point = attacks.craft(square, model, x, y, Threat("linf", 0.1), generator=torch.Generator().manual_seed(0))
    assert ((model(x) - model(point))[:, 0] > 0.85 * 0.1 * 50).all()
    waves = torch.linspace(-1, 1, 5).sign().repeat(10)  # as l2's pyramids are: the windows add up to nothing
    model = linear([waves.tolist(), [0.0] * 50])
    point = attacks.craft(square, model, x, y, Threat("l2", 0.5), generator=torch.Generator().manual_seed(0))
    assert ((model(x) - model(point))[:, 0] > 0.5 * 0.5 * waves.norm()).all()


def test_eta_is_two_opposite_pyramids() -> None:
    upper = torch.tensor([[0.25, 1.25, 0.25]], dtype=torch.float64) / math.sqrt(1.6875)
    lower = torch.tensor([[0.25, 0.25, 0.25], [0.25, 1.25, 0.25]], dtype=torch.float64) / math.sqrt(1.875)
    assert torch.allclose(_eta(3), torch.cat([upper, -lower]) / math.sqrt(2))
    assert torch.equal(_eta(1), torch.tensor([[-1.0]], dtype=torch.float64))
    assert _eta(29)[:14].min() > 0 > _eta(29)[14:].max()


def test_l2_starts_with_a_grid_of_pyramids_on_the_sphere() -> None:
    x, eps = grey(40, 3, 32, 32), torch.linspace(0.1, 2, 40, dtype=torch.float64)
    delta = Square().begin(_constant, initial_rows(x, zeros(40), eps, torch.arange(40)), L2)["x_adv"] - x
    assert torch.allclose(L2.norm(delta), eps)
    border = torch.ones(32, 32, dtype=torch.bool)
    border[1:31, 1:31] = False
    assert delta[:, :, border].abs().max() == 0
    tiles = delta[:, :, 1:31, 1:31].reshape(40, 3, 5, 6, 5, 6).transpose(3, 4).flatten(0, 3)
    unit = tiles / tiles.flatten(1).norm(dim=1)[:, None, None]
    kinds = [sign * eta for eta in (_eta(6), _eta(6).T) for sign in (1, -1)]
    match = torch.stack([(unit - kind).abs().amax((1, 2)) < 1e-9 for kind in kinds])
    assert (match.sum(0) == 1).all()
    assert stats.chisquare(match.sum(1).numpy()).pvalue > 1e-6  # lying and standing go together over the channels


def published_l2_step(x: Tensor, best: Tensor, eps: float, side: int, u: Tensor) -> Tensor:
    """The paper's step for one image, window by window; `u` are the numbers it draws."""
    channels, height, width = x.shape
    r1, c1, r2, c2 = (int(u[i] * (size - side + 1)) for i, size in enumerate((height, width, height, width)))
    eta = _eta(side) if u[4] < 0.5 else _eta(side).T
    delta = best - x
    one, two = (slice(r1, r1 + side), slice(c1, c1 + side)), (slice(r2, r2 + side), slice(c2, c2 + side))
    spare = max(eps**2 - delta.norm() ** 2, torch.tensor(0.0)) / channels
    moved = delta.clone()
    for c in range(channels):
        both = torch.zeros(height, width, dtype=torch.bool)
        both[one] = both[two] = True
        new = eta * (-1 if u[5 + c] < 0.5 else 1) + delta[c][one] / delta[c][one].norm().clamp_min(1e-12)
        moved[c][two] = 0
        moved[c][one] = new / new.norm() * (spare + delta[c][both].square().sum()).sqrt()
    length = float(moved.norm())
    return (x + moved * (eps / length)).clamp(0, 1)


def test_an_l2_step_is_the_papers(iterates: Iterates) -> None:
    """At every size of window, from a point inside the ball (pixels were clipped) and over several steps."""
    generator = torch.Generator().manual_seed(1)
    x = (1.4 * torch.rand(20, 3, 12, 12, generator=generator, dtype=torch.float64) - 0.2).clamp(0, 1)
    square, eps = Square(), 1.5
    rows = square.begin(_constant, initial_rows(x, zeros(20), eps, torch.arange(20)), L2)
    assert (L2.norm(rows["x_adv"] - x) < eps - 0.01).any()
    rows["t"] = torch.tensor([0, 11, 51, 201, 501] * 4)
    for _ in range(3):
        sides = torch.tensor(square.sides(12, 12, "l2"))[square.halvings(rows["t"])].tolist()
        u = rng.uniform(rows["key"], (8,), rows["t"] + 1)
        after = square.advance(lambda p: -p.flatten(1)[:, :2], rows, L2)
        for example in range(20):
            expected = published_l2_step(x[example], after["x_best"][example], eps, sides[example], u[example])
            assert torch.allclose(after["x_adv"][example], expected, atol=1e-9)
        rows = after


def test_examples_at_different_queries_do_not_disturb_each_other() -> None:
    for norm in ("linf", "l2"):
        _, young = at(Square(), torch.tensor([3, 3]), norm, 3, 8, 8)
        early, old = at(Square(), torch.tensor([700, 700]), norm, 3, 8, 8)
        first, _ = at(Square(), torch.tensor([3, 3]), norm, 3, 8, 8)
        mixed = Square().advance(_constant, join([first, early]), ball_of(norm))
        assert torch.allclose(mixed["x_adv"], torch.cat([young["x_adv"], old["x_adv"]]), atol=1e-12)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 2, 3), (3, 4, 9), (2, 13, 7)])
def test_images_of_any_shape(norm: Norm, shape: tuple[int, ...], linear: Linear) -> None:
    size = math.prod(shape)
    x = torch.rand(5, *shape, generator=torch.Generator().manual_seed(0))
    point = attacks.craft(Square(queries=30), linear([[1.0] * size, [0.0] * size]), x, zeros(5), Threat(norm, 0.2))
    assert (ball_of(norm).norm(point - x) <= 0.2 + 1e-6).all()
    assert (point != x).flatten(1).any(1).all()


def test_scores_are_enough() -> None:
    def box(x: Tensor) -> Tensor:
        assert not torch.is_grad_enabled()
        return torch.stack([x.flatten(1).sum(1), torch.full((len(x),), 6.0)], 1).log_softmax(1)

    assert not Square().needs_gradient
    x = torch.full((3, 1, 4, 4), 0.4)  # sums to 6.4, and can be brought down to 4.8
    point = attacks.craft(Square(queries=50), box, x, zeros(3), Threat("linf", 0.1))
    with torch.no_grad():
        assert (box(point).argmax(1) == 1).all()


class Brightness(nn.Module):
    """Dark or bright, by the mean of the image."""

    def forward(self, x: Tensor) -> Tensor:
        mean = 10 * x.flatten(1).mean(1)
        return torch.stack([5 - mean, mean - 5], 1)


def test_an_audit_counts_its_queries() -> None:
    x = torch.stack([torch.full((1, 6, 6), value) for value in (0.1, 0.2, 0.45, 0.55, 0.7, 0.9)])
    audit = cw.audit(
        Brightness(), (x, torch.tensor([0, 0, 0, 1, 1, 1])), ["square-40"], eps=0.1, progress=False, batch_size=2
    )
    frame: Any = audit.records.frame
    rows = frame[frame.attack == "square-40"].set_index("index")
    assert (rows.prediction != rows.label).tolist() == [False, False, True, True, False, False]
    assert rows.queries[[0, 1, 4, 5]].tolist() == [41] * 4  # one for the stripes
    assert rows.queries[[2, 3]].between(1, 40).all()
    assert rows.distance[[2, 3]].to_numpy() == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"queries": 0}, "queries must be at least 1, got 0"),
        ({"restarts": 0}, "restarts must be at least 1, got 0"),
        ({"p_init": 0}, "p_init must be positive and at most 1, got 0"),
        ({"p_init": 80}, "p_init must be positive and at most 1, got 80"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, float], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Square(**settings)  # type: ignore[arg-type]


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(UserError, match=r"square needs images of shape \(channels, height, width\), got \(6,\)"):
        attacks.craft(Square(queries=2), _constant, torch.rand(2, 6), zeros(2), Threat("linf", 0.1))


def test_the_short_name_is_the_number_of_queries() -> None:
    assert attacks.parse("square") == {"square-5000": Square()}
    assert attacks.parse("square-100:rescale_schedule=yes") == {"square-100": Square(100, rescale_schedule=True)}
