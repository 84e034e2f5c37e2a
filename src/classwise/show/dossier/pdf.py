"""A page as PDF, printed by the Chromium at hand."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from classwise.core.storage import atomic_write

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
_VARIABLE = "CLASSWISE_CHROMIUM"
_SECONDS = 120


def find_chromium() -> str | None:
    """The program that the environment names, or the first of the usual names."""
    return os.environ.get(_VARIABLE) or next(filter(None, map(shutil.which, _NAMES)), None)


def print_page(page: Path, target: Path) -> str | None:
    """Print a page into a PDF file. None if that went well, else what is missing and what to do about it."""
    program = find_chromium()
    if program is None:
        return (
            f"No PDF: no Chromium or Chrome was found ({', '.join(_NAMES[:3])}). Install one, or name it in "
            f"{_VARIABLE}; or print {page} from any browser."
        )
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "page.pdf"
        options = ["--headless=new", "--disable-gpu", "--no-first-run", f"--user-data-dir={folder}/profile"]
        options += ["--no-pdf-header-footer", f"--print-to-pdf={made}"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            options.append("--no-sandbox")  # Chromium's sandbox does not start for root
        try:
            done = subprocess.run(
                [program, *options, page.resolve().as_uri()], capture_output=True, timeout=_SECONDS, check=False
            )
            reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:] if not made.is_file() else None
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = [str(error)]
        if reason is None:
            with atomic_write(target) as handle:
                handle.write(made.read_bytes())
            return None
    why = " ".join(reason) or "no reason given"
    return f"No PDF: {program} did not print {page} ({why}). Print it from any browser."
