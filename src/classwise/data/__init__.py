"""Data sets, one file each: a module here that has a `load` is a data set, and its name is the public name."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from classwise.core import spec as specs
from classwise.core.arguments import checked
from classwise.core.errors import UserError, index_of, unknown
from classwise.data.images import Images
from classwise.data.tensors import from_user

__all__ = ["Images", "class_names", "describe", "from_user", "load", "names", "usage"]

DEFAULT_ROOT = Path("data")

_ARGUMENTS = ("root", "split", "download")  # what `load` takes itself; the rest are a data set's own options
_VIEWS = ("per_class", "exclude")  # options of any data set


def names() -> list[str]:
    """The data sets' names, sorted."""
    return sorted(_modules())


def describe(name: str) -> str:
    """What a data set is, in one line."""
    return (inspect.getdoc(_module(name)) or "").split("\n", 1)[0]


def usage(name: str) -> str:
    """A data set's own settings with their defaults."""
    return specs.usage(_module(name).load, skip=_ARGUMENTS)


def class_names(spec: str) -> tuple[str, ...] | None:
    """The classes of a data set as far as they are known without reading it; None where only the files tell."""
    name, options = specs.split(spec)
    names: tuple[str, ...] | None = getattr(_module(name), "CLASS_NAMES", None)
    if names is None:
        return class_names(options["of"]) if "of" in options else None
    gone = {index_of(text, names, f"class of {name}") for text in options.get("exclude", "").split("|") if text}
    return tuple(known for number, known in enumerate(names) if number not in gone)


@checked
def load(spec: str, root: str | Path | None = None, split: str = "test", download: bool = False) -> Images:
    """The images a spec names, such as ``cifar10`` or ``folder:resize=32,crop=32``.

    Any spec may also ask for ``per_class=100``, so many of each class, and then for ``exclude=cat|dog``, without these
    classes and the others numbered anew. In that order, so that what is drawn of a class is the same without another.
    root: the folder that holds the data, ``data`` by default.
    download: fetch what is not there.
    """
    name, given = specs.split(spec)
    options = {key: value for key, value in given.items() if key not in _VIEWS}
    function = _module(name).load
    kinds = {key: kind for key, kind in typing.get_type_hints(function).items() if key not in (*_ARGUMENTS, "return")}
    if options and not kinds:
        raise UserError(f"the data set {name} has no settings; in {spec!r} leave out {', '.join(options)}.")
    specs.check_keys(options, {**kinds, **dict.fromkeys(_VIEWS)}, name)
    arguments = {key: specs.convert(value, kinds[key], f"{name}.{key}") for key, value in options.items()}
    images: Images = function(DEFAULT_ROOT if root is None else root, split=split, download=download, **arguments)
    return _viewed(images, given, name)


def _viewed(images: Images, options: Mapping[str, str], name: str) -> Images:
    if "per_class" in options:
        images = images.subset(per_class=specs.convert(options["per_class"], int, f"{name}.per_class"))
    return images.without(options["exclude"].split("|")) if "exclude" in options else images


def _module(name: str) -> ModuleType:
    try:
        return _modules()[name]
    except KeyError:
        raise unknown("data set", name, _modules()) from None


@functools.cache
def _modules() -> dict[str, ModuleType]:
    found = (importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
    return {module.__name__.rpartition(".")[2]: module for module in found if hasattr(module, "load")}
