"""Packages that classwise can work with but does not need: imported where asked for, with what to install if absent."""

from __future__ import annotations

import ast
import contextlib
import importlib
from typing import Any

from classwise.core.errors import UserError


def package(name: str, needed_by: str, module: str | None = None) -> Any:
    """The package, or a module of it; its name is also that of the extra which installs it.

    needed_by: who needs it, with the verb, for the error: "models of timm need".
    """
    try:
        return importlib.import_module(module or name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name:
            raise UserError(f"{name} is installed but lacks a package: {error}. Install that one too.") from error
        raise UserError(f'{needed_by} the package {name}: pip install "classwise[{name.replace("_", "-")}]"') from None
    except Exception as error:  # a build that does not fit this torch fails in many ways
        raise UserError(f"{name} is installed but cannot be imported: {type(error).__name__}: {error}") from error


def literal(text: str) -> Any:
    """A setting for another library as Python writes it: a number, true or false, none, a tuple; else the text."""
    with contextlib.suppress(ValueError, SyntaxError):
        return ast.literal_eval(text.capitalize() if text in ("true", "false", "none") else text)
    return text
