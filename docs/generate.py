"""The parts of the site that are made from the source when it is built, so that they cannot go stale.

A page says where: ``<!-- made from the source: attacks -->``. mkdocs calls `on_page_markdown` for each page.
"""

from __future__ import annotations

import importlib
import inspect
import re
import runpy
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import astuple
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
from typer.cli import get_docs_for_click
from typer.main import get_command

import classwise
from classwise import attacks, data, metrics, published, studies
from classwise import methods as training_methods
from classwise.citing import bibliography
from classwise.cli import main as command_line
from classwise.models import registry as networks
from classwise.models import zoo
from classwise.results.leaderboard import Leaderboard
from classwise.show import figures, tables
from classwise.show import leaderboard as board_text
from classwise.show.page import board as board_page

equations = runpy.run_path(str(Path(__file__).parent / "equations.py"))
TYPESET = {"attacks.md", "methods.md", "metrics.md", "repair.md", "training.md"}
PLACE = re.compile(r"<!-- made from the source: (\w+) -->")


def on_page_markdown(markdown: str, page: Any = None, **_: Any) -> str:
    """A page with its generated part in place; variables with indices are typeset on pages that have many."""
    typeset = page is not None and page.file.src_uri in TYPESET
    written = _without_code(markdown) if typeset else markdown
    return PLACE.sub(lambda match: SECTIONS[match[1]](), written)


def _without_code(markdown: str) -> str:
    """The prose of a page typeset, its blocks of code as they are."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else equations["inline"](part) for part in parts)


def on_post_build(config: Any, **_: Any) -> None:
    """The leaderboard of the zoo as its own page, with a report for each model, in board/ of the site."""
    board_page.build(zoo_board(), Path(config["site_dir"]) / "board", "Leaderboard of the zoo")


def attack_list() -> str:
    """Every attack: what its file says, and its settings."""
    names = [*attacks.names(), "autoattack"]
    return _entries(attacks, names, attacks.attack_class)


def method_list() -> str:
    """Every training method: what its file says, and its settings."""
    return _entries(training_methods, training_methods.names(), training_methods.method_class)


def metric_list() -> str:
    """Every metric: its formula, and its arguments."""
    return _entries(
        metrics, metrics.names(), lambda name: importlib.import_module(f"{metrics.__name__}.{name}").compute
    )


def figure_list() -> str:
    """Every figure: what it shows, and its options."""
    return _entries(figures, figures.names(), lambda name: _file(figures, name).draw)


def study_list() -> str:
    """Every study: what it asks, and its options."""
    return _entries(studies, studies.names(), studies.study_class)


def command_list() -> str:
    """Every command with its options, as typer documents them."""
    group: Any = get_command(command_line.app)
    context: Any = group.context_class(group, info_name="classwise")
    text = get_docs_for_click(obj=group, ctx=context, name="classwise")
    text = text.partition("\n")[2]  # the page has a heading already
    return re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", text)  # the sections below say it in full


def paper_list() -> str:
    """Every paper with what it is cited for."""
    uses: dict[str, list[str]] = {}
    for package, names, kind in (
        (attacks, [*attacks.names(), "autoattack"], "attack"),
        (training_methods, training_methods.names(), "method"),
        (metrics, metrics.names(), "metric"),
        (data, data.names(), "data set"),
        (networks, networks.names(), "network"),
    ):
        for name in names:
            for key in package.papers(name) or ():
                uses.setdefault(key, []).append(f"{kind} `{name}`")
    rows = [(f"`{key}`", _reference(key), ", ".join(uses[key])) for key in sorted(uses)]
    table = pd.DataFrame(rows, columns=["key", "paper", "cited for"])
    return f"## Every paper\n\n{tables.markdown(table, words=tuple(table.columns))}"


def _reference(key: str) -> str:
    """An entry as a sentence: authors, title, where and when."""
    found = dict(re.findall(r"^  (\w+) = \{(.*)\},$", bibliography.entry(key), flags=re.MULTILINE))
    plain = {name: _plain_text(text) for name, text in found.items()}
    names = [name.split(",")[0] for name in plain["author"].split(" and ")]
    authors = " and ".join(names) if len(names) < 3 and "others" not in names else f"{names[0]} et al."
    places = ("booktitle", "journal", "institution", "howpublished", "note")
    where = next((plain[place] for place in places if place in plain), "")
    return ", ".join(part for part in (f"{authors}: {plain['title']}", where, plain["year"]) if part)


def _plain_text(latex: str) -> str:
    """A field of BibTeX without braces, its accents as letters."""
    accents = {"`": "\u0300", "'": "\u0301", "^": "\u0302"}
    letters = re.sub(r"\\([`'^])\{?(\w)\}?", lambda match: match[2] + accents[match[1]], latex)
    return unicodedata.normalize("NFC", re.sub(r"[{}]|\\(?=&)", "", letters))


def first_screen() -> str:
    """What README.md shows first, for the home page."""
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    shown = text.partition("<!-- first screen -->")[2].partition("<!-- end of the first screen -->")[0]
    return shown.replace("docs/images/", "images/")


def name_list() -> str:
    """Every public name of the package: how it is called, what it says of itself, and what a class offers."""
    names = [name for name in classwise.__all__ if not name.startswith("_")]
    return "\n".join(_public(name, getattr(classwise, name)) for name in sorted(names, key=str.lower))


def published_list() -> str:
    """The papers' misprints, their CV, MCD and ρ beside ours, what is odd about them, and every id."""
    rows, items = published.recomputed(), published.items()
    wrong = [(entry.id, *astuple(misprint)) for entry in items for misprint in entry.misprints]
    misprints = pd.DataFrame(wrong, columns=["id", "row", "column", "printed", "expected", "why"])
    parts = [
        f"{len(rows)} printed numbers follow from others; {sum(rows['verdict'] == 'agrees')} agree, these do not:",
        tables.markdown(misprints, words=("id", "row", "column", "why")),
        "## CV, MCD and ρ, printed and recomputed",
    ]
    metric = rows[rows["column"].str.fullmatch(r"cv|mcd|\w+_rho")]
    for name, part in metric.groupby("item", sort=False):
        digits = 2 if name.startswith("tian") else 4
        cells = [
            f"{row.printed:g} {'=' if row.verdict == 'agrees' else '≠'} {row.recomputed:.{digits}f}"
            for row in part.itertuples()
        ]
        wide = part.assign(cell=cells).set_index(["row", "column"])["cell"].unstack(sort=False).reset_index()
        parts += [f"### `{name}`", published.source(name), tables.markdown(wide, words=("row",))]
    notes = [f"- `{entry.id}`: {note}" for entry in items for note in entry.notes]
    ids = pd.DataFrame([(entry.id, entry.title, entry.shows, entry.study or "") for entry in items])
    ids.columns = pd.Index(["id", "what", "it shows", "study"])
    parts += ["## Not to be settled from the papers", "\n".join(notes)]
    parts += ["## Every table and figure", tables.markdown(ids, words=tuple(ids.columns))]
    return "\n\n".join(parts)


def zoo_board() -> Leaderboard:
    """The models of the shipped zoo, ranked."""
    return classwise.leaderboard([zoo.home()])


def board_list() -> str:
    """The divisions of the zoo's board as tables."""
    return re.sub(r"^## ", "### ", board_text.markdown(zoo_board()), flags=re.MULTILINE)


SECTIONS: dict[str, Callable[[], str]] = {
    "api": name_list,
    "attacks": attack_list,
    "cli": command_list,
    "figures": figure_list,
    "first_screen": first_screen,
    "leaderboard": board_list,
    "methods": method_list,
    "metrics": metric_list,
    "papers": paper_list,
    "published": published_list,
    "studies": study_list,
}


def _entries(package: ModuleType, names: list[str] | tuple[str, ...], made_by: Callable[[str], Any]) -> str:
    return "\n".join(_entry(package, name, made_by(name)) for name in names)


def _file(package: ModuleType, name: str) -> ModuleType:
    return importlib.import_module(f"{package.__name__}.{name.replace('-', '_')}")


def _entry(package: ModuleType, name: str, made: Any) -> str:
    """One thing: its file's docstring, its own, its settings with their defaults."""
    about = inspect.getdoc(_file(package, name)) or ""
    own = inspect.cleandoc(made.__doc__ or "")
    settings = package.usage(name)
    parts = [f"## `{name}`", _markdown(about), _with_items(_markdown(own))]
    if settings:
        parts.append("Settings: " + ", ".join(f"`{setting}`" for setting in settings.split(", ")))
    if papers := getattr(package, "papers", lambda _: ())(name):
        parts.append("Papers: " + "; ".join(map(_reference, papers)) + f" (`classwise cite {name}`)")
    return "\n\n".join(part for part in parts if part) + "\n"


def _public(name: str, thing: Any) -> str:
    """A function, or a class with its public parts."""
    parts = [f"## `{name}`", _signature(name, thing), _with_items(_markdown(inspect.getdoc(thing) or ""))]
    offered = vars(thing).items() if inspect.isclass(thing) else ()
    for own, member in offered:
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        if own.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        shown = f"`{own}`" if isinstance(member, property) else f"`{own}{_arguments(function, skip_first=True)}`"
        about = inspect.cleandoc(function.__doc__).replace("\n", "\n    ")
        parts.append(f"- {shown}  \n    {about}")
    return "\n\n".join(part for part in parts if part) + "\n"


def _signature(name: str, thing: Any) -> str:
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return ""
    parameters = [f"    {parameter}," for parameter in _plain(inspect.signature(thing).parameters.values())]
    return "\n".join(["```python", f"{name}(", *parameters, ")", "```"])


def _arguments(function: Any, skip_first: bool) -> str:
    return "(" + ", ".join(_plain(list(inspect.signature(function).parameters.values())[skip_first:])) + ")"


def _plain(parameters: Iterable[inspect.Parameter]) -> list[str]:
    """Parameters as one writes them; annotations are text, and text is shown in quotes otherwise."""
    shown, keyword_only = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            shown.append("*")
        note = parameter.annotation
        bare = str(parameter.replace(annotation=parameter.empty))
        before, equals, default = bare.partition("=")
        typed = before if note is parameter.empty else f"{before}: {str(note).strip(chr(34))}"
        shown.append(typed if not equals else f"{typed}={default}" if typed == before else f"{typed} = {default}")
    return shown


def _markdown(docstring: str) -> str:
    """A docstring as Markdown: equations are typeset, and what else is aligned by spaces keeps them."""
    return "\n\n".join(map(_paragraph, docstring.split("\n\n")))


def _paragraph(text: str) -> str:
    if all(line.startswith(("    - ", "      ")) for line in text.split("\n")):  # a list
        return inspect.cleandoc(str(equations["inline"](text)))
    kept = text.startswith("    ") or _aligned(text)
    if kept and equations["is_equation"](text):
        return str(equations["typeset"](text))
    if not kept:
        return str(equations["inline"](text))
    return text if text.startswith("    ") else f"    {text}".replace("\n", "\n    ")


def _aligned(paragraph: str) -> bool:
    return not paragraph.startswith("    ") and re.search(r"\S {2,}\S", paragraph) is not None


def _with_items(docstring: str) -> str:
    """The lines of a docstring that explain a field, `start: …`, as a list."""
    return re.sub(r"^([a-z]\w*(?:, \w+)*): ", r"\n- `\1`: ", docstring, flags=re.MULTILINE)
