"""What a run used and others wrote about: attacks, method, data, network, metrics, each with its papers."""

from __future__ import annotations

import ast
import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from classwise import data, methods, metrics
from classwise.attacks import foreign
from classwise.core import spec as specs
from classwise.core.errors import UserError, unknown
from classwise.core.registry import KINDS
from classwise.core.run_config import as_table
from classwise.core.run_folder import RunFolder, StudyFolder, TrainingFolder, kind_of
from classwise.core.user_files import IN_FILE
from classwise.models import external, zoo
from classwise.models import registry as networks
from classwise.repairing.knobs import KNOBS
from classwise.stats import confidence_sequences
from classwise.training import averaging, awp

#: The kinds of things that have papers, and what one of each is called.
_CITED = {"attacks": "attack", "methods": "method", "metrics": "metric", "datasets": "data set", "models": "network"}
_FROM_ELSEWHERE = ("foreign", "foreign_attacks")  # how an audit records an attack of a library or a file


@dataclass(frozen=True)
class Used:
    """A thing and the keys of its papers: empty where there is none, None where the thing does not say."""

    what: str
    papers: tuple[str, ...] | None


def named(name: str) -> list[Used]:
    """The attacks, methods, metrics, data sets and networks of that name or spec, such as ``pgd-20``."""
    if foreign.is_foreign(name):
        return [_attack(name)]
    plain, _ = specs.leading(specs.split(name)[0])
    known = {kind: [*_module(kind).names(), *(["autoattack"] if kind == "attacks" else [])] for kind in _CITED}
    wanted = plain.replace("-", "_")
    found = [_thing(kind, wanted) for kind, own in known.items() if wanted in own]
    if not found:
        every = sorted({each for own in known.values() for each in own})
        raise unknown("run folder, attack, method, metric, data set or network", name, every)
    return found


def of_run(folder: Path) -> list[Used]:
    """All that a finished audit, search, training, repair or study used."""
    if kind_of(folder) == "study":
        return [*_study(folder)]
    config = RunFolder(folder).config()
    if not config:
        raise UserError(f"{folder} has no config.toml: it is no run folder of an audit, training, repair or study.")
    found = [*_attacks(config), *_training(config), *_data(config), *_network(config)]
    if "repair" in config:
        knob = str(config["repair"]["knob"])
        found.append(Used(f"repair {knob}", importlib.import_module(type(KNOBS[knob]).__module__).PAPERS))
    if kind_of(folder) == "search":
        found.append(Used("search for the worst class", confidence_sequences.PAPERS))
    if kind_of(folder) in ("audit", "repair"):
        found += [_thing("metrics", name) for name in ("accuracy", *(each.name for each in metrics.shown("terminal")))]
    return found


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run, finished or not."""
    return kind_of(folder) is not None or RunFolder(folder).config_file.is_file()


def _study(folder: Path) -> Iterator[Used]:
    files = StudyFolder(folder)
    for config in sorted((folder / "jobs").glob("*/config.toml")):
        yield from of_run(config.parent)
    if files.claims_file.is_file():
        sources = {
            str(claim.get("source") or "") for claim in json.loads(files.claims_file.read_text(encoding="utf-8"))
        }
        papers = dict.fromkeys(source.partition(":")[0] for source in sorted(sources) if source)
        yield Used("claims tested", tuple(papers))


def _attacks(config: Mapping[str, Any]) -> Iterator[Used]:
    repair, validate = as_table(config.get("repair")), as_table(config.get("validate"))
    specs_of = [*repair.get("attacks", ()), *repair.get("judge_attacks", ()), *_listed(validate.get("attack"))]
    yield from (each for text in specs_of for each in _of_spec(str(text)))
    if "repair" not in config:
        for short, table in as_table(config.get("attacks")).items():
            own = as_table(table)
            name = str(own.get("name", short))
            yield _attack(f"{own.get('source')}:{own.get('attack')}" if name in _FROM_ELSEWHERE else name)


def _of_spec(text: str) -> list[Used]:
    if foreign.is_foreign(text):
        return [_attack(text)]
    return [_thing("attacks", specs.leading(specs.split(text)[0])[0])]


def _attack(name: str) -> Used:
    """An attack by its name; of one from another library, that library."""
    library, _, own = name.partition(":")
    if own and not library.endswith(".py"):
        return Used(f"attack {name.partition(',')[0]}", foreign.PAPERS.get(library))
    return Used(f"attack {name}", _stated("attacks", name))


def _training(config: Mapping[str, Any]) -> Iterator[Used]:
    method, train = as_table(config.get("method")), as_table(config.get("train"))
    for name in (method.get("name"), method.get("base")):
        if name and methods.knows(str(name)):
            yield _thing("methods", str(name))
    if train.get("awp"):
        yield Used("adversarial weight perturbation", awp.PAPERS)
    if train.get("averaging"):
        kind = specs.split(str(train["averaging"]))[0]
        yield Used(f"averaging {kind}", averaging.PAPERS.get(kind))


def _data(config: Mapping[str, Any]) -> Iterator[Used]:
    own = (
        as_table(config.get(table)).get(key)
        for table, key in (("repair", "data"), ("command", "data"), ("data", "name"))
    )
    text = next((str(each) for each in own if each), "")
    while text:
        name, options = specs.split(text)
        if name in data.names():
            yield _thing("datasets", name)
        text = specs.nested(options["of"]) if "of" in options else ""


def _network(config: Mapping[str, Any]) -> Iterator[Used]:
    """The network by its spec; of a checkpoint of a training, also what that used."""
    own = (as_table(config.get(table)).get(key) for table, key in (("command", "model"), ("model", "spec")))
    text = next((str(each) for each in own if each), "")
    library = text.partition(":")[0]
    if library in external.PAPERS:
        yield Used(f"model {text}", external.PAPERS[library])
    elif text.startswith(zoo.PREFIX) or text.endswith(".pt"):
        trained = _trained(text).config()
        if "method" in trained:
            yield from (*_training(trained), *_network(trained))
    elif (name := specs.leading(specs.split(text)[0])[0].replace("-", "_")) in networks.names():
        yield _thing("models", name)


def _trained(model: str) -> TrainingFolder:
    return zoo.run_of(model) if zoo.is_zoo(model) else TrainingFolder(Path(model).parent)


def _thing(kind: str, name: str) -> Used:
    return Used(f"{_CITED[kind]} {name}", _stated(kind, name))


def _stated(kind: str, name: str) -> tuple[str, ...] | None:
    """What a shipped thing says; what is in a file of the user's is read there, and nothing of it is run."""
    if in_file := IN_FILE.fullmatch(name):
        return _written_in(Path(in_file["path"]))
    stated: tuple[str, ...] | None = _module(kind).papers(name)
    return stated


def _written_in(file: Path) -> tuple[str, ...] | None:
    try:
        body = ast.parse(file.read_text(encoding="utf-8")).body
    except (OSError, ValueError, SyntaxError):
        return None
    for node in body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["PAPERS"]:
            return tuple(map(str, ast.literal_eval(node.value)))
    return None


def _module(kind: str) -> Any:
    return importlib.import_module(KINDS[kind])


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
