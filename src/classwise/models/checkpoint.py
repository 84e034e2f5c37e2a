"""classwise's own checkpoints: the weights, and all it takes to build the model again.

    {"classwise": {"format": 1, "model": spec, "num_classes": …, "in_channels": …, "normalize": [mean, std] or None,
                   "logit_bias": [b, …] where there is one, "extra": {…}, "digest": SHA-256 of all the rest},
     "state_dict": …}

Only tensors and plain values, so `torch.load(path, weights_only=True)` reads it anywhere. The digest is checked when it
is read: a flipped bit is an error, not another model. Checkpoints written before there was one are read without.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from classwise.core.errors import UserError
from classwise.core.storage import atomic_write
from classwise.models.logit_bias import bias_of
from classwise.models.normalize import constants, normalization_of
from classwise.models.programs import kind_of_program
from classwise.models.reading import read_file
from classwise.models.zoo import checkpoint as in_zoo

FORMAT = 2  # of checkpoints with a logit bias, which older versions would leave out; of all others 1


def save_checkpoint(
    path: str | Path, model: nn.Module, spec: str, num_classes: int, in_channels: int, **extra: Any
) -> None:
    """Store `model` atomically. `extra` may hold tensors and plain values."""
    _check_plain(extra, "extra")
    model, bias = bias_of(model)
    normalize = normalization_of(model)
    header = {
        "format": 1 if bias is None else FORMAT,
        "model": _root(str(spec)),
        "num_classes": num_classes,
        "in_channels": in_channels,
        "normalize": None if normalize is None else [list(part) for part in normalize],
        **({} if bias is None else {"logit_bias": bias}),
        "extra": extra,
    }
    write_checkpoint(Path(path), header, {"state_dict": model.state_dict()})


def write_checkpoint(path: Path, header: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Store a header, with its digest, and the weights that `content` holds."""
    state = content["state_dict"]
    sealed = {**header, "digest": digest(header, state)}
    with atomic_write(path) as handle:
        torch.save({"classwise": sealed, "state_dict": state}, handle)


def digest(header: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    """SHA-256 of all that a checkpoint holds, but for the digest itself."""
    whole = hashlib.sha256()
    _add(whole, {name: value for name, value in header.items() if name != "digest"})
    _add(whole, state)
    return whole.hexdigest()


def _add(whole: hashlib._Hash, value: Any) -> None:
    """Hash every value with its type and length, so that different contents never hash the same bytes."""
    if isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        whole.update(f"{value.dtype}{tuple(value.shape)}".encode())
        whole.update(flat.view(torch.uint8).numpy().data)
    elif isinstance(value, Mapping):
        whole.update(f"{{{len(value)}".encode())
        for name, item in value.items():
            _add(whole, name)
            _add(whole, item)
    elif isinstance(value, (list, tuple)):
        whole.update(f"[{len(value)}".encode())
        for item in value:
            _add(whole, item)
    else:
        text = repr(value).encode()
        whole.update(f"{type(value).__name__}{len(text)}".encode() + text)


def _root(spec: str) -> str:
    """The spec of the network itself: for a checkpoint, by its path or of the zoo, the one stored in it."""
    path = in_zoo(spec)
    if not path.is_file() or kind_of_program(path) is not None:
        return spec
    return str(read_checkpoint(path)["classwise"]["model"])


def _check_plain(value: Any, where: str) -> None:
    """Refuse what `weights_only=True` could not read back, before it is written."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_plain(item, f"{where}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            _check_plain(item, f"{where}[{place}]")
    elif value is not None and type(value) not in (bool, int, float, str) and not isinstance(value, Tensor):
        raise TypeError(f"{where} is a {type(value).__name__}; a checkpoint holds only tensors and plain values.")


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """The whole content of a checkpoint of classwise, header under "classwise"; an error for any other file."""
    content = read_file(path)
    header = content.get("classwise") if isinstance(content, dict) else None
    if not isinstance(header, dict) or "format" not in header:
        raise UserError(
            f"{path} holds weights but not which model they belong to. "
            f"Name the model and give this file as its weights: --model resnet-18 --weights {path}"
        )
    if isinstance(header["format"], int) and header["format"] > FORMAT:
        raise UserError(f"{path} was written by a newer classwise (format {header['format']}): upgrade classwise.")
    if defect := _find_defect(header, content.get("state_dict")):
        raise UserError(f"the checkpoint {path} is incomplete or damaged: {defect}. Copy or train it again.")
    if header.get("digest", "") not in ("", digest(header, content["state_dict"])):
        raise UserError(
            f"the checkpoint {path} is damaged: its weights are not those that were written (their digest differs). "
            "Copy or train it again."
        )
    return dict(content)


def trained_threat(header: Mapping[str, Any]) -> tuple[str, float] | None:
    """The norm and radius that the model of a checkpoint was trained against, where it says so."""
    threat = _training_threat(header)
    if threat is None or not isinstance(threat.get("eps"), float):
        return None
    return str(threat.get("norm")), threat["eps"]


def adversarially_trained(header: Mapping[str, Any]) -> bool | None:
    """Whether the model of a checkpoint was trained against any threat; None where it does not say."""
    threat = _training_threat(header)
    return None if threat is None else bool(threat)


def _training_threat(header: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a training says it was against, which is empty where its method attacks nothing."""
    extra = header.get("extra")
    training = extra.get("training") if isinstance(extra, Mapping) else None
    threat = training.get("threat") if isinstance(training, Mapping) else None
    return threat if isinstance(threat, Mapping) else None


def _find_defect(header: Mapping[str, Any], state: Any) -> str | None:
    """What a header lacks; None where it is complete."""
    for name, kind in (("format", int), ("model", str), ("num_classes", int), ("in_channels", int)):
        if not isinstance(header.get(name), kind):
            return f"its header has no {name}"
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        return "it holds no weights (state_dict)"
    try:
        constants(header.get("normalize"))
    except UserError:
        return f"its normalisation is {header['normalize']!r}"
    bias = header.get("logit_bias")
    if bias is not None and not _is_bias(bias, header["num_classes"]):
        return f"its logit bias is {bias!r:.80}"
    return None


def _is_bias(bias: Any, classes: int) -> bool:
    """Whether it is a list of one finite number for each class."""
    numbers = isinstance(bias, (list, tuple)) and all(isinstance(value, float) for value in bias)
    return numbers and len(bias) == classes and all(map(math.isfinite, bias))
