"""The audit dossier: what an auditor asks for, as a folder with a page, its PDF, the data behind it and a manifest.

cw.dossier(["runs/madry", "runs/madry-fog"], "dossier", facts="facts.toml")

dossier.html, dossier.pdf   what people read
dossier.json                the same as data: every number of the page, in full
model-index.yaml            the results for the head of a model card
facts.toml                  the facts that were given
runs/NAME/                  summary.json and config.toml of each run
manifest.json               SHA-256 digests of all these, and of the run folders' files
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from classwise.core.arguments import checked
from classwise.core.errors import UserError
from classwise.core.run_folder import AuditFolder, write_json
from classwise.core.storage import atomic_write_text, safe_name
from classwise.results import dossier as contents
from classwise.results.audit_result import Audit
from classwise.results.compare import read_runs
from classwise.results.dossier import facts as fact_files
from classwise.results.dossier.facts import Facts
from classwise.show.dossier import manifest, page, pdf
from classwise.show.dossier.model_card import model_index
from classwise.show.page import first_screen

_FILES = ("dossier.html", "dossier.pdf", "dossier.json", "model-index.yaml", "facts.toml", manifest.NAME)


@dataclass(frozen=True)
class Dossier:
    """A dossier that was written. contents: what dossier.json holds. notes: what is missing, and what to do."""

    folder: Path
    contents: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool | None:
        """Whether the criteria hold; None without criteria."""
        found: bool | None = self.contents["criteria"]["passed"]
        return found

    def verify(self) -> list[str]:
        """What is not as it was written, a sentence each."""
        return manifest.verify(self.folder)


@checked
def dossier(
    runs: Mapping[str, Audit] | Sequence[str | Path],
    out: str | Path = "dossier",
    facts: str | Path | None = None,
    title: str | None = None,
    print_pdf: bool = True,
) -> Dossier:
    """Write the audit dossier of one model into a folder.

    runs: run folders of finished audits of the model, or audits by name; the first is the one that the first page is
    about. Audits of corrupted images are recognised by their data. facts: a TOML file with what no measurement can know
    (`classwise dossier --template FILE` writes one to fill). print_pdf: also as PDF, where there is a Chromium.
    """
    audits = dict(runs) if isinstance(runs, Mapping) else read_runs(runs)
    known = Facts() if facts is None else fact_files.read(Path(facts))
    made = contents.collect(audits, known)
    folder = _prepared(Path(out))
    atomic_write_text(folder / "dossier.html", page.html(made, first_screen.scope(audits[made["first"]]), title))
    write_json(folder / "dossier.json", made)
    atomic_write_text(folder / "model-index.yaml", model_index(made))
    if facts is not None:
        shutil.copyfile(facts, folder / "facts.toml")
    for name, audit in audits.items():
        _copy_run(audit, folder / "runs" / safe_name(name))
    missing = made["missing"]
    notes = [f"Not stated in the facts: {', '.join(missing)}."] if missing else []
    if print_pdf and (failed := pdf.print_page(folder / "dossier.html", folder / "dossier.pdf")) is not None:
        notes.append(failed)
    manifest.write(folder, _evidence(audits, made))
    return Dossier(folder, made, tuple(notes))


def _prepared(folder: Path) -> Path:
    """The folder, without an earlier dossier; an error where it holds something else."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / manifest.NAME).is_file():
        raise UserError(f"{folder} holds other files and is no dossier; choose another --out.")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; --out of a dossier must be a folder.")
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "runs", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _copy_run(audit: Audit, target: Path) -> None:
    """Copies of summary and settings; of an audit without a folder the summary alone."""
    if audit.folder is None:
        write_json(target / "summary.json", audit.summary())
        return
    run = AuditFolder(audit.folder)
    target.mkdir(parents=True, exist_ok=True)
    for path in (run.summary_file, run.config_file):
        if path.is_file():
            shutil.copyfile(path, target / path.name)


def _evidence(audits: Mapping[str, Audit], made: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {"folder": str(audit.folder), "files": made["identity"]["runs"][name]["files"]}
        for name, audit in audits.items()
        if audit.folder is not None
    }
