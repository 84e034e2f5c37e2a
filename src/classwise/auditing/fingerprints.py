"""Fingerprints of models and data, so that a resumed run cannot mix two of them."""

from __future__ import annotations

import hashlib

import numpy as np
from torch import nn

from classwise.core.records import digest
from classwise.data.images import Images


def fingerprint_model(model: nn.Module) -> str:
    """A hash of every weight and buffer."""
    whole = hashlib.sha256(str(getattr(model, "identity", "")).encode())  # of what has no weights to look at
    for name, tensor in sorted(model.state_dict().items()):
        whole.update(f"{name}{tuple(getattr(tensor, 'shape', ()))}".encode())
        if hasattr(tensor, "detach"):
            whole.update(np.ascontiguousarray(tensor.detach().cpu().float().numpy()).tobytes())
    return whole.hexdigest()


def fingerprint_data(images: Images) -> str:
    """A hash of which examples, their labels, and the pixels of a few of them."""
    few = np.unique(np.linspace(0, len(images) - 1, 8).astype(np.int64))
    parts = (images.positions, images.labels, images.batch(few)[0].cpu().numpy())
    return digest(np.concatenate([np.frombuffer(part.tobytes(), np.uint8) for part in parts]))
