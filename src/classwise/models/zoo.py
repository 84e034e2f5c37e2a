"""The zoo: trained models with their recipe, history and audits, each named ``zoo:cifar10/resnet16/wat-0``.

    zoo/index.json                           every model: what it is, and the SHA-256 of each of its files
    zoo/cifar10/resnet16/wat-0/entry.toml    what it is, and what its audits found
                               best.pt, config.toml, history.csv      as in the run folder of a training
                               audits/pgd-20/                          run folders of audits

A repaired model has the config.toml of its repair and no history; `repaired` in its entry.toml names the model that was
repaired.

It is the folder ``zoo`` beside the package, at the top of a clone. CLASSWISE_ZOO names another folder, or the address
of one, whose files are fetched when they are used, checked against the index, and kept in the user's cache. An
installed package has the index alone.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pooch

from classwise.core.errors import UserError, lookup
from classwise.core.format import percent, radius
from classwise.core.run_folder import TrainingFolder
from classwise.core.storage import atomic_write_text, file_digest
from classwise.data.download import Remote, fetch

PREFIX = "zoo:"
SETTING = "CLASSWISE_ZOO"
INDEX, ENTRY = "index.json", "entry.toml"
FORMAT = 1
_PATH = re.compile(r"[A-Za-z0-9][\w.+=-]*(/[A-Za-z0-9][\w.+=-]*)*")
_ADDRESS = re.compile(r"https?://.+")


@dataclass(frozen=True)
class Entry:
    """A model of the zoo: what its entry.toml says, and the digests of its files."""

    name: str
    about: Mapping[str, Any]
    files: Mapping[str, str]

    @property
    def spec(self) -> str:
        return PREFIX + self.name

    @property
    def method(self) -> str:
        """How it was made: the method that trained it, and whether it was repaired."""
        return f"{self.about['method']}, repaired" if "repaired" in self.about else str(self.about["method"])

    @property
    def row(self) -> dict[str, Any]:
        """A line of the list of models; the accuracies are those of its first audit."""
        about: Mapping[str, Any] = next(iter(self.about.get("audits", ())), {})
        worst = " = ".join(about.get("worst_classes", ()))
        return {
            "name": self.name,
            "data": self.about["data"],
            "method": self.method,
            "seed": self.about["seed"],
            "clean": percent(about.get("clean", math.nan)) if about else "",
            "average": percent(about["average"]) if about else "",
            "worst class": f"{percent(about['worst'])} {worst}" if about else "",
            "attack": f"{' + '.join(about['attacks'])}, {_threat(about)}" if about else "",
        }


@dataclass(frozen=True)
class Zoo:
    """A folder of models, or the copy of one that is fetched from `url` file by file."""

    folder: Path
    entries: Mapping[str, Entry]
    url: str | None = None

    def entry(self, name: str) -> Entry:
        """The model of that name, with or without ``zoo:``; an error with the nearest name where there is none."""
        return lookup("model of the zoo", name.removeprefix(PREFIX), self.entries)

    def holds(self, name: str) -> bool:
        """Whether the files of a model are here, or can be fetched."""
        return self.url is not None or (self.folder / name / TrainingFolder.best).is_file()

    def file(self, name: str, file: str) -> Path:
        """A file of a model, fetched if need be; one that is not what the index says is an error."""
        entry = self.entry(name)
        digest, path = lookup(f"file of {entry.spec}", file, entry.files), self.folder / entry.name / file
        if path.is_file() and file_digest(path) == digest:
            return path
        if self.url is not None:
            _fetch(f"{self.url}/{entry.name}/{file}", digest, path.parent)
            return path
        if path.is_file():
            raise UserError(
                f"{path} is not the file that {self.folder / INDEX} lists: its SHA-256 differs. Restore it (git "
                f"checkout {path.name}), or add the model again; classwise zoo check looks at every file."
            )
        raise UserError(
            f"{entry.spec} is in the index but its file {path} is not there. An installed package brings the index "
            f"alone: set {SETTING} to the folder zoo of a clone, or to the address of one."
        )

    def run(self, name: str) -> TrainingFolder:
        """A model's folder with all that a training leaves: its checkpoint, recipe and history; of a repaired model,
        that of the model that was repaired."""
        entry = self.entry(name)
        if "repaired" in entry.about:
            return self.run(entry.about["repaired"]["of"])
        for file in entry.files:
            if "/" not in file and file != ENTRY:
                self.file(name, file)
        return TrainingFolder(self.folder / entry.name)


def _threat(about: Mapping[str, Any]) -> str:
    return ("" if about["norm"] == "linf" else f"{about['norm']} ") + radius(about["eps"])


def is_zoo(spec: object) -> bool:
    """Whether a model or weights are named as those of the zoo."""
    return isinstance(spec, (str, Path)) and str(spec).startswith(PREFIX)


def is_name(text: str) -> bool:
    """Whether a model, a part of its name or a file of it may be called so: nothing leads out of the zoo's folder."""
    return _PATH.fullmatch(text) is not None and ".." not in text.split("/")


def checkpoint(spec: str | Path) -> Path:
    """The checkpoint of ``zoo:NAME``; any other path as it is."""
    if not is_zoo(spec):
        return Path(spec)
    name = str(spec).replace("\\", "/")  # a Path on Windows
    return open_zoo().file(name, TrainingFolder.best.name)


def run_of(model: str | Path) -> TrainingFolder:
    """The run folder of the training that a checkpoint is in; of ``zoo:NAME``, that of the zoo."""
    return open_zoo().run(str(model)) if is_zoo(model) else TrainingFolder(Path(model).parent)


def home() -> Path:
    """The folder of the shipped zoo: beside the installed package, or at the top of the source tree."""
    package = Path(__file__).parents[1]
    top = package.parents[1] / "zoo"
    return package / "zoo" if (package / "zoo" / INDEX).is_file() else top


def open_zoo() -> Zoo:
    """The zoo that CLASSWISE_ZOO names, or the shipped one."""
    where = os.environ.get(SETTING, "").strip()
    if _ADDRESS.fullmatch(where):
        return _at(where.rstrip("/"))
    folder = Path(where).expanduser() if where else home()
    if where and not (folder / INDEX).is_file():
        raise UserError(f"{SETTING} is {where!r}, which has no {INDEX}: name the folder zoo of a clone, or an address.")
    return in_folder(folder)


def in_folder(folder: Path) -> Zoo:
    """The zoo in a folder; one without models where there is none."""
    path = folder / INDEX
    text = path.read_text(encoding="utf-8") if path.is_file() else json.dumps({"format": FORMAT, "models": {}})
    return Zoo(folder, _read(text, str(path)))


@functools.cache
def _at(url: str) -> Zoo:
    """The zoo at an address, its index fetched once; the copy of the last time where it cannot be."""
    cache = pooch.os_cache("classwise") / "zoo" / hashlib.sha256(url.encode()).hexdigest()[:12]
    try:
        text = _text(f"{url}/{INDEX}")
    except OSError as error:  # what requests raises is an OSError too
        if not (cache / INDEX).is_file():
            raise UserError(
                f"could not read the zoo at {url}/{INDEX}: {error}. Check {SETTING} and the connection, or set it to "
                "the folder zoo of a clone."
            ) from error
        return Zoo(cache, in_folder(cache).entries, url)
    entries = _read(text, f"{url}/{INDEX}")
    atomic_write_text(cache / INDEX, text)
    return Zoo(cache, entries, url)


def _text(url: str) -> str:
    content = io.BytesIO()
    pooch.HTTPDownloader()(url, content, None)
    return content.getvalue().decode()


def _fetch(url: str, digest: str, into: Path) -> None:
    """Fetch a file and check it; nothing is kept of one that is not what the index says."""
    try:
        fetch(Remote(url, f"sha256:{digest}"), into)
    except UserError as error:
        raise UserError(f"{error} Or set {SETTING} to the folder zoo of a clone, which needs no connection.") from error


def _read(text: str, source: str) -> dict[str, Entry]:
    try:
        found = json.loads(text)
        if found["format"] != FORMAT:
            raise UserError(f"{source} has format {found['format']}; this classwise reads {FORMAT}: upgrade it.")
        for name, own in found["models"].items():
            for path in (name, *own["files"]):
                if not is_name(path):
                    raise ValueError(f"{path!r} is no name of a model or file")
        return {name: Entry(name, own["about"], own["files"]) for name, own in found["models"].items()}
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{source} is damaged ({type(error).__name__}: {error}). Restore it from a copy.") from error


# ---- classwise list zoo --------------------------------------------------------------------------------------


def names() -> list[str]:
    """Every model of the zoo."""
    return sorted(open_zoo().entries)


def describe(name: str) -> str:
    """How a model was trained, in a sentence."""
    entry = open_zoo().entry(name)
    about = entry.about
    return (
        f"{entry.method} on {about['data']} with {about['network']}, {about['norm']} eps {radius(about['eps'])}, "
        f"{about['epochs']} epochs, seed {about['seed']}"
    )


def usage(name: str) -> str:
    """What its audits found."""
    audits = open_zoo().entry(name).about.get("audits", ())
    return "; ".join(
        f"{' + '.join(own['attacks'])}: clean {percent(own['clean'])}, average {percent(own['average'])}, worst class "
        f"{' = '.join(own['worst_classes'])} {percent(own['worst'])}, {own['images']:,} images"
        for own in audits
    )


def rows() -> list[dict[str, Any]]:
    """The list as a table."""
    found = open_zoo().entries
    return [found[name].row for name in sorted(found)]
