"""`cite`: BibTeX of what a run used, or of attacks, methods, metrics, data sets and networks by name."""

from __future__ import annotations

from pathlib import Path

from classwise.citing import used
from classwise.citing.bibliography import OWN, entry
from classwise.core.errors import UserError


def cite(*what: str | Path) -> str:
    """BibTeX of classwise and of everything named: run folders, or names such as ``"pgd-20"`` and ``"trades"``.

    A comment before each entry says what it is for. Nothing named gives the entry of classwise alone.
    """
    found = [each for item in what for each in _of(item)]
    uses: dict[str, list[str]] = {OWN: [OWN]}
    for each in found:
        for paper in each.papers or ():
            uses.setdefault(paper, []).append(each.what)
    parts = [f"% {', '.join(dict.fromkeys(reasons))}\n{entry(paper)}" for paper, reasons in uses.items()]
    silent = dict.fromkeys(each.what for each in found if each.papers is None)
    parts += [f"% {name}: no paper is known; PAPERS in its file would name it" for name in silent]
    return "\n\n".join(parts) + "\n"


def _of(item: object) -> list[used.Used]:
    if not isinstance(item, (str, Path)):
        raise UserError(f"cite takes run folders and names such as 'pgd-20', got {item!r}.")
    path = Path(item)
    return used.of_run(path) if path.is_dir() and used.is_run(path) else used.named(str(item))
