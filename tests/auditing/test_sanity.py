"""Findings asked of the model: each by a model made to have it, and none by a healthy one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import classwise as cw
from classwise.attacks.attack import Attack, Model, Rows
from classwise.attacks.noise import Noise
from classwise.attacks.pgd import Pgd
from classwise.auditing import sanity
from classwise.core.errors import UserError
from classwise.core.threat import Ball, Threat
from classwise.data.images import ArrayPixels, Images
from classwise.models import load_model
from classwise.results.finding import Finding

CPU = torch.device("cpu")


def findings_of(
    model: nn.Module,
    images: Images,
    attack: Attack | None = None,
    training: bool = False,
    eot: int = 1,
    eps: float = 0.02,
) -> dict[str, Finding]:
    sample = sanity.draw_sample(model, images, CPU, seed=0)
    found = sanity.inspect(model, sample, {"it": attack or Pgd(steps=2)}, Threat("linf", eps), training, eot)
    assert all(finding.what and finding.remedy.endswith((".", ")")) for finding in found)
    return {finding.code: finding for finding in found}


def scaled(images: Images, factor: float, shift: float = 0.0) -> Images:
    x = images.batch(torch.arange(len(images)).numpy())[0]
    return Images(ArrayPixels(x * factor + shift), images.labels, images.class_names)


class After(nn.Module):
    """A network with something done to its input and output."""

    def __init__(self, net: nn.Module, before: Any = None, after: Any = None) -> None:
        super().__init__()
        self.net, self.before, self.after = net, before or (lambda x: x), after or (lambda z: z)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.net(self.before(x)))  # type: ignore[no-any-return]


def test_a_healthy_model_has_none(net: nn.Module, images: Images) -> None:
    assert findings_of(net, images) == {}
    assert findings_of(net, images, Noise()) == {}


def test_the_sample_has_every_class_and_no_more_than_it_needs(net: nn.Module, images: Images) -> None:
    sample = sanity.draw_sample(net, images, CPU, seed=0)
    assert torch.bincount(sample.y).tolist() == [4, 4, 4, 4]
    torch.testing.assert_close(sample.logits, net(sample.x).detach())


def test_train_mode(net: nn.Module, images: Images) -> None:
    assert set(findings_of(net, images, training=True)) == {"train_mode"}


def test_probabilities_for_logits(net: nn.Module, images: Images) -> None:
    found = findings_of(After(net, after=lambda z: z.softmax(1)), images)
    assert found["probabilities"].severity == "error"
    assert "Remove the final softmax" in found["probabilities"].remedy
    # Log-probabilities are logits as good as any.
    assert findings_of(After(net, after=lambda z: z.log_softmax(1)), images) == {}


class TestRange:
    @pytest.mark.parametrize(
        ("factor", "shift", "hint"),
        [
            (255, 0, "They look like 0…255: divide by 255."),
            (4, -2, "Take the normalisation out of the data"),
            (1, 0.01, "Take the normalisation out of the data"),
        ],
    )
    def test_pixels_outside(self, net: nn.Module, images: Images, factor: float, shift: float, hint: str) -> None:
        found = findings_of(net, scaled(images, factor, shift))["input_range"]
        assert found.severity == "error"
        assert found.remedy.startswith(hint)

    def test_normalised_twice(self, net: nn.Module, images: Images) -> None:
        model = load_model(net, normalize=((0.5,), (0.25,)))
        assert "normalised twice" in findings_of(model, scaled(images, 4, -2))["input_range"].remedy

    def test_divided_twice(self, net: nn.Module, images: Images) -> None:
        assert "divided by 255 twice" in findings_of(net, scaled(images, 1 / 255))["input_range"].what

    def test_rounding_at_the_ends_is_forgiven(self, net: nn.Module, images: Images) -> None:
        assert findings_of(net, scaled(images, 1 + 5e-5)) == {}

    def test_stops_the_audit_unless_forced(self, net: nn.Module, images: Images) -> None:
        data = scaled(images, 4, -2)
        with pytest.raises(UserError, match=r"Inputs run from -2 to 1\.99; an audit needs pixels in \[0,1\].*--force"):
            cw.audit(net, data, "pgd-2", 0.01)
        forced = cw.audit(net, data, "pgd-2", 0.01, force=True)
        # The attack's points are inside [0,1] and so outside the ball: none of them counts.
        assert {"input_range", "outside_ball"} <= {finding.code for finding in forced.findings}


class TestRandomised:
    @staticmethod
    def noisy(net: nn.Module, size: float) -> nn.Module:
        generator = torch.Generator().manual_seed(0)
        return After(net, before=lambda x: x + size * torch.randn(x.shape, generator=generator))

    def test_is_told(self, net: nn.Module, images: Images) -> None:
        found = findings_of(self.noisy(net, 0.1), images)["randomised"]
        assert found.severity == "error"
        assert "--eot 20" in found.remedy

    def test_is_a_note_when_draws_are_averaged(self, net: nn.Module, images: Images) -> None:
        found = findings_of(self.noisy(net, 0.1), images, eot=4)["randomised"]
        assert found.severity == "info"
        assert "average over 4 draws" in found.remedy

    def test_rounding_is_not_randomness(self, net: nn.Module, images: Images) -> None:
        assert findings_of(self.noisy(net, 1e-7), images) == {}

    def test_is_audited_as_it_is(self, net: nn.Module, images: Images) -> None:
        audit = cw.audit(self.noisy(net, 0.05), images, "pgd-2", 0.01, eot=3)
        assert audit.timing["folded_batch_norms"] == 0
        assert audit.timing["workers"] == 1
        assert audit.records.meta.attacks["pgd-2"].settings["eot"] == 3


class TestZeroGradient:
    def test_a_saturated_model(self, net: nn.Module, images: Images) -> None:
        """Logits a million apart: cross entropy of the right class is exactly 0, and so is its gradient."""
        found = findings_of(After(net, after=lambda z: 1e6 * z), images)["zero_gradient"]
        assert found.severity == "error"
        assert "temperature_pgd:sound=true" in found.remedy

    def test_the_share_is_given_per_class(self, net: nn.Module) -> None:
        """Only the images of one class are saturated: a quarter of the sample, all of that class."""
        x = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 0.5
        y = torch.arange(40) % 4
        x[y == 2] += 0.5
        bright = After(net, after=None)
        bright.forward = lambda x: torch.where(x.mean((1, 2, 3))[:, None] > 0.5, net(x).detach(), net(x))  # type: ignore
        images = Images(ArrayPixels(x), y.numpy(), ("ant", "bee", "cow", "doe"))
        assert findings_of(bright, images)["zero_gradient"].what == (
            "The gradient is exactly zero for 25% of the sampled images (most: cow 100%)."
        )

    @pytest.mark.parametrize("trained", [True, False])
    def test_a_hard_threshold_lets_no_gradient_through(self, net: nn.Module, images: Images, trained: bool) -> None:
        """With weights that require a gradient the output has one, but not with respect to the input."""
        model = After(net.requires_grad_(trained), before=lambda x: (x > 0.5).float())
        found = findings_of(model, images, Noise())
        assert "exactly zero for 100%" in found["zero_gradient"].what

    def test_a_gradient_attack_on_it_is_refused(self, net: nn.Module, images: Images) -> None:
        with pytest.raises(UserError, match=r"no gradient with respect to its input.*such as noise"):
            cw.audit(After(net, before=lambda x: (x > 0.5).float()), images, "pgd-2", 0.05)

    def test_a_model_without_gradient_can_be_audited_with_noise(self, net: nn.Module, images: Images) -> None:
        model = After(net, before=lambda x: (x > 0.5).float())
        audit = cw.audit(model, images, Noise(draws=5), 0.05)
        assert "zero_gradient" in {finding.code for finding in audit.findings}


@dataclass(frozen=True)
class Careless(Attack):
    """An attack that brightens the image whatever the radius."""

    steps: int = 3

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        return {**rows, "x_adv": (rows["x"] + 0.4).clamp(0, 1)}

    def advance(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        with torch.no_grad():
            z = model(rows["x_adv"])
        return {**rows, "logits": z, "t": rows["t"] + 1}


def test_an_attack_that_moves_at_radius_zero(net: nn.Module, images: Images) -> None:
    found = findings_of(net, images, Careless())["zero_radius"]
    assert found.what.startswith("With eps = 0 the attack changes the prediction of")
    audit = cw.audit(net, images, Careless(), 0.01)
    assert {"zero_radius", "outside_ball"} <= {finding.code for finding in audit.findings}
    assert audit.rows().correct.sum() == audit.rows("clean").correct.sum()  # nothing it proposed counts


def reversed_gradient(x: Tensor) -> Tensor:
    """The image itself, with a gradient that points the other way."""
    return 2 * x.detach() - x


class TestAttack:
    def test_a_gradient_that_points_the_wrong_way(self, net: nn.Module, images: Images) -> None:
        found = findings_of(After(net, before=reversed_gradient), images, Pgd(steps=5))
        assert set(found) == {"unbounded_survives", "loss_falls"}
        assert found["loss_falls"].what.startswith("The mean loss of 16 images falls from ")
        assert found["unbounded_survives"].severity == found["loss_falls"].severity == "error"
        assert "images still survive 40 steps of PGD" in found["unbounded_survives"].what

    def test_a_few_survivors_are_forgiven(self, net: nn.Module, images: Images) -> None:
        """One class cannot be left: of 16 images its single one survives, or its four do."""
        always = After(net, after=lambda z: z + torch.tensor([1e4, 0, 0, 0]))
        one_right = Images(images.pixels, np.where(np.arange(len(images)) == 0, 0, 1), images.class_names)
        assert "unbounded_survives" not in findings_of(always, one_right)
        four_right = Images(images.pixels, np.where(np.arange(len(images)) < 4, 0, 1), images.class_names)
        assert findings_of(always, four_right)["unbounded_survives"].what.startswith(
            "With eps = 1, where any image can become any other, 4 of 4 images still survive"
        )

    def test_steps_that_throw_the_image_about(self, net: nn.Module, images: Images) -> None:
        """Descending the label's own loss is no attack; the probe sees it in a healthy model."""
        found = findings_of(net, images, Backwards(steps=4), eps=0.05)
        assert set(found) == {"loss_falls"}

    def test_is_not_asked_of_black_boxes_nor_of_attacks_without_gradient(self, net: nn.Module, images: Images) -> None:
        model = After(net, before=reversed_gradient)
        assert findings_of(model, images, Noise()) == {}
        model.black_box = True
        assert findings_of(model, images, Noise()) == {}

    def test_is_not_asked_of_an_attack_that_looks_for_the_nearest_error(self, net: nn.Module, images: Images) -> None:
        assert findings_of(net, images, Nearest(steps=4), eps=0.05) == {}

    def test_is_cheap(self, net: nn.Module, images: Images) -> None:
        """Passes of single images beyond those of the other findings: few, whatever the attack's length."""
        passes = 0

        def count(x: Tensor) -> Tensor:
            nonlocal passes
            passes += len(x)
            return x

        findings_of(After(net, before=count), images, Pgd(steps=1000, restarts=50))
        assert passes < 16 * 30


@dataclass(frozen=True)
class Backwards(Pgd):
    """PGD in the wrong direction."""

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        return -super().loss(z, y)


@dataclass(frozen=True)
class Nearest(Backwards):
    """As an attack that comes back to the image: its rows say how near it came."""

    def begin(self, model: Model, rows: Rows, ball: Ball) -> Rows:
        rows = super().begin(model, rows, ball)
        return {**rows, "x_best": rows["x"], "best": torch.full_like(rows["eps"], torch.inf)}


def test_a_folding_that_failed_is_a_note(net: nn.Module, images: Images) -> None:
    class Branching(After):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if x.mean() < 2 else x.flatten(1)[:, :4]

    model = Branching(net)
    notes = [finding for finding in cw.audit(model, images, "pgd-2", 0.01).findings if finding.code == "not_folded"]
    assert len(notes) == 1
    assert notes[0].severity == "info"
    assert "fold_traced failed" in notes[0].what


def test_the_model_sees_few_images_at_a_time() -> None:
    """A pass with gradients over all sampled images of 224 pixels would be the largest of the whole audit."""
    seen: list[int] = []

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(12, 40)

        def forward(self, x: Tensor) -> Tensor:
            seen.append(len(x))
            answer: Tensor = self.layer(x.flatten(1))
            return answer

    x, y = torch.rand(200, 3, 2, 2), torch.arange(200) % 40
    images = Images(ArrayPixels(x), y.numpy(), tuple(map(str, range(40))))
    model = Counting().eval()
    sample = sanity.draw_sample(model, images, CPU, 0)
    assert len(sample.x) == 64
    assert torch.allclose(sample.logits, model.layer(sample.x.flatten(1)))
    sanity.inspect(model, sample, {"pgd": Pgd(steps=2)}, Threat("linf", 0.1), False, 1)
    assert max(seen) <= 16
