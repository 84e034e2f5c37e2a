"""The documentation is true: every block of code in it runs or is checked, every page is reachable, none goes stale.

How a block says what it is run with: doc_blocks.py and stand_ins.py, and for readers docs/extending.md.
"""

from __future__ import annotations

import re
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import classwise
from classwise import attacks, methods, metrics
from classwise.models import zoo
from doc_blocks import PAGES, ROOT, blocks, commands, inline_commands, links
from doc_runs import NOT_RUN, Page, check, check_classwise, commands_of_classwise, whole
from for_each import for_each
from stand_ins import STAND_INS

#: Why a block may say that it is only checked.
REASONS = {"synopsis", "your own files", "many processes"}
LANGUAGES = {"console", "json", "python", "text", "toml", "yaml"}

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
on_every_page = for_each("page", PAGES)


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Page]:
    page = Page(tmp_path, monkeypatch, capsys)
    yield page
    page.leave()


@pytest.mark.slow
@by_page
def test_the_examples_run(page: Path, examples: Page) -> None:
    for block in blocks(page):
        try:
            examples.run(block)
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{block}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize(
    "wrong",
    [
        "classwise audit … --no-such-option",
        "classwise audit … --attack pdg-20",
        "classwise audit … --limit many",
        "classwise adit …",
        "classwise train cifar10/watt --out runs/wat",
        "torchrun --nproc-per-node=2 -m classwise train desk/digits/wat --outt runs/wat",
        "classwise serve --models resnet-18",
        "make tea",
        'pip install "classwise[tea]"',
    ],
)
def test_a_wrong_command_is_noticed(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    (words,) = commands(wrong)
    with pytest.raises(Exception, match=r"(?i)no such|unknown|valid integer"):
        check(whole(words), capsys)


@on_every_page
def test_commands_in_the_text_exist(page: Path) -> None:
    for line, text in inline_commands(page):
        name, *rest = text.split()[1:]
        try:
            if rest or name.startswith("-"):
                check_classwise(whole([name, *rest, *(["…"] if name == "audit" and "…" not in rest else [])]))
            else:
                assert name in commands_of_classwise().commands
        except Exception as error:
            raise AssertionError(f"{page.name}:{line}: {text}: {error}") from error


def test_no_block_is_left_out_silently() -> None:
    found = [block for page in PAGES for block in blocks(page)]
    unknown = [f"{block}: {block.language or 'no language'}" for block in found if block.language not in LANGUAGES]
    assert not unknown, "say what these blocks are, with a fence and a language"
    assert {block.unrun for block in found} - {None} <= REASONS
    assert {name for block in found for name in block.stand_ins} <= set(STAND_INS)
    code = re.compile(r"^\s*(\$ )?classwise |^import ", re.MULTILINE)
    hidden = [str(block) for block in found if block.language == "text" and code.search(block.text)]
    assert not hidden, "these blocks hold code and call themselves text"
    kinds = Counter((block.language, "checked" if block.unrun else "run") for block in found)
    assert kinds["python", "checked"] == 0, "every Python example runs"
    assert kinds["console", "run"] > 4 * kinds["console", "checked"]


def test_the_convention_is_documented() -> None:
    text = " ".join((ROOT / "docs" / "extending.md").read_text(encoding="utf-8").split())
    for name in (*STAND_INS, *REASONS, *NOT_RUN.values()):
        assert name in text, name


def in_nav(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    for part in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from in_nav(part)


def test_every_page_is_in_the_navigation_once() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    shown = [name for name in in_nav(config["nav"]) if not name.startswith("http")]
    there = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES if ROOT / "docs" in page.parents]
    assert sorted(shown) == sorted(there)


@on_every_page
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
    next_point = "<msub><mi>x</mi><mrow><mi>t</mi><mo>+</mo><mn>1</mn></mrow></msub>"
    assert f"{next_point}</math></td><td>" in generate["SECTIONS"]["attacks"](), "equations are typeset"


def test_the_reference_holds_every_command_and_option(generate: dict[str, Any]) -> None:
    page = generate["SECTIONS"]["cli"]()
    for name, command in commands_of_classwise().commands.items():
        assert f"## `classwise {name}`" in page
        for parameter in command.params:
            assert all(option in page for option in parameter.opts), (name, parameter.name)


@pytest.mark.slow
def test_the_site_holds_the_board_of_the_zoo(
    generate: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_models = classwise.leaderboard([zoo.home() / "digits"])  # the reports of all take minutes
    monkeypatch.setitem(generate["on_post_build"].__globals__, "zoo_board", lambda: two_models)
    generate["on_post_build"](config={"site_dir": str(tmp_path)})
    page = (tmp_path / "board" / "index.html").read_text(encoding="utf-8")
    reports = set(re.findall(r'href="(reports/[^"]+)"', page))
    assert reports
    assert all((tmp_path / "board" / report).is_file() for report in reports)
    assert "### digits, linf 0.15" in generate["SECTIONS"]["leaderboard"]()


def test_the_reference_holds_the_public_names(generate: dict[str, Any]) -> None:
    page = generate["SECTIONS"]["api"]()
    names = re.findall(r"^## `(\w+)`", page, flags=re.MULTILINE)
    assert set(names) == set(classwise.__all__) - {"__version__"}
    assert "    data: Any,\n    attacks: str | Attack" in page, "arguments of audit, with their types"


def test_pages_ask_only_for_what_is_generated(generate: dict[str, Any]) -> None:
    asked = {name for page in PAGES for name in re.findall(generate["PLACE"], page.read_text(encoding="utf-8"))}
    assert asked == set(generate["SECTIONS"])
