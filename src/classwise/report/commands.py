"""The settings of a run as the command that would ask for them again.

A run folder records what was run, not where weights and data lay; those are left to the reader as WEIGHTS and DIR, and
a black box as MODEL.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from typing import Any

from classwise.records import CLEAN
from classwise.results import Audit

_DEFAULTS = {"norm": "linf", "protocol": "any", "seed": 0, "eot": 1, "amp": None}
#: Models that bring their weights: files, and those of a library that were asked for trained.
_TRAINED = re.compile(
    r".+\.(pt|pth|ts|pt2|ckpt|tar|safetensors|bin|pkl)"
    r"|robustbench:.+"
    r"|(torchvision|timm):.*\b(weights=|pretrained=true).*",
    re.IGNORECASE,
)
#: A black box is remembered by what it said of itself, which is no spec.
_BLACK_BOX = re.compile(r".+ shape=.+ scores=\S+")


def of_audit(audit: Audit) -> str | None:
    """``classwise audit …`` with the recorded settings; None where the folder says nothing of them."""
    config = audit.config
    if not config:
        return None
    asked, data = config.get("audit", {}), config.get("data", {})
    model = str(config.get("model", {}).get("spec", "MODEL"))
    parts = ["classwise", "audit", "--model", model]
    if _BLACK_BOX.fullmatch(model):
        parts[-1] = "MODEL"
    elif not _TRAINED.fullmatch(model):
        parts += ["--weights", "WEIGHTS"]
    parts += ["--data", str(data.get("name", "DATA")), "--root", "DIR"]
    families: dict[str, list[float]] = {}
    for name, settings in config.get("attacks", {}).items():
        if name != CLEAN:
            families.setdefault(_spec(name, settings), []).append(settings.get("eps", asked.get("eps", 0.0)))
    for spec in families:
        parts += ["--attack", spec]
    radii = sorted({eps for own in families.values() for eps in own})
    parts += ["--eps", ",".join(radius(eps) for eps in radii) or radius(asked.get("eps", 0.0))]
    for key, usual in _DEFAULTS.items():
        if asked.get(key, usual) != usual:
            parts += [f"--{key}", str(asked[key])]
    if asked.get("coverage", "all") != "all":
        parts += ["--coverage", str(asked["coverage"])]
    parts += ["--save-adversarial"] if asked.get("save_adversarial") else []
    parts += ["--out", str(audit.folder)] if audit.folder is not None else []
    return shlex.join(parts)


def radius(eps: float) -> str:
    """8/255 where it is one, a plain number otherwise."""
    levels = 255 * eps
    whole = round(levels)
    return f"{whole}/255" if whole and math.isclose(levels, whole, rel_tol=1e-6) else f"{eps:g}"


def _spec(name: str, settings: Mapping[str, Any]) -> str:
    kind = str(settings.get("name", name))
    plain = {key: value for key, value in settings.items() if key not in ("name", "eps")}
    return f"{kind}:" + ",".join(f"{key}={_text(value)}" for key, value in plain.items()) if plain else kind


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return (
        "-".join(map(_text, value))
        if isinstance(value, list)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
