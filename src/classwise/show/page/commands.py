"""The settings of a run as the command that asks for them again.

A run folder records what was given (`[command]` of its config.toml). What no command can give, because it was a Python
object, is left to the reader in capitals: MODEL, DATA, ATTACK, EPS. Folders written before that was recorded say what
was run, not where weights and data lay: WEIGHTS and DIR.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from classwise.core.records import CLEAN
from classwise.core.spec import exact, written
from classwise.results.audit_result import Audit

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
    """``classwise audit …`` with the recorded settings; None where the folder does not say, or no command can."""
    if not audit.config:
        return None
    given = audit.config.get("command")
    if given is None:
        parts = list(_reconstructed(audit.config))
    elif "class_names" in given.get("only_in_python", ()):
        return None
    else:
        parts = list(_recorded(given, audit.config))
    out = ["--out", str(audit.folder)] if audit.folder is not None else []
    return shlex.join(["classwise", "audit", *parts, *out])


def _recorded(given: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    """The options as they were given, in the order of the file."""
    known: dict[str, Any] = {str(name): str(name).upper() for name in given.get("only_in_python", ())}
    known |= {name: value for name, value in given.items() if name not in ("only_in_python", "coverage")}
    known["coverage"] = config.get("audit", {}).get("coverage")  # not the same default for every attack
    if known.get("confidence") == 0.95:
        del known["confidence"]
    if known.get("find_worst"):
        del known["coverage"]
    yield from words(known)


def words(given: Mapping[str, Any]) -> Iterator[str]:
    """Settings by the names that config.toml gives their options, as words of a command."""
    for name, value in given.items():
        yield from _option(name, value)


def _option(name: str, value: Any) -> Iterator[str]:
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        yield option if value else f"--no-{option[2:]}"
    elif isinstance(value, list):
        for item in value:
            yield from _option(name, item)
    elif value is not None:
        text = repr(value) if isinstance(value, float) else str(value)
        yield from ([f"{option}={text}"] if text.startswith("-") else [option, text])


def _reconstructed(config: Mapping[str, Any]) -> Iterator[str]:
    """The options of a run whose folder says only what was run."""
    asked, data = config.get("audit", {}), config.get("data", {})
    model = str(config.get("model", {}).get("spec", "MODEL"))
    yield from _option("model", "MODEL" if _BLACK_BOX.fullmatch(model) else model)
    if not _BLACK_BOX.fullmatch(model) and not _TRAINED.fullmatch(model):
        yield from _option("weights", "WEIGHTS")
    yield from ("--data", str(data.get("name", "DATA")), "--root", "DIR")
    families: dict[str, list[float]] = {}
    for name, settings in config.get("attacks", {}).items():
        if name != CLEAN:
            families.setdefault(_spec(name, settings), []).append(settings.get("eps", asked.get("eps", 0.0)))
    yield from _option("attack", list(families))
    radii = sorted({eps for own in families.values() for eps in own})
    yield from _option("eps", ",".join(radius(eps) for eps in radii) or radius(asked.get("eps", 0.0)))
    for key, usual in _DEFAULTS.items():
        if asked.get(key, usual) != usual:
            yield from _option(key, asked[key])
    if asked.get("coverage", "all") != "all":
        yield from _option("coverage", asked["coverage"])
    if asked.get("save_adversarial"):
        yield "--save-adversarial"


def radius(eps: Any) -> str:
    """A radius as it was written, or as text that reads back as the very same number."""
    return eps if isinstance(eps, str) else exact(eps)


def _spec(name: str, settings: Mapping[str, Any]) -> str:
    """The spec of an attack from its settings. Transfer's surrogates are named by its model and weights."""
    kind = str(settings.get("name", name))
    plain = {key: value for key, value in settings.items() if key not in ("name", "eps", "surrogates")}
    if kind == "foreign_attacks":
        options = f",{plain['options']}" if plain.get("options") else ""
        return f"{plain.get('source')}:{plain.get('attack')}{options}"
    return f"{kind}:" + ",".join(f"{key}={written(value)}" for key, value in plain.items()) if plain else kind
