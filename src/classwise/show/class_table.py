"""The table of classes on the terminal, with bars and intervals; which classes it shows, in which order.

On a narrow terminal the bars are shortened first, then the names; numbers are never cut.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from classwise.core.errors import UserError, check_known, lookup
from classwise.core.format import interval, level, percent, probability
from classwise.core.records import CLEAN
from classwise.metrics import accuracy
from classwise.results.audit_result import Audit

_BAR, _SHORT_BAR = 24, 6  # characters of a full bar, and where there is little room
GAP = 2  # blanks between two columns of a table
_SHORTEST = 6  # characters to which a name may be cut
MANY, _ENDS = 40, 12  # classes up to which all are shown; of more, so many from each end
ERRORS = "misclassified as"
_MOST_ERRORS = 3  # classes that the errors of a class go to, in its details

#: What classes may be sorted by, the column of an audit's table, and whether the largest is first.
_SORTS = {
    "robust": ("accuracy", False),
    "clean": ("clean", False),
    "drop": ("drop", True),
    "n": ("n", False),
    "p_worst": ("p_worst", True),
    "class": ("class", False),
    "data": (None, False),
}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which classes are shown, in which order.

    every: also where there are many; else the first and the last. sort: robust, clean, drop, n, p_worst, class (by
    name) or data (as in the data); None: the table's usual order. classes: only these, by name.
    """

    every: bool = False
    sort: str | None = None
    classes: Sequence[str] = ()

    def arranged(
        self, table: pd.DataFrame, usual: str = "robust", columns: Mapping[str, str] | None = None
    ) -> pd.DataFrame:
        """The rows of these classes in this order. columns: what the table calls what is sorted by, if other."""
        chosen = table
        if self.classes:
            check_known("class", list(table["class"]), *self.classes)
            chosen = table[table["class"].isin(list(self.classes))]
        column, largest = lookup("order of classes", self.sort or usual, _SORTS)
        column = (columns or {}).get(self.sort or usual, column)
        if column is None:
            return chosen
        if column not in chosen:
            known = [key for key in _SORTS if (columns or {}).get(key, _SORTS[key][0]) in (None, *chosen.columns)]
            raise UserError(f"these classes cannot be sorted by {self.sort!r}; use one of {', '.join(known)}.")
        return chosen.sort_values(column, ascending=not largest, na_position="last", kind="stable")

    def most(self, count: int) -> int | None:
        """How many of so many classes are shown, from both ends; None for all."""
        return 2 * _ENDS if count > MANY and not self.every else None


def bar(value: float, low: float, high: float, width: int = _BAR) -> Text:
    """The value as a filled bar, its interval as a lighter stretch around the end."""
    at, left, right = (round(min(max(v, 0.0), 1.0) * width) for v in (value, low, high))
    text = Text("█" * left, style="green" if value >= 0.5 else "yellow" if value >= 0.25 else "red")
    text.append("▓" * (at - left) + "░" * (right - at), style="dim")
    return text.append(" " * (width - right))


def bar_legend(confidence: float) -> Text:
    """What the parts of a bar are."""
    ends = f"█ to the lower end of the {level(confidence)} CI, ▓ to the accuracy, ░ to the upper end"
    return Text(f"bars: {ends}", "dim")


def plain_table(headers: Iterable[str], left: Collection[str], title: str = "") -> Table:
    """A table without lines or rows; the columns under the headers `left` are aligned left, the others right."""
    table = Table(title=Text(title) if title else None, title_justify="left", box=None, pad_edge=False)
    for header in headers:
        table.add_column(Text(header), justify="left" if header in left else "right", no_wrap=True)
    return table


def class_table(audit: Audit, attack: str | None = None, width: int = 80, choice: Choice | None = None) -> Table:
    """The classes under an attack, from the weakest on unless another order is chosen."""
    choice, name = choice or Choice(), attack or audit.headline
    every = choice.arranged(measured(audit, name))
    most = choice.most(len(every))
    rows = every if most is None else pd.concat([every.head(most // 2), every.tail(most // 2)])
    numbers = [_numbers(row) for _, row in rows.iterrows()]
    errors = [most_errors(row) for _, row in rows.iterrows()]
    ci = f"{level(audit.confidence)} CI"
    headers = ("n", "clean", "robust", ci, "p(worst)")
    free = width - sum(max(map(len, column)) for column in zip(headers, *numbers, strict=True)) - 7 * GAP
    theirs = max(len(ERRORS), *(cell_len(f"{other} {share}") for other, share in errors))
    wanted = [max(map(cell_len, ("class", *rows["class"]))), theirs]
    length = min(max(free - sum(wanted), _SHORT_BAR), _BAR)
    mine, theirs = fit(wanted, free - length, (_SHORTEST, len(ERRORS)))

    columns = ("class", *headers[:4], "", headers[4], ERRORS)
    table = plain_table(columns, ("class", ci, "", ERRORS), f"Robustness by class under {name}")
    names, others = shortened(rows["class"], mine), _with_shares(errors, theirs)
    for place, (_, row) in enumerate(rows.iterrows()):
        if most is not None and place == most // 2:
            table.add_row(f"… {len(every) - len(rows)} more", style="dim")
        shown = bar(row["accuracy"], row["low"], row["high"], length) if row["n"] else Text()
        *first, last = numbers[place]
        table.add_row(Text(names[place]), *first, shown, last, others[place])
    return table


def class_details(audit: Audit, name: str, width: int = 80) -> Table:
    """One class under every attack, with the classes that most of its errors go to."""
    ci = f"{level(audit.confidence)} CI"
    headers = ("attack", "n", "accuracy", ci, "p(worst)", ERRORS)
    lines, place = [], _place(audit, name)
    for attack in dict.fromkeys((*audit.names, audit.headline)):
        n, _, *rest = _numbers(measured(audit, attack).iloc[place])
        lines.append((attack, n, *rest, _errors_of(audit, attack, place)))
    widths = [max(map(cell_len, column)) for column in zip(headers, *lines, strict=True)]
    room = width - sum(widths[1:-1]) - GAP * (len(headers) - 1)
    first, last = fit([widths[0], widths[-1]], room, (_SHORTEST, len(ERRORS)))
    table = plain_table(headers, ("attack", ci, ERRORS), name)
    table.columns[-1].no_wrap, table.columns[-1].max_width = False, last
    for attack, *numbers, errors in lines:
        table.add_row(cut(attack, first), *numbers, Text(errors))
    return table


def _place(audit: Audit, name: str) -> int:
    names = list(audit.records.class_names)
    check_known("class", names, name)
    return names.index(name)


def _errors_of(audit: Audit, attack: str, place: int) -> str:
    """The classes that most of the errors go to, with their shares of the errors."""
    row = audit.confusion(attack).iloc[place].tolist()
    pairs = zip(audit.records.class_names, row, strict=True)
    found = [(name, count) for k, (name, count) in enumerate(pairs) if count and k != place]
    errors = sum(count for _, count in found)
    most = sorted(found, key=lambda pair: -pair[1])[:_MOST_ERRORS]
    shown = [f"{name} {percent(count / errors, 0)}" for name, count in most]
    return ", ".join(shown) + (f", {len(found) - _MOST_ERRORS} more" if len(found) > _MOST_ERRORS else "")


def measured(audit: Audit, attack: str) -> pd.DataFrame:
    """The table of classes with their clean accuracy, and by how much the attack lowers it."""
    table = audit.by_class(attack)
    clean = accuracy.compute(audit.rows(CLEAN)).values
    return table.assign(clean=clean, drop=clean - table["accuracy"])


def _numbers(row: pd.Series[Any]) -> list[str]:
    known = row["n"] > 0
    within = interval(row["low"], row["high"]) if known else "no examples"
    worst = probability(row["p_worst"]) if known else ""
    return [str(row["n"]), percent(row["clean"]), percent(row["accuracy"]), within, worst]


def most_errors(row: pd.Series[Any]) -> tuple[str, str]:
    """The class most of this one's errors go to, and their share; empty where there are no errors."""
    other = row["confused_with"]
    return ("", "") if other is None or pd.isna(other) else (other, percent(row["confused_share"], 0))


def _with_shares(errors: Sequence[tuple[str, str]], width: int) -> list[Text]:
    """The classes that errors go to, cut so that their shares are not."""
    room = width - max((len(share) + 1 for _, share in errors), default=0)
    names = shortened([other for other, _ in errors], room)
    return [Text(f"{name} {share}".strip()) for name, (_, share) in zip(names, errors, strict=True)]


def fit(widths: Sequence[int], room: int, least: Sequence[int]) -> list[int]:
    """Widths that fit into the room together: the widest is cut first, none below its least."""
    fitted = list(widths)
    while sum(fitted) > room:
        over = [width if width > low else 0 for width, low in zip(fitted, least, strict=True)]
        if not any(over):
            break
        fitted[over.index(max(over))] -= 1
    return fitted


def cut(name: str, width: int) -> Text:
    """A name as it is, markup and all, cut to the width with an ellipsis."""
    text = Text(name)
    text.truncate(width, overflow="ellipsis")
    return text


def shortened(names: Iterable[str], width: int) -> list[str]:
    """The names, those that are too long cut: at the end, or where that makes them alike, in what they share."""
    given = list(names)
    plain = [cut(name, width).plain for name in given]
    if len(set(plain)) == len(set(given)):
        return plain
    for keep in range(width // 2, -1, -1):  # how much of the beginning stays
        made = [cut(_without(name, _shared(given), keep), width).plain for name in given]
        if len(set(made)) == len(set(given)):
            return made
    return plain


def _shared(names: Sequence[str]) -> int:
    """How many signs all the names begin with, but those without any."""
    first, last = min(filter(None, names), default=""), max(names, default="")
    return next((place for place, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))


def _without(name: str, shared: int, keep: int) -> str:
    """A name of whose first signs, which all have, only some are left."""
    return f"{name[:keep]}…{name[shared:]}" if name and shared > keep + 1 else name
