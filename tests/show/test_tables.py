"""Tables of text: shape, alignment, and names that are code somewhere."""

from __future__ import annotations

import csv
import io
import json
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from classwise.core.csv_files import csv_text, read_csv, visible
from classwise.show import tables

HOSTILE = [
    "<script>alert(1)</script>",
    "a|b",
    "R&D_1 50% $x$ #{y}",
    r"back\slash",
    "*bold* `code` [x](y)",
    "two\nlines",
]
TABLE = pd.DataFrame({"class": HOSTILE, "robust": ["1.0%", "−2.0", "–", "4", "5", "6"]})


class Cells(HTMLParser):
    """The text of every cell of an HTML table, and the tags met."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


def flat(names: list[str]) -> list[str]:
    return [name.replace("\n", " ") for name in names]


def test_markdown_reads_back_as_it_was() -> None:
    page = MarkdownIt().enable("table").render(tables.markdown(TABLE, ["class"]))
    read = Cells(page)
    assert [cell.strip() for cell in read.cells[2::2]] == flat(HOSTILE)
    assert read.tags == {"table", "thead", "tbody", "tr", "th", "td"}


def test_markdown_aligns() -> None:
    lines = tables.markdown(TABLE, ["class"]).splitlines()
    assert lines[1] == "| :-- | --: |"
    assert len(lines) == len(TABLE) + 2


def test_html_reads_back_as_it_was() -> None:
    read = Cells(tables.html(TABLE, ["class"], caption="<b>runs</b>"))
    assert read.cells[2::2] == HOSTILE
    assert read.tags == {"table", "caption", "thead", "tbody", "tr", "th", "td"}


def test_html_heads_rows_and_columns() -> None:
    made = tables.html(pd.DataFrame({"class": ["cat"], "robust": ["1%"]}), ["class"])
    assert '<th scope="col" style="text-align:left">class</th>' in made
    assert '<th scope="row" style="text-align:left">cat</th><td style="text-align:right">1%</td>' in made


def test_latex_by_hand() -> None:
    made = tables.latex(TABLE, ["class"]).splitlines()
    assert made[0] == r"\begin{tabular}{lr}"
    assert made[2] == r"class & robust \\"
    assert made[4] == r"\textless{}script\textgreater{}alert(1)\textless{}/script\textgreater{} & 1.0\% \\"
    assert made[5] == r"a\textbar{}b & $-$2.0 \\"
    assert made[6] == r"R\&D\_1 50\% \$x\$ \#\{y\} & -- \\"
    assert made[7] == r"back\textbackslash{}slash & 4 \\"
    assert made[-1] == r"\end{tabular}"


def printed(table: pd.DataFrame, width: int, most: int | None = None) -> str:
    console = Console(width=width, record=True, color_system=None, quiet=False, file=None)
    with console.capture() as capture:
        for piece in tables.terminal(table, ["class"], width, most):
            console.print(piece)
    return capture.get()


@pytest.mark.parametrize("width", [40, 60, 200])
def test_no_number_is_cut_on_a_narrow_terminal(width: int) -> None:
    table = pd.DataFrame({"class": ["cat", "a name " * 10], **{f"run {n}": [f"1{n}.0% +3.1*", "2"] for n in range(6)}})
    text = printed(table, width)
    assert all(f"1{n}.0% +3.1*" in text for n in range(6))
    assert max(map(len, text.splitlines())) <= width
    assert text.count("cat") == {40: 6, 60: 3, 200: 1}[width]
    assert "…" not in text


def test_long_tables_show_both_ends() -> None:
    table = pd.DataFrame({"class": [f"c{n:03}" for n in range(100)], "x": "1"})
    text = printed(table, 80, most=10)
    assert [f"c{n:03}" in text for n in (0, 4, 5, 94, 95, 99)] == [True, True, False, False, True, True]
    assert "… 90 more" in text


def test_markup_of_the_terminal_is_text() -> None:
    assert "[bold red]x[/]" in printed(pd.DataFrame({"class": ["[bold red]x[/]"], "x": ["1"]}), 80)


def test_what_is_not_defined_is_a_dash_and_no_number() -> None:
    table = pd.DataFrame({"class": ["nan", None], "rho": [float("nan"), 0.5]})
    made = [tables.markdown(table), tables.latex(table), tables.html(table), printed(table, 80)]
    assert [text.lower().count("nan") for text in made] == [1] * 4  # the class of that name
    assert made[0].splitlines()[2:] == ["| nan | – |", "| – | 0.5 |"]


FORMULAS = ['=HYPERLINK("http://x")', "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\tcat", "\rcat", "'=old", "''@x"]


def test_no_text_is_a_formula_to_a_spreadsheet_and_numbers_stay_numbers() -> None:
    plain = ["cat", "-0.5", "+3", "-1.5e-3", "-12%", "-", "=", "a=b", "'quoted'", ""]
    frame = pd.DataFrame({"class": FORMULAS + plain, "value": -1.5, "count": -2}, index=range(18))
    rows = list(csv.reader(io.StringIO(csv_text(frame))))
    assert rows[0] == ["class", "value", "count"]
    assert [row[0] for row in rows[1:]] == [f"'{text}" for text in FORMULAS] + plain
    assert {(row[1], row[2]) for row in rows[1:]} == {("-1.5", "-2")}


def test_names_that_head_rows_and_columns_are_text_too() -> None:
    frame = pd.DataFrame([[1, 0], [0, 1]], index=pd.Index(["=a", "b"], name="class"), columns=["=a", "b"])
    assert csv_text(frame, index=True) == "class,'=a,b\n'=a,1,0\nb,0,1\n"


def test_what_was_written_is_read_back_as_it_was(tmp_path: Path) -> None:
    frame = pd.DataFrame({"class": FORMULAS, "=x": range(8), "seen": [1, None, *["=y"] * 6]})
    (tmp_path / "table.csv").write_bytes(csv_text(frame).encode())
    found = read_csv(tmp_path / "table.csv")
    assert list(found.columns) == list(frame.columns)
    assert found["class"].tolist() == FORMULAS
    assert found["seen"].tolist()[2:] == ["=y"] * 6
    assert "\n+cmd" not in csv_text(frame)
    assert ",1\n" in csv_text(frame)  # a whole number among texts


def test_what_is_no_character_is_shown_as_such() -> None:
    odd = "a\x00\x07\x1b\ud800\uffff\x7fé猫\U0001f408\n"
    shown = "a�����\x7fé猫\U0001f408\n"
    assert visible({odd: [odd, 1, None]}) == {shown: [shown, 1, None]}
    assert json.loads(visible(json.dumps(odd))) == shown


def test_numbers_are_shortened_and_what_is_missing_is_left_empty() -> None:
    frame = pd.DataFrame({"x": [0.41268, 1.2345, 98.765, -0.00012, float("nan"), 0.0], "sure": [True, False] * 3})
    assert tables.printed(frame)["x"].tolist() == ["0.413", "1.23", "98.8", "-1.2e-04", "", "0.000"]
    assert tables.printed(frame)["sure"].tolist() == ["yes", "no"] * 3
    assert tables.words(frame.assign(name="a")) == ["name"]
