"""Settings: the fields of a config's groups, each stated once, with what arguments of Python and options need to know.

@dataclass(frozen=True, kw_only=True)
class ThreatPart(Part):
    norm: Norm = setting("linf", "Norm of the ball: linf or l2.")

settings_of(AuditConfig)["norm"]          its group, type, default, meaning, flags
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from classwise.core.arguments import argument
from classwise.core.spec import check_keys, hints_of, validate_fields

C = TypeVar("C", bound="Config")
F = TypeVar("F", bound=Callable[..., Any])
REQUIRED: Any = dataclasses.MISSING


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting: what is said of it, and the group and field that hold it, with its type and default.

    also: what Python takes besides. option: its flags as they are typed, where they do not follow from its name; "" for
    no option. takes: what the option takes, where that is not what the field is. mode: the only function that has it.
    name: in Python, where that is not the field's. recorded: whether config.toml keeps it.
    """

    text: str
    also: str = ""
    option: str | None = None
    takes: Any = None
    mode: str | None = None
    name: str = ""
    recorded: bool = True
    group: str = ""
    field: str = ""
    hint: Any = None
    default: Any = None

    @property
    def kind(self) -> Any:
        """What the option takes."""
        return self.takes or _plain(self.hint)

    @property
    def flags(self) -> tuple[str, ...]:
        """The option as it is typed; with its opposite, where it is not off by default."""
        name = self.name.replace("_", "-")
        usual = f"--{name}/--no-{name}" if self.kind is bool and self.default is not False else f"--{name}"
        return tuple((usual if self.option is None else self.option).split())

    @property
    def key(self) -> str | None:
        """What config.toml calls it: its option without dashes; None where there is no option."""
        return self.flags[0].partition("/")[0].removeprefix("--").replace("-", "_") if self.flags else None


def setting(default: Any, text: str, **about: Any) -> Any:
    """A field of a group, and what is said of it by the fields of `Setting`."""
    return field(default=default, metadata={"setting": Setting(text=text, **about)})


@dataclass(frozen=True, kw_only=True)
class Part:
    """A group of settings, checked and converted wherever their values come from."""

    def __post_init__(self) -> None:
        validate_fields(self)


class Config:
    """What a command was asked for: a frozen dataclass whose fields are groups of settings."""

    called = "a command"  # in errors about unknown settings

    @classmethod
    def of(cls: type[C], **given: Any) -> C:
        """The config with these settings, by their names in Python."""
        known = settings_of(cls)
        check_keys(given, known, cls.called)
        parts: dict[str, dict[str, Any]] = {name: {} for name in hints_of(cls)}
        for name, value in given.items():
            parts[known[name].group][known[name].field] = argument(value, known[name].hint, name)
        return cls(**{name: hints_of(cls)[name](**values) for name, values in parts.items()})

    def changed(self) -> Iterator[tuple[Setting, Any]]:
        """The settings that are not at their defaults, with their values."""
        for one in settings_of(type(self)).values():
            value = getattr(getattr(self, one.group), one.field)
            if not (isinstance(value, (str, int, float, tuple, type(None))) and value == one.default):
                yield one, value


def settings_of(config: type[Any]) -> Mapping[str, Setting]:
    """Every setting of a config by its name in Python, group by group."""
    found = {}
    for group, part in hints_of(config).items():
        for one in dataclasses.fields(part):
            about: Setting = one.metadata["setting"]
            place = {"group": group, "field": one.name, "hint": hints_of(part)[one.name], "default": one.default}
            name = about.name or one.name
            found[name] = dataclasses.replace(about, name=name, **place)
    return found


def _plain(hint: Any) -> Any:
    """The type of a field without bounds, None and choices: what an option of the command line takes."""
    origin, parts = typing.get_origin(hint), [part for part in typing.get_args(hint) if part is not type(None)]
    if origin is Literal:
        return type(parts[0])
    if origin is Sequence:
        return list[str]
    if Path in parts:
        return Path
    return str if hint is Any else _plain(parts[0]) if parts else hint


def with_settings(config: type[Any] | Mapping[str, Setting], typed: type[Any]) -> Callable[[F], F]:
    """Give a function of ``**settings: Unpack[typed]`` the signature and the documentation of these settings, those of
    a config or some of them."""

    def document(function: F) -> F:
        known = config if isinstance(config, Mapping) else settings_of(config)
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        more = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=known[name].default,
                annotation=getattr(kind, "__forward_arg__", kind),
            )
            for name, kind in typed.__annotations__.items()
        ]
        lines = [f"{one.name}: {known[one.name].text} {known[one.name].also}".strip() for one in (*own, *more)]
        vars(function)["__signature__"] = signature.replace(parameters=[*own, *more])
        function.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", *lines])
        function.__annotations__.pop("settings", None)
        return function

    return document
