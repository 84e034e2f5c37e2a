"""A recipe: every setting of a training, in one TOML file.

    [data]      name = "cifar10"   validation = 300   augment = ["crop:padding=4", "flip"]
    [model]     spec = "resnet-18"
    [threat]    eps = "8/255"
    [method]    name = "trades"    beta = {dog = 0.5}
    [train]     epochs = 100       batch = 128        optimizer = "sgd:lr=0.1"   schedule = "step:milestones=[75, 90]"
    [validate]  attack = "pgd-10"  select = "worst"
    [teacher]   spec = "wideresnet-34-10"   weights = "trades.pt"      (methods that distil; also [teacher_clean])

Shipped recipes are named by their path, ``cifar10/trades``. An unknown key is an error that suggests the closest one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from classwise import methods
from classwise.core import spec
from classwise.core.errors import UserError, unknown
from classwise.core.format import radius
from classwise.core.registry import Registry
from classwise.core.run_config import plain
from classwise.core.threat import Threat
from classwise.core.toml import tomllib
from classwise.core.user_files import IN_FILE
from classwise.methods.method import Method
from classwise.training.parts import Phase, TeacherPart, TrainedModel, TrainingData, TrainPart, ValidatePart

_SUFFIXES = (".toml", ".yaml", ".yml")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All parts of a recipe, checked."""

    data: TrainingData = field(default_factory=TrainingData)
    model: TrainedModel = field(default_factory=TrainedModel)
    threat: Threat = field(default_factory=Threat)
    method: Method = field(default_factory=lambda: methods.parse("trades", {}))
    train: TrainPart = field(default_factory=TrainPart)
    validate: ValidatePart = field(default_factory=ValidatePart)
    teacher: TeacherPart = field(default_factory=TeacherPart)
    teacher_clean: TeacherPart = field(default_factory=TeacherPart)

    def __post_init__(self) -> None:
        if not self.data.validation and self.validate.select != "last":
            raise UserError(
                f"select = {self.validate.select!r} selects a checkpoint on validation data, and none is held out: set "
                "data.validation to a number of examples per class, or validate.select to last."
            )

    @property
    def validates_first(self) -> bool:
        """Whether the held-out images are attacked before the first epoch, for the method's state."""
        return self.method.validates_first or (self.validate.first and self._updates)

    @property
    def uses_validation(self) -> bool:
        """Whether the trained model depends on the validation: to select an epoch, or for the method's state."""
        return self.validate.select != "last" or self.method.validates_first or self._updates

    @property
    def _updates(self) -> bool:
        """Whether the method has a state that records set."""
        return type(self.method).update is not Method.update

    def settings(self) -> dict[str, Any]:
        """The whole recipe as nested plain values, defaults included, but for teachers that are none."""
        parts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "method"}
        parts = {name: part for name, part in parts.items() if part != TeacherPart()}
        tree = {name: dataclasses.asdict(part) for name, part in parts.items()}
        tree["method"] = {"name": methods.name_of(self.method), **methods.settings(self.method)}
        return tree


_PARTS = {
    "data": TrainingData, "model": TrainedModel, "threat": Threat, "train": TrainPart, "validate": ValidatePart,
    "teacher": TeacherPart, "teacher_clean": TeacherPart,
}  # fmt: skip


def build(tree: Mapping[str, Any]) -> Recipe:
    """A recipe from nested settings, as read from a file; the config.toml of a run folder is one too."""
    tree = settings_of(tree)
    spec.check_keys(tree, {**_PARTS, "method": None}, "a recipe")
    for name, part in tree.items():
        if not isinstance(part, Mapping):
            raise UserError(f"[{name}] of a recipe must be a table of settings, got {part!r}.")
    made: dict[str, Any] = {
        name: spec.configure(cls, _with_lists(tree.get(name, {})), name) for name, cls in _PARTS.items()
    }
    own = dict(tree.get("method", {}))
    if "name" not in own:
        raise UserError(f"a recipe needs [method] name = …; one of {', '.join(methods.names())}.")
    return Recipe(**made, method=methods.parse(str(own.pop("name")), own))


#: The tables of a run folder's config.toml besides the recipe.
RECORDED = ("fingerprint", "run")


def settings_of(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe in a config.toml; other settings as they are."""
    return {name: part for name, part in tree.items() if name not in RECORDED or RECORDED[0] not in tree}


def with_defaults(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings with those that an earlier version did not write, at their defaults."""
    parts = {name: {**plain(dataclasses.asdict(cls())), **stored.get(name, {})} for name, cls in _PARTS.items()}
    method = dict(stored.get("method", {}))
    if methods.knows(name := method.get("name", "")):
        method = {**plain(methods.settings(methods.parse(name, {}))), **method}
    return {**stored, **parts, "method": method}


def _with_lists(part: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with lists where lists are expected, and phases as objects. A single spec needs no brackets; class names
    may be written [cat, dog]."""
    made = dict(part)
    for key in ("attack", "augment", "exclude"):
        if isinstance(text := part.get(key), str):
            made[key] = spec.items(text, older=r"\|") if key == "exclude" else [text]
    if "phases" in part:
        made["phases"] = tuple(spec.configure(Phase, _with_lists(phase), "train.phases") for phase in part["phases"])
    return made


def load(source: str | Path | Mapping[str, Any] | Recipe, changes: Sequence[str] = ()) -> Recipe:
    """The recipe in a file, by the name of a shipped one, or from nested settings; `changes` are "train.epochs=30"."""
    if isinstance(source, Recipe):
        if not changes:
            return source
        source = source.settings()
    if isinstance(source, Mapping):
        return build(apply(source, changes))
    if not isinstance(source, (str, Path)):
        raise UserError(f"{source!r} is no recipe: give a file, the name of a shipped one, or nested settings.")
    path = locate(source)
    if not isinstance(path, Path):
        return load(path, changes)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read the recipe {path}: {error}") from error
    return _read_once(path, content, tuple(changes))


@functools.lru_cache(maxsize=1024)
def _read_once(path: Path, content: bytes, changes: tuple[str, ...]) -> Recipe:
    """The recipe in a file, built once while its content stays the same: studies load the same one many times."""
    return build(apply(read(path), changes))


def read(path: Path) -> dict[str, Any]:
    """The nested settings in a TOML or YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".toml":
            return tomllib.loads(text)
        import yaml  # type: ignore[import-untyped]

        tree = yaml.safe_load(text)
    except ImportError:
        raise UserError(f"reading {path} needs PyYAML: pip install pyyaml, or write the recipe as TOML.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the recipe {path}: {error}") from error
    except Exception as error:  # yaml's errors share no base with anything
        raise UserError(f"the recipe {path} is not valid YAML: {error}") from error
    if not isinstance(tree, dict):
        raise UserError(f"the recipe {path} must hold tables such as [data] and [method].")
    return tree


def apply(tree: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """The settings with ``part.key=value`` applied; values are TOML (`0.5`, `[1, 2]`, `{dog = 0.5}`), else text."""
    changed: dict[str, Any] = {name: dict(part) if isinstance(part, Mapping) else part for name, part in tree.items()}
    for change in changes:
        place, equals, value = change.partition("=")
        part, dot, key = place.strip().partition(".")
        if not equals or not dot:
            raise UserError(f"--set {change!r} is not of the form part.key=value, such as train.epochs=30.")
        if part not in (*_PARTS, "method"):
            raise unknown("part of a recipe", part, [*_PARTS, "method"])
        try:
            parsed = tomllib.loads(f"value = {value.strip()}")["value"]
        except tomllib.TOMLDecodeError:
            parsed = value.strip()
        own = changed.setdefault(part, {})
        if part == "method" and key == "name" and parsed != own.get("name"):
            own = changed["method"] = {}  # another method has other fields
        own[key] = parsed
    return changed


def to_toml(recipe: Recipe) -> str:
    """The whole recipe as a file, defaults included."""
    return tomli_w.dumps(plain(recipe.settings()))


def home() -> Path:
    """The folder of the shipped recipes: beside the installed package, or at the top of the source tree."""
    package = Path(__file__).parents[1]
    return next((p for p in (package / "recipes", package.parents[1] / "recipes") if p.is_dir()), package / "recipes")


_REGISTRY = Registry(
    kind="recipe",
    plural="recipes",
    accepts=lambda item: isinstance(item, (Mapping, Recipe, Path)),
    expected="nested settings, a Recipe or the Path of a file",
)


def names() -> list[str]:
    """The shipped recipes, such as ``cifar10/trades``, and those of installed packages."""
    shipped = (path.relative_to(home()).with_suffix("").as_posix() for path in home().rglob("*.toml"))
    return sorted({*shipped, *_REGISTRY.names()})


def describe(name: str) -> str:
    """A recipe's first comment line; of one that Python holds, the first line about the module."""
    if not isinstance(found := locate(name), Path):
        return _REGISTRY.describe(name)
    return found.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ").strip()


def usage(name: str) -> str:
    """What a recipe trains, in short."""
    recipe = load(name)
    held = f", {recipe.data.validation} of each class held out" if recipe.data.validation else ""
    return (
        f"{methods.name_of(recipe.method)} on {recipe.data.name} with {recipe.model.spec}, "
        f"eps {radius(recipe.threat.eps)}, {recipe.train.epochs} epochs{held}"
    )


def locate(source: str | Path) -> Path | Mapping[str, Any] | Recipe:
    """The file of a recipe, by its path or the name of a shipped one; or what Python holds, in a file or a package."""
    path = Path(source)
    if path.suffix in _SUFFIXES:
        shipped = home().parent / path  # recipes/cifar10/wat.toml, wherever one is
        found = path if path.is_file() else shipped if shipped.is_file() else None
        if found is None:
            raise UserError(f"no recipe file {str(source)!r}. Shipped recipes: {', '.join(names())}.")
        return found
    if (shipped := home() / f"{source}.toml").is_file():
        return shipped
    if not _REGISTRY.knows(str(source)) and not IN_FILE.fullmatch(str(source)):
        raise unknown("recipe", str(source), names())
    held: Path | Mapping[str, Any] | Recipe = _REGISTRY.find(str(source)).object
    return held
