"""The help of every command shows all that was written, and every option says something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text
from typer.main import get_command

from classwise.cli.main import app


def commands(group: Any, name: str = "classwise") -> Iterator[tuple[str, Any]]:
    yield name, group
    for own, command in getattr(group, "commands", {}).items():
        yield from commands(command, f"{name} {own}")


def help_texts() -> Iterator[tuple[str, str]]:
    for name, command in commands(get_command(app)):
        yield name, command.help or ""
        yield from ((f"{name} {option.name}", getattr(option, "help", None) or "") for option in command.params)


def test_no_text_is_lost_as_markup() -> None:
    lost = {name: text for name, text in help_texts() if Text.from_markup(text).plain != text}
    assert not lost


def test_every_command_and_option_says_something() -> None:
    assert not [name for name, text in help_texts() if not text.strip()]
