"""The documentation is true: every block of code in it runs or is checked, every page is reachable, none goes stale.

How a block says what it is run with: doc_blocks.py and stand_ins.py, and for readers docs/extending.md.
"""

from __future__ import annotations

import importlib
import json
import re
import runpy
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
import yaml
from doc_blocks import PAGES, ROOT, Block, blocks, commands, inline_commands, links
from stand_ins import STAND_INS
from typer.main import get_command

import classwise
from classwise import attacks, foreign_attacks, methods, metrics, serve
from classwise.cli import app
from classwise.errors import UserError
from classwise.training import recipe

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
#: Why a block may say that it is only checked.
REASONS = {"synopsis", "your own files", "many processes"}
#: What `…` in an audit stands for: those of these options that it has not got.
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

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


# --- Commands -------------------------------------------------------------------------------------------------------


def whole(words: Sequence[str]) -> list[str]:
    """A classwise command with the `…` of an audit filled in."""
    if "audit" not in words:
        return list(words)
    given = {word.partition("=")[0] for word in words}
    rest = [part for key, value in REST.items() if key not in given for part in (key, value)]
    place = words.index("…") if "…" in words else len(words)
    return [*words[:place], *(rest if place < len(words) else ()), *words[place + 1 :]]


def check_classwise(words: Sequence[str]) -> None:
    """The command and its options exist, and so do the attacks and recipes it names."""
    group: Any = get_command(app)
    try:
        context = group.make_context("classwise", list(words))
        name, command, rest = group.resolve_command(context, list(words))
        settings = command.make_context(name, rest, parent=context).params
    except typer.Exit:  # --help and --version need no more
        return
    for spec in settings.get("attack") or () if name == "audit" else ():
        if not spec.isupper() and not foreign_attacks.is_foreign(spec):
            attacks.parse(spec)
    if name == "train" and not Path(settings["recipe"]).suffix:
        recipe.load(settings["recipe"])


def check_make(words: Sequence[str]) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(words) <= set(targets), f"no such target of make: {words}"


def check_pip(words: Sequence[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {extra for word in words for extra in re.findall(r"\[([\w,]+)\]", word)}
    known = set(project["optional-dependencies"])
    assert {extra for extras in asked for extra in extras.split(",")} <= known, f"no such extra: {words}"


def check_python(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert words[:2] == ["-m", "classwise.serve"], f"cannot check python {' '.join(words)}"
    with pytest.raises(SystemExit):
        serve.main(["--help"])
    known = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    assert {word for word in words if word.startswith("--")} <= known


def check(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    program, *rest = words
    if program == "torchrun":
        check_classwise(rest[rest.index("classwise") + 1 :])
    elif program == "classwise":
        check_classwise(rest)
    elif program == "python":
        check_python(rest, capsys)
    else:
        {"make": check_make, "pip": check_pip}[program](rest)


# --- Pages ----------------------------------------------------------------------------------------------------------


class Page:
    """The examples of one page, run one after the other in one folder, Python in one module."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.patch, self.capsys = folder, patch, capsys
        self.module = ModuleType("example")
        self.made: set[str] = set()
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        patch.setitem(sys.modules, "example", self.module)
        (folder / "linear.py").write_text(LINEAR, encoding="utf-8")

    def run(self, block: Block) -> None:
        for name in block.stand_ins:
            if name not in self.made:
                STAND_INS[name](self.folder, self.patch)
                self.made.add(name)
        kinds = {"python": self.python, "console": self.console, "toml": self.toml, "json": self.json}
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
        forget_what_there_is()
        name = f"{package.__name__}.{path.stem}"
        imported = importlib.import_module(name)
        self.patch.delitem(sys.modules, name)
        self.patch.setitem(sys.modules, name, imported)

    def console(self, block: Block) -> None:
        for written in commands(block.text):
            words, target = redirected(whole(written) if written[0] == "classwise" else written)
            check(words, self.capsys)
            if block.unrun is None and runs(words):
                self.capsys.readouterr()
                code = ended_with(words[1:])
                assert not code or "--require" in words, f"{' '.join(words)} ended with {code}"
                if target is not None:
                    (self.folder / target).write_text(self.capsys.readouterr().out, encoding="utf-8")

    def toml(self, block: Block) -> None:
        path = self.folder / (block.title or "recipe.toml")
        path.write_text(block.text, encoding="utf-8")
        recipe.build(recipe.read(path))

    def json(self, block: Block) -> None:
        json.loads(block.text)


def runs(words: Sequence[str]) -> bool:
    return words[0] == "classwise" and not any(part in word for word in words for part in NOT_RUN)


def ended_with(words: list[str]) -> int:
    try:
        return app(words, standalone_mode=False) or 0
    except typer.Exit as end:
        return end.exit_code


def redirected(words: list[str]) -> tuple[list[str], str | None]:
    """A command without its ``> file``, and the file."""
    return (words[:-2], words[-1]) if ">" in words[-2:-1] else (words, None)


def forget_what_there_is() -> None:
    """Packages that remember their files look again."""
    for name in ("classwise.datasets", "classwise.figures", "classwise.models.registry"):
        importlib.import_module(name)._modules.cache_clear()


@pytest.fixture
def examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Page]:
    yield Page(tmp_path, monkeypatch, capsys)
    monkeypatch.undo()
    forget_what_there_is()


@by_page
def test_the_examples_run(page: Path, examples: Page) -> None:
    for block in blocks(page):
        try:
            examples.run(block)
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{block}: {type(error).__name__}: {error}") from error


@by_page
def test_commands_in_the_text_exist(page: Path) -> None:
    for line, text in inline_commands(page):
        name, *rest = text.split()[1:]
        try:
            if rest or name.startswith("-"):
                check_classwise(whole([name, *rest, *(["…"] if name == "audit" and "…" not in rest else [])]))
            else:
                assert name in get_command(app).commands  # type: ignore[attr-defined]
        except Exception as error:
            raise AssertionError(f"{page.name}:{line}: {text}: {error}") from error


def test_no_block_is_left_out_silently() -> None:
    found = [block for page in PAGES for block in blocks(page)]
    unknown = [f"{block}: {block.language or 'no language'}" for block in found if block.language not in LANGUAGES]
    assert not unknown, "say what these blocks are, with a fence and a language"
    assert {block.unrun for block in found} - {None} <= REASONS
    assert {name for block in found for name in block.stand_ins} <= set(STAND_INS)
    hidden = [str(block) for block in found if block.language == "text" and re.search(r"^\s*(\$ )?classwise |^import ", block.text, re.M)]
    assert not hidden, "these blocks hold code and call themselves text"
    kinds = Counter((block.language, "checked" if block.unrun else "run") for block in found)
    assert kinds["python", "checked"] == 0, "every Python example runs"
    assert kinds["console", "run"] > 4 * kinds["console", "checked"]


LANGUAGES = ("console", "json", "python", "text", "toml")


def test_the_convention_is_documented() -> None:
    text = " ".join((ROOT / "docs" / "extending.md").read_text(encoding="utf-8").split())
    for name in (*STAND_INS, *REASONS, *NOT_RUN.values()):
        assert name in text, name


# --- The site -------------------------------------------------------------------------------------------------------


class Loader(yaml.SafeLoader):
    """YAML whose own tags (mkdocs has some for Python names) are read as nothing."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def in_nav(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    for part in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from in_nav(part)


def test_every_page_is_in_the_navigation_once() -> None:
    config = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)  # noqa: S506
    shown = [name for name in in_nav(config["nav"]) if not name.startswith("http")]
    there = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES if ROOT / "docs" in page.parents]
    assert sorted(shown) == sorted(there)


@by_page
def test_links_lead_to_files(page: Path) -> None:
    dead = [target for target in links(page) if not (page.parent / target).exists()]
    assert not dead


@pytest.fixture(scope="module")
def generate() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "generate.py"))


def test_the_reference_holds_every_attack_method_and_metric(generate: dict[str, Any]) -> None:
    for kind, package in (("attacks", attacks), ("methods", methods), ("metrics", metrics)):
        page = generate["SECTIONS"][kind]()
        names = re.findall(r"^## `(\w+)`", page, flags=re.MULTILINE)
        assert set(package.names()) <= set(names)
        assert all(package.describe(name).split(" (")[0] in page for name in package.names())
    assert "x_{t+1} = Π(x_t + α · sign ∇ CE(z(x_t), y))" in generate["SECTIONS"]["attacks"]()


def test_the_reference_holds_every_command_and_option(generate: dict[str, Any]) -> None:
    page = generate["SECTIONS"]["cli"]()
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        assert f"## `classwise {name}`" in page
        for parameter in command.params:
            assert all(option in page for option in parameter.opts), (name, parameter.name)


def test_the_reference_holds_the_public_names(generate: dict[str, Any]) -> None:
    page = generate["SECTIONS"]["api"]()
    names = re.findall(r"^## `(\w+)`", page, flags=re.MULTILINE)
    assert set(names) == set(classwise.__all__) - {"__version__"}
    assert "    data: Any,\n    attacks: str | Attack" in page, "arguments of audit, with their types"


def test_pages_ask_only_for_what_is_generated(generate: dict[str, Any]) -> None:
    asked = {name for page in PAGES for name in re.findall(generate["PLACE"], page.read_text(encoding="utf-8"))}
    assert asked == set(generate["SECTIONS"])
