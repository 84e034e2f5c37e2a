"""Whether the zoo is what its index says: every file, every model, every audit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from classwise.auditing.verify import verify
from classwise.core.errors import UserError
from classwise.core.run_folder import TrainingFolder
from classwise.core.toml import tomllib
from classwise.models.zoo import ENTRY, Entry, Zoo
from classwise.results.audit_result import Audit
from classwise.training import recipe
from classwise.zoo import audits, weights
from classwise.zoo.adding import digests


@dataclass(frozen=True)
class Checked:
    """A model of the zoo: what is wrong with it, and what was measured again."""

    name: str
    wrong: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def check(zoo: Zoo, entry: Entry, again: bool = False, per_class: int = 10, root: Path | None = None) -> Checked:
    """Check a model: the digests of its files, that it loads, that its audits are of it and say what the index says.

    again: also audit `per_class` random images of each class again under each audit, as `verify` does.
    """
    try:
        files = list(_wrong_files(zoo, entry))
        if files:
            return Checked(entry.name, tuple(files))
        remarks: list[str] = []
        wrong = [*_wrong_model(zoo, entry), *_wrong_audits(zoo, entry)]
        for own in entry.about["audits"] if again and not wrong else ():
            checkpoint = zoo.file(entry.name, TrainingFolder.best.name)
            run = zoo.folder / entry.name / own["folder"]
            found = verify(run, model=checkpoint, per_class=per_class, root=root, progress=False)
            (remarks if found.passed else wrong).extend(found.sentences())
    except UserError as error:
        return Checked(entry.name, (str(error),))
    return Checked(entry.name, tuple(wrong), tuple(remarks))


def _wrong_files(zoo: Zoo, entry: Entry) -> Iterator[str]:
    for file in entry.files:
        try:
            zoo.file(entry.name, file)
        except UserError as error:
            yield str(error)
    if zoo.url is None and (folder := zoo.folder / entry.name).is_dir():
        for file in digests(folder).keys() - entry.files.keys():
            yield f"{folder / file} is not in the index: remove it, or add the model again with --overwrite."


def _wrong_model(zoo: Zoo, entry: Entry) -> Iterator[str]:
    best = zoo.file(entry.name, TrainingFolder.best.name)
    about: dict[str, Any] = tomllib.loads(zoo.file(entry.name, ENTRY).read_text(encoding="utf-8"))
    if about != entry.about:
        yield f"its {ENTRY} and the index say different things; add it again with --overwrite."
    if weights.fingerprint(best) != about["fingerprint"]:
        yield f"the weights of {best} are not those with the fingerprint in {ENTRY}."
    run = zoo.run(entry.name)
    recipe.load(run.config())
    run.history()


def _wrong_audits(zoo: Zoo, entry: Entry) -> Iterator[str]:
    for own in entry.about["audits"]:
        audit = _audit(zoo, entry, own["folder"])
        if not weights.is_of(audit.config, entry.about["fingerprint"]):
            yield f"{own['folder']} is of other weights than those stored."
        if audits.about(audit, own["folder"]) != own:
            yield f"the records in {own['folder']} give other numbers than the index."


def _audit(zoo: Zoo, entry: Entry, folder: str) -> Audit:
    for file in entry.files:
        if file.startswith(f"{folder}/"):
            zoo.file(entry.name, file)
    return Audit.load(zoo.folder / entry.name / folder)
