"""A CPU that is treated as a GPU, and a count of what would make the host wait for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from classwise.attacks import attack

_READS = {"_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2", "unique_dim"}
_COPIES = {"cpu", "numpy", "tolist", "__array__"}


@contextmanager
def no_prompt_device() -> Iterator[None]:
    """Nothing asks a CPU more than it would ask a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attack, "PROMPT", set())
        for module in ("classwise.attacks.hyperplane", "classwise.engine.active_set"):
            patch.setattr(f"{module}.PROMPT", set())
        yield


class Waits(TorchDispatchMode):
    """Operators whose result, or its size, the host has to know."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        masks = [i for i in (args[1] if name in ("index", "index_put", "index_put_") else ()) if isinstance(i, Tensor)]
        if name in _READS or any(i.dtype in (torch.bool, torch.uint8) for i in masks):
            self.found[name] += 1
        return func(*args, **(kwargs or {}))


class Copies(TorchFunctionMode):
    """Calls that move a tensor to the host, which on a CPU are no operators."""

    def __init__(self, found: Counter[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _COPIES and func is getattr(Tensor, name, None) and not (name == "numpy" and self._moved(args[0])):
            self.found[name] += 1
        answer = func(*args, **(kwargs or {}))
        if name == "cpu":
            self._last = answer
        return answer

    def _moved(self, tensor: Tensor) -> bool:
        """Whether the tensor is what `cpu` gave just now: one transfer, not two."""
        return tensor is getattr(self, "_last", None)


@contextmanager
def counted_waits() -> Iterator[Counter[str]]:
    """What the block makes the host wait for, by the name of the operator or the call."""
    mode = Waits()
    with mode, Copies(mode.found):
        yield mode.found
