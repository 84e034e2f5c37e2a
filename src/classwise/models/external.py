"""Models of other libraries, imported only when asked for.

    torchvision:resnet50,weights=DEFAULT      any classifier of torchvision; without weights, untrained
    timm:resnet50.a1_in1k,pretrained=true     any model of timm; other settings go to timm.create_model
    robustbench:cifar10/Linf/Carmon2019Unlabeled

Trained torchvision and timm models expect normalised input: they get the normalisation they were trained with
unless another one (or "none") is asked for. RobustBench's models normalise by themselves. Nothing is fetched when the
weights come from a file.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pooch
from torch import nn

from classwise.core.errors import UserError, unknown
from classwise.core.extras import package
from classwise.core.spec import convert, split
from classwise.models.normalize import Normalization, normalized


@dataclass(frozen=True)
class Wanted:
    """What is asked of a library. `own_weights` says that weights will follow from a file."""

    name: str
    options: dict[str, str]
    num_classes: int | None
    in_channels: int | None
    normalize: Normalization
    own_weights: bool


def load_external(
    spec: str, num_classes: int | None, in_channels: int | None, normalize: Normalization, own_weights: bool
) -> nn.Module:
    """The model of a ``library:name,key=value`` spec."""
    library, _, rest = spec.partition(":")
    name, _, settings = rest.partition(",")
    _, options = split(f"{library}:{settings}")
    if not name:
        raise UserError(f"{spec!r} names no model; write {library}:NAME.")
    return LIBRARIES[library](Wanted(name.strip(), options, num_classes, in_channels, normalize, own_weights))


def _package(name: str, module: str | None = None) -> Any:
    return package(name, f"models of {name} need", module)


def _values(options: dict[str, str]) -> dict[str, Any]:
    """Settings for another library: numbers, true/false and tuples as Python writes them, else text."""
    values: dict[str, Any] = dict(options)
    for key, text in options.items():
        with contextlib.suppress(ValueError, SyntaxError):
            values[key] = ast.literal_eval(text.capitalize() if text in ("true", "false", "none") else text)
    return values


def _create(spec: str, make: Callable[..., nn.Module], settings: dict[str, Any]) -> nn.Module:
    try:
        return make(**settings)
    except Exception as error:  # theirs to say what is wrong with a setting
        raise UserError(f"{spec} cannot be made with {settings}: {type(error).__name__}: {error}") from error


def _torchvision(wanted: Wanted) -> nn.Module:
    models, name, normalize = _package("torchvision", "torchvision.models"), wanted.name, wanted.normalize
    known = models.list_models(module=models)  # classifiers only, not detection or video
    if name not in known:
        raise unknown("torchvision model", name, known)
    if wanted.in_channels not in (None, 3):
        raise UserError(f"torchvision's {name} takes images of 3 channels, the data has {wanted.in_channels}.")
    settings = _values(wanted.options)
    trained = settings.pop("weights", None)
    if trained is not None:
        choices = models.get_model_weights(name).__members__
        if trained not in choices:
            raise unknown(f"weights of torchvision's {name}", str(trained), choices)
        preset = choices[trained].transforms()
        normalize = (preset.mean, preset.std) if normalize is None else normalize
    if trained is not None and not wanted.own_weights:
        settings["weights"] = choices[trained]
    elif wanted.num_classes is not None:
        settings.setdefault("num_classes", wanted.num_classes)
    model = _create(f"torchvision:{name}", models.get_model_builder(name), settings)
    return normalized(model, normalize)


def _timm(wanted: Wanted) -> nn.Module:
    timm, name, normalize = _package("timm"), wanted.name, wanted.normalize
    if not timm.is_model(name):
        raise unknown("timm model", name, timm.list_models())
    settings = _values(wanted.options)
    pretrained = convert(settings.pop("pretrained", False), bool, f"timm:{name}.pretrained")
    if wanted.in_channels is not None:
        settings.setdefault("in_chans", wanted.in_channels)
    fetch = pretrained and not wanted.own_weights
    if wanted.num_classes is not None and not fetch:  # timm would put an untrained head on trained features
        settings.setdefault("num_classes", wanted.num_classes)
    model = _create(f"timm:{name}", timm.create_model, {"model_name": name, "pretrained": fetch, **settings})
    if pretrained and normalize is None:
        config = timm.data.resolve_model_data_config(model)
        normalize = (config["mean"], config["std"])
    return normalized(model, normalize)


def _robustbench(wanted: Wanted) -> nn.Module:
    name, normalize = wanted.name, wanted.normalize
    if wanted.options:
        raise UserError(f"RobustBench's models take no settings; got {', '.join(wanted.options)}.")
    zoo = _package("robustbench", "robustbench.model_zoo").model_dicts
    parts = name.split("/")
    if len(parts) != 3:
        raise UserError(f"write robustbench:DATASET/THREAT/NAME, such as cifar10/Linf/Standard; got {name!r}.")
    for place, kind in enumerate(("data set", "threat model", "model")):
        known = {str(getattr(key, "value", key)): entry for key, entry in zoo.items()}
        if parts[place] not in known:
            raise unknown(f"RobustBench {kind}", parts[place], known)
        zoo = known[parts[place]]
    if wanted.own_weights:
        return normalized(_create(f"robustbench:{name}", zoo["model"], {}), normalize)
    dataset, threat, model_name = parts
    settings = {"model_name": model_name, "dataset": dataset, "threat_model": threat}
    cache = pooch.os_cache("classwise") / "robustbench"
    load = _package("robustbench", "robustbench.utils").load_model
    return normalized(_create(f"robustbench:{name}", load, {**settings, "model_dir": str(cache)}), normalize)


LIBRARIES: dict[str, Callable[[Wanted], nn.Module]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "robustbench": _robustbench,
}
