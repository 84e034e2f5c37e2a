"""`load_model`: the one way in for models, however they are named."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from classwise.core.arguments import checked
from classwise.core.errors import UserError, unknown
from classwise.core.spec import Seed, convert, split
from classwise.core.trust import require_trust, trusting
from classwise.core.user_files import IN_FILE, import_file, importing_from
from classwise.models import registry, zoo
from classwise.models.biased_file import SUFFIX, read_biased
from classwise.models.black_box import kind_of, load_black_box
from classwise.models.check import move_to
from classwise.models.checkpoint import adversarially_trained, read_checkpoint, trained_threat
from classwise.models.external import LIBRARIES, Wanted, load_external
from classwise.models.logit_bias import biased
from classwise.models.normalize import Normalization, agree, constants, normalized
from classwise.models.programs import kind_of_program, load_program
from classwise.models.weights import load_state, load_weights

PROGRAM = "program:"
_FACTORY = re.compile(IN_FILE.pattern + r"(?:,.*)?")  # settings follow after commas
FILES = (SUFFIX, ".pt", ".pth", ".ts", ".pt2", ".ckpt", ".tar", ".safetensors", ".bin", ".pkl")


@checked
def load_model(
    spec: Any,
    weights: str | Path | None = None,
    num_classes: int | None = None,
    in_channels: int | None = None,
    device: torch.device | str | None = None,
    normalize: Normalization = None,
    seed: int = 0,
    trust: bool = False,
    class_names: Sequence[str] | None = None,
) -> nn.Module:
    """The model of a spec, with weights if given, in eval mode on `device` (default: where it is, or the CPU).

    A spec is a module as it is; a built-in network (``resnet-18``, ``wideresnet:depth=34,width=10``); a function or
    class in a file (``net.py:make,width=8``); ``torchvision:…``, ``timm:…``, ``robustbench:…``, ``hf:…``; a TorchScript
    or exported program (``program:FILE``); a checkpoint of classwise, or the best.toml of a repair; a model of the zoo
    (``zoo:cifar10/resnet16/wat-0``); or a black box, which has no gradient (``net.onnx``, ``https://host/path``,
    ``callable:file.py:name``, ``sklearn:file.py:name``, a function or an estimator). `normalize` puts a normalising
    layer in front: a known name, text such as ``mean=0.5,std=0.25``, or a pair (mean, std). Initial weights are drawn
    from `seed`, leaving the global generator alone. trust: also load files that run code without being named as code: a
    program as it is, a checkpoint whose model is made by a Python file. class_names: for the prompts of
    zero-shot models.
    """
    with torch.random.fork_rng(devices=[]), trusting(trust):
        torch.default_generator.manual_seed(convert(seed, Seed, "seed"))
        names = tuple(class_names or ())
        wanted = Wanted(num_classes=num_classes, in_channels=in_channels, class_names=names, fetch=weights is None)
        model = _build(spec, wanted, normalize)
    if weights is not None:
        load_weights(model, weights)
    return model.eval() if device is None else move_to(model.eval(), device)


def _build(spec: Any, wanted: Wanted, normalize: Normalization) -> nn.Module:
    """The model of a spec."""
    num_classes, in_channels = wanted.num_classes, wanted.in_channels
    if isinstance(spec, nn.Module):
        return normalized(spec, normalize)
    spec = str(spec) if isinstance(spec, Path) else spec
    if zoo.is_zoo(spec):
        if not wanted.fetch:
            raise UserError(f"{spec} brings its own weights; leave weights out, or name its network as the model.")
        return _from_file(zoo.checkpoint(spec), num_classes, normalize)
    if isinstance(spec, str) and spec.startswith(PROGRAM):
        return normalized(load_program(Path(spec.removeprefix(PROGRAM))), normalize)
    if not isinstance(spec, str) or kind_of(spec) is not None:
        if not wanted.fetch:
            raise UserError("a black box brings its own weights; leave weights out.")
        return load_black_box(spec, normalize)
    if _FACTORY.fullmatch(spec):
        model = _from_factory(*split(spec), num_classes=num_classes, in_channels=in_channels)
        return normalized(model, normalize)
    if spec.partition(":")[0] in LIBRARIES:
        return load_external(spec, wanted, normalize)
    if registry.knows(spec):  # before any file or folder of the same name
        return registry.construct(spec, num_classes, in_channels, normalize)
    path = Path(spec)
    if path.is_file():
        return _from_file(path, num_classes, normalize)
    if path.suffix == ".py":
        raise UserError(f"{spec!r} names a file but not what to take from it; write {spec}:NAME.")
    if path.is_dir():
        raise UserError(f"{spec!r} is a folder; name the model file in it.")
    if path.suffix.lower() in FILES:
        raise UserError(
            f"no model file {spec!r}. Check the path, or name a built-in model: {', '.join(registry.names())}."
        )
    return registry.construct(spec, num_classes, in_channels, normalize)


def _from_factory(where: str, settings: Mapping[str, str], **arguments: Any) -> nn.Module:
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
    given |= registry.REGISTRY.arguments(factory, settings, where)
    named = [p for p in parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    needed = [p.name for p in named if p.default is p.empty and p.name not in given]
    if needed:
        raise UserError(
            f"{where} needs {', '.join(needed)}. classwise passes num_classes and in_channels when it knows them; "
            "give the other parameters a default."
        )
    return factory(**given)


def _from_file(path: Path, num_classes: int | None, normalize: Normalization) -> nn.Module:
    if path.suffix.lower() == SUFFIX:
        return _from_toml(path, normalize)
    if path.suffix == ".py":
        raise UserError(f"{path} is a Python file; name the function or class that makes the model: {path}:NAME.")
    if kind := kind_of_program(path):
        require_trust(f"{path} is a program ({kind}): loading it runs code in it", f"name it as one: {PROGRAM}{path}")
        return normalized(load_program(path), normalize)
    content = read_checkpoint(path)
    header = content["classwise"]
    stored = constants(header.get("normalize"))
    if normalize is not None and not agree(constants(normalize), stored):
        raise UserError(f"{path} was saved with the normalisation {stored}, not {normalize!r}; leave normalize out.")
    if num_classes not in (None, header["num_classes"]):
        raise UserError(f"{path} holds a model of {header['num_classes']} classes, but {num_classes} are asked for.")
    model = _build_from(path, header)
    load_state(model, content["state_dict"], str(path))
    model = biased(model, header.get("logit_bias"))
    model.trained_threat = trained_threat(header)  # type: ignore[assignment]
    model.adversarially_trained = adversarially_trained(header)  # type: ignore[assignment]
    return model


def _from_toml(path: Path, normalize: Normalization) -> nn.Module:
    """The black box or program that a file of a repair names, with its bias."""
    if normalize is not None:
        raise UserError(f"{path} says itself how its images are normalised; leave normalize out.")
    found = read_biased(path)
    if kind_of(found.model) is None and not found.model.startswith(PROGRAM):
        raise UserError(f"{path} names {found.model!r} as its model, which is neither a black box nor a program.")
    if found.runs_code:
        require_trust(f"{path} says that its model is {found.model!r}", "name the model itself, without the bias")
    return biased(_build(found.model, Wanted(), found.normalize), found.bias)


def _build_from(path: Path, header: Mapping[str, Any]) -> nn.Module:
    """The model that a checkpoint's header names; its weights are still to be loaded."""
    spec = header["model"]
    if names_code(spec):
        require_trust(
            f"{path} says that its model is made by {spec!r}: loading it would run that",
            f"name the model yourself and give the file as its weights: --model {spec} --weights {path}",
        )
        if not _is_code(spec):
            raise UserError(f"{path} names {spec!r} as its model, which is a file and not a model; it is damaged.")
    wanted = Wanted(num_classes=header["num_classes"], in_channels=header["in_channels"], fetch=False)
    return _build(spec, wanted, header.get("normalize") or "none")


def names_code(spec: str) -> bool:
    """Whether building the model of a spec may run code that is not installed: always, but for built-in networks,
    those of the zoo, and those of a library whose settings name no file."""
    library, _, rest = spec.partition(":")
    if zoo.is_zoo(spec):
        return False
    if library in LIBRARIES:
        settings = rest.partition(",")[2]
        return any(mark in settings for mark in ("/", "\\", "checkpoint", "cfg"))
    return not registry.knows(spec)


def _is_code(spec: str) -> bool:
    """Whether a spec names code: neither another checkpoint nor something unknown."""
    program = spec.startswith(PROGRAM) or kind_of_program(Path(spec)) is not None
    return program or _FACTORY.fullmatch(spec) is not None or spec.partition(":")[0] in LIBRARIES
