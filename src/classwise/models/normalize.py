"""Input normalisation as the first layer, so that every attack sees images in [0,1] and ε stays in pixel units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from classwise.core.errors import UserError, unknown
from classwise.core.spec import check_keys, convert, split
from classwise.data import normalizations

Constants: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]
Normalization: TypeAlias = str | Sequence[Sequence[float]] | None


class Normalize(nn.Module):
    """x ↦ (x − mean) / std, channel by channel; a single value serves every channel."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or not mean or min(std) <= 0:
            raise UserError(
                f"normalisation needs one mean and one positive std for each channel; got {mean} and {std}."
            )
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).reshape(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        if len(self.mean) not in (1, x.shape[1]):
            raise UserError(
                f"the model normalises {len(self.mean)} channels but the images have {x.shape[1]}; "
                "choose a normalisation for this data, or none."
            )
        return (x - self.mean) / self.std


class Normalized(nn.Module):
    """A network behind its normalisation; `features` and `head` are those of the network, `body`."""

    def __init__(self, normalize: Normalize, body: nn.Module) -> None:
        super().__init__()
        self.normalize = normalize
        self.body = body

    @property
    def head(self) -> Any:
        return self.body.head

    def features(self, x: Tensor) -> Any:
        return self.body.features(self.normalize(x))  # type: ignore[operator]

    def forward(self, x: Tensor) -> Any:
        return self.body(self.normalize(x))


def constants(normalize: Normalization) -> Constants | None:
    """(mean, std) from a known name, text such as ``mean=[0.5, 0.5, 0.5],std=[0.2, 0.2, 0.2]`` or two sequences."""
    if normalize is None or (isinstance(normalize, str) and normalize in ("none", "")):
        return None
    if not isinstance(normalize, str):
        try:
            mean, std = (tuple(float(value) for value in part) for part in normalize)
        except (TypeError, ValueError):
            raise UserError(
                f"normalisation is a name or a pair (mean, std) of one number per channel each, got {normalize!r:.80}."
            ) from None
        return mean, std
    if "=" in normalize:
        _, options = split(f"normalize:{normalize}")
        return from_options(options)
    known = normalizations()
    if normalize not in known:
        raise unknown("normalisation", normalize, [*known, "none"])
    return known[normalize]


def from_options(options: dict[str, Any]) -> Constants:
    """(mean, std) from the settings ``mean`` and ``std``, both needed."""
    check_keys(options, {"mean": None, "std": None}, "normalize")
    if len(options) != 2:
        raise UserError(f"normalisation needs both mean and std; got only {', '.join(options)}.")
    mean, std = (convert(options[key], tuple[float, ...], f"normalize.{key}") for key in ("mean", "std"))
    return mean, std


def normalized(network: nn.Module, normalize: Normalization) -> nn.Module:
    """`network` behind the given normalisation, or as it is when there is none."""
    chosen = constants(normalize)
    return network if chosen is None else Normalized(Normalize(*chosen), network)


def normalization_of(model: nn.Module) -> Constants | None:
    """The (mean, std) that classwise's normalising layer applies to a model's input, if it has one."""
    model = getattr(model, "_orig_mod", model)  # torch.compile's wrapper
    if not isinstance(model, Normalized):
        return None
    layer = model.normalize
    return tuple(layer.mean.flatten().tolist()), tuple(layer.std.flatten().tolist())


def agree(one: Constants | None, other: Constants | None, tolerance: float = 1e-3) -> bool:
    """Whether two normalisations are the same up to the digits people print."""
    if one is None or other is None:
        return one is other
    return all(
        len(ours) == len(theirs) and all(abs(a - b) < tolerance for a, b in zip(ours, theirs, strict=True))
        for ours, theirs in zip(one, other, strict=True)
    )
