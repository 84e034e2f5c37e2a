"""Pseudo-labelled images for robust self-training (Carmon et al., NeurIPS 2019): one model labels, others train.

A file is a NumPy archive with ``images`` (N, C, H, W), uint8 or in [0,1], ``labels`` (−1: none) and ``confidence``.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from classwise.auditing.inputs import device_of
from classwise.core.errors import UserError
from classwise.core.records import Array
from classwise.core.storage import atomic_write
from classwise.data.arrays import load_archive
from classwise.data.images import ArrayPixels, Images, IntArray


@dataclass(frozen=True)
class PseudoLabelled:
    """Images with labels that a model gave them; −1 where it gave none."""

    pixels: ArrayPixels
    labels: IntArray

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: IntArray) -> tuple[Tensor, Tensor]:
        return self.pixels.read(rows), torch.from_numpy(self.labels[rows])


@torch.no_grad()
def label(
    model: nn.Module, images: Images, threshold: float = 0.0, batch_size: int = 256, device: Any = None
) -> tuple[IntArray, Array]:
    """The model's prediction for every image and its probability; −1 where that is below the threshold."""
    if not 0 <= threshold <= 1:
        raise UserError(f"threshold is a probability, between 0 and 1; got {threshold:g}.")
    model = model.eval() if device is None else model.eval().to(device)
    where = device_of(model)
    found, sure = [], []
    for begin in range(0, len(images), batch_size):
        rows = np.arange(begin, min(begin + batch_size, len(images)))
        confidence, answer = model(images.batch(rows)[0].to(where)).softmax(1).max(1)
        found.append(torch.where(confidence >= threshold, answer, -1).cpu().numpy())
        sure.append(confidence.cpu().numpy())
    return np.concatenate(found), np.concatenate(sure)


def write_pseudo(path: str | Path, images: Images, labels: IntArray, confidence: Array) -> None:
    """Store images, as 8-bit values, with their labels, atomically."""
    pixels = (images.batch(np.arange(len(images)))[0] * 255).round().to(torch.uint8).numpy()
    try:
        with atomic_write(Path(path)) as handle:
            np.savez(handle, images=pixels, labels=labels.astype(np.int64), confidence=confidence)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}. Make room or choose another place."
        ) from error


def read_pseudo(path: str | Path, like: Images) -> PseudoLabelled:
    """The images of a file, which must have the shape and classes of those trained on."""
    try:
        with load_archive(path) as content:
            images, labels = content["images"], content["labels"].astype(np.int64)
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(
            f"cannot read pseudo-labelled images from {path}: {error}. Make the file with `classwise pseudo-label`."
        ) from error
    shape = like.batch(np.arange(1))[0].shape[1:]
    if images.shape[1:] != tuple(shape) or len(images) != len(labels) or not len(labels):
        raise UserError(
            f"{path} holds images of shape {images.shape} and {len(labels)} labels; the data has {tuple(shape)} each."
        )
    if not (images.dtype == np.uint8 or np.issubdtype(images.dtype, np.floating)) or not np.isfinite(images).all():
        raise UserError(f"{path} holds images of {images.dtype} or not finite; expected uint8, or floats in [0,1].")
    if labels.ndim != 1 or labels.min() < -1 or labels.max() >= like.num_classes:
        raise UserError(f"{path} has labels {labels.min()}…{labels.max()}; expected −1…{like.num_classes - 1}.")
    return PseudoLabelled(ArrayPixels(images), labels)
