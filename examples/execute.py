"""Run the notebooks of this folder and store their outputs: make examples. Charts are stored as drawings."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
_SECONDS = 600  # for a cell, on a slow machine


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a fresh run in an empty folder; an error of a cell is an error here."""
    os.environ["CLASSWISE_CHARTS"] = "static"
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook, timeout=_SECONDS, kernel_name="python3", resources={"metadata": {"path": folder}}
        )
        client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when each cell ran
        if "outputs" in cell:  # tqdm complains where there are no widgets, with the path of its file
            cell.outputs = [one for one in cell.outputs if "TqdmWarning" not in one.get("text", "")]
    return notebook


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, help="by default all of them")
    for path in parser.parse_args().notebooks or sorted(HERE.glob("*.ipynb")):
        begin = time.perf_counter()
        nbformat.write(execute(path), path)
        print(f"{path.name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
