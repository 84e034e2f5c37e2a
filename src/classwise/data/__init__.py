"""Data sets, one file each: a module here that has a `load` is a data set, and its name is the public name."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from pathlib import Path

from classwise.core import spec as specs
from classwise.core.arguments import checked
from classwise.core.errors import UserError, index_of
from classwise.core.registry import Registry
from classwise.data.images import Images, Size
from classwise.data.tensors import from_user

__all__ = [
    "Images",
    "class_names",
    "describe",
    "flips",
    "from_user",
    "load",
    "names",
    "normalizations",
    "papers",
    "size",
    "usage",
]

DEFAULT_ROOT = Path("data")

_VIEWS = ("per_class", "exclude")  # options of any data set

_REGISTRY = Registry(
    kind="data set",
    plural="datasets",
    package=__name__,
    functions=("load",),
    given=("root", "split", "download"),
    expected="a function that returns Images, a pair (x, y) of arrays or a torch Dataset",
)
names, describe = _REGISTRY.names, _REGISTRY.describe
papers, usage = _REGISTRY.papers, _REGISTRY.usage


def class_names(spec: str) -> tuple[str, ...] | None:
    """The classes of a data set as far as they are known without reading its files, else None."""
    name, options = specs.split(spec)
    names: tuple[str, ...] | None = _REGISTRY.find(name).get("CLASS_NAMES")
    if names is None:
        return class_names(specs.nested(options["of"])) if "of" in options else None
    gone = {index_of(text, names, f"class of {name}") for text in _excluded(options)}
    return tuple(known for number, known in enumerate(names) if number not in gone)


def normalizations() -> dict[str, tuple[tuple[float, ...], tuple[float, ...]]]:
    """The usual mean and standard deviation of each channel, of the data sets that say so."""
    declared = {name: _REGISTRY.find(name).get("NORMALIZATION") for name in names()}
    return {name: value for name, value in declared.items() if value is not None}


def size(spec: str) -> Size | None:
    """The size of a data set as far as it is known without reading it; of one made of another, that one's."""
    name, options = specs.split(spec)
    if not _REGISTRY.knows(name):
        return None
    found = _REGISTRY.find(name)
    known: Size | None = size(specs.nested(options["of"])) if "of" in options else found.get("SIZE")
    return known._replace(shape=(3, *known.shape[1:])) if known and found.get("IN_COLOUR") else known


def flips(spec: str) -> bool | None:
    """Whether a mirrored image of a data set is still of its class; None where nobody can know.

    A data set's module says it in `FLIPS`; one that is made of another is as that one.
    """
    name, options = specs.split(spec)
    if not _REGISTRY.knows(name):
        return None
    found = _REGISTRY.find(name)
    of = options.get("of") or getattr(inspect.signature(found.object).parameters.get("of"), "default", None)
    known: bool | None = found.get("FLIPS")
    return flips(specs.nested(of)) if known is None and isinstance(of, str) else known


@checked
def load(spec: str, root: str | Path | None = None, split: str = "test", download: bool = False) -> Images:
    """The images a spec names, such as ``cifar10``, ``folder:resize=32,crop=32`` or ``mine.py:load``.

    Any spec also takes ``per_class=100``, so many images of each class, and ``exclude=[cat, dog]``, which leaves these
    classes out and renumbers the others. Images are drawn first, so the draw of one class does not depend on others.
    root: the folder that holds the data, ``data`` by default.
    download: download files that are missing.
    """
    name, given = specs.split(spec)
    options = {key: value for key, value in given.items() if key not in _VIEWS}
    function = _REGISTRY.find(name).object
    if options and not usage(name):
        raise UserError(f"the data set {name} has no settings; in {spec!r} leave out {', '.join(options)}.")
    arguments = _REGISTRY.arguments(function, options, name, besides=_VIEWS)
    common = {"root": DEFAULT_ROOT if root is None else root, "split": split, "download": download}
    taken = inspect.signature(function).parameters
    loaded = function(**{key: value for key, value in common.items() if key in taken}, **arguments)
    images = loaded if isinstance(loaded, Images) else dataclasses.replace(from_user(loaded), name=name)
    return _viewed(images, given, name)


def _viewed(images: Images, options: Mapping[str, str], name: str) -> Images:
    if "per_class" in options:
        images = images.subset(per_class=specs.convert(options["per_class"], int, f"{name}.per_class"))
    return images.without(_excluded(options)) if "exclude" in options else images


def _excluded(options: Mapping[str, str]) -> list[str]:
    return [name for name in specs.items(options.get("exclude", ""), older=r"\|") if name]
