"""The example notebooks: stored with their outputs, and their code uses only names and arguments that exist.

`make test-adapters` runs them (tests/adapters/test_notebooks.py).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
_LARGEST = 400_000  # bytes: drawings, not libraries


def cells(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def tree(path: Path) -> ast.Module:
    return ast.parse("\n".join("".join(cell["source"]) for cell in cells(path)))


def taken_from(module: str, name: str) -> Any:
    """What an import of a name gives: an attribute of the module, or a module of the package."""
    home = importlib.import_module(module)
    try:
        return getattr(home, name)
    except AttributeError:
        return importlib.import_module(f"{module}.{name}")


def named(code: ast.Module) -> Iterator[tuple[str, Any, ast.expr]]:
    """What a notebook takes from packages by attribute, such as cw.audit: its text, the object, and where it stands."""
    modules = {}
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            modules |= {(one.asname or one.name): importlib.import_module(one.name) for one in node.names}
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("classwise"):
            modules |= {(one.asname or one.name): taken_from(node.module, one.name) for one in node.names}
    for node in ast.walk(code):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            module = modules[node.value.id]
            if getattr(module, "__name__", "").startswith("classwise"):
                yield f"{node.value.id}.{node.attr}", getattr(module, node.attr), node


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["audit_your_model", "make_it_fairer", "reproduce_a_table"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_stored_with_outputs_and_without_errors(path: Path) -> None:
    run = cells(path)
    assert [cell["execution_count"] for cell in run] == list(range(1, len(run) + 1))
    outputs = [output for cell in run for output in cell["outputs"]]
    assert not [
        output for output in outputs if output["output_type"] in ("error", "stream") and output.get("name") != "stdout"
    ]
    assert any("text/html" in output.get("data", {}) for output in outputs)
    assert any("data:image/svg+xml" in json.dumps(output) for output in outputs)
    assert path.stat().st_size < _LARGEST
    text = path.read_text(encoding="utf-8")
    assert "<script" not in text  # charts are drawings: scripts would make the file large
    for private in ("/home/", "/root/", "/Users/", "C:\\\\"):
        assert private not in text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_names_and_arguments_exist(path: Path) -> None:
    code = tree(path)
    known = {id(node): (text, thing) for text, thing, node in named(code)}
    assert known, "a notebook uses classwise"
    for node in ast.walk(code):
        if isinstance(node, ast.Call) and id(node.func) in known:
            text, function = known[id(node.func)]
            taken = inspect.signature(function).parameters
            anything = any(one.kind is one.VAR_KEYWORD for one in taken.values())
            for keyword in node.keywords:
                assert keyword.arg is None or keyword.arg in taken or anything, f"{text}({keyword.arg}=…)"


def test_a_name_that_does_not_exist_is_found(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "source": ["import classwise as cw\n", "cw.audti(1)"], "outputs": []}
    (tmp_path / "wrong.ipynb").write_text(json.dumps({"cells": [cell]}))
    with pytest.raises(AttributeError, match="audti"):
        list(named(tree(tmp_path / "wrong.ipynb")))
