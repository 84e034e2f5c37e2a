"""Equations of docstrings as MathML, which browsers typeset by themselves: no script, no font and no network.

A docstring writes them in plain text, as a reader of the source wants them: ``x_{t+1} = Π(x_t + α · sign ∇ CE(z, y))``.
Sub- and superscripts, primes, hats, fractions of groups, roots and sums with limits are recognised; words stay words.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator

_GREEK = "α-ωΑ-Ωϵϕϑ"
_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<code>`[^`]*`|\"[\w-]+\")"
    r"|(?P<number>[½¼¾]|\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)"
    rf"|(?P<letter>[A-Za-z{_GREEK}][\u0300-\u036f]*(?![A-Za-z\u0300-\u036f]))"
    rf"|(?P<greek>[{_GREEK}][\u0300-\u036f]*)"
    r"|(?P<word>[A-Za-z]+(?:[-'’][A-Za-z]+)*)"
    r"|(?P<script>[_^])"
    r"|(?P<small>[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀⁿ]+|[₀₁₂₃₄₅₆₇₈₉₊₋]+)"
    r"|(?P<prime>['′]+)"
    r"|(?P<open>[(\[{⟨])|(?P<close>[)\]}⟩])"
    r"|(?P<bar>[|‖])|(?P<root>√)"
    r"|(?P<sign>.)",
    re.DOTALL,
)
_RELATIONS = set("=≤≥<>≠≈∈∝←→↦~:;,.…+−-·×±∇∂∪∩⊂¬∀∃!?")
_ABOVE = {"Σ": "∑", "∫": "∫"}
_UNDER = {"max", "min", "argmax", "argmin", "mean", "Var"}
_CLOSING = {"(": ")", "[": "]", "{": "}", "⟨": "⟩"}
_SIGNS = re.compile(rf"[{_GREEK}∇√‖≤≥∈∝←≠Σ·−∞]|\w_\{{|\b\w_\w\b|\^")
_CODE = re.compile(r"\w\(\)|[A-Za-z]{2,}_[a-z]{2,}|\b\w+:\w+=|\.py\b|\w\.\w+\(|``|--\w|=\{")


def is_equation(paragraph: str) -> bool:
    """Whether a paragraph that keeps its spaces is mathematics, not code or a table of names."""
    return _SIGNS.search(paragraph) is not None and _CODE.search(paragraph) is None


def typeset(paragraph: str) -> str:
    """Lines of mathematics as a table of MathML; what is aligned in the text is aligned in the table."""
    lines = [line.rstrip() for line in paragraph.split("\n") if line.strip()]
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    lines = [line[indent:] for line in lines]
    starts = _columns(lines)
    rows = "".join(f"<tr>{''.join(_cells(line, starts))}</tr>" for line in lines)
    return f'<div class="equation" tabindex="0" markdown="0"><table class="equation">{rows}</table></div>'


def inline(text: str) -> str:
    """A paragraph of prose, its variables with indices, ``z_y`` or ``x_{t+1}``, typeset; code stays as it is."""
    low, high = (
        rf"_(?:\{{[^{{}}\n]*\}}|best|[ijk]{{2}}(?!\w)|[A-Z]{{2}}(?!\w)|[\w{_GREEK}]\d?(?!\w))",
        r"\^(?:\{[^{}\n]*\}|\w+)",
    )
    base = rf"(?:[A-Za-z{_GREEK}][\u0300-\u036f]?|[A-Z]{{2,5}}|Σ|arg(?:max|min)|max|min|mean)"
    variable = re.compile(rf"(?<![\w`.]){base}['′]?(?:{low}|{high})+(?:['′])?(?![\w`])")
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part[:1] == "`" else variable.sub(_within, part) for part in parts)


def _within(match: re.Match[str]) -> str:
    """In a span, since Markdown would end the paragraph before an element that it does not know."""
    return f'<span class="math">{mathml(match[0])}</span>'


def mathml(text: str, display: bool = False) -> str:
    """One expression."""
    body, _ = _row(list(_tokens(text)), 0, None, display)
    style = ' display="block"' if display else ""
    return f"<math{style}>{body}</math>"


def _columns(lines: list[str]) -> list[int]:
    """Where cells start in at least two lines: after a gap, or at a relation such as = below one after a gap."""
    gaps = {match.end() for line in lines for match in re.finditer(r"\S {2,}(?=\S)", line)}
    shared = [at for at in sorted(gaps) if sum(_starts_at(line, at) for line in lines) > 1]
    return [0, *shared]


def _starts_at(line: str, at: int) -> bool:
    return len(line) > at and line[at] != " " and line[at - 1] == " " and (line[at - 2] == " " or line[at] in "=←≤≥∝")


def _cells(line: str, starts: list[int]) -> Iterator[str]:
    own = [at for at in starts if at == 0 or _starts_at(line, at)]
    for place, at in enumerate(own):
        end = own[place + 1] if place + 1 < len(own) else None
        span = (starts.index(end) if end is not None else len(starts)) - starts.index(at)
        pieces = re.split(r"( {2,})", line[at:end].strip())
        shown = "".join(_piece(piece) if piece.strip() else _gap(piece) for piece in pieces if piece)
        yield f'<td colspan="{span}">{shown}</td>' if span > 1 else f"<td>{shown}</td>"


def _gap(blanks: str) -> str:
    return f'<span class="{"gap" if len(blanks) > 2 else "blank"}"></span>'


def _piece(text: str) -> str:
    """A piece of a line: prose with a few variables in it, or mathematics."""
    words = re.findall(r"(?<![\w_^{])[a-z]{2,}(?![\w_(^])", text)
    signs = re.findall(r"[=←∝≤≥Σ]", text)
    return inline(html.escape(text, quote=False)) if len(words) > 3 and len(signs) < 2 else mathml(text, display=True)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(_decomposed(text)):
        kind = str(match.lastgroup)
        yield "letter" if kind == "greek" else kind, unicodedata.normalize("NFC", match[0])


def _decomposed(text: str) -> str:
    """Letters apart from their hats and bars; signs such as ≠ stay whole."""
    return "".join(unicodedata.normalize("NFD", sign) if sign.isalpha() else sign for sign in text)


def _row(tokens: list[tuple[str, str]], at: int, closing: str | None, display: bool) -> tuple[str, int]:
    """The MathML of the tokens from `at` to the closing bracket, and where it ends."""
    parts: list[tuple[str, str]] = []  # kind, MathML
    while at < len(tokens):
        kind, text = tokens[at]
        if kind == "close" and text == closing:
            break
        if kind == "space":
            parts.append(("space", " "))
            at += 1
            continue
        made, own, at = _scripted(tokens, at, display)
        parts.append((own, made))
    return "".join(_spaced(_divided(parts))), at


def _scripted(tokens: list[tuple[str, str]], at: int, display: bool) -> tuple[str, str, int]:
    """An atom with all its indices and exponents."""
    base, kind, at = _atom(tokens, at, display)
    under: list[str] = []
    above: list[str] = []
    while at < len(tokens) and tokens[at][0] in ("script", "small", "prime"):
        sort, text = tokens[at]
        if sort == "prime":
            above.append(f"<mo>{'′' * len(text)}</mo>")
            at += 1
        elif sort == "small":
            plain = unicodedata.normalize("NFKC", text).replace("-", "−")
            signs = [f"<mi>{sign}</mi>" if sign.isalpha() else f"<mn>{sign}</mn>" for sign in plain]
            made = signs[0] if len(signs) == 1 else f"<mrow>{''.join(signs)}</mrow>"
            (under if "SUBSCRIPT" in unicodedata.name(text[0]) else above).append(made)
            at += 1
        elif at + 1 < len(tokens) and tokens[at + 1][0] != "space":
            made, at = _index(tokens, at + 1)
            (under if text == "_" else above).append(made)
        else:
            break
    return _with(base, under, above, display and kind == "limits"), kind, at


def _index(tokens: list[tuple[str, str]], at: int) -> tuple[str, int]:
    """What follows an underscore or a caret: a group in braces, or one atom (with a digit, as in π1)."""
    if tokens[at] == ("open", "{"):
        made, at = _row(tokens, at + 1, "}", False)
        return f"<mrow>{made}</mrow>", at + 1
    made, kind, at = _atom(tokens, at, False)
    if kind == "letter" and at < len(tokens) and tokens[at][0] == "number":
        return f"<mrow>{made}<mn>{tokens[at][1]}</mn></mrow>", at + 1
    return made, at


def _with(base: str, under: list[str], above: list[str], limits: bool) -> str:
    low, high = (f"<mrow>{''.join(own)}</mrow>" if len(own) != 1 else own[0] for own in (under, above))
    if under and above:
        return f"<munderover>{base}{low}{high}</munderover>" if limits else f"<msubsup>{base}{low}{high}</msubsup>"
    if under:
        return f"<munder>{base}{low}</munder>" if limits else f"<msub>{base}{low}</msub>"
    return f"<msup>{base}{high}</msup>" if above else base


def _atom(tokens: list[tuple[str, str]], at: int, display: bool) -> tuple[str, str, int]:
    kind, text = tokens[at]
    shown = html.escape(text)
    if kind == "open":
        inner, end = _row(tokens, at + 1, _CLOSING[text], display)
        closed = end < len(tokens)
        last = _fence(tokens[end][1]) if closed else ""
        if re.fullmatch(r"<mfrac>(?:(?!<mfrac>).)*</mfrac>", inner):
            return inner, "fraction", end + closed
        return (
            f"<mrow>{_fence(text)}<mrow>{inner}</mrow>{last}</mrow>",
            f"group{text}" if closed else "open",
            end + closed,
        )
    if kind == "root" and at + 1 < len(tokens):
        inner, own, end = _scripted(tokens, at + 1, False)
        return f"<msqrt>{_bare(inner) if own.startswith('group') else inner}</msqrt>", "letter", end
    if text in _ABOVE:
        return f'<mo largeop="true" movablelimits="false">{_ABOVE[text]}</mo>', "limits", at + 1
    if kind == "code":
        return f'<mtext class="code">{shown.strip("`")}</mtext>', "word", at + 1
    if kind in ("letter", "number"):
        return f"<m{'i' if kind == 'letter' else 'n'}>{shown}</m{'i' if kind == 'letter' else 'n'}>", kind, at + 1
    if kind == "word":
        name = f"<mi>{shown}</mi>" if text in _UNDER else f"<mtext>{shown}</mtext>"
        return name, "limits" if text in _UNDER else "word", at + 1
    if kind in ("close", "bar"):
        return _fence(text), "fence", at + 1
    sort = "relation" if text in _RELATIONS else "slash" if text == "/" else "sign"
    return f"<mo>{shown}</mo>", sort, at + 1


def _fence(text: str) -> str:
    return f'<mo stretchy="false">{html.escape(text)}</mo>'


def _bare(group: str) -> str:
    """A group without its brackets."""
    return re.sub(
        r'^<mrow><mo stretchy="false">.</mo><mrow>(.*)</mrow><mo stretchy="false">.</mo></mrow>$', r"\1", group
    )


def _divided(parts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Quotients of two bracketed groups, and of two single atoms that are all of a group, as fractions."""
    solid = [part for part in parts if part[0] != "space"]
    if (
        [part[0] for part in solid][1:2] == ["slash"]
        and len(solid) == 3
        and {solid[0][0], solid[2][0]} <= {"letter", "number"}
    ):
        return [("fraction", f"<mfrac>{solid[0][1]}{solid[2][1]}</mfrac>")]
    done: list[tuple[str, str]] = []
    at = 0
    while at < len(parts):
        ahead = [place for place in range(at, min(at + 5, len(parts))) if parts[place][0] != "space"][:3]
        kinds = [parts[place][0] for place in ahead]
        if kinds == ["group(", "slash", "group("]:
            above, below = (_bare(parts[place][1]) for place in (ahead[0], ahead[2]))
            done.append(("fraction", f"<mfrac><mrow>{above}</mrow><mrow>{below}</mrow></mfrac>"))
            at = ahead[2] + 1
        else:
            done.append(parts[at])
            at += 1
    return done


def _spaced(parts: list[tuple[str, str]]) -> Iterator[str]:
    """The parts with the blanks that matter: those beside words, and between two factors."""
    for place, (kind, made) in enumerate(parts):
        if kind != "space":
            yield made
            continue
        beside = {parts[near][0] for near in (place - 1, place + 1) if 0 <= near < len(parts)}
        if "word" in beside:
            yield "<mtext>\u00a0</mtext>"
        elif not beside & {"relation", "slash"}:
            yield '<mspace width="0.2em"></mspace>'
