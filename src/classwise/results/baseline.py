"""No class may be less accurate than it was: an audit against the audit of an earlier model, on the same images.

For each attack that is asked for, clean and the headline one by default, and each class, with d the accuracy now minus
that of the baseline:

    beyond chance   fails if the exact McNemar test that the class is worse than it was, one-sided, is significant at α
                    after Holm's correction over all classes of all these attacks: an unchanged model fails with
                    probability α at most
    margin m        fails if d < −m; a confident gate asks it of the lower end of Newcombe's interval of d. The claim
                    "no class fell by more than m" then holds at 1 − α without a correction, since it is made only if
                    every class passes (intersection-union test; Berger, Technometrics 1982)

With b images lost and none gained the p-value is 2⁻ᵇ, so that a fall of fewer than b₀ = ⌈log₂(M/α)⌉ images, M being the
number of tests, never fails: `detectable`. `classwise compare` asks whether a class changed in either direction, so its
p-values are twice as large.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.format import UNKNOWN, fixed, listed, p_equals, percent, points
from classwise.core.records import CLEAN
from classwise.core.spec import check_keys, number
from classwise.metrics import paired
from classwise.results.audit_result import Audit
from classwise.results.compare import compare
from classwise.results.gate import RequirementResult
from classwise.stats.comparisons import fell, holm

_BEFORE, _NOW = "the baseline", "this run"
_KEYS = ("run", "margin", "attacks")


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The audit that no class may fall behind. margin: the fall that is allowed; None for any that chance explains.
    attacks: under which; by default clean and the headline one."""

    audit: Audit
    margin: float | None = None
    attacks: Sequence[str] = ()

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Baseline:
        """The table ``[baseline]`` of a file of requirements."""
        check_keys(table, dict.fromkeys(_KEYS), "a baseline")
        if "run" not in table:
            raise UserError("a baseline needs a run: the run folder of the earlier audit, such as runs/main.")
        attacks = table.get("attacks", ())
        return cls.of(table["run"], table.get("margin"), [attacks] if isinstance(attacks, str) else attacks)

    @classmethod
    def of(cls, run: str | Path, margin: float | str | None = None, attacks: Sequence[str] = ()) -> Baseline:
        """The baseline in a run folder."""
        allowed = None if margin is None else share(margin)
        if allowed is not None and not 0 <= allowed < 1:
            raise UserError(f"the margin is the fall that is allowed, from 0 to 1, such as 0.02; got {margin}.")
        return cls(audit=Audit.load(run), margin=allowed, attacks=tuple(attacks))

    @property
    def name(self) -> str:
        return str(self.audit.folder or _BEFORE)

    def check(self, audit: Audit, confident: bool = False) -> tuple[list[RequirementResult], list[str]]:
        """A result for each class and attack, and notes on what the comparison can tell."""
        begin = time.perf_counter()
        tables = [self._compared(audit, attack) for attack in self.attacks or dict.fromkeys((CLEAN, audit.headline))]
        table = pd.concat(tables, ignore_index=True).dropna(subset=["p"])
        table["p_holm"] = holm(table["p"].to_numpy(dtype=np.float64))
        alpha = 1 - audit.confidence
        each = (time.perf_counter() - begin) / max(len(table), 1)
        results = [self._result(row, audit.headline, alpha, confident, each) for row in table.to_dict("records")]
        return results, [] if self.margin is not None else _notes(table, alpha)

    def _compared(self, audit: Audit, attack: str) -> pd.DataFrame:
        headline = attack == audit.headline
        found = compare({_BEFORE: self.audit, _NOW: audit}, attack=None if headline else attack)
        if found.attack != attack or found.notes:
            raise UserError(
                f"{self.name} is no baseline for this run under {attack}: {' '.join(found.notes) or found.title}. "
                "Audit the earlier model again, on the same images and with the same attacks."
            )
        pairs = paired.compute(self.audit.rows(attack), audit.rows(attack))[:-1]
        worse = fell(pairs["only_first"].to_numpy(), pairs["only_second"].to_numpy())
        return found.by_class().assign(attack=attack, p=np.where(pairs["n"] > 0, worse, np.nan))

    def _result(
        self, row: Mapping[Any, Any], headline: str, alpha: float, confident: bool, seconds: float
    ) -> RequirementResult:
        change, low = float(row["difference"]), float(row["low"])
        if self.margin is None:
            asked, passed = change, row["p_holm"] >= alpha
        else:
            asked = low if confident else change
            passed = asked >= -self.margin
        prefix = "" if row["attack"] == headline else f"{row['attack']}."
        allowed = "" if self.margin is None else f"-{100 * self.margin:g}%"
        text = f"{prefix}class[{row['class']}]>=baseline{allowed}"
        found = f"{percent(row['base'])} → {percent(row['accuracy'])}, {points(change)} points"
        why = f"{p_equals(row['p_holm'])} after correction" if self.margin is None else ""
        why = f"lower bound {points(low)} points" if self.margin is not None and confident else why
        detail = f"{found} under {row['attack']}{f', {why}' if why else ''}"
        return RequirementResult(
            requirement=text,
            value=asked,
            passed=passed,
            sentence=f"{text}: {'holds' if passed else 'FAILED'} ({detail})",
            attack=str(row["attack"]),
            found=f"{found}{f', {why}' if self.margin is None else ''}",
            interval=f"{points(low)} to {points(row['high'])}" if math.isfinite(low) else UNKNOWN,
            seconds=seconds,
        )


def detectable(tests: int, alpha: float) -> int:
    """The fewest images lost, none being gained, that are beyond chance for one of so many classes."""
    return math.ceil(math.log2(max(tests, 1) / alpha))


def _notes(table: pd.DataFrame, alpha: float) -> list[str]:
    fewest = detectable(len(table), alpha)
    found = [
        f"A class that lost fewer than {fewest} images, and gained none, is within chance for {len(table)} tests at "
        f"{fixed(alpha, 2)}: to find smaller falls audit more images, or allow a margin."
    ]
    blind = sorted(set(table.loc[table["n"] < fewest, "class"]))
    if blind:
        found.append(f"No fall can be found in {listed(blind)}: fewer than {fewest} images each.")
    return found


def share(value: float | str) -> float:
    """A share as people write it: 0.02, 2% or 1/50."""
    text = value.strip() if isinstance(value, str) else value
    return number(text[:-1]) / 100 if isinstance(text, str) and text.endswith("%") else number(text)
