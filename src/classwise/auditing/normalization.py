"""Whether the model was given the normalisation it was trained with: the usual ones, tried on a few images.

A model behind the wrong normalisation is neither random nor right: its clean accuracy is some way below what it should
be, its robust accuracy far below, and every number of the audit is about another model than the one that was trained.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from classwise.core.format import p_equals, percent
from classwise.data import normalizations
from classwise.data.images import Images
from classwise.models.normalize import Constants, agree, normalization_of
from classwise.results.finding import Finding
from classwise.stats import comparisons

_MOST = 128  # images tried
_BATCH = 64
_FINE = 0.95  # accuracy above which no other normalisation could be much better
_JUMP = 0.05  # of the accuracy, at least, before we speak up
_ALPHA = 0.01  # of the test, over all that is tried
_NONE: Constants = ((0.0,), (1.0,))
_CODE = "normalisation"


def check(model: nn.Module, images: Images, device: torch.device, seed: int) -> Iterator[Finding]:
    """A finding if the model predicts the images better behind another of the usual normalisations, beyond chance.

    Exact McNemar test of the same images, corrected by Bonferroni for the number of normalisations.
    """
    some = images.subset(limit=_MOST, seed=seed)
    given = normalization_of(model)
    right = _correct(model, some, device, given, given)
    if right.mean() >= _FINE:
        return
    others = {text: known for text, known in _usual(some.first(1).shape[1]).items() if not agree(known, given or _NONE)}
    tried = {text: _correct(model, some, device, given, known) for text, known in others.items()}
    best = max(tried, key=lambda text: int(tried[text].sum()))
    before, after = float(right.mean()), float(tried[best].mean())
    only = [np.array(int((one & ~other).sum())) for one, other in ((right, tried[best]), (tried[best], right))]
    p = min(1.0, len(tried) * float(comparisons.mcnemar(*only)))
    if after - before >= _JUMP and p < _ALPHA:
        now = "without a normalisation" if given is None else "with the normalisation it was given"
        yield Finding(
            _CODE,
            "error",
            f"The model looks wrongly normalised: {now} it predicts {percent(before)} of {len(right)} clean images "
            f"correctly, {_called(best)} {percent(after)} ({p_equals(p)}).",
            f"Audit it with --normalize {best} (load_model(…, normalize={best!r})), and do not read the numbers of "
            "this audit: they are about another model than the one that was trained.",
            numbers={"normalize": best, "given": before, "other": after, "images": len(right), "p": p},
        )


def _usual(channels: int) -> dict[str, Constants]:
    """The usual normalisations of images with so many channels, as --normalize takes them."""
    named = {name: known for name, known in normalizations().items() if len(known[0]) == channels}
    return {
        "none": _NONE,
        **named,
        "mean=[0.5],std=[0.5]": ((0.5,), (0.5,)),
        f"mean=[0],std=[{1 / 255:.8f}]": ((0.0,), (1 / 255,)),
    }


def _called(text: str) -> str:
    if text == "none":
        return "without any"
    return f"with that of {text}" if "=" not in text else f"with pixels in {'−1…1' if '0.5' in text else '0…255'}"


def _correct(
    model: nn.Module, images: Images, device: torch.device, given: Constants | None, wanted: Constants | None
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which images the model predicts correctly if its own normalisation, `given`, is undone and `wanted` put first."""
    found = []
    for start in range(0, len(images), _BATCH):
        x, y = (part.to(device) for part in images.batch(np.arange(start, min(start + _BATCH, len(images)))))
        with torch.no_grad():
            logits = model(x if wanted == given else _undone(_applied(x, wanted or _NONE), given or _NONE))
        found.append((logits.argmax(1) == y).cpu().numpy())
    return np.concatenate(found)


def _applied(x: Tensor, constants: Constants) -> Tensor:
    mean, std = (x.new_tensor(part).reshape(-1, 1, 1) for part in constants)
    return (x - mean) / std


def _undone(x: Tensor, constants: Constants) -> Tensor:
    mean, std = (x.new_tensor(part).reshape(-1, 1, 1) for part in constants)
    return x * std + mean
