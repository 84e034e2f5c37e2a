"""A black box or a program with a bias on its logits, as a small TOML file that names it.

    model = "/models/net.onnx"           any spec of a black box or a program
    bias = [0.1, -0.2, 0.1]              added to its logits
    normalize = "mean=…,std=…"           where it was queried behind a normalising layer

Of these only an ONNX file is loaded without being trusted: the others run code, or send the images to an address that
whoever wrote the file has chosen.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from classwise.core.errors import UserError
from classwise.core.storage import atomic_write_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SUFFIX = ".toml"


@dataclass(frozen=True)
class BiasedFile:
    """What such a file says."""

    model: str
    bias: tuple[float, ...]
    normalize: str | None = None

    @property
    def runs_code(self) -> bool:
        """Whether loading it may run code or reach an address."""
        return not self.model.partition(",")[0].lower().endswith(".onnx")


def write_biased(path: Path, model: str, bias: Sequence[float], normalize: str | None = None) -> None:
    """Store atomically; the files that the spec names are stored with their whole path."""
    content: dict[str, Any] = {"model": _absolute(model), "bias": [float(value) for value in bias]}
    atomic_write_text(path, tomli_w.dumps(content | ({} if normalize is None else {"normalize": normalize})))


def read_biased(path: Path) -> BiasedFile:
    """What the file says; an error where it is damaged, or something else."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        model, bias, normalize = content["model"], content["bias"], content.get("normalize")
        numbers = tuple(float(value) for value in bias)
        if not isinstance(model, str) or not isinstance(normalize, str | None) or len(numbers) < 2:
            raise ValueError("model must be a spec, bias a list of numbers, one for each class")
        if not all(map(math.isfinite, numbers)):
            raise ValueError(f"bias holds {bias}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is no model file that a repair has written ({type(error).__name__}: {error}). It needs model, a "
            "spec, and bias, one number for each class."
        ) from error
    return BiasedFile(model, numbers, normalize)


def _absolute(spec: str) -> str:
    """The spec with the path of the file that it names made absolute, so that it can be loaded from anywhere."""
    source, comma, settings = spec.partition(",")
    kind, colon, rest = source.partition(":")
    if colon and len(kind) > 1:  # callable:score.py:score, program:net.ts, http://host
        if rest.startswith("//"):
            return spec
        file, again, name = rest.rpartition(":") if kind in ("callable", "sklearn") else (rest, "", "")
        return f"{kind}:{Path(file).resolve()}{again}{name}{comma}{settings}"
    return f"{Path(source).resolve()}{comma}{settings}"
