"""Tensors out of files of any origin. Only tensors and plain values are ever unpickled: no file runs code here."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from classwise.core.errors import UserError
from classwise.models import zoo
from classwise.models.programs import kind_of_program

State = dict[str, Tensor]

# Where checkpoints keep the weights, in order of preference: the trained ones before their average.
WRAPPERS = ("state_dict", "model_state_dict", "model", "net", "network", "weights", "params", "module")
AVERAGES = ("state_dict_ema", "ema_state_dict", "model_ema", "ema")


def read_file(path: str | Path) -> Any:
    """The content of a torch or safetensors file, or of ``zoo:NAME``, on the CPU; one with code in it is refused."""
    path = zoo.checkpoint(path)
    if not path.is_file():
        raise UserError(f"no weights file {str(path)!r}. Check the path; weights are .pt, .pth or .safetensors files.")
    if kind_of_program(path) is not None:
        raise UserError(f"{path} is a saved program, not weights: give it as the model itself.")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        _check_sums(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols; what cannot be read raises anyway
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch and safetensors raise anything for what is cut short or something else
        if found := re.search(r"GLOBAL ([\w.]+)", str(error)):
            raise UserError(
                f"{path} holds the Python object {found[1]}. Loading it would run code from the file, so it was not "
                "opened. If you trust it, save only its weights: torch.save(model.state_dict(), 'weights.pt')."
            ) from None
        if "legacy .tar format" in str(error):
            raise UserError(
                f"{path} is in the tar format of PyTorch before 0.1.10, which cannot be read without running its code. "
                "Load and save it again with a newer PyTorch."
            ) from None
        raise UserError(
            f"cannot read weights {path}: the file is cut short, damaged or not a weights file "
            f"({type(error).__name__}: {_first_line(error)}). Copy or download it again."
        ) from error


def _check_sums(path: Path) -> None:
    """Raise where an entry of a zip archive does not match its checksum; torch itself does not check."""
    if not zipfile.is_zipfile(path):
        return  # before torch 1.6 there was no archive, and no sum to check
    with zipfile.ZipFile(path) as archive:
        known = any(entry.CRC for entry in archive.infolist())  # torch can be told to write none
        if known and (damaged := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong: the file is damaged")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["end of file"])[0][:160]


def read_state(path: str | Path) -> State:
    """The weights in a file, by name, out of whatever checkpoint dictionary holds them."""
    content = read_file(path)
    state = _unwrap(content)
    header = content.get("classwise") if isinstance(content, Mapping) else None
    if isinstance(header, Mapping) and header.get("logit_bias") is not None:
        raise UserError(
            f"{path} adds a bias to the logits of its network, which its weights alone would leave out. Give it as the "
            f"model: --model {path}"
        )
    if state is None:
        keys = ", ".join(map(repr, content)) if isinstance(content, Mapping) else type(content).__name__
        raise UserError(
            f"no weights found in {path}: it holds {keys}. Expected a state dict, or one under "
            f"{', '.join(map(repr, WRAPPERS[:4]))} …; save model.state_dict() alone."
        )
    return state


def _unwrap(content: Any) -> State | None:
    if not isinstance(content, Mapping):
        return None
    for name in (*WRAPPERS, *AVERAGES):
        if (state := _unwrap(content.get(name))) is not None:
            return state
    return {str(name): value for name, value in content.items() if isinstance(value, Tensor)} or None
