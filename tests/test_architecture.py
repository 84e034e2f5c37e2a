"""The shape of the source: which package may import which, what needs no torch, and what every file says of itself."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

import classwise

ROOT = Path(classwise.__file__).parent

#: The packages in the order in which they may import each other: each only those before it.
ORDER = (
    "core",
    "stats",
    "metrics",
    "results",
    "show",
    "published",
    "dispatch",
    "data",
    "models",
    "attacks",
    "engine",
    "auditing",
    "methods",
    "training",
    "repairing",
    "zoo",
    "studies",
    "citing",
    "cli",
)

#: Packages that work where torch is not installed, and the part of core that does not.
WITHOUT_TORCH = ("core", "stats", "metrics", "results", "show", "published")
WITH_TORCH = {"classwise.core.threat", "classwise.core.losses", "classwise.core.rng"}

NAMES_THAT_SAY_NOTHING = {"base", "common", "helpers", "manager", "misc", "trainer", "utils"}


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ("classwise", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@functools.cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@functools.cache
def nodes(module: str) -> tuple[ast.AST, ...]:
    """The nodes that a test looks at: imports, conditions and calls."""
    return tuple(n for n in ast.walk(tree(module)) if isinstance(n, (ast.Import, ast.ImportFrom, ast.If, ast.Call)))


def read_by_a_type_checker_only(module: str) -> set[ast.AST]:
    """The nodes below `if TYPE_CHECKING`."""
    conditions = (n for n in nodes(module) if isinstance(n, ast.If))
    guarded = (n for n in conditions if ast.unparse(n.test).endswith("TYPE_CHECKING"))
    return {inner for condition in guarded for statement in condition.body for inner in ast.walk(statement)}


@functools.cache
def imports(module: str, types: bool = True) -> frozenset[str]:
    """The modules a module imports by dotted name: at its top, inside functions and, with `types`, for types only."""
    found = set()
    skipped = set() if types else read_by_a_type_checker_only(module)
    for node in nodes(module):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import; write it out"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else node.module)
    return frozenset(found)


@functools.cache
def reached(module: str) -> frozenset[str]:
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
        todo += imports(name, types=False) if name in MODULES else ()
    return frozenset(seen)


def package(module: str) -> str:
    """The package of a module; "" is the top."""
    return module.split(".")[1] if "." in module else ""


def test_the_imports_are_read_at_all() -> None:
    assert "torch" in reached("classwise.attacks.pgd")
    assert "classwise.attacks.attack" in imports("classwise.attacks")
    assert "classwise.metrics.accuracy" in imports("classwise.metrics")
    assert "classwise.training.train" in imports("classwise") - imports("classwise", types=False)


def test_only_the_two_entry_points_are_at_the_top() -> None:
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "__main__.py"}
    assert {package(module) for module in MODULES} - {"", "__main__"} == set(ORDER)


def test_each_package_imports_only_those_before_it() -> None:
    wrong = [
        f"{module} imports {name}"
        for module in MODULES
        if package(module) in ORDER
        for name in sorted(imports(module))
        if name.split(".")[0] == "classwise"
        if package(name) not in ORDER[: ORDER.index(package(module)) + 1]
    ]
    assert not wrong, "\n".join(wrong)


def without_torch() -> list[str]:
    return [name for name in MODULES if package(name) in ("", *WITHOUT_TORCH) and name not in WITH_TORCH]


def test_reading_results_never_imports_torch() -> None:
    heavy = {"torch", "torchvision", "timm"}
    wrong = {name for name in without_torch() if heavy & {reach.split(".")[0] for reach in reached(name)}}
    assert not wrong


@pytest.mark.slow
def test_torch_is_not_loaded_by_what_reads_results() -> None:
    program = f"import sys, {', '.join(without_torch())}\nsys.exit('torch is loaded' if 'torch' in sys.modules else 0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert not {path for path in MODULES.values() if path.stem.strip("_") in NAMES_THAT_SAY_NOTHING}


def is_layer(node: ast.ClassDef) -> bool:
    return any(ast.unparse(parent) in ("nn.Module", "Network", "Staged") for parent in node.bases)


def test_modules_and_public_classes_have_docstrings() -> None:
    silent = []
    for module in MODULES:
        source = tree(module)
        public = [node for node in source.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
        # The layers of a network are described by its file, one network each.
        described = package(module) == "models" and ast.get_docstring(source)
        silent += [
            f"{module}.{node.name}"
            for node in public
            if not (ast.get_docstring(node) or (described and is_layer(node)))
        ]
        silent += [module] if source.body and not ast.get_docstring(source) else []
    assert not silent


def test_nobody_seeds_the_global_generators() -> None:
    seeding = {"torch.manual_seed", "torch.seed", "torch.cuda.manual_seed", "torch.cuda.manual_seed_all"}
    seeding |= {"np.random.seed", "numpy.random.seed", "random.seed"}
    for module in MODULES:
        calls = {ast.unparse(node.func) for node in nodes(module) if isinstance(node, ast.Call)}
        assert not calls & seeding, module
