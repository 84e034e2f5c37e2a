"""The built-in networks: a module of `networks` that has a `build` is one, and its name is the public name."""

from __future__ import annotations

import inspect
import typing
from typing import Any, Literal

import torch
from torch import nn

from classwise.core.errors import UserError
from classwise.core.registry import Registry
from classwise.core.spec import Bounds, check_keys, convert, leading, split
from classwise.models import networks
from classwise.models.networks.cosine import with_cosine_head
from classwise.models.normalize import Normalization, from_options, normalized

_SIZE, _LENGTH = Bounds(least=1, most=10**6), Bounds(least=1, most=2000)  # of layers, and how many there are
_LARGE, _MOST = 2**11, 2**33  # a setting from which on the parameters are counted first, and how many there may be


REGISTRY = Registry(
    kind="model", plural="models", package=networks.__name__, functions=("build",), given=("num_classes",)
)
names, describe, papers = REGISTRY.names, REGISTRY.describe, REGISTRY.papers


def usage(name: str) -> str:
    """The arguments of a network with their defaults."""
    return f"{REGISTRY.usage(name)}, normalize=none, head=linear"


def _separate(written: str) -> tuple[str, str | None]:
    """``wideresnet-34-10`` as its name and the numbers after it."""
    return (written, None) if REGISTRY.knows(written) else leading(written)


def knows(spec: str) -> bool:
    """Whether a spec names a built-in network, or one of an installed package."""
    return REGISTRY.knows(_separate(spec.partition(":")[0].strip())[0])


def construct(
    spec: str, num_classes: int | None = None, in_channels: int | None = None, normalize: Normalization = None
) -> nn.Module:
    """A built-in network from its spec, such as ``wideresnet-34-10`` or ``resnet:width=16,blocks=[1, 1]``.

    What the spec says of channels and classes goes before the arguments; a normalisation given here before the spec's.
    Any network takes ``head=cosine`` instead of its linear last layer.
    """
    written, options = split(spec)
    name, numbers = _separate(written)
    make = REGISTRY.find(name).object
    settings: dict[str, Any] = {**_leading_settings(name, make, numbers), **options}
    for key, value in (("num_classes", num_classes), ("in_channels", in_channels)):
        if value is not None:
            settings.setdefault(key, value)
    head = convert(settings.pop("head", "linear"), Literal["linear", "cosine"], f"{name}.head")
    explicit: dict[str, Any] = {key: settings.pop(key) for key in ("mean", "std") if key in settings}
    named = settings.pop("normalize", None)
    network = _call(name, make, settings)
    network = with_cosine_head(network) if head == "cosine" else network
    if normalize is None:
        normalize = from_options(explicit) if explicit else named
    return normalized(network, normalize)


def _leading_settings(name: str, make: Any, numbers: str | None) -> dict[str, str]:
    """``34-10`` of ``wideresnet-34-10`` as depth and width: the positional parameters in their order."""
    values = numbers.split("-") if numbers else []
    parameters = inspect.signature(make).parameters.values()
    keys = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "num_classes"]
    if len(values) > len(keys):
        takes = " and ".join(keys) or "no number"
        raise UserError(
            f"in {name}-{numbers}: {name} takes {takes} after its name. Write {name}:key=value for the rest."
        )
    return dict(zip(keys, values, strict=False))


def _call(name: str, make: Any, settings: dict[str, Any]) -> nn.Module:
    hints = typing.get_type_hints(make, include_extras=True)
    hints.pop("return")
    check_keys(settings, {**hints, **dict.fromkeys(("normalize", "mean", "std", "head"))}, name)
    if "num_classes" not in settings:
        raise UserError(f"{name} needs num_classes, the number of classes; the data knows it, or pass num_classes=….")
    values = {key: convert(value, hints[key], f"{name}.{key}") for key, value in settings.items()}
    for key, value in values.items():
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, int) and not isinstance(one, bool):
                (_LENGTH if key in ("depth", "blocks") else _SIZE).check(one, f"{name}.{key}")
    if any(isinstance(value, int) and value > _LARGE for value in values.values()):
        _check_room(name, make, values)
    network: nn.Module = make(**values)
    return network


def _check_room(name: str, make: Any, values: dict[str, Any]) -> None:
    """Raise where the network would have more parameters than any machine holds; nothing is allocated to find out."""
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in make(**values).parameters())
    if count > _MOST:
        raise UserError(f"{name} would have {count:.2g} parameters with these settings; make it smaller.")
