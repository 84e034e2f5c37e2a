"""How the attacks of other libraries are found and asked: torchattacks, Foolbox, ART, adv_lib, SecML-Torch, functions.

Radius, norm and number of classes are filled in where an attack takes them. An attack that asks for a step size beside
the radius, and has none of its own or a larger one than usual radii (ART), gets a quarter of the radius. Points of
adv_lib and SecML-Torch, many of whose attacks look for the nearest adversarial example whatever its distance, are
projected into the ball, as Foolbox does: one that was inside stays as it is.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from classwise.core.errors import UserError, lookup
from classwise.core.extras import package
from classwise.core.threat import Norm, Threat

NEEDS_GRADIENT = "needs_gradient"  # of every foreign attack: a setting of ours, which is not passed on
Settings: TypeAlias = Callable[..., dict[str, Any]]  # those given, and of what fits the batch all that are taken
_ORDERS = {"linf": np.inf, "l2": 2}  # of the norms, as numbers


@dataclass(frozen=True)
class Batch:
    """What a library's attack is asked about."""

    model: nn.Module
    x: Tensor
    y: Tensor
    eps: float
    norm: Norm

    @property
    def num_classes(self) -> int:
        with torch.no_grad():
            return int(self.model(self.x[:1]).shape[1])

    def projected(self, points: Tensor) -> Tensor:
        """The points inside the ball around the images, and in [0,1]."""
        return Threat(self.norm, self.eps).ball.project(points.detach().to(self.x), self.x, self.eps)


def _ask_torchattacks(cls: Callable[..., Any], settings: Settings, batch: Batch) -> Any:
    norm = {"linf": "Linf", "l2": "L2"}[batch.norm]
    attack = cls(batch.model, **settings(eps=batch.eps, norm=norm, n_classes=batch.num_classes))
    return attack(batch.x, batch.y)


def _ask_foolbox(cls: Callable[..., Any], settings: Settings, batch: Batch) -> Any:
    foolbox = importlib.import_module("foolbox")
    model = foolbox.PyTorchModel(batch.model, bounds=(0, 1), device=batch.x.device)
    criterion = foolbox.criteria.Misclassification(batch.y)
    _, points, _ = cls(**settings())(model, batch.x, criterion, epsilons=batch.eps)
    return points


def _ask_art(cls: Callable[..., Any], settings: Settings, batch: Batch) -> Any:
    classifier = importlib.import_module("art.estimators.classification").PyTorchClassifier(
        model=batch.model,
        loss=nn.CrossEntropyLoss(),
        input_shape=tuple(batch.x.shape[1:]),
        nb_classes=batch.num_classes,
        clip_values=(0.0, 1.0),
        device_type="gpu" if batch.x.is_cuda else "cpu",
    )
    fitting = {"eps": batch.eps, "eps_step": batch.eps / 4, "norm": _ORDERS[batch.norm], "batch_size": len(batch.x)}
    attack = cls(classifier, **settings(**fitting, verbose=False))
    return attack.generate(x=batch.x.cpu().numpy(), y=batch.y.cpu().numpy())


def _ask_adv_lib(function: Callable[..., Any], settings: Settings, batch: Batch) -> Any:
    order, taken = _ORDERS[batch.norm], inspect.signature(function).parameters
    fitting = {"ε": batch.eps, "norm": order, "p": order, "targeted": False, "num_classes": batch.num_classes}
    if "eps" in taken and taken["eps"].default is inspect.Parameter.empty:  # else it is a small number for divisions
        fitting["eps"] = batch.eps
    return batch.projected(function(batch.model, batch.x, batch.y, **settings(**fitting)))


def _ask_secmlt(cls: Callable[..., Any], settings: Settings, batch: Batch) -> Any:
    taken = inspect.signature(cls).parameters
    fitting: dict[str, Any] = {"epsilon": batch.eps, "perturbation_model": batch.norm, "backend": _backend(cls)}
    if "epsilon" in taken and "step_size" in taken and taken["step_size"].default is inspect.Parameter.empty:
        fitting["step_size"] = batch.eps / 4
    loader = DataLoader(TensorDataset(batch.x, batch.y), batch_size=len(batch.x))
    found: Any = cls(**settings(**fitting))(batch.model, loader)
    return batch.projected(found.dataset.tensors[0])


def _backend(cls: Any) -> str:
    """Who carries an attack of SecML-Torch out: itself where it can, else a library that is installed."""
    needs = {"native": "secmlt", "foolbox": "foolbox", "advlib": "adv_lib"}
    offered = [name for name in needs if name in cls.get_backends()]
    there = [name for name in offered if importlib.util.find_spec(needs[name]) is not None]
    if not there:
        packages = " or ".join(needs[name] for name in offered)
        raise UserError(f"secmlt:{cls.__name__} is carried out by {packages}, which is not installed.")
    return there[0]


def _ask_function(function: Callable[..., Any], settings: Settings, batch: Batch) -> Any:
    return function(batch.model, batch.x, batch.y, **settings(eps=batch.eps, norm=batch.norm))


@dataclass(frozen=True, kw_only=True)
class Library:
    """Where a library keeps its attacks, how one is asked, and which of them differentiate the model.

    leading: how many arguments of an attack are not settings. kept: the attacks of its module, by name. strict: whether
    only the settings that an attack names itself are passed on, although it takes any.
    """

    package: str = ""
    module: str = ""
    leading: int
    needs_gradient: Callable[[Any], bool]
    ask: Callable[[Callable[..., Any], Settings, Batch], Any]
    kept: Callable[[ModuleType], dict[str, Any]] = lambda module: _classes(module)
    strict: bool = False

    def attack(self, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = lookup(f"attack of {self.package}", name, self.kept(self._imported()))
        return found

    def _imported(self) -> Any:
        return package(self.package, f"attacks of {self.package} need", self.module)


def _classes(module: ModuleType) -> dict[str, Any]:
    classes = dict(inspect.getmembers(module, inspect.isclass))
    return {key: cls for key, cls in classes.items() if not inspect.isabstract(cls) and not key.startswith("_")}


def _functions(module: ModuleType) -> dict[str, Any]:
    return dict(inspect.getmembers(module, inspect.isfunction))


def _creators(module: ModuleType) -> dict[str, Any]:
    """The attacks of SecML-Torch, which are spread over the modules of a package."""
    base = importlib.import_module(f"{module.__name__}.base_evasion_attack").BaseEvasionAttackCreator
    modules = (
        importlib.import_module(f"{module.__name__}.{one.name}") for one in pkgutil.iter_modules(module.__path__)
    )
    classes = (cls for one in modules for cls in _classes(one).values())
    return {cls.__name__: cls for cls in classes if issubclass(cls, base) and cls is not base}


# Attacks that only read the model's answers; the classes of these libraries do not say so themselves.
_TORCHATTACKS_WITHOUT = "VANILA|GN|SPSA|OnePixel|Pixle|Square"
_FOOLBOX_WITHOUT = (
    "(Boundary|HopSkipJump|Gen|Pointwise|Inversion|Dataset|Spatial|GaussianBlur)Attack"
    "|.*(Noise|ContrastReduction)Attack"
)
_SECMLT_WITHOUT = "(Boundary|Spatial)Attack|HopSkipJump|AdditiveNoise|SaltAndPepper.*|GaussianBlur|ContrastReduction"


def _not_named(pattern: str) -> Callable[[Any], bool]:
    return lambda attack: re.fullmatch(pattern, attack.__name__) is None


def _art_needs_gradient(attack: Any) -> bool:
    """ART's attacks say what they require of a classifier; its AutoAttack only has members that do."""
    required = getattr(attack, "_estimator_requirements", ())
    return attack.__name__ == "AutoAttack" or any("Gradients" in part.__name__ for part in required)


LIBRARIES = {
    "torchattacks": Library(
        package="torchattacks",
        module="torchattacks",
        leading=1,
        needs_gradient=_not_named(_TORCHATTACKS_WITHOUT),
        ask=_ask_torchattacks,
    ),
    "foolbox": Library(
        package="foolbox",
        module="foolbox.attacks",
        leading=0,
        needs_gradient=_not_named(_FOOLBOX_WITHOUT),
        ask=_ask_foolbox,
    ),
    "art": Library(
        package="art", module="art.attacks.evasion", leading=1, needs_gradient=_art_needs_gradient, ask=_ask_art
    ),
    "adv_lib": Library(
        package="adv_lib",
        module="adv_lib.attacks",
        leading=3,
        needs_gradient=lambda attack: True,
        ask=_ask_adv_lib,
        kept=_functions,
    ),
    "secmlt": Library(
        package="secmlt",
        module="secmlt.adv.evasion",
        leading=0,
        needs_gradient=_not_named(_SECMLT_WITHOUT),
        ask=_ask_secmlt,
        kept=_creators,
        strict=True,
    ),
}
FUNCTIONS = Library(
    leading=3, needs_gradient=lambda function: bool(getattr(function, NEEDS_GRADIENT, True)), ask=_ask_function
)
