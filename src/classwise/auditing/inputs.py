"""What an audit is given, made into what it needs: images, a module on its device, a radius for every example."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from classwise import attacks as attack_files
from classwise.attacks.attack import Attack
from classwise.attacks.transfer import Transfer
from classwise.core.errors import UserError
from classwise.core.records import CLEAN, Array
from classwise.core.shard import local_rank
from classwise.core.spec import items, number, written
from classwise.core.threat import Norm, Threat
from classwise.core.toml import tomllib
from classwise.data.images import Images
from classwise.models import check_model, load_model
from classwise.models.check import move_to

Eps: TypeAlias = float | str | Mapping[str, float | str] | Sequence[float | str] | Tensor | Array


def module_of(
    model: Any,
    images: Images,
    *,
    weights: str | Path | None = None,
    normalize: Any = None,
    num_classes: int | None = None,
    device: str | torch.device | None = None,
) -> nn.Module:
    """The model that a spec names, or the one given, on its device."""
    if isinstance(model, nn.Module):
        if weights is not None or normalize is not None:
            raise UserError("weights and normalize belong to a model spec; load_model(module, weights=…) takes both.")
        return move_to(model, device)
    channels = images.batch(np.arange(1))[0].shape[1]
    return load_model(
        model,
        weights=weights,
        num_classes=num_classes or images.num_classes,
        in_channels=channels,
        device=own_device(device),
        normalize=normalize,
        class_names=images.class_names,
    )


def expanded(attacks: Any) -> list[Any]:
    """One attack or several, as a list; ``@attacks.toml`` stands for the attacks of that file."""
    listed = attack_files.listed(attacks)
    return [attack for item in listed for attack in (_in_file(Path(item[1:])) if str(item).startswith("@") else [item])]


def _in_file(path: Path) -> list[str]:
    """The specs of a TOML file, one table each: ``[pgd]`` with its settings, ``[[pgd]]`` where there are several."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the attacks in {path}: {error}") from error
    specs = []
    for name, several in tables.items():
        for table in several if isinstance(several, list) else [several]:
            if not isinstance(table, dict):
                raise UserError(f"{path}: {name} = {table!r} is no attack; write [{name}] and its settings below.")
            settings = ",".join(f"{key}={written(value)}" for key, value in table.items())
            specs.append(f"{name}{',' if ':' in name else ':'}{settings}" if settings else name)
            try:
                attack_files.parse(specs[-1])
            except UserError as error:
                raise UserError(f"{path}: [{name}]: {error}") from error
    return specs


def attacks_of(attacks: Any, **overrides: Any) -> dict[str, Attack]:
    """Attacks by short name, those of other libraries and of Python files too; without clean, which always runs."""
    named = attack_files.parse(attacks, **overrides)
    return {name: attack for name, attack in named.items() if name != CLEAN}


def with_surrogates(attacks: Mapping[str, Attack], images: Images, device: torch.device) -> dict[str, Attack]:
    """The attacks, with the models that transfer attacks craft on loaded."""

    def load(spec: str, weights: str | None) -> nn.Module:
        model = module_of(spec, images, weights=weights, device=device).requires_grad_(False)
        check_model(model, images.first(2).to(device), images.num_classes)
        return model

    return {n: a.with_surrogates(load) if isinstance(a, Transfer) else a for n, a in attacks.items()}


def default_device() -> torch.device:
    """CUDA, else Apple's GPU, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def own_device(device: Any) -> Any:
    """The device asked for, or the best there is; of processes that share a host each its own GPU, unless one was asked
    for by its number."""
    chosen = default_device() if device is None else device
    rank = local_rank()
    if rank is None or str(chosen) != "cuda" or not torch.cuda.is_available():
        return chosen
    return torch.device("cuda", rank % torch.cuda.device_count())


def device_of(model: nn.Module) -> torch.device:
    tensor = next(iter((*model.parameters(), *model.buffers())), None)
    return torch.device("cpu") if tensor is None else tensor.device


def with_names(images: Images, outputs: int) -> Images:
    """Class names for everything the model can answer; an error where the data has classes the model lacks."""
    if images.labels.size and int(images.labels.max()) >= outputs:
        raise UserError(
            f"the data has label {int(images.labels.max())} but the model has only {outputs} outputs (labels "
            f"0…{outputs - 1}). Load the model with num_classes={images.num_classes}, or choose other data."
        )
    if outputs == images.num_classes:
        return images
    names = [*images.class_names, *(f"class {k}" for k in range(images.num_classes, outputs))]
    return dataclasses.replace(images, class_names=tuple(names[:outputs]), superclasses=None)


def radii(eps: Eps, images: Images, norm: Norm) -> tuple[Threat, Array]:
    """The threat (with the largest radius) and one radius per example."""
    values = _radii_by_class(eps, images) if isinstance(eps, Mapping) else _radii_by_example(eps, len(images))
    if len(values) != len(images):
        raise UserError(f"{len(values)} radii for {len(images)} examples: give one each, one per class, or one.")
    Threat(norm, float(values.min()))  # raises where it is not a radius
    return Threat(norm, float(values.max())), values


def _radii_by_example(eps: Any, count: int) -> Array:
    """One radius for all examples, or those given for each."""
    if isinstance(eps, Tensor) and (eps.layout != torch.strided or eps.is_meta):
        raise UserError(f"eps is a {eps.layout} tensor on {eps.device}; give a dense one that holds values.")
    given = eps.detach().cpu().numpy() if isinstance(eps, Tensor) else eps
    if not isinstance(given, (np.ndarray, list, tuple)) or np.ndim(given) == 0:
        return np.full(count, number(given.item() if isinstance(given, np.ndarray) else given))
    return np.array([number(value) for value in np.ravel(np.asarray(given, dtype=object))], dtype=float)


def _radii_by_class(eps: Mapping[str, float | str], images: Images) -> Array:
    given = {name: number(value) for name, value in eps.items()}
    others = given.pop("*", None)
    by_class = {images.class_number(name): value for name, value in given.items()}
    for label in np.unique(images.labels).tolist():
        if label not in by_class and others is None:
            name = images.class_names[label]
            raise UserError(f"eps has no radius for class {name!r}; add it, or '*' for all others.")
    return np.array([by_class.get(label, others) for label in images.labels.tolist()], dtype=float)


def grid(eps: Eps, steps: int | None, norm: Norm) -> dict[str, float]:
    """The radii of a curve by the names they were given, smallest first; empty where one radius is asked for.

    A curve is text with commas ("2/255,4/255,8/255"), a list of such text, or `steps` equal steps up to one radius.
    """
    if isinstance(eps, str) and (len(parts := items(eps, older=",")) > 1 or eps.startswith("[")):
        eps = [part for part in parts if part]
    several = isinstance(eps, Sequence) and not isinstance(eps, str) and any(isinstance(part, str) for part in eps)
    if steps is not None:
        if several or not isinstance(eps, (str, float, int)):
            raise UserError("eps_grid divides one radius into steps; give eps as one number, such as 8/255.")
        whole = Threat(norm, number(eps)).eps
        return {f"{whole * step / steps:.4g}": whole * step / steps for step in range(1, steps + 1)}
    if not several:
        return {}
    named = {str(part): Threat(norm, number(part)).eps for part in eps}  # type: ignore[union-attr]
    if len(set(named.values())) < len(list(eps)):  # type: ignore[arg-type]
        raise UserError(f"eps {', '.join(named)} gives a radius twice; leave one of them out.")
    return dict(sorted(named.items(), key=lambda item: item[1]))
