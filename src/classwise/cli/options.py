"""Settings as options of the command line: their flags, types, defaults and help, in panels by group."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated

import typer
from rich.markup import escape

from classwise.core.settings import REQUIRED, Setting


def option(one: Setting) -> inspect.Parameter:
    """A setting as an option of the command line."""
    several = one.kind == list[str]
    default = inspect.Parameter.empty if one.default is REQUIRED else None if several else one.default
    kind = one.kind if default is not None else one.kind | None
    about = typer.Option(*one.flags, help=escape(one.text), rich_help_panel=one.group.capitalize())
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, about]
    )


def with_options(settings: Iterable[Setting]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for every one of these settings that has flags, besides its own arguments; it is called
    with all of them by name."""

    def give(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            one.replace(kind=one.KEYWORD_ONLY)
            for one in inspect.signature(command, eval_str=True).parameters.values()
            if one.kind is not one.VAR_KEYWORD
        ]
        options = [*own, *(option(one) for one in settings if one.flags)]
        vars(command)["__signature__"] = inspect.Signature(options)
        command.__annotations__ = {one.name: one.annotation for one in options}
        return command

    return give
