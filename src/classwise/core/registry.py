"""One way to find, describe, list and configure things: attacks, methods, metrics, models, data sets, figures, studies.

    pgd                     a module of the kind's package, if it has what makes it one
    hard.py:Hard            a class or function in a Python file of the user's
    theirs                  an entry point of an installed package, in the group classwise.attacks, classwise.methods, …

What is true of a thing is an attribute of its class, or of the module of its function: no other file lists its name.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
import re
import sys
import typing
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from classwise.core import spec
from classwise.core.errors import UserError, unknown
from classwise.core.user_files import IN_FILE, take

#: The kinds by their plural, and the module in which each is listed.
KINDS = {
    "attacks": "classwise.attacks",
    "datasets": "classwise.data",
    "figures": "classwise.show.figures",
    "methods": "classwise.methods",
    "metrics": "classwise.metrics",
    "models": "classwise.models.registry",
    "recipes": "classwise.training.recipe",
    "studies": "classwise.studies",
    "zoo": "classwise.models.zoo",
}

_names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()  # of what is not in a package of ours


@dataclass(frozen=True)
class Thing:
    """What was found: its name, the class or function itself, and the module it is in."""

    name: str
    object: Any
    module: ModuleType

    def get(self, attribute: str, otherwise: Any = None) -> Any:
        """An attribute of the class or function, or of the module."""
        return getattr(self.object, attribute, getattr(self.module, attribute, otherwise))


@dataclass(frozen=True, kw_only=True)
class Registry:
    """The things of one kind.

    kind, plural: what one is called, and several are. package: its modules are the shipped things, but for the one with
    the kind's own name. functions: one of them makes a module a thing; without any it is the class that the
    module's name spells, MarginPgd of margin_pgd. given: arguments that are not settings. separator: between the words
    of a name. accepts: whether something named by the user is of this kind; expected: what it must be, for the error.
    """

    kind: str
    plural: str
    package: str = ""
    functions: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    separator: str = "_"
    accepts: Callable[[Any], bool] = callable
    expected: str = "a function or class"

    def names(self) -> list[str]:
        """Everything of this kind that is shipped or installed."""
        return sorted({*(name.replace("_", self.separator) for name in self._shipped()), *self._installed()})

    def knows(self, name: str) -> bool:
        """Whether there is one of that name; what a Python file holds is only known once it is run."""
        if match := IN_FILE.fullmatch(name.strip()):
            return Path(match["path"]).is_file()
        return _module_name(name) in self._shipped() or name in self._installed()

    def find(self, name: str) -> Thing:
        """The thing of that name; an error with the near miss where there is none."""
        if match := IN_FILE.fullmatch(name.strip()):
            return self._checked(name.strip(), *take(match["path"], match["name"], self.kind))
        if (key := _module_name(name)) in (shipped := self._shipped()):
            module = importlib.import_module(f"{self.package}.{key}")
            return Thing(key, getattr(module, shipped[key]), module)
        if (entry := self._installed().get(name)) is not None:
            return self._loaded(entry)
        raise unknown(self.kind, name, self.names())

    def describe(self, name: str) -> str:
        """One line about a thing: the first of its module's docstring, or of its own where it is the user's."""
        found = self.find(name)
        own = callable(found.object) and not found.module.__name__.startswith(f"{self.package}.")
        return ((own and inspect.getdoc(found.object)) or inspect.getdoc(found.module) or "").partition("\n")[0]

    def usage(self, name: str) -> str:
        """The settings of a thing with their defaults."""
        return usage(self.find(name).object, self.given)

    def papers(self, name: str) -> tuple[str, ...] | None:
        """`PAPERS` of a thing's module: keys of citing/references.bib, or BibTeX; None where it does not say."""
        found = self.find(name).get("PAPERS")
        return None if found is None else tuple(found)

    def configure(self, name: str, options: Mapping[str, Any]) -> Any:
        """The dataclass of that name with the given fields."""
        return spec.configure(self.find(name).object, options, name)

    def arguments(
        self, function: Callable[..., Any], options: Mapping[str, Any], owner: str, besides: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Settings for a function, converted to the types it annotates, else to those of its defaults.

        besides: settings that the error for an unknown one also names.
        """
        annotated = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
        hints = typing.get_type_hints(annotated, include_extras=True)
        try:
            parameters = inspect.signature(function).parameters
        except ValueError as error:
            raise UserError(f"{owner} is no function or class written in Python ({error}).") from None
        taken = {name: each for name, each in parameters.items() if name not in self.given}
        spec.check_keys(options, {**taken, **dict.fromkeys(besides)}, owner)
        defaults = {name: type(each.default) for name, each in taken.items()}
        kinds = {name: kind if kind in (bool, int, float, str) else Any for name, kind in defaults.items()} | hints
        return {key: spec.convert(value, kinds[key], f"{owner}.{key}") for key, value in options.items()}

    def _shipped(self) -> Mapping[str, str]:
        """What makes a thing of each module of the package that is one; found without importing it."""
        if not self.package:
            return {}
        path = importlib.import_module(self.package).__path__
        return _defined(tuple(path), self.functions, self.kind)

    def _installed(self) -> dict[str, importlib.metadata.EntryPoint]:
        return _entry_points(f"classwise.{self.plural}", _search_path())

    def _loaded(self, entry: importlib.metadata.EntryPoint) -> Thing:
        try:
            found = entry.load()
        except Exception as error:  # theirs may fail in any way
            raise UserError(
                f"the {self.kind} {entry.name!r} of an installed package cannot be loaded from {entry.value}: "
                f"{type(error).__name__}: {error}. Repair or uninstall the package."
            ) from error
        module = importlib.import_module(entry.module)
        if isinstance(found, ModuleType):  # written like one of ours
            found = vars(found).get(_symbol(entry.module.rpartition(".")[2], self.functions, vars(found)))
        return self._checked(entry.name, found, module)

    def _checked(self, name: str, found: Any, module: ModuleType) -> Thing:
        if not self.accepts(found):
            kind = found.__name__ if isinstance(found, type) else type(found).__name__
            raise UserError(f"{name} is no {self.kind}: expected {self.expected}, got {kind}.")
        if isinstance(found, type):
            _names[found] = name
        return Thing(name, found, module)


def _search_path() -> tuple[tuple[str, float], ...]:
    """Where packages are found, and when one was last installed or removed there."""
    places = (Path(place or ".") for place in sys.path)
    return tuple((str(place), place.stat().st_mtime) for place in places if place.exists())


@functools.lru_cache(maxsize=64)
def _entry_points(group: str, path: tuple[tuple[str, float], ...]) -> dict[str, importlib.metadata.EntryPoint]:
    """What installed packages declare, read once: it takes 20 ms, and names are looked up by the hundred."""
    return {entry.name: entry for entry in importlib.metadata.entry_points(group=group)}


def name_of(item: Any) -> str:
    """The name by which the class of an object is found: that of its file, or how the user named it."""
    cls = item if isinstance(item, type) else type(item)
    return _names.get(cls) or str(cls.__module__).rpartition(".")[2]


def usage(function: Callable[..., Any], skip: Collection[str] = ()) -> str:
    """The arguments a function or dataclass takes from a spec, with their defaults: ``steps=20, step=none``."""
    given = [one for one in inspect.signature(function).parameters.values() if one.name not in skip]
    defaults = {one.name: one.default for one in given if one.kind is not one.VAR_KEYWORD}
    return ", ".join(n if v is inspect.Parameter.empty else f"{n}={spec.written(v)}" for n, v in defaults.items())


def _module_name(name: str) -> str:
    return name.strip().replace("-", "_")


def _symbol(module: str, functions: tuple[str, ...], defined: Any) -> str:
    """What makes a module a thing: the first of the functions that it has, or the class that its name spells."""
    spelled = "".join(word.capitalize() for word in module.split("_"))
    return next((name for name in functions or (spelled,) if name in defined), "")


@functools.cache
def _defined(path: tuple[str, ...], functions: tuple[str, ...], kind: str) -> dict[str, str]:
    found = {}
    for info in pkgutil.iter_modules(path):
        located = info.module_finder.find_spec(info.name, None)
        if located is not None and located.origin is not None and info.name != kind:
            source = Path(located.origin).read_text(encoding="utf-8")
            defined = re.findall(r"^(?:class|def) (\w+)", source, flags=re.MULTILINE)
            if symbol := _symbol(info.name, functions, defined):
                found[info.name] = symbol
    return found
