"""Equations of docstrings become MathML that says the same: hand-made examples, and every attack, method and metric."""

from __future__ import annotations

import re
import runpy
import unicodedata
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from doc_blocks import ROOT

EQUATIONS = runpy.run_path(str(ROOT / "docs" / "equations.py"))
mathml, typeset, inline, is_equation = (EQUATIONS[name] for name in ("mathml", "typeset", "inline", "is_equation"))


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text.replace("&nbsp;", " "))


def letters(text: str) -> str:
    """What is left of a text without blanks and the signs that only say how it is set."""
    plain = unicodedata.normalize("NFKC", text.replace("Σ", "∑").replace("'", "′"))
    return re.sub(r"[\s_^{}()\[\]`/√]", "", plain.replace("-", "−"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x_0", "<msub><mi>x</mi><mn>0</mn></msub>"),
        ("x_{t+1}", "<msub><mi>x</mi><mrow><mi>t</mi><mo>+</mo><mn>1</mn></mrow></msub>"),
        ("z_π3", "<msub><mi>z</mi><mrow><mi>π</mi><mn>3</mn></mrow></msub>"),
        ("x'_k", "<msubsup><mi>x</mi><mi>k</mi><mo>′</mo></msubsup>"),
        ("10⁻⁶", "<msup><mn>10</mn><mrow><mn>−</mn><mn>6</mn></mrow></msup>"),
        ("‖w‖₂", '<mo stretchy="false">‖</mo><mi>w</mi><msub><mo stretchy="false">‖</mo><mn>2</mn></msub>'),
        ("x̂", "<mi>x̂</mi>"),
        ("√ρ", "<msqrt><mi>ρ</mi></msqrt>"),
        ("(1/B)", "<mfrac><mn>1</mn><mi>B</mi></mfrac>"),
        ("(a) / (b)", "<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac>"),
        ("a < b", "<mi>a</mi><mo>&lt;</mo><mi>b</mi>"),
    ],
)
def test_parts_of_an_expression(text: str, expected: str) -> None:
    assert mathml(text) == f"<math>{expected}</math>"


def test_limits_stand_below_in_an_equation_and_beside_in_prose() -> None:
    assert "<munder><mi>min</mi><mi>θ</mi></munder>" in mathml("min_θ f", display=True)
    assert "<msub><mi>max</mi>" in inline("where max_{j≠y} z_j is large")


def test_lines_are_aligned_where_the_text_is() -> None:
    rows = parsed(typeset("x_0     = Π(x)\nx_{t+1} = Π(x_t)          (for l2: another)")).findall(".//tr")
    assert [len(row.findall("td")) for row in rows] == [2, 2]
    assert all("".join(row.findall("td")[1].itertext()).startswith("=") for row in rows)


@pytest.mark.parametrize(
    "code",
    [
        "transfer:model=resnet-18,weights=plain.pt",
        "standard  apgd_ce, apgd_t, fab_t, square",
        "init(class_names)  once",
    ],
)
def test_code_and_names_stay_code(code: str) -> None:
    assert not is_equation(code)
    assert inline(f"see `{code}`, x_adv and apgd_ce") == f"see `{code}`, x_adv and apgd_ce"


def test_prose_keeps_its_paragraph() -> None:
    assert inline("z_T are logits").startswith('<span class="math"><math>'), "a bare math element would end it"


def test_every_equation_of_the_reference_keeps_its_letters() -> None:
    generate: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "generate.py"))
    seen: list[str] = []
    original = generate["equations"]["typeset"]

    def recorded(text: str) -> str:
        made = str(original(text))
        seen.append(text)
        shown = "".join(parsed(made).itertext())
        assert sorted(letters(shown)) == sorted(letters(text)), text
        return made

    generate["equations"]["typeset"] = recorded
    for kind in ("attacks", "methods", "metrics"):
        generate["SECTIONS"][kind]()
    assert len(seen) > 50
    assert sum("<math" in str(original(text)) for text in seen) > 50
