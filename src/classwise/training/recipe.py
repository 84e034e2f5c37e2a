"""A recipe: everything that decides what a training comes to, in one TOML file.

    [data]      name = "cifar10"   validation = 300   augment = ["crop:padding=4", "flip"]
    [model]     spec = "resnet-18"
    [threat]    eps = "8/255"
    [method]    name = "trades"    beta = {dog = 0.5}
    [train]     epochs = 100       batch = 128        optimizer = "sgd:lr=0.1"   schedule = "step:milestones=[75, 90]"
    [validate]  attack = "pgd-10"  select = "worst"

Shipped recipes are named by their place, ``cifar10/trades``. A key that does not exist is an error with its near miss.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tomli_w

from classwise import attacks, methods
from classwise.core import spec
from classwise.core.errors import UserError, unknown
from classwise.core.format import radius
from classwise.core.registry import Registry
from classwise.core.run_config import plain
from classwise.core.spec import Count, Fraction, Natural, NonNegative, OpenShare, Positive, Seed, Share
from classwise.core.threat import Norm, Threat
from classwise.core.user_files import IN_FILE
from classwise.methods.method import Method

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SUFFIXES = (".toml", ".yaml", ".yml")


@dataclass(frozen=True)
class DataPart:
    """What is trained on.

    name: a data set's spec. limit, per_class: only so many examples, drawn by the seed. exclude: without these classes;
    the others are numbered anew. validation: examples of each class held out of the training split, 0 for none;
    held_out: which ones, the last of each class (FRL, WAT), the first (CFA), or random ones. augment: in this order.
    extra: a file of pseudo-labelled images (`classwise pseudo-label`), extra_fraction of every batch; epoch_size:
    examples in an epoch, where that is not the size of the data.
    """

    name: str = "cifar10"
    limit: Count | None = None
    per_class: Count | None = None
    exclude: tuple[str, ...] = ()
    validation: Natural = 0
    held_out: Literal["last", "first", "random"] = "last"
    augment: tuple[str, ...] = ()
    extra: str | None = None
    extra_fraction: Fraction = 0.5
    epoch_size: Count | None = None

    def __post_init__(self) -> None:
        spec.validate_fields(self)


@dataclass(frozen=True)
class ModelPart:
    """The network's spec; weights to start from, for methods that fine-tune; a normalising first layer."""

    spec: str = "resnet-18"
    weights: str | None = None
    normalize: str | None = None

    def __post_init__(self) -> None:
        spec.validate_fields(self)


@dataclass(frozen=True)
class ThreatPart:
    """The ball trained against."""

    eps: Positive = 8 / 255
    norm: Norm = "linf"

    def __post_init__(self) -> None:
        spec.validate_fields(self)


@dataclass(frozen=True)
class Phase:
    """A stretch of epochs with other data, augmentation or batch size.

    until: the epoch it ends with; one below 1 is a fraction of all epochs, so that the phases stretch with them; None:
    to the end of the training.
    """

    until: Count | OpenShare | None = None
    batch: Count | None = None
    data: str | None = None
    augment: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        spec.validate_fields(self)


@dataclass(frozen=True)
class TrainPart:
    """How the loss is minimised.

    joint: clean and adversarial images in one pass, so that batch-norm sees both together. averaging: "ema:decay=…",
    "swa:start=…", "fawa:…". awp: "awp:gamma=0.005". fold: attack a copy with batch-norm folded ("auto": where there
    is any). amp: "float16" or "bfloat16", on a GPU. stop_drop: stop, and go back one epoch, when PGD-5 accuracy on a
    training batch falls by more than this from one epoch to the next (catastrophic overfitting). save_minutes: also
    write a checkpoint within an epoch, this often. keep: which epochs' models stay in the run folder as
    epochs/0014.pt, besides best.pt and last.pt: "best" (none), "all", or every n-th and the last one.
    """

    epochs: Count = 100
    batch: Count = 128
    optimizer: str = "sgd:lr=0.1"
    schedule: str = "constant"
    clip: Positive | None = None
    smoothing: Fraction = 0.0
    joint: bool = False
    averaging: str | None = None
    awp: str | None = None
    fold: Literal["auto", "yes", "no"] = "auto"
    amp: Literal["float16", "bfloat16"] | None = None
    stop_drop: Share | None = None
    save_minutes: NonNegative = 10.0
    keep: Literal["best", "all"] | Count = "best"
    seed: Seed = 0
    phases: tuple[Phase, ...] = ()

    def __post_init__(self) -> None:
        spec.validate_fields(self)

    def keeps(self, epoch: int) -> bool:
        """Whether the model of this epoch, counted from 1, stays in the run folder as a checkpoint of its own."""
        if isinstance(self.keep, int):
            return epoch % self.keep == 0 or epoch == self.epochs
        return self.keep == "all"

    def ends(self) -> list[int]:
        """The epoch that each phase ends with."""
        return [_end(phase.until, self.epochs) for phase in self.phases]


@dataclass(frozen=True)
class ValidatePart:
    """The validation after an epoch, and which checkpoint is the best by it.

    select: "worst" (class robust accuracy, then the average), "average", "minimax" (the smallest of the largest class
    losses, as WAT's analysis), or "last".
    """

    attack: tuple[str, ...] = ("pgd-10",)
    eps: Positive | None = None
    protocol: Literal["any", "final"] = "final"
    every: Count = 1
    select: Literal["worst", "average", "minimax", "last"] = "worst"

    def __post_init__(self) -> None:
        spec.validate_fields(self)


@dataclass(frozen=True)
class Recipe:
    """All parts of a recipe, checked."""

    data: DataPart = field(default_factory=DataPart)
    model: ModelPart = field(default_factory=ModelPart)
    threat: ThreatPart = field(default_factory=ThreatPart)
    method: Method = field(default_factory=lambda: methods.parse("trades", {}))
    train: TrainPart = field(default_factory=TrainPart)
    validate: ValidatePart = field(default_factory=ValidatePart)

    def __post_init__(self) -> None:
        Threat(self.threat.norm, self.threat.eps)
        attacks.parse(list(self.validate.attack))
        if self.train.stop_drop is not None and self.train.averaging is not None:
            raise UserError(
                "train.stop_drop goes back to the weights of an epoch, which an average forgets: leave one out."
            )
        if not self.data.validation and self.validate.select != "last":
            raise UserError(
                f"select = {self.validate.select!r} chooses a checkpoint on validation data, and none is held out: set "
                "data.validation to a number of examples per class, or validate.select to last."
            )
        untils = [self.train.epochs if phase.until is None else phase.until for phase in self.train.phases]
        ends, given = self.train.ends(), [until for until in untils if until >= 1]
        in_order = ends == sorted(ends) and given == sorted(set(given)) and all(until > 0 for until in untils)
        if ends and not (in_order and ends[-1] == self.train.epochs):
            raise UserError(
                f"phases must end one after the other, the last at epoch {self.train.epochs}; got {untils}. An end "
                "below 1 is a fraction of all epochs, and the last phase needs none."
            )

    def settings(self) -> dict[str, Any]:
        """The whole recipe as nested plain values, defaults included."""
        parts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "method"}
        tree = {name: dataclasses.asdict(part) for name, part in parts.items()}
        tree["method"] = {"name": methods.name_of(self.method), **methods.settings(self.method)}
        return tree


def _end(until: float | None, epochs: int) -> int:
    return epochs if until is None else round(until * epochs) if until < 1 else int(until)


_PARTS = {"data": DataPart, "model": ModelPart, "threat": ThreatPart, "train": TrainPart, "validate": ValidatePart}


def build(tree: Mapping[str, Any]) -> Recipe:
    """A recipe from nested settings, as read from a file; the config.toml of a run folder is one too."""
    tree = settings_of(tree)
    spec.check_keys(tree, {**_PARTS, "method": None}, "a recipe")
    for name, part in tree.items():
        if not isinstance(part, Mapping):
            raise UserError(f"[{name}] of a recipe must be a table of settings, got {part!r}.")
    made: dict[str, Any] = {
        name: spec.configure(cls, _listed(tree.get(name, {})), name) for name, cls in _PARTS.items()
    }
    own = dict(tree.get("method", {}))
    if "name" not in own:
        raise UserError(f"a recipe needs [method] name = …; one of {', '.join(methods.names())}.")
    return Recipe(**made, method=methods.parse(str(own.pop("name")), own))


#: What the config.toml of a run folder says besides the recipe.
RECORDED = ("fingerprint", "run")


def settings_of(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe's part of a config.toml; what is no config.toml, as it is."""
    return {name: part for name, part in tree.items() if name not in RECORDED or RECORDED[0] not in tree}


def with_defaults(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings with those that an earlier version did not write, at their defaults."""
    parts = {name: {**plain(dataclasses.asdict(cls())), **stored.get(name, {})} for name, cls in _PARTS.items()}
    method = dict(stored.get("method", {}))
    if methods.knows(name := method.get("name", "")):
        method = {**plain(methods.settings(methods.parse(name, {}))), **method}
    return {**stored, **parts, "method": method}


def _listed(part: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with lists where lists are meant, and phases made objects. One spec needs no brackets; names of classes
    may be written [cat, dog]."""
    made = dict(part)
    for key in ("attack", "augment", "exclude"):
        if isinstance(text := part.get(key), str):
            made[key] = spec.items(text, older=r"\|") if key == "exclude" else [text]
    if "phases" in part:
        made["phases"] = tuple(spec.configure(Phase, _listed(phase), "train.phases") for phase in part["phases"])
    return made


def load(source: str | Path | Mapping[str, Any] | Recipe, changes: Sequence[str] = ()) -> Recipe:
    """The recipe in a file, by the name of a shipped one, or from nested settings; `changes` are "train.epochs=30"."""
    if isinstance(source, Recipe):
        if not changes:
            return source
        source = source.settings()
    if isinstance(source, Mapping):
        return build(_changed(source, changes))
    if not isinstance(source, (str, Path)):
        raise UserError(f"{source!r} is no recipe: give a file, the name of a shipped one, or nested settings.")
    path = locate(source)
    if not isinstance(path, Path):
        return load(path, changes)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read the recipe {path}: {error}") from error
    return _in_file(path, content, tuple(changes))


@functools.lru_cache(maxsize=1024)
def _in_file(path: Path, content: bytes, changes: tuple[str, ...]) -> Recipe:
    """The recipe in a file, built once for as long as the file says the same: studies ask for one again and again."""
    return build(_changed(read(path), changes))


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


def _changed(tree: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """The settings with ``part.key=value`` put in; a value is TOML (`0.5`, `[1, 2]`, `{dog = 0.5}`), else text."""
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
