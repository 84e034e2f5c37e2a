"""Averages of weights and running statistics, against sums written out."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from classwise.core.errors import UserError
from classwise.training import averaging
from classwise.training.averaging import Average, Averaging, Ema, Fawa, Swa, averaged, estimate_batch_norm


def network(value: float = 0.0) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    set_all(model, value)
    return model


def set_all(model: nn.Module, value: float) -> None:
    """Every weight and statistic to `value`, the counter to ten times that."""
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            tensor.fill_(10 * value if name.endswith("num_batches_tracked") else value)


def after(kind: Averaging, values: list[float], worst: list[float] | None = None) -> tuple[nn.Sequential, Average]:
    model, average = network(), Average()
    for epoch, value in enumerate(values, 1):
        set_all(model, value)
        average = kind.after_step(average, model, epoch - 1)
        average = kind.after_epoch(average, model, epoch, worst[epoch - 1] if worst else None)
    return model, average


def value_of(model: nn.Module) -> float:
    """The one value of all weights and statistics."""
    found = torch.cat([tensor.flatten() for tensor in model.state_dict().values() if tensor.is_floating_point()])
    assert (found - found[0]).abs().max() < 1e-6
    return found[0].item()


@pytest.mark.parametrize("every", ["step", "epoch"])
def test_ema_forgets_by_the_power_of_its_decay(every: str) -> None:
    model, average = after(averaging.parse(f"ema:decay=0.9,every={every}"), [1, 2, 4])
    assert value_of(averaged(model, average)) == pytest.approx(0.81 * 1 + 0.09 * 2 + 0.1 * 4)
    assert averaging.count(average) == 3


def test_a_ramp_forgets_the_beginning_sooner() -> None:
    model, average = after(Ema(decay=0.9, ramp=True), [1, 2, 4])
    first = 2 / 11 * 1 + 9 / 11 * 2
    assert value_of(averaged(model, average)) == pytest.approx(3 / 12 * first + 9 / 12 * 4)


def test_swa_is_the_mean_from_its_start_on() -> None:
    model, average = after(averaging.parse("swa:start=2"), [100, 1, 2, 6])
    assert value_of(averaged(model, average)) == pytest.approx(3)
    assert averaging.count(average) == 3


def test_ema_begins_at_its_start() -> None:
    model, average = after(Ema(decay=0.5, start=2), [100, 100, 1, 3])
    assert value_of(averaged(model, average)) == pytest.approx(2)


def test_fawa_takes_only_epochs_whose_worst_class_is_good_enough() -> None:
    kind = averaging.parse("fawa:decay=0.8,threshold=0.2,start=2")
    model, average = after(kind, [100, 50, 1, 7, 2], worst=[0.9, 0.19, 0.2, float("nan"), 0.3])
    assert value_of(averaged(model, average)) == pytest.approx(0.8 * 1 + 0.2 * 2)
    assert averaging.count(average) == 2


def test_fawa_has_the_papers_settings() -> None:
    assert averaging.parse("fawa") == Fawa(decay=0.85, threshold=0.2, start=50)
    assert Fawa.validates
    assert not Swa.validates


def test_fawa_needs_validation() -> None:
    with pytest.raises(UserError, match="nothing is held out"):
        Fawa().after_epoch({}, network(), 1, None)


def test_counters_are_copied() -> None:
    model, average = after(Swa(), [1, 3])
    assert averaged(model, average).state_dict()["1.num_batches_tracked"] == 30


def test_without_an_average_the_copy_has_the_models_weights() -> None:
    model = network(3.0)
    twin = averaged(model, {})
    assert value_of(twin) == 3
    set_all(twin, 5)
    assert value_of(model) == 3


def test_the_model_itself_is_left_alone() -> None:
    model, average = after(Swa(), [1, 3])
    twin = averaged(model, average)
    assert value_of(model) == 3
    set_all(model, 9)
    assert value_of(averaged(model, average)) == value_of(twin) == 2


@pytest.mark.parametrize("kind", [Ema(decay=0.7), Ema(decay=0.9, ramp=True), Swa()])
def test_an_average_survives_a_checkpoint(kind: Averaging) -> None:
    """Saved and loaded in between, as plain tensors, it continues to the same bits."""
    values = [0.1, 0.7, 0.3, 0.9]
    _, straight = after(kind, values)
    model, average = network(), Average()
    for epoch, value in enumerate(values, 1):
        file = io.BytesIO()
        torch.save(average, file)
        file.seek(0)
        average = torch.load(file, weights_only=True)
        set_all(model, value)
        average = kind.after_step(average, model, epoch - 1)
        average = kind.after_epoch(average, model, epoch, None)
    assert average.keys() == straight.keys()
    assert all(torch.equal(average[name], straight[name]) for name in straight)


def test_batch_norm_is_estimated_from_the_images_alone() -> None:
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(2, momentum=0.3)).eval()
    images = torch.tensor([[0.0, 1], [2, 1], [4, 5], [6, 9]]).reshape(4, 2, 1)

    def batches() -> Iterator[Tensor]:
        yield from images.split(2)

    estimate_batch_norm(model, batches())
    norm = model[1]
    assert isinstance(norm, nn.BatchNorm1d)
    torch.testing.assert_close(norm.running_mean, torch.tensor([3.0, 4.0]))
    torch.testing.assert_close(norm.running_var, torch.tensor([2.0, 4.0]))  # the mean of (2, 2) and of (0, 8)
    assert norm.momentum == 0.3
    assert not model.training


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("emma", "did you mean 'ema'"),
        ("ema:decay=1", r"decay must be at least 0 and below 1"),
        ("swa:decay=0.9", "unknown setting of swa 'decay'"),
        ("swa:start=-1", "start must be at least 0, got -1"),
        ("fawa:threshold=20", "threshold must be at least 0 and at most 1, got 20"),
        ("fawa:decay=-0.1", r"decay must be at least 0 and below 1"),
    ],
)
def test_bad_averagings(wanted: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        averaging.parse(wanted)


def test_ways_to_write_an_averaging() -> None:
    assert averaging.parse("ema-0.99") == Ema(decay=0.99)
    assert averaging.parse({"name": "swa", "start": 3, "estimate": True}) == Swa(start=3, estimate=True)
