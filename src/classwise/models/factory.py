"""Models from a Python file of the user's: ``path/to/file.py:factory``, with settings after commas."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from classwise.core.errors import UserError, unknown
from classwise.core.user_files import import_file, importing_from
from classwise.models.registry import REGISTRY


def load_factory(where: str, settings: Mapping[str, str], **arguments: Any) -> nn.Module:
    """What ``file.py:name`` makes, called with its settings and those of the `arguments` that its signature names."""
    path, name = Path(where.rpartition(":")[0]), where.rpartition(":")[2]
    if not path.is_file():
        raise UserError(f"no Python file {str(path)!r} to take the model {name!r} from.")
    with importing_from(path.resolve().parent):
        try:
            module = import_file(path)
            factory = getattr(module, name, None)
            made = isinstance(factory, nn.Module) or factory is None
            model = factory if made else _call(factory, where, settings, arguments)
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            raise UserError(f"{where} failed: {type(error).__name__}: {error}") from error
    if factory is None:
        own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise unknown(f"function or class of {path.name}", name, own)
    if not isinstance(model, nn.Module):
        raise UserError(f"{where} returned a {type(model).__name__}, expected a torch.nn.Module.")
    return model


def _call(factory: Any, where: str, settings: Mapping[str, str], arguments: dict[str, Any]) -> Any:
    if not callable(factory):
        raise UserError(f"{where} is a {type(factory).__name__}, expected a function or class that makes the model.")
    parameters = inspect.signature(factory).parameters
    given = {key: value for key, value in arguments.items() if key in parameters and value is not None}
    given |= REGISTRY.arguments(factory, settings, where)
    named = [p for p in parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    needed = [p.name for p in named if p.default is p.empty and p.name not in given]
    if needed:
        raise UserError(
            f"{where} needs {', '.join(needed)}. classwise passes num_classes and in_channels when it knows them; "
            "give the other parameters a default."
        )
    return factory(**given)
