"""Source and documentation use the words of the field: those that they replaced do not come back."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import classwise

SOURCE = Path(classwise.__file__).parent
ROOT = Path(__file__).parents[1]

#: What is not said, in text and documentation, and what is said instead.
WORDS = {
    r"(taken|mistaken) for (each other|another class)": "confused with",
    r"most often taken for": "most often misclassified as",
    r"go(es)? on where it was": "resumes where it stopped",
    r"right without an attack": "classified correctly, clean accuracy",
    r"anew": "again, from scratch",
    r"told[ _]apart": "distinguished",
    r"what to mind": "warnings",
    r"how sure (that|it|the numbers|they) (is|are)": "95% confidence interval",
    r"hold together": "are simultaneous",
    r"(left|leaves?|still|images|examples) (stand|standing)": "survive, robust",
    r"accounts for being a minimum": "the confidence interval of the worst class",
    r"the untouched judge": "the original model",
}
#: Names that were replaced, wherever they are defined.
NAMES = (
    r"Follower|Judge|Stepper|Stretch|Told|Outcome|\w*whole_file|place_of|handed_over|"
    r"_?(said|told|alike)|_given|\w+_(told|alike)"
)


def texts() -> Iterator[tuple[str, str]]:
    """What people read, with where it is: pages, comments, docstrings and other strings, each in one line."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        yield page.name, page.read_text(encoding="utf-8")
    for path in sorted(SOURCE.rglob("*.py")):
        with path.open(encoding="utf-8") as file:
            tokens = [(token.type, token.string, token.start[0]) for token in tokenize.generate_tokens(file.readline)]
        comments = [text.lstrip("#") for kind, text, _ in tokens if kind == tokenize.COMMENT]
        yield f"{path.relative_to(SOURCE)}, comments", " ".join(comments)
        strings = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
        for kind, text, line in tokens:
            if kind in strings:
                yield f"{path.relative_to(SOURCE)}:{line}", text


def test_replaced_words_do_not_come_back() -> None:
    lines = [(where, " ".join(text.split())) for where, text in texts()]
    found = [
        f"{where}: …{line[max(match.start() - 30, 0) : match.end() + 20]}… (say: {instead})"
        for pattern, instead in WORDS.items()
        for where, line in lines
        for match in re.finditer(rf"\b{pattern}\b", line, re.IGNORECASE)
    ]
    assert not found, "\n".join(found)


def test_replaced_names_do_not_come_back() -> None:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and re.fullmatch(NAMES, node.name):
                found.append(f"{path.relative_to(SOURCE)}:{node.lineno}: {node.name}")
    assert not found, "\n".join(found)


def test_a_replaced_word_is_found_across_lines_and_cases() -> None:
    line = " ".join(io.StringIO("Cats are\n    Taken for\n    each other").read().split())
    assert any(re.search(rf"\b{pattern}\b", line, re.IGNORECASE) for pattern in WORDS)
