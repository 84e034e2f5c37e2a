"""Labels of images in a CSV file, and names of classes in a file, as data sets on the web come with them.

    file,label            the header is free where there are two columns; of more, columns called file, filename, path,
    img/1.png,cat         image, image_id or id, and label, class, classid, class_id, category or target are found by
    img/2.png,dog         name, whatever their case, or named: ``labels=Train.csv,file=Path,label=ClassId``

Commas, semicolons and tabs separate. A path is relative to the root, to the file, or to the split's folder; its ending
may be left out, and a plain file name is searched below the root. A column called split, set or subset says which split
an image is of; ``labels={split}.csv`` is a file for each split instead. Labels that are all whole numbers are ordered
as numbers, others alphabetically.

Names: a text file with a name a line, the k-th of them (from 0) the name of class k; or a table of labels and names,
CSV with two columns or JSON, which only renames.
"""

from __future__ import annotations

import csv
import functools
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from classwise.core.errors import UserError, unknown
from classwise.core.format import listed
from classwise.data.files import EXTENSIONS, image_files

_FILE = ("file", "filename", "file_name", "path", "filepath", "image", "image_path", "image_id", "img", "id", "name")
_LABEL = ("label", "class", "classid", "class_id", "class_name", "category", "target", "y")
_SPLIT = ("split", "set", "subset", "partition")
_SPLITS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
_PLACE = "{split}"
_MOST = 3  # images named
_LONGEST = 18  # digits of a label that is a number


_Below: TypeAlias = dict[str, list[Path]]


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Image files with their labels and splits, if any. classes: all labels in order."""

    paths: Sequence[Path]
    labels: Sequence[str]
    splits: Sequence[str | None]
    classes: Sequence[str]
    known_splits: tuple[str, ...] = ()


def split_called(name: str) -> str | None:
    """The split that a folder or a cell of a table names, if it is one."""
    return next((split for split, words in _SPLITS.items() if name.strip().lower() in words), None)


def read(root: Path, labels: str, file: str | None = None, label: str | None = None) -> Labelled:
    """The images that a CSV file labels, or one for each split; all of them exist."""
    if _PLACE in labels:
        tables = {split: path for split in _SPLITS if (path := _any_case(root, labels.replace(_PLACE, split)))}
        if not tables:
            raise UserError(f"folder: labels={labels}: there is no {labels.replace(_PLACE, 'train')} in {root}.")
    else:
        path = _any_case(root, labels)
        if path is None:
            raise UserError(
                f"folder: there is no file {labels!r} in {root}; labels= is a CSV file with a row per image."
            )
        tables = {"": path}
    found: dict[Path, tuple[str, str | None]] = {}
    known: set[str] = set()
    below = functools.cache(lambda: _by_name(root))
    for split, path in tables.items():
        for image, name, part in _rows(path, root, split, file, label, below):
            if found.setdefault(image, (name, part)) != (name, part):
                raise UserError(f"{path} has two rows for {image} that differ: {found[image][0]!r} and {name!r}.")
            known |= set() if part is None else {part}
    _report_unlisted(found, " and ".join(path.name for path in tables.values()))
    names = [name for name, _ in found.values()]
    return Labelled(
        paths=list(found),
        labels=names,
        splits=[part for _, part in found.values()],
        classes=_in_order(names),
        known_splits=tuple(split for split in _SPLITS if split in known),
    )


def _rows(
    path: Path, root: Path, split: str, file: str | None, label: str | None, below: Callable[[], _Below]
) -> Iterable[tuple[Path, str, str | None]]:
    """The image, the label and the split of every row."""
    header, body = _table(path)
    at_file = _column(path, header, file, _FILE, 0, "file")
    at_label = _column(path, header, label, _LABEL, 1, "label")
    at_split = next((place for place, name in enumerate(header) if name.lower() in _SPLIT and len(header) > 2), None)
    places = [root, path.parent, *((root / split, path.parent / split) if split else ())]
    for number, cells in body:
        if len(cells) != len(header):
            raise UserError(f"{path}, line {number}: {len(cells)} cells where the header has {len(header)}.")
        name = cells[at_label].strip()
        if not name:
            raise UserError(f"{path}, line {number}: {cells[at_file]!r} has no label.")
        part = split or None
        if at_split is not None and (part := split_called(cells[at_split])) is None:
            raise unknown(f"split in line {number} of {path}", cells[at_split], list(_SPLITS))
        yield _image(cells[at_file].strip(), places, below, f"{path}, line {number}"), name, part


def _table(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header of a CSV file, and its other rows with the numbers of their lines."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        raise UserError(f"cannot read the labels in {path}: {error}.") from error
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    reader = csv.reader(text.splitlines(), delimiter=separator)
    try:
        rows = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}.") from error
    if not rows:
        raise UserError(f"{path} is empty; it needs a row for each image: its file and its label.")
    header = [cell.strip() for cell in rows[0][1]]
    if len(header) < 2:
        raise UserError(f"{path} has one column; it needs two, the image's file and its label.")
    if Path(header[0]).suffix.lower() in EXTENSIONS:  # no header
        return (["file", "label", *map(str, range(2, len(header)))]), rows
    return header, rows[1:]


def _column(
    path: Path, header: Sequence[str], wanted: str | None, usual: Sequence[str], otherwise: int, what: str
) -> int:
    """The place of a column: the one named, one of the usual names, or of two columns the first or the second."""
    if wanted is not None:
        if wanted not in header:
            raise unknown(f"column of {path}", wanted, header)
        return header.index(wanted)
    lower = [name.lower() for name in header]
    for name in usual:
        if name in lower:
            return lower.index(name)
    if len(header) == 2:
        return otherwise
    raise UserError(
        f"{path}: which column is the {what}? It has {', '.join(header)}; name it: labels={path.name},{what}=COLUMN."
    )


def _image(name: str, places: Sequence[Path], below: Callable[[], _Below], where: str) -> Path:
    """The image that a row names: in one of the places, or of that name anywhere below the first, the root."""
    endings = ("", *EXTENSIONS) if Path(name).suffix.lower() not in EXTENSIONS else ("",)
    for ending in endings:
        for place in places:
            if name and (path := place / f"{name}{ending}").is_file():
                return path
    found = below().get(name, [])
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"{where}: {name!r} may be {found[0]} or {found[1]}; write the path from {places[0]}.")
    raise UserError(f"{where}: there is no image {name!r} in {places[0]}; correct the row, or remove it.")


def _by_name(root: Path) -> _Below:
    """All images below a folder by their names, with and without ending."""
    found: _Below = {}
    for path in map(Path, image_files(root)):
        found.setdefault(path.name, []).append(path)
        found.setdefault(path.stem, []).append(path)
    return found


def _report_unlisted(found: Mapping[Path, object], files: str) -> None:
    """Warn of images beside the labelled ones that no row names."""
    folders = {path.parent for path in found}
    beside = [path for folder in folders for path in folder.iterdir() if path.suffix.lower() in EXTENSIONS]
    if left := sorted({*beside} - found.keys()):
        warnings.warn(
            f"{len(left):,} of {len(beside):,} images are in no row of {files} and are left out: "
            f"{listed([str(path) for path in left], _MOST)}.",
            stacklevel=4,
        )


def _any_case(root: Path, name: str) -> Path | None:
    """The file of that name in a folder, or one whose name differs in case only."""
    path = root / name
    if path.is_file() or not path.parent.is_dir():
        return path if path.is_file() else None
    return next((other for other in sorted(path.parent.iterdir()) if other.name.lower() == path.name.lower()), None)


def _in_order(labels: Iterable[str]) -> list[str]:
    """The different labels: as numbers where all of them are whole numbers, else alphabetically."""
    different = set(labels)
    return sorted(different, key=int) if all(map(_is_number, different)) else sorted(different)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < _LONGEST


def classes(in_order: Sequence[str], root: Path, names: str | None) -> tuple[tuple[str, ...], dict[str, int]]:
    """The names of the classes in order, and the number of the class of each label. names: a file, if there is one."""
    if names is None:
        return tuple(in_order), {label: number for number, label in enumerate(in_order)}
    path = _any_case(root, names)
    if path is None:
        raise UserError(f"there is no file {names!r} in {root}; names= is a file with the names of the classes.")
    known = _read_names(path)
    if isinstance(known, dict):
        keys = {_key(label): name for label, name in known.items()}
        missing = [label for label in in_order if _key(label) not in keys]
        if missing:
            raise UserError(f"{path} names no class {listed(missing)}; add a row for each label.")
        return tuple(keys[_key(label)] for label in in_order), {label: k for k, label in enumerate(in_order)}
    return tuple(known), _places(in_order, known, path)


def _places(labels: Sequence[str], names: Sequence[str], path: Path) -> dict[str, int]:
    """The line that each label belongs to: the one that says it, the one with its number, or the one in its order."""
    if {*labels} <= {*names}:
        return {label: names.index(label) for label in labels}
    if all(map(_is_number, labels)):
        values = [int(label) for label in labels]
        first = 1 if 0 not in values and len(names) in values else 0
        if max(values) - first < len(names):
            return {label: int(label) - first for label in labels}
    elif len(labels) == len(names):
        return {label: number for number, label in enumerate(labels)}
    raise UserError(
        f"{path} has {len(names)} names for {len(labels)} classes ({listed(labels)}); it needs a line for each class."
    )


def _read_names(path: Path) -> list[str] | dict[str, str]:
    try:
        if path.suffix.lower() == ".json":
            made = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(made, (dict, list)):
                raise UserError(f"{path} must hold a list of names, or an object of labels and names.")
            texts = made.values() if isinstance(made, dict) else made
            if not all(isinstance(text, str) for text in texts):
                raise UserError(f"{path} must hold names, which are text.")
            return made
        if path.suffix.lower() == ".csv":
            _, body = _table(path)
            return {cells[0].strip(): cells[1].strip() for _, cells in body}
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the names of the classes in {path}: {error}.") from error
    return [line.strip() for line in lines if line.strip()]


def _key(label: str) -> str:
    """A label by which others of the same number are found: 00014 is 14."""
    return str(int(label)) if _is_number(label) else label
