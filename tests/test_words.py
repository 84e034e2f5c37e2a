"""Source and documentation use the words of the field: those that they replaced do not come back."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

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
    r"told(_| )apart": "distinguished",
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


PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
MODULES = sorted(SOURCE.rglob("*.py"))


def pattern(words: str) -> re.Pattern[str]:
    """The words wherever they are in small letters, also where a line, or a line of a comment, ends between them."""
    return re.compile(rf"\b{words}\b".replace(" ", r"[\s#]+"))


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def found(looked_for: re.Pattern[str], paths: Iterable[Path], lower: bool = True) -> list[str]:
    """Where it is, and what was found; with `lower` in whatever letters."""
    texts = {path: text_of(path).lower() if lower else text_of(path) for path in paths}
    return [
        f"{path.name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"
        for path, text in texts.items()
        for match in looked_for.finditer(text)
    ]


def test_replaced_words_do_not_come_back() -> None:
    wrong = [
        f"{place} (say: {instead})"
        for words, instead in WORDS.items()
        for place in found(pattern(words), (*PAGES, *MODULES))
    ]
    assert not wrong, "\n".join(wrong)


def test_replaced_names_do_not_come_back() -> None:
    wrong = found(re.compile(rf"^\s*(?:class|def) (?:{NAMES})\b", re.MULTILINE), MODULES, lower=False)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("text", ["Cats are\n    Taken for\n    each other", "# still\n    # standing"])
def test_a_replaced_word_is_found_across_lines_comments_and_cases(text: str) -> None:
    assert any(pattern(words).search(text.lower()) for words in WORDS)
