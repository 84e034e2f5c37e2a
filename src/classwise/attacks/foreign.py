"""Attacks of other libraries, and functions of your own, on the same terms as ours.

    torchattacks:PGDL2,eps_for_division=1e-8          any attack of torchattacks
    foolbox:L2PGD,steps=20                            any attack of Foolbox
    art:ProjectedGradientDescent,max_iter=10          any evasion attack of the Adversarial Robustness Toolbox
    adv_lib:fmn,steps=100                             any attack of Rony's adversarial-library
    secmlt:PGD,num_steps=20                           any evasion attack of SecML-Torch
    path/to/file.py:attack,alpha=0.01                 a function (model, x, y) -> x_adv; it may also take eps and norm

An attack that only reads the model's answers may attack a black box. Of the libraries' it is known; a function says so,
``attack.needs_gradient = False``, or the spec, ``mine.py:attack,needs_gradient=false``.

Settings go to the attack's constructor (or the function). The radius, the norm and the number of classes are filled in
where it takes them and they are not given (`attacks.libraries`). Images lie in [0,1].

What comes back is taken as it is: the audit itself checks whether it is inside the ball and the pixel range
and truly misclassified, as for every attack. Libraries draw from the global random states: those are put aside for the
call, seeded from the batch's first example and put back, one batch at a time. So a run can be repeated, but unlike ours
these attacks depend on how the data is cut into batches.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from classwise.attacks.attack import Model, OneShot, Rows
from classwise.attacks.libraries import FUNCTIONS, LIBRARIES, NEEDS_GRADIENT, Batch, Library
from classwise.core import spec as specs
from classwise.core.errors import UserError
from classwise.core.extras import literal
from classwise.core.threat import Ball
from classwise.core.user_files import take

#: The papers of the libraries; those of their attacks are named by their own documentation.
PAPERS = {
    "adv_lib": ("rony2022adversarial",),
    "art": ("nicolae2018art",),
    "foolbox": ("rauber2020foolbox",),
    "torchattacks": ("kim2020torchattacks",),
}

_SPEC = re.compile(rf"(?P<source>{'|'.join(LIBRARIES)}|[^,=]+\.py):(?P<name>[^,]*)(?:,(?P<options>.*))?")
_ALONE = threading.Lock()  # the global random states are one for all threads


def is_foreign(spec: str) -> bool:
    """Whether a spec names an attack of another library or of a Python file."""
    return _SPEC.fullmatch(spec.strip()) is not None


def load(spec: str) -> ForeignAttack:
    """The attack of a spec such as ``foolbox:L2PGD,steps=20``; an error if there is none or it has no such setting."""
    match = _SPEC.fullmatch(spec.strip())
    if match is None:
        raise UserError(f"{spec!r} is no attack of {', '.join(LIBRARIES)} (write foolbox:NAME) or of a file.py:NAME.")
    return ForeignAttack(match["source"], match["name"].strip(), (match["options"] or "").strip())


@dataclass(frozen=True)
class ForeignAttack(OneShot):
    """Fields: the library, or the Python file; the attack's name in it; its settings, as text."""

    source: str
    attack: str
    options: str = ""

    def __post_init__(self) -> None:
        self._prepared()

    @property
    def short_name(self) -> str:
        """``torchattacks:PGDL2``: what the attack is called in tables."""
        return f"{Path(self.source).name}:{self.attack}"

    @property
    def spec(self) -> str:
        """What `load` makes this attack of."""
        return f"{self.source}:{self.attack}" + (f",{self.options}" if self.options else "")

    @property
    def needs_gradient(self) -> bool:
        """What the spec says of it (``needs_gradient=false``); else what the library does, or the function by an
        attribute of that name; else true."""
        library, target = self._target()
        return bool(self._options().get(NEEDS_GRADIENT, library.needs_gradient(target)))

    def points(self, model: Model, rows: Rows, ball: Ball) -> Tensor:
        x_adv, call = rows["x"].clone(), self._prepared()
        with _random_states(int(rows["key"][0]), x_adv.device), _frozen(model), torch.enable_grad():
            for eps in sorted(set(rows["eps"].tolist()) - {0.0}):  # with no radius there is nothing to ask
                mine = rows["eps"] == eps
                x, y = rows["x"][mine].contiguous(), rows["y"][mine]  # libraries like `view`
                x_adv[mine] = self._ask(call, Batch(_Wrapped(model, x), x, y, eps, ball.name))
        return x_adv

    def _ask(self, call: Callable[[Batch], Any], batch: Batch) -> Tensor:
        try:
            point = torch.as_tensor(call(batch)).detach().to(batch.x)
        except UserError:
            raise
        except Exception as error:  # theirs to say what is wrong
            if isinstance(error, MemoryError) or "memory" in str(error):  # tried again with a smaller batch
                raise
            raise UserError(f"{self.short_name} failed: {type(error).__name__}: {error}") from error
        if point.shape != batch.x.shape:
            shapes = f"{tuple(point.shape)}, expected {tuple(batch.x.shape)}"
            raise UserError(f"{self.short_name} gave points of shape {shapes}.")
        return point

    def _target(self) -> tuple[Library, Callable[..., Any]]:
        """What is asked, and how."""
        if self.source in LIBRARIES:
            return LIBRARIES[self.source], LIBRARIES[self.source].attack(self.attack)
        return FUNCTIONS, take(self.source, self.attack, "attack")[0]

    def _options(self) -> dict[str, Any]:
        _, options = specs.split(f"options:{self.options}")
        given = {key: _value(text) for key, text in options.items()}
        if not isinstance(given.get(NEEDS_GRADIENT, True), bool):
            raise UserError(f"needs_gradient of {self.short_name} is true or false, got {options[NEEDS_GRADIENT]!r}.")
        return given

    def _prepared(self) -> Callable[[Batch], Any]:
        """The call to make for a batch, once name and settings have been checked."""
        given = {key: value for key, value in self._options().items() if key != NEEDS_GRADIENT}
        if not self.attack:
            raise UserError(f"{self.source!r} names no attack; write {self.source}:NAME.")
        library, target = self._target()
        try:
            parameters = inspect.signature(target).parameters
        except ValueError as error:
            raise UserError(f"{self.short_name} is no function or class written in Python ({error}).") from None
        known = list(parameters)[library.leading :]
        any_other = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        if library.strict or not any_other:
            specs.check_keys(given, dict.fromkeys(known), self.short_name)

        def settings(**fitting: Any) -> dict[str, Any]:
            return {**{key: value for key, value in fitting.items() if key in known}, **given}

        return lambda batch: library.ask(target, settings, batch)


class _Wrapped(nn.Module):
    """The model as a module in eval mode, whose own parts no library can reach; its parameter tells the device."""

    def __init__(self, model: Model, like: Tensor) -> None:
        super().__init__()
        self.call: Model = lambda x: model(x)  # the model itself, if it is a module, would become a part
        self.where = nn.Parameter(torch.zeros(1, device=like.device, dtype=like.dtype), requires_grad=False)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad:  # gradients in plain memory layout too
            x = x.clone()
            x.register_hook(lambda gradient: gradient.contiguous())  # type: ignore[no-untyped-call]
        return self.call(x)


def _value(text: str) -> Any:
    """A setting as Python writes it, a fraction such as 8/255, or text."""
    value = literal(text)
    with contextlib.suppress(UserError):
        return specs.number(text) if isinstance(value, str) else value
    return value


@contextlib.contextmanager
def _random_states(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's, numpy's and Python's global random states seeded, and put back at the end."""
    cuda = [device] if device.type == "cuda" else []
    with _ALONE, torch.random.fork_rng(devices=cuda):
        python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002  (what libraries use)
        torch.default_generator.manual_seed(seed)
        for each in cuda:
            torch.cuda.default_generators[each.index or 0].manual_seed(seed)
        random.setstate(random.Random(seed).getstate())
        np.random.set_state(np.random.RandomState(seed % 2**32).get_state())  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002


@contextlib.contextmanager
def _frozen(model: Model) -> Iterator[None]:
    """No gradients of weights, which libraries that call `backward` would leave behind."""
    parameters = model.parameters() if isinstance(model, nn.Module) else ()
    asking = [parameter for parameter in parameters if parameter.requires_grad and parameter.is_leaf]
    try:
        for parameter in asking:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in asking:
            parameter.requires_grad_(True)
