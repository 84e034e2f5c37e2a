"""The examples of a page, run as a reader would: in one folder, one after the other, commands by the real program."""

from __future__ import annotations

import functools
import importlib
import json
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.main import get_command

from classwise import attacks
from classwise.attacks import foreign
from classwise.auditing.inputs import expanded
from classwise.cli.main import app
from classwise.models import serve
from classwise.results import criteria
from classwise.results.dossier import facts
from classwise.training import recipe
from doc_blocks import ROOT, Block, commands, shell_lines
from stand_ins import STAND_INS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: A command with one of these in it is checked and not run; docs/extending.md says so.
NOT_RUN = {
    "://": "a server",
    ".onnx": "an optional package",
    "art:": "an optional package",
    "foolbox:": "an optional package",
    "torchattacks:": "an optional package",
    "--track": "an optional package",
}
#: What `…` in an audit or a repair stands for: those of these options that it has not got.
REST = {"--model": "linear.py:make", "--data": "digits", "--limit": "20"}
#: A random linear classifier, which an attack breaks at once.
LINEAR = """
import torch
from torch import nn

def make(num_classes, in_channels):
    layer = nn.Linear(in_channels * 64, num_classes)
    nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(0))
    return nn.Sequential(nn.AdaptiveAvgPool2d(8), nn.Flatten(), layer)
"""


def whole(words: Sequence[str]) -> list[str]:
    """A classwise command with the `…` of an audit or a repair filled in."""
    if not {"audit", "repair"} & set(words):
        return list(words)
    given = {word.partition("=")[0] for word in words}
    rest = [part for key, value in REST.items() if key not in given for part in (key, value)]
    place = words.index("…") if "…" in words else len(words)
    return [*words[:place], *(rest if place < len(words) else ()), *words[place + 1 :]]


@functools.cache
def commands_of_classwise() -> Any:
    """All commands with their options, which take a while to make."""
    return get_command(app)


def check_classwise(words: Sequence[str]) -> None:
    """The command and its options exist, and so do the attacks and recipes it names."""
    group = commands_of_classwise()
    try:
        context = group.make_context("classwise", list(words))
        name, command, rest = group.resolve_command(context, list(words))
        settings = command.make_context(name, rest, parent=context).params
    except typer.Exit:  # --help and --version need no more
        return
    for spec in settings.get("attacks") or () if name == "audit" else ():
        if not spec.isupper() and not spec.startswith("@") and not foreign.is_foreign(spec):
            attacks.parse(spec)
    if name == "train" and settings["recipe"] and not Path(settings["recipe"]).suffix:
        recipe.load(settings["recipe"])


def check_make(words: Sequence[str]) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(words) <= set(targets), f"no such target of make: {words}"


def check_pip(words: Sequence[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {extra for word in words for extra in re.findall(r"\[([\w,]+)\]", word)}
    known = set(project["optional-dependencies"])
    assert {extra for extras in asked for extra in extras.split(",")} <= known, f"no such extra: {words}"


def check_serve(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serve.main(["--help"])
    known = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    asked = {word for word in words if word.startswith("--")}
    assert asked <= known, f"no such option of serve: {asked - known}"


def check(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    program, *rest = words
    if program == "torchrun":
        check_classwise(rest[rest.index("classwise") + 1 :])
    elif words[:2] == ["classwise", "serve"]:
        check_serve(rest[1:], capsys)
    elif program == "classwise":
        check_classwise(rest)
    else:
        {"make": check_make, "pip": check_pip}[program](rest)


class Page:
    """The examples of one page, run one after the other in one folder, Python in one module."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.patch, self.capsys = folder, patch, capsys
        self.module = ModuleType("example")
        self.made: set[str] = set()
        self.added: list[tuple[ModuleType, str]] = []
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        patch.setitem(sys.modules, "example", self.module)
        (folder / "linear.py").write_text(LINEAR, encoding="utf-8")

    def leave(self) -> None:
        """The package as it was."""
        self.patch.undo()
        for package, name in self.added:
            del sys.modules[f"{package.__name__}.{name}"]
            delattr(package, name)

    def run(self, block: Block) -> None:
        for name in block.stand_ins:
            if name not in self.made:
                STAND_INS[name](self.folder, self.patch)
                self.made.add(name)
        kinds = {kind: getattr(self, kind) for kind in ("python", "console", "toml", "json", "yaml")}
        if block.language != "text":
            kinds[block.language](block)

    def python(self, block: Block) -> None:
        code = compile("\n" * block.line + block.text, str(block.page), "exec")
        if block.title is not None:
            self.file(block.title, block.text)
        elif block.unrun is None:
            exec(code, vars(self.module))

    def file(self, title: str, text: str) -> None:
        """Write a file that a block is; one of the package is found there as if it were installed."""
        path = self.folder / title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if not title.startswith("src/"):
            runpy.run_path(str(path))
            return
        package = importlib.import_module(".".join(Path(title).parts[1:-1]))
        self.patch.setattr(package, "__path__", [*package.__path__, str(path.parent)])
        importlib.invalidate_caches()
        importlib.import_module(f"{package.__name__}.{path.stem}")
        self.added.append((package, path.stem))

    def console(self, block: Block) -> None:
        for written in commands(block.text):
            words, target = redirected(whole(written) if written[0] == "classwise" else written)
            check(words, self.capsys)
            if block.unrun is None and runs(words):
                self.capsys.readouterr()
                code = ended_with(words[1:])
                assert not code or {"--require", "--baseline"} & set(words), f"{' '.join(words)} ended with {code}"
                if target is not None:
                    (self.folder / target).write_text(self.capsys.readouterr().out, encoding="utf-8")

    def toml(self, block: Block) -> None:
        path = self.folder / (block.title or "recipe.toml")
        path.write_text(block.text, encoding="utf-8")
        if block.title == "attacks.toml":
            attacks.parse(expanded(f"@{path}"))
        elif block.title == "gate.toml":
            criteria.read(path)
        elif block.title == "facts.toml":
            facts.read(path)
        else:
            recipe.build(recipe.read(path))

    def yaml(self, block: Block) -> None:
        """A pipeline: its commands exist. tests/test_pipelines.py runs them."""
        for line in shell_lines(block.text):
            for words in commands(line):
                if words[0] in ("classwise", "pip"):
                    check(words, self.capsys)

    def json(self, block: Block) -> None:
        json.loads(block.text)


def runs(words: Sequence[str]) -> bool:
    unable = any(part in word for word in words for part in NOT_RUN)
    return words[0] == "classwise" and words[1] != "serve" and not unable


def ended_with(words: list[str]) -> int:
    try:
        return app(words, standalone_mode=False) or 0
    except typer.Exit as end:
        return end.exit_code


def redirected(words: list[str]) -> tuple[list[str], str | None]:
    """A command without its ``> file``, and the file."""
    return (words[:-2], words[-1]) if ">" in words[-2:-1] else (words, None)
