"""Models saved as programs: TorchScript archives and torch.export archives.

A program is code: load it, like a Python file, only if you trust where it comes from.
"""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from classwise.core.errors import UserError

Kind = Literal["torchscript", "exported"]
T = TypeVar("T", bound=nn.Module)


def kind_of_program(path: Path) -> Kind | None:
    """The kind of program a file is, by its contents, or None."""
    try:
        if not zipfile.is_zipfile(path):
            return None
        with zipfile.ZipFile(path) as archive:
            members = {name.rpartition("/")[2] for name in archive.namelist()}
    except (zipfile.BadZipFile, UnicodeDecodeError, NotImplementedError, OSError):  # a damaged directory of the archive
        return None
    if members & {"archive_format", "serialized_exported_program.json"}:
        return "exported"
    return "torchscript" if "constants.pkl" in members else None


class Exported(nn.Module):
    """An exported program as a module. Its mode was fixed when it was exported, so train() and eval() do nothing."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        super().__init__()
        self.program = program.module()
        for module in self.modules():
            module.training = False

    def train(self: T, mode: bool = True) -> T:
        return self

    def forward(self, x: Tensor) -> Any:
        return self.program(x)


def load_program(path: Path) -> nn.Module:
    """The model of a TorchScript or torch.export file, on the CPU. Runs code: the caller has checked that it may."""
    if not path.is_file():
        raise UserError(f"no program {str(path)!r}. Check the path.")
    try:
        if kind_of_program(path) == "exported":
            return _exported(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about TorchScript being deprecated; many models are still saved so
            return torch.jit.load(path, map_location="cpu")  # type: ignore[no-untyped-call, no-any-return]
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"cannot load the program {path}: {type(error).__name__}: {error}") from error


def _exported(path: Path) -> Exported:
    program = torch.export.load(path)
    inputs = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in inputs and isinstance(node.meta["val"].shape[0], int):
            raise UserError(
                f"{path} was exported for batches of exactly {node.meta['val'].shape[0]}. Export it from two or more "
                "images with a free batch size: dynamic_shapes=({0: torch.export.Dim('batch')},)."
            )
    return Exported(program)
