"""A data set to take CIFAR-10's place where it is not at hand: scikit-learn's digits, made hard.

Every image is a digit enlarged to 24×24, put anywhere on a 32×32 colour canvas in a random colour, faint, under
noise. That leaves a small network about as unsure as CIFAR-10 does, so that some examples break at once, some late
and some never, which is what the cost of an audit depends on. Train and test images come from different digits. The
files have CIFAR-10's layout, so that everything after this file is the same as with the real ones.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from classwise.data import load as load_data
from classwise.data.images import Images

NAME = "digits of scikit-learn, enlarged, shifted, faint and noisy, 32×32 colour (a stand-in for CIFAR-10)"

_SIDE, _DIGIT = 32, 24
_TRAIN_FILES = tuple(f"data_batch_{number}" for number in range(1, 6))
_PER_TRAIN_FILE, _TEST = 2_000, 10_000
_CONTRAST, _NOISE = (0.1, 0.4), 0.08  # range of the digit's strength; standard deviation of the noise


def write(root: Path, seed: int = 0) -> tuple[str, ...]:
    """Make the data set under `root`; returns its class names, which CIFAR-10's files do not hold."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True, exist_ok=True)
    train, test = load_data("digits", split="train"), load_data("digits", split="test")
    rng = np.random.default_rng(seed)
    for file in _TRAIN_FILES:
        _write_batch(folder / file, train, _PER_TRAIN_FILE, rng)
    _write_batch(folder / "test_batch", test, _TEST, rng)
    return test.class_names


def _write_batch(path: Path, digits: Images, count: int, rng: np.random.Generator) -> None:
    rows = rng.integers(len(digits), size=count)
    small, labels = digits.batch(rows)
    large = F.interpolate(small, (_DIGIT, _DIGIT), mode="bilinear", align_corners=False)
    canvas = torch.zeros(count, 1, _SIDE, _SIDE)
    corners = rng.integers(_SIDE - _DIGIT + 1, size=(count, 2))
    for image, digit, (top, left) in zip(canvas, large, corners.tolist(), strict=True):
        image[:, top : top + _DIGIT, left : left + _DIGIT] = digit
    strength = rng.uniform(*_CONTRAST, size=(count, 3, 1, 1)) * rng.choice((-1, 1), size=(count, 1, 1, 1))
    noise = _NOISE * rng.standard_normal((count, 3, _SIDE, _SIDE), dtype=np.float32)
    pixels = np.clip(0.5 + strength.astype(np.float32) * canvas.numpy() + noise, 0, 1)
    content = {"data": np.rint(255 * pixels).astype(np.uint8).reshape(count, -1), "labels": labels.tolist()}
    path.write_bytes(pickle.dumps(content, protocol=2))
