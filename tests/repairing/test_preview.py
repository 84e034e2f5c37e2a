"""What is predicted of biases: margins by hand and on a linear model, where they are known; the game on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tilted import EPS, SCALE, Rows, images

import classwise as cw
from classwise.repairing import preview
from classwise.repairing.preview import Margins

INF = np.inf


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Margins]]:
    """Every measurement: what was attacked, and the margins found."""
    found: list[tuple[Any, Margins]] = []
    usual = preview.measure

    def measure(calibration: Any) -> Margins:
        found.append((calibration, usual(calibration)))
        return found[-1][1]

    monkeypatch.setattr(preview, "measure", measure)
    return found


def test_accuracy_is_the_share_of_images_whose_least_margin_stays_positive() -> None:
    margins = Margins(
        values=np.array([[INF, 1.0, 3.0], [INF, -0.5, 2.0], [0.4, INF, 0.2], [2.0, INF, 1.0]]),
        labels=np.array([0, 0, 1, 1]),
    )
    assert margins.accuracy(np.zeros(3))[:2].tolist() == [0.5, 1.0]
    assert np.isnan(margins.accuracy(np.zeros(3))[2])
    assert margins.accuracy(np.array([0.6, 0.0, 0.0]))[:2].tolist() == [1.0, 0.5]
    assert margins.accuracy(np.array([0.0, 0.0, 0.2]))[:2].tolist() == [0.5, 0.5]  # a tie is misclassified


@pytest.mark.slow
def test_the_margins_of_a_linear_model_are_its_least_in_the_ball(measured: list[tuple[Any, Margins]]) -> None:
    """The attack takes every pixel of the own row down and of the other's up, as far as [0,1] allows."""
    model = Rows()
    cw.repair(model, images(), "apgd_t:iterations=10", EPS, rounds=1)
    ((calibration, margins),) = measured
    x = calibration.job.images.batch(np.arange(len(calibration.job.images)))[0].numpy()
    bias = model.linear.bias.detach().numpy()
    eps = calibration.job.threat.eps
    down, up = np.clip(x - eps, 0, 1).mean((1, 3)), np.clip(x + eps, 0, 1).mean((1, 3))
    for row, label in enumerate(margins.labels):
        for other in {0, 1, 2} - {label}:
            least = SCALE * (down[row, label] - up[row, other]) + bias[label] - bias[other]
            assert margins.values[row, other] == pytest.approx(least, abs=1e-4)
        assert margins.values[row, label] == INF


@pytest.mark.slow
def test_what_is_predicted_of_a_linear_model_is_what_a_fresh_attack_finds(measured: list[tuple[Any, Margins]]) -> None:
    found = cw.repair(Rows(), images(), "apgd_t:iterations=10", EPS, rounds=3)
    margins = measured[0][1]
    for _, tried in found.by_round.groupby("number"):
        assert margins.accuracy(tried["bias"].to_numpy()) == pytest.approx(tried["accuracy"].to_numpy())


def test_the_game_raises_the_worst_class_and_keeps_what_it_can_of_the_others() -> None:
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 200)
    values = random.normal(1.0, 1.0, (800, 4))
    values[labels == 3] -= 1.5
    values[np.arange(800), labels] = INF
    margins = Margins(values=values, labels=labels)
    before = margins.accuracy(np.zeros(4))
    path = preview.path(margins, 1.5, {})
    assert before.argmin() == 3
    best = max((margins.accuracy(bias) for bias in path), key=lambda found: float(found.min()))
    assert best.min() > before.min() + 0.1
    assert all(abs(bias.sum()) < 1e-9 for bias in path)
    assert len(path) <= preview.MOST_STEPS + 1


def test_with_minimums_only_the_classes_named_rise_and_the_game_ends_there() -> None:
    labels = np.repeat(np.arange(3), 10)
    values = np.tile(np.linspace(-0.5, 0.4, 10)[:, None], (3, 3))
    values[np.arange(30), labels] = INF
    margins = Margins(values=values, labels=labels)
    path = preview.path(margins, 1.0, {1: 0.8})
    assert margins.accuracy(path[-1])[1] >= 0.8 > margins.accuracy(path[-2])[1]
    assert (np.diff([bias[1] for bias in path]) > 0).all()
    assert all(bias[0] == bias[2] for bias in path)
    assert len(preview.path(margins, 1.0, {1: 0.3})) == 1  # reached already


@pytest.mark.slow
def test_margins_that_are_there_are_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    first = cw.repair(Rows(), images(), "pgd-5", EPS, out=out, rounds=2)
    for number in (1, 2):
        for path in sorted((out / "rounds" / f"{number:02d}").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()

    def attacked(*given: Any) -> None:
        raise AssertionError("attacked again")

    monkeypatch.setattr(preview, "_batch", attacked)
    again = cw.repair(Rows(), images(), "pgd-5", EPS, out=out, rounds=2)
    assert again.bias == first.bias


@pytest.mark.slow
def test_a_damaged_file_of_margins_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    cw.repair(Rows(), images(), "pgd-5", EPS, out=out, rounds=1)
    (out / "margins" / "00000.npz").write_bytes(b"no archive")
    (out / "rounds" / "01" / "change.npz").unlink()
    with pytest.raises(cw.UserError, match="damaged"):
        cw.repair(Rows(), images(), "pgd-5", EPS, out=out, rounds=1)
