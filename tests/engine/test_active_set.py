"""The active set on models whose every answer can be worked out by hand.

`Slope` has the margin m(x) = x₁ − 2·x₂ + b between class 0 and class 1, so ‖w‖₁ = 3: an example of class 0 falls
within radius ε exactly if m < 3ε, and one step of size α lowers its margin by 3α.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from classwise.attacks.attack import Attack, Model, Rows
from classwise.attacks.clean import Clean
from classwise.attacks.fgsm import Fgsm
from classwise.attacks.noise import Noise
from classwise.attacks.pgd import Pgd
from classwise.core.errors import UserError
from classwise.core.threat import LINF, Ball, Norm, ball_of
from classwise.data.images import ArrayPixels, Images
from classwise.engine.active_set import ActiveSet
from classwise.engine.attack_result import AttackResult
from classwise.engine.verifier import Verifier

EPS, ALPHA = 0.08, 0.02
PGD = Pgd(steps=4, step=ALPHA, start="none")
MARGINS = (0.01, 0.05, 0.09, 0.15, 0.20, 0.23, 0.25, 0.40)
# The point before a step is asked first: a margin of 0.09 is negative for the first time after two steps of 0.06.
STEPS = (1, 1, 2, 3, 4, 4, 4, 4)
BROKEN = (True, True, True, True, True, True, False, False)  # m < 3ε = 0.24


def margin(x: Tensor) -> Tensor:
    return x[:, 0, 0, 0] - 2 * x[:, 0, 0, 1] + 0.5


def slope(x: Tensor) -> Tensor:
    m = margin(x)
    return torch.stack([m, -m], 1)


def with_margins(margins: Any, labels: Any = 0) -> Images:
    """Two-pixel images in the middle of the pixel range with the given margins, so that [0,1] never binds."""
    m = np.asarray(margins, dtype=np.float32)
    x = np.stack([0.5 + m - 0.2, np.full_like(m, 0.4)], -1).reshape(-1, 1, 1, 2)
    return Images(ArrayPixels(x), np.broadcast_to(labels, len(m)), ("up", "down"))


@dataclass
class Spy:
    """A model that notes how many examples it was asked about, call by call."""

    model: Model
    sizes: list[int]
    note: Callable[[], None] = lambda: None

    def __call__(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        self.note()
        return self.model(x)


def attack(
    attack: Attack,
    images: Images,
    *,
    fast: Model = slope,
    verifier: Model = slope,
    eps: Any = EPS,
    norm: Norm = "linf",
    protocol: Any = "any",
    batch: int = 3,
    seed: int = 0,
    places: Any = None,
    report: Callable[[int], None] = lambda finished: None,
) -> AttackResult:
    radii = np.broadcast_to(np.asarray(eps, dtype=float), len(images)).copy()
    outcome = AttackResult.empty(images, images.num_classes)
    chosen = np.arange(len(images)) if places is None else np.asarray(places)
    cpu = torch.device("cpu")
    ActiveSet(
        attack=attack,
        attack_copy=fast,
        verifier=Verifier(verifier, ball_of(norm)),
        part=images,
        eps=radii,
        outcome=outcome,
        protocol=protocol,
        batch=batch,
        seed=seed,
        device=cpu,
        report=report,
    ).run(chosen)
    assert outcome.done[chosen].all()
    return outcome


class TestKnownMargins:
    @pytest.mark.parametrize("batch", [1, 3, 100])
    def test_any(self, batch: int) -> None:
        outcome = attack(PGD, with_margins(MARGINS), batch=batch)
        assert (outcome.columns["prediction"] == 1).tolist() == list(BROKEN)
        assert outcome.columns["step"].tolist() == list(STEPS)
        np.testing.assert_allclose(outcome.columns["distance"], ALPHA * np.array(STEPS), atol=1e-6)
        left = np.array(MARGINS) - 3 * ALPHA * np.array(STEPS)  # the margin at the recorded point
        np.testing.assert_allclose(outcome.columns["true_prob"], 1 / (1 + np.exp(-2 * left)), atol=1e-6)
        np.testing.assert_allclose(outcome.columns["loss"], np.log1p(np.exp(-2 * left)), atol=1e-6)
        np.testing.assert_allclose(outcome.probs[:, 0], outcome.columns["true_prob"], atol=1e-6)
        np.testing.assert_allclose(outcome.columns["confidence"], 1 / (1 + np.exp(-2 * abs(left))), atol=1e-6)
        # Broken after k steps costs k + 1 passes, the last showing that it is broken; after the fourth the judge asks.
        assert outcome.passes == sum(min(k + 1, 4) for k in STEPS)
        assert (outcome.rejected, outcome.outside) == (0, 0)

    def test_final(self) -> None:
        outcome = attack(PGD, with_margins(MARGINS), protocol="final")
        assert (outcome.columns["prediction"] == 1).tolist() == list(BROKEN)
        assert outcome.columns["step"].tolist() == [4] * len(MARGINS)
        assert outcome.passes == 4 * len(MARGINS)

    def test_one_radius_per_example(self) -> None:
        eps = np.array([0.02, 0.02, 0.05, 0.05])
        outcome = attack(Fgsm(), with_margins([0.05, 0.07, 0.14, 0.16]), eps=eps)
        assert outcome.columns["prediction"].tolist() == [1, 0, 1, 0]  # 3ε is 0.06 and 0.15
        np.testing.assert_allclose(outcome.columns["distance"], eps, atol=1e-6)

    def test_l2(self) -> None:
        """In l2 the margin falls by ‖w‖₂·ε = √5·ε: 0.17888 for ε = 0.08."""
        outcome = attack(Fgsm(), with_margins([0.175, 0.182]), norm="l2")
        assert outcome.columns["prediction"].tolist() == [1, 0]
        np.testing.assert_allclose(outcome.columns["distance"], EPS, atol=1e-6)

    def test_the_pixel_range_protects(self) -> None:
        """At the edge of [0,1] only one pixel can move against the example, by ε: the margin falls by 1·ε, not 3ε."""
        x = np.array([[1.0, 1.0]], dtype=np.float32).reshape(1, 1, 1, 2)
        images = Images(ArrayPixels(x), np.array([0]), ("up", "down"))

        def shifted(x: Tensor) -> Tensor:  # the same slope with margin 0.1 at this corner
            return slope(x) + torch.tensor([0.3, -0.3]) * 2

        assert float(slope(torch.from_numpy(x))[0, 0]) == pytest.approx(-0.5)
        outcome = attack(Fgsm(), images, fast=shifted, verifier=shifted)
        assert outcome.columns["prediction"].tolist() == [0]
        assert outcome.outside == 0

    def test_what_recovers_is_broken_for_any_and_not_for_final(self) -> None:
        """m = |x₁ − 0.5| − 0.05 is negative in a band: 0.63 → 0.53 (inside) → 0.43 (beyond it)."""

        def band(x: Tensor) -> Tensor:
            m = (x[:, 0, 0, 0] - 0.5).abs() - 0.05
            return torch.stack([m, -m], 1)

        x = np.array([0.63, 0.5], dtype=np.float32).reshape(1, 1, 1, 2)
        images = Images(ArrayPixels(x), np.array([0]), ("out", "in"))
        over = Pgd(steps=2, step=0.1, start="none")
        outcomes = {p: attack(over, images, fast=band, verifier=band, eps=0.25, protocol=p) for p in ("any", "final")}
        assert {p: int(o.columns["prediction"][0]) for p, o in outcomes.items()} == {"any": 1, "final": 0}
        assert {p: int(o.columns["step"][0]) for p, o in outcomes.items()} == {"any": 1, "final": 2}

    def test_only_the_given_places_are_attacked(self) -> None:
        outcome = attack(PGD, with_margins(MARGINS), places=[0, 7])
        assert outcome.done.tolist() == [True, *[False] * 6, True]
        assert outcome.columns["step"].tolist() == [1, 0, 0, 0, 0, 0, 0, 4]

    def test_clean_takes_one_pass_of_the_judge_and_none_of_the_fast_model(self) -> None:
        fast, verifier = Spy(slope, []), Spy(slope, [])
        outcome = attack(Clean(), with_margins(MARGINS), fast=fast, verifier=verifier, batch=5)
        assert (fast.sizes, verifier.sizes) == ([], [5, 3])
        assert outcome.columns["step"].tolist() == [0] * 8
        assert outcome.columns["prediction"].tolist() == [0] * 8


class TestBatches:
    def test_stay_full_until_nobody_waits(self) -> None:
        margins = np.tile(MARGINS, 8)
        fast, verifier = Spy(slope, []), Spy(slope, [])
        outcome = attack(PGD, with_margins(margins), fast=fast, verifier=verifier, batch=16)
        assert sum(fast.sizes) == outcome.passes == 8 * sum(min(k + 1, 4) for k in STEPS)
        assert fast.sizes == sorted(fast.sizes, reverse=True)  # full, and shrinking only when nobody waits any more
        assert fast.sizes.count(16) >= sum(fast.sizes) // 16 - 3
        assert verifier.sizes == [16, 16, 16, 16]

    def test_what_left_is_judged_as_soon_as_it_fills_a_batch(self) -> None:
        calls: list[str] = []
        fast = Spy(slope, sizes := [], lambda: calls.append("fast"))
        attack(
            PGD,
            with_margins(np.full(64, 0.01)),
            fast=fast,
            verifier=Spy(slope, [], lambda: calls.append("judge")),
            batch=8,
        )
        assert set(sizes) == {8}
        assert "".join(call[0] for call in calls) == "ffj" * 8  # one step breaks them, the next pass shows it

    def test_never_grow_beyond_their_size_when_examples_come_back(self) -> None:
        liar = Spy(lambda x: -slope(x), [])
        verifier = Spy(slope, [])
        outcome = attack(PGD, with_margins(np.full(50, 0.9)), fast=liar, verifier=verifier, batch=8)
        assert max(liar.sizes) <= 8
        assert max(verifier.sizes) <= 8
        assert outcome.rejected == 50 * 4

    @pytest.mark.slow
    @pytest.mark.parametrize("protocol", ["any", "final"])
    def test_size_and_order_do_not_matter(self, net: nn.Module, images: Images, protocol: str) -> None:
        order = np.random.default_rng(0).permutation(len(images))
        settings = {"fast": net, "verifier": net, "eps": 0.03, "protocol": protocol}
        one = attack(Pgd(steps=5, restarts=2), images, batch=128, **settings)
        other = attack(Pgd(steps=5, restarts=2), images.take(order), batch=7, **settings)
        assert 30 < (one.columns["prediction"] != images.labels).sum() < 110  # neither all nor none
        for name in ("prediction", "step"):
            np.testing.assert_array_equal(one.columns[name][order], other.columns[name])
        np.testing.assert_allclose(one.columns["loss"][order], other.columns["loss"], rtol=1e-4)
        assert one.passes == other.passes

    def test_another_seed_draws_other_starts(self) -> None:
        images = with_margins(MARGINS)
        losses = [attack(Pgd(steps=1, step=1e-6), images, seed=seed).columns["loss"] for seed in (0, 0, 1)]
        np.testing.assert_array_equal(losses[0], losses[1])
        assert (losses[0] != losses[2]).all()

    def test_progress_adds_up(self) -> None:
        reports: list[int] = []
        attack(Pgd(steps=4, restarts=3), with_margins(MARGINS), report=reports.append)
        assert sum(reports) == len(MARGINS)


class TestVerification:
    def test_a_false_claim_is_refused_and_the_attack_goes_on(self) -> None:
        def hasty(x: Tensor) -> Tensor:  # says "broken" wherever the margin is above 0.1, with the right gradient
            return slope(x) - torch.stack([(margin(x) > 0.1) * 2.0, (margin(x) > 0.1) * -2.0], 1)

        # 0.20 and 0.14 are claimed and refused, 0.08 and 0.02 pass, and the fourth step breaks it truly.
        outcome = attack(PGD, with_margins([0.20]), fast=hasty)
        assert outcome.rejected == 2
        assert outcome.columns["prediction"].tolist() == [1]
        assert outcome.columns["step"].tolist() == [4]
        assert outcome.columns["distance"][0] == pytest.approx(EPS, abs=1e-6)

    def test_a_model_that_always_cries_wolf_breaks_nothing(self) -> None:
        outcome = attack(PGD, with_margins([0.5, 0.6]), fast=lambda x: slope(x) - torch.tensor([9.0, -9.0]))
        assert outcome.columns["prediction"].tolist() == [0, 0]
        assert outcome.rejected == 2 * PGD.steps
        assert outcome.columns["step"].tolist() == [4, 4]

    def test_a_model_that_never_notices_is_corrected_at_the_end(self) -> None:
        outcome = attack(PGD, with_margins([0.01, 0.40]), fast=lambda x: slope(x) + torch.tensor([9.0, -9.0]))
        assert outcome.columns["prediction"].tolist() == [1, 0]
        assert outcome.columns["step"].tolist() == [4, 4]

    def test_a_refused_claim_at_the_last_step_leaves_the_last_iterate(self) -> None:
        def late(x: Tensor) -> Tensor:  # lies only about the point before the last step
            lie = ((margin(x) - 0.02).abs() < 1e-3) * 2.0
            return slope(x) - torch.stack([lie, -lie], 1)

        outcome = attack(PGD, with_margins([0.20]), fast=late)
        assert outcome.rejected == 1
        assert outcome.columns["prediction"].tolist() == [1]
        assert outcome.columns["step"].tolist() == [4]

    @pytest.mark.parametrize(
        ("where", "refused"),
        [
            (lambda x, eps: x - 1.5 * eps, True),  # outside the ball, and it would break the example
            (lambda x, eps: x - 0.999 * eps, False),
            (lambda x, eps: x * float("nan"), True),
        ],
    )
    def test_points_that_are_not_allowed_do_not_count(self, where: Any, refused: bool) -> None:
        outcome = attack(Jump(where), with_margins([0.01, 0.02]), fast=lambda x: slope(torch.nan_to_num(x)))
        assert outcome.outside == (2 if refused else 0)
        if refused:
            assert outcome.columns["prediction"].tolist() == [0, 0]
            assert outcome.columns["distance"].tolist() == [0, 0]

    def test_points_outside_the_pixel_range_do_not_count(self) -> None:
        x = np.array([[0.02, 0.2]], dtype=np.float32).reshape(1, 1, 1, 2)
        images = Images(ArrayPixels(x), np.array([0]), ("up", "down"))
        outcome = attack(Jump(lambda x, eps: x - eps), images)
        assert outcome.outside == 1
        assert outcome.columns["prediction"].tolist() == [0]

    def test_a_clean_image_outside_the_pixel_range_is_not_a_break(self) -> None:
        x = np.array([[1.4, 0.2]], dtype=np.float32).reshape(1, 1, 1, 2)
        outcome = attack(Clean(), Images(ArrayPixels(x), np.array([0]), ("up", "down")))
        assert outcome.outside == 0

    @pytest.mark.parametrize("side", ["fast", "verifier"])
    def test_not_a_number(self, side: str) -> None:
        def broken(x: Tensor) -> Tensor:
            return torch.where(margin(x)[:, None] > 0.3, torch.nan, slope(x))

        with pytest.raises(UserError, match=r"NaN or infinite logits for 1 of 3 images"):
            attack(PGD, with_margins([0.1, 0.2, 0.6]), **{side: broken})

    def test_eot_averages_the_judgement(self) -> None:
        """Two draws, one strongly for class 0 and one weakly against: on average class 0."""
        calls = iter([torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 1.0]])])
        x = torch.full((1, 1, 1, 2), 0.5)
        verdict = Verifier(lambda x: next(calls), LINF, eot=2)(x, x, torch.tensor([0]), torch.tensor([0.1]))
        expected = (1 / (1 + np.exp(-3)) + 1 / (1 + np.exp(1))) / 2
        assert float(verdict["true_prob"]) == pytest.approx(expected)
        assert int(verdict["prediction"]) == 0


@dataclass(frozen=True)
class Jump(Attack):
    """Goes to a place of the test's choosing at its first step."""

    where: Callable[[Tensor, Tensor], Tensor]
    steps: int = 1
    restarts: int = 1

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        return {**rows, "x_adv": rows["x"]}

    def advance(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        z = model(rows["x_adv"])
        x_adv = self.where(rows["x"], rows["eps"].reshape(-1, 1, 1, 1))
        return {**rows, "x_adv": x_adv, "logits": z, "t": rows["t"] + 1}


class TestRestarts:
    """A step too small to matter, so that only the random start εU, U uniform in (−1, 1)², can break an example.

    With m = 1.5ε that takes U₁ − 2U₂ < −1.5, or U₂ > (U₁ + 1.5)/2: for U₁ = u < 0.5 a share (1 − (u + 1.5)/2)/2 of U₂.
    """

    IMAGES = with_margins(np.full(300, 1.5 * EPS))
    CHANCE = 9 / 64  # ½∫₋₁^½ (1 − (u + 1.5)/2)/2 du = ½∫₋₁^½ (0.5 − u)/4 du = 1.5²/16

    def broken(self, restarts: int) -> AttackResult:
        return attack(Pgd(steps=1, step=1e-7, restarts=restarts), self.IMAGES, batch=64)

    def test_each_starts_elsewhere(self) -> None:
        once, often = self.broken(1), self.broken(10)
        for outcome, tries in ((once, 1), (often, 10)):
            expected = 1 - (1 - self.CHANCE) ** tries
            found = (outcome.columns["prediction"] == 1).mean()
            assert abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / 300)
        assert (often.columns["prediction"] >= once.columns["prediction"]).all()

    def test_steps_of_all_tries_are_counted(self) -> None:
        outcome = self.broken(10)
        stands = outcome.columns["prediction"] == 0
        assert (outcome.columns["step"][stands] == 10).all()
        broken = outcome.columns["step"][~stands]
        assert broken.min() == 0  # by the first random start itself
        assert broken.max() > 5
        assert outcome.passes == int(stands.sum() * 10 + (broken + 1).sum())

    def test_final_keeps_the_first_restart_that_ends_broken(self) -> None:
        outcome = attack(Pgd(steps=1, step=1e-7, restarts=10), self.IMAGES, protocol="final", batch=64)
        any_way = self.broken(10)
        np.testing.assert_array_equal(outcome.columns["prediction"], any_way.columns["prediction"])


@pytest.mark.parametrize("draws", [1, 5])
def test_noise_tries_as_many_points_as_it_says(draws: int) -> None:
    fast, verifier = Spy(slope, []), Spy(slope, [])
    attack(Noise(draws=draws), with_margins([0.9, 0.9]), fast=fast, verifier=verifier, batch=2)
    assert sum(fast.sizes) + sum(verifier.sizes) == 2 * draws


@dataclass(frozen=True)
class Walk(Attack):
    """Goes down the slope by 0.01 a step, out of any ball, and remembers the nearest point that is misclassified.

    The second restart walks in steps of 0.003 and so stops nearer, if it gets there. `wrong` pretends an early find.
    """

    steps: int = 30
    restarts: int = 1
    minimal: bool = False
    wrong: bool = False
    last: int = 1000

    @property
    def seeks_distance(self) -> bool:
        return self.minimal

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        never = torch.full_like(rows["eps"], torch.inf)
        return {**rows, "x_adv": rows["x"], "x_best": rows["x"], "best": never, "done": rows["t"] < 0}

    def advance(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        z, t = model(rows["x_adv"]), rows["t"] + 1
        away = ball.norm(rows["x_adv"] - rows["x"])
        found = (z.argmax(1) != rows["y"]) | ((t == 2) & self.wrong)
        nearer = found & (away < rows["best"])
        best = torch.where(nearer, away, rows["best"])
        x_best = torch.where(nearer[:, None, None, None], rows["x_adv"], rows["x_best"])
        pace = torch.where(rows["restart"] == 1, 0.003, 0.01)[:, None, None, None]
        downhill = torch.tensor([-1.0, 1.0]) * pace
        after = {"x_adv": rows["x_adv"] + downhill, "logits": z, "t": t, "best": best, "x_best": x_best}
        return {**rows, **after, "done": t >= self.last, "queries": 3 * t}


class TestNearestPoint:
    """Margins fall by 0.03 for each 0.01 away: 0.05, 0.14 and 0.5 are crossed at 0.02, 0.05 and 0.17 of the walk."""

    MARGINS = (0.05, 0.14, 0.5)

    def test_an_example_is_broken_once_a_point_in_the_ball_is_found(self) -> None:
        outcome = attack(Walk(), with_margins(self.MARGINS), eps=0.04)
        assert outcome.columns["prediction"].tolist() == [1, 0, 0]
        np.testing.assert_allclose(outcome.columns["minimal"], [0.02, np.inf, np.inf], atol=1e-6)
        np.testing.assert_allclose(outcome.columns["distance"], [0.02, 0, 0], atol=1e-6)
        assert outcome.columns["queries"].tolist() == [9, 90, 90]  # three evaluations a step
        assert outcome.passes == 189
        assert outcome.outside == 0

    def test_seeking_distances_goes_on_beyond_the_ball(self) -> None:
        outcome = attack(Walk(minimal=True), with_margins(self.MARGINS), eps=0.04)
        assert outcome.columns["prediction"].tolist() == [1, 0, 0]  # robust at this radius all the same
        np.testing.assert_allclose(outcome.columns["minimal"], [0.02, 0.05, 0.17], atol=1e-6)
        np.testing.assert_allclose(outcome.columns["distance"], [0.02, 0, 0], atol=1e-6)
        np.testing.assert_allclose(outcome.columns["true_prob"][1:], 1 / (1 + np.exp(-2 * np.array([0.14, 0.5]))))

    def test_the_nearest_of_all_restarts_is_kept(self) -> None:
        outcome = attack(Walk(minimal=True, restarts=3), with_margins(self.MARGINS), eps=0.04, batch=2)
        np.testing.assert_allclose(outcome.columns["minimal"], [0.018, 0.048, 0.17], atol=1e-6)
        assert outcome.columns["queries"].tolist() == [270, 270, 270]

    def test_what_the_judge_refuses_is_looked_for_again(self) -> None:
        outcome = attack(Walk(wrong=True), with_margins(self.MARGINS), eps=0.06)
        assert outcome.rejected == 3
        assert outcome.columns["prediction"].tolist() == [1, 1, 0]
        np.testing.assert_allclose(outcome.columns["minimal"], [0.02, 0.05, np.inf], atol=1e-6)

    def test_done_ends_an_attack_before_its_steps(self) -> None:
        outcome = attack(Walk(last=4), with_margins(self.MARGINS), eps=0.06)
        assert outcome.columns["prediction"].tolist() == [1, 0, 0]
        assert outcome.columns["step"].tolist() == [2, 4, 4]

    def test_the_points_are_kept_where_asked(self) -> None:
        images = with_margins(self.MARGINS)
        outcome = AttackResult.empty(images, 2, keep_points=True)
        verifier, radii = Verifier(slope, LINF), np.full(3, 0.06)
        ActiveSet(
            attack=Walk(),
            attack_copy=slope,
            verifier=verifier,
            part=images,
            eps=radii,
            outcome=outcome,
            protocol="any",
            batch=2,
            seed=0,
            device=torch.device("cpu"),
        ).run(np.arange(3))
        assert outcome.points is not None
        x = images.batch(np.arange(3))[0].numpy()
        away = np.abs(outcome.points - x).reshape(3, -1).max(1)
        np.testing.assert_allclose(away, [0.02, 0.05, 0], atol=1e-6)
