"""The shape of the source: who may import whom, what needs no torch, and what every file says of itself."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import classwise

ROOT = Path(classwise.__file__).parent

#: Rooms (a file or a folder of the package) that work where torch is not installed.
WITHOUT_TORCH = {
    "advice",
    "anytime",
    "comparable",
    "compare",
    "errors",
    "figures",
    "findings",
    "format",
    "gate",
    "metrics",
    "points",
    "published",
    "arguments",
    "records",
    "report",
    "results",
    "run_folder",
    "run_lock",
    "sealed",
    "spec",
    "storage",
    "tables",
    "terminal",
    "verdict",
}

#: The rooms each room may import, besides itself.
MAY_IMPORT = {
    "errors": set[str](),
    "spec": {"errors"},
    "arguments": {"errors", "spec"},
    "storage": set[str](),
    "run_lock": {"errors", "storage"},
    "run_folder": {"errors", "storage"},
    "sealed": {"errors", "storage"},
    "records": {"arguments", "errors", "run_folder", "sealed"},
    "draws": {"errors"},
    "losses": {"errors"},
    "threat": {"errors", "spec"},
    "hyperplane": {"threat"},
    "attacks": {"draws", "errors", "hyperplane", "losses", "spec", "threat"},
    "anytime": {"errors", "metrics"},
    "points": {"errors", "records", "run_folder", "storage"},
    "metrics": {"errors", "records", "spec"},
    "published": {"errors", "metrics"},
    "methods": {"attacks", "draws", "errors", "losses", "metrics", "records", "spec", "threat"},
}

NAMES_THAT_SAY_NOTHING = {"base", "common", "helpers", "manager", "misc", "trainer", "utils"}


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ("classwise", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()
every_module = pytest.mark.parametrize("module", MODULES)


@functools.cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below, except what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from executed(child)


def imports(module: str) -> set[str]:
    """The modules a module imports, at its top or inside a function, by dotted name."""
    found = set()
    for node in executed(tree(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import; write it out"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else node.module)
    return found


IMPORTS = {module: imports(module) for module in MODULES}


def reached(module: str) -> set[str]:
    """All that importing a module brings in, packages on the way included."""
    seen: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        parts = name.split(".")
        todo += [".".join(parts[:length]) for length in range(1, len(parts))]
        todo += IMPORTS.get(name, ())
    return seen


def room(module: str) -> str:
    """The file or folder of the package a module is in."""
    return module.split(".")[1] if "." in module else "classwise"


def test_the_imports_are_read_at_all() -> None:
    assert "torch" in reached("classwise.attacks.pgd")
    assert "classwise.attacks.rows" in IMPORTS["classwise.attacks"]
    assert "classwise.metrics.accuracy" in IMPORTS["classwise.metrics"]
    assert set(MAY_IMPORT) <= {room(module) for module in MODULES}


@pytest.mark.parametrize("module", [name for name in MODULES if room(name) in WITHOUT_TORCH | {"classwise"}])
def test_reading_results_never_imports_torch(module: str) -> None:
    heavy = {name for name in reached(module) if name.split(".")[0] in {"torch", "torchvision", "timm"}}
    assert not heavy


def test_torch_is_not_loaded_by_what_reads_results() -> None:
    names = sorted(name for name in MODULES if room(name) in WITHOUT_TORCH)
    program = f"import sys, classwise, {', '.join(names)}\nsys.exit('torch is loaded' if 'torch' in sys.modules else 0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", [name for name in MODULES if room(name) in MAY_IMPORT])
def test_imports_point_only_where_they_may(module: str) -> None:
    own = room(module)
    rooms = {room(name) for name in IMPORTS[module] if name.split(".")[0] == "classwise"}
    assert rooms <= MAY_IMPORT[own] | {own}


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert not {path for path in MODULES.values() if path.stem.strip("_") in NAMES_THAT_SAY_NOTHING}


def is_layer(node: ast.ClassDef) -> bool:
    return any(ast.unparse(parent) == "nn.Module" for parent in node.bases)


@every_module
def test_modules_and_public_classes_say_what_they_are(module: str) -> None:
    source = tree(module)
    public = [node for node in source.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    # The layers of a network are told of by its file, one network each.
    told = room(module) == "models" and ast.get_docstring(source)
    silent = [node.name for node in public if not (ast.get_docstring(node) or (told and is_layer(node)))]
    assert not silent
    assert ast.get_docstring(source) or not source.body


def test_nobody_seeds_the_global_generators() -> None:
    seeding = {"torch.manual_seed", "torch.seed", "torch.cuda.manual_seed", "torch.cuda.manual_seed_all"}
    seeding |= {"np.random.seed", "numpy.random.seed", "random.seed"}
    for module in MODULES:
        calls = {ast.unparse(node.func) for node in ast.walk(tree(module)) if isinstance(node, ast.Call)}
        assert not calls & seeding, module
