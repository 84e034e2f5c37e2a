"""Models of other libraries, which are imported only when needed.

    torchvision:resnet50,weights=DEFAULT      any classifier of torchvision; without weights, untrained
    timm:resnet50.a1_in1k,pretrained=true     any model of timm; other settings go to timm.create_model
    robustbench:cifar10/Linf/Carmon2019Unlabeled
    hf:google/vit-base-patch16-224            classifiers and CLIP of transformers (`models.huggingface`)

Trained torchvision and timm models expect normalised input: they get the normalisation they were trained with
unless another one (or "none") is given. RobustBench's and transformers' models normalise by themselves. Nothing is
fetched when the weights come from a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pooch
from torch import nn

from classwise.core.errors import UserError, check_known, lookup, unknown
from classwise.core.extras import literal, package
from classwise.core.spec import convert, split
from classwise.models import huggingface
from classwise.models.normalize import Normalization, normalized

PAPERS = {"hf": ("wolf2020transformers",), "robustbench": ("croce2021robustbench",)}

Settings: TypeAlias = dict[str, Any]
#: A model and the normalisation it was trained with, where the library knows it.
Made: TypeAlias = tuple[nn.Module, Normalization]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is wanted of a model: its outputs and channels, where they are known, and the names of the classes.

    fetch: with the weights that the spec names; else they will be loaded from a file.
    """

    num_classes: int | None = None
    in_channels: int | None = None
    class_names: Sequence[str] = ()
    fetch: bool = True


def load_external(spec: str, wanted: Wanted, normalize: Normalization) -> nn.Module:
    """The model of a ``library:name,key=value`` spec, behind its normalisation."""
    library, _, rest = spec.partition(":")
    name, _, settings = rest.partition(",")
    _, options = split(f"{library}:{settings}")
    if not name:
        raise UserError(f"{spec!r} names no model; write {library}:NAME.")
    values = {key: literal(text) for key, text in options.items()}
    model, trained_with = LIBRARIES[library](name.strip(), values, wanted)
    return normalized(model, trained_with if normalize is None else normalize)


def _package(name: str, module: str | None = None) -> Any:
    return package(name, f"models of {name} need", module)


def _create(spec: str, make: Callable[..., nn.Module], settings: Settings) -> nn.Module:
    try:
        return make(**settings)
    except Exception as error:  # theirs to say what is wrong with a setting
        raise UserError(f"{spec} cannot be made with {settings}: {type(error).__name__}: {error}") from error


def _torchvision(name: str, settings: Settings, wanted: Wanted) -> Made:
    models = _package("torchvision", "torchvision.models")
    known = models.list_models(module=models)  # classifiers only, not detection or video
    check_known("torchvision model", known, name)
    if wanted.in_channels not in (None, 3):
        raise UserError(f"torchvision's {name} takes images of 3 channels, the data has {wanted.in_channels}.")
    trained, weights = settings.pop("weights", None), None
    if trained is not None:
        choices = models.get_model_weights(name).__members__
        weights = lookup(f"weights of torchvision's {name}", str(trained), choices)
    if weights is not None and wanted.fetch:
        settings["weights"] = weights
    elif wanted.num_classes is not None:
        settings.setdefault("num_classes", wanted.num_classes)
    model = _create(f"torchvision:{name}", models.get_model_builder(name), settings)
    preset = None if weights is None else weights.transforms()
    return model, None if preset is None else (preset.mean, preset.std)


def _timm(name: str, settings: Settings, wanted: Wanted) -> Made:
    timm = _package("timm")
    if not timm.is_model(name):
        raise unknown("timm model", name, timm.list_models())
    pretrained = convert(settings.pop("pretrained", False), bool, f"timm:{name}.pretrained")
    fetch = wanted.fetch and pretrained
    if wanted.in_channels is not None:
        settings.setdefault("in_chans", wanted.in_channels)
    if wanted.num_classes is not None and not fetch:  # timm would put an untrained head on trained features
        settings.setdefault("num_classes", wanted.num_classes)
    model = _create(f"timm:{name}", timm.create_model, {"model_name": name, "pretrained": fetch, **settings})
    config = timm.data.resolve_model_data_config(model) if pretrained else None
    return model, None if config is None else (config["mean"], config["std"])


def _robustbench(name: str, settings: Settings, wanted: Wanted) -> Made:
    if settings:
        raise UserError(f"RobustBench's models take no settings; got {', '.join(settings)}.")
    zoo = _package("robustbench", "robustbench.model_zoo").model_dicts
    parts = name.split("/")
    if len(parts) != 3:
        raise UserError(f"write robustbench:DATASET/THREAT/NAME, such as cifar10/Linf/Standard; got {name!r}.")
    for part, kind in zip(parts, ("data set", "threat model", "model"), strict=True):
        known = {str(getattr(key, "value", key)): entry for key, entry in zoo.items()}
        zoo = lookup(f"RobustBench {kind}", part, known)
    if not wanted.fetch:
        return _create(f"robustbench:{name}", zoo["model"], {}), None
    dataset, threat, model_name = parts
    named = {"model_name": model_name, "dataset": dataset, "threat_model": threat}
    cache = pooch.os_cache("classwise") / "robustbench"
    load = _package("robustbench", "robustbench.utils").load_model
    return _create(f"robustbench:{name}", load, {**named, "model_dir": str(cache)}), None


def _hf(name: str, settings: Settings, wanted: Wanted) -> Made:
    if wanted.in_channels not in (None, 1, 3):
        raise UserError(f"hf:{name} takes images of 1 or 3 channels, the data has {wanted.in_channels}.")
    transformers, revision = _package("transformers"), settings.pop("revision", None)
    named = huggingface.Named(transformers=transformers, name=name, revision=revision, fetch=wanted.fetch)
    try:
        return huggingface.load(named, settings, wanted.num_classes, wanted.class_names), None
    except UserError:
        raise
    except Exception as error:  # theirs to say what is wrong with a name or a file
        raise UserError(f"hf:{name} cannot be loaded: {type(error).__name__}: {error}") from error


LIBRARIES: dict[str, Callable[[str, Settings, Wanted], Made]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "robustbench": _robustbench,
    "hf": _hf,
}
