"""Pseudo-labels: what a model says of images, in a file that training reads back."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import content, run, small
from torch import Tensor, nn

from classwise.cli.main import main
from classwise.core.errors import UserError
from classwise.data import load as load_data
from classwise.data.images import ArrayPixels, Images
from classwise.training import pseudo


class Brightness(nn.Module):
    """Dark images are class 0, bright ones class 1; grey ones it is not sure of."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(10.0))

    def forward(self, x: Tensor) -> Tensor:
        away = self.scale * (x.mean((1, 2, 3)) - 0.5)
        return torch.stack([-away, away], 1)


def greys(*values: float) -> Images:
    pixels = np.array([np.full((1, 2, 2), round(255 * value)) for value in values], np.uint8)
    return Images(ArrayPixels(pixels), np.zeros(len(values), np.int64), ("dark", "bright"))


def test_labels_are_the_model_s_answers_and_none_where_it_is_not_sure() -> None:
    images = greys(0.1, 0.9, 0.52, 0.3)
    labels, confidence = pseudo.label(Brightness(), images, threshold=0.8, batch_size=3)
    assert labels.tolist() == [0, 1, -1, 0]
    shares = torch.sigmoid(20 * (torch.tensor([26, 230, 133, 76]) / 255 - 0.5).abs())
    torch.testing.assert_close(torch.tensor(confidence), shares, atol=1e-5, rtol=1e-5)
    assert pseudo.label(Brightness(), images)[0].tolist() == [0, 1, 1, 0]
    with pytest.raises(UserError, match=r"threshold is a probability, between 0 and 1; got 80"):
        pseudo.label(Brightness(), images, threshold=80)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    images = greys(0.1, 0.9, 0.52)
    pseudo.write_pseudo(tmp_path / "p.npz", images, np.array([0, 1, -1]), np.ones(3))
    found = pseudo.read_pseudo(tmp_path / "p.npz", images)
    assert len(found) == 3
    x, y = found.batch(np.array([2, 0]))
    assert torch.equal(x, images.batch(np.array([2, 0]))[0])
    assert y.tolist() == [-1, 0]


def test_a_file_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    images, path = greys(0.1, 0.9), tmp_path / "p.npz"
    with pytest.raises(UserError, match=r"cannot read pseudo-labelled images from .*none\.npz.*classwise pseudo-label"):
        pseudo.read_pseudo(tmp_path / "none.npz", images)
    np.savez(path, pictures=np.zeros((2, 1, 2, 2)))
    with pytest.raises(UserError, match=r"cannot read pseudo-labelled images"):
        pseudo.read_pseudo(path, images)
    pseudo.write_pseudo(path, images, np.array([0, 2]), np.ones(2))
    with pytest.raises(UserError, match=r"has labels 0…2; expected −1…1"):
        pseudo.read_pseudo(path, images)
    digits = load_data("digits", split="test").subset(limit=3)
    pseudo.write_pseudo(path, digits, np.array([0, 1, 0]), np.ones(3))
    with pytest.raises(UserError, match=r"holds images of shape \(3, 1, 8, 8\).*the data has \(1, 2, 2\) each"):
        pseudo.read_pseudo(path, images)


@pytest.mark.slow
def test_from_the_command_line_to_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher = run(small(tmp_path, "normed", data={"per_class": 30}, method={"name": "standard"}), tmp_path / "teacher")
    out = tmp_path / "extra.npz"
    monkeypatch.setattr(
        sys, "argv",
        ["classwise", "pseudo-label", "--model", str(teacher.best), "--data", "digits", "--split", "test",
         "--limit", "50", "--threshold", "0.4", "--out", str(out), "--trust"],
    )  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    with np.load(out) as made:
        labelled = int((made["labels"] >= 0).sum())
        images = load_data("digits", split="test").subset(50)
        with torch.no_grad():
            answers = teacher.model()(images.batch(np.arange(50))[0]).argmax(1).numpy()
        sure = made["confidence"] >= 0.4
        assert (made["labels"] == np.where(sure, answers, -1)).all()
    assert 0 < labelled < 50
    assert f"{labelled} of 50 images labelled, in {out}." in capsys.readouterr().out

    plain = small(tmp_path, method={"name": "rst", "steps": 2})
    mixed = small(tmp_path, method={"name": "rst", "steps": 2}, data={"extra": str(out), "extra_fraction": 0.25})
    run(plain, tmp_path / "plain")
    done = run(mixed, tmp_path / "mixed")
    assert np.isfinite(done.history["train_loss"]).all()
    a, b = (content(tmp_path / name)["shown"]["0.weight"] for name in ("plain", "mixed"))
    assert not torch.equal(a, b)
