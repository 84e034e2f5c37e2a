"""The sections of the page that are text: groups, comparison and settings, for the template, which escapes them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from classwise.core.errors import UserError
from classwise.core.format import fixed, interval, level, listed, p_equals, p_value, percent, points, radius
from classwise.metrics.groups import Groups, Superclasses
from classwise.results import findings as rules
from classwise.results.audit_result import Audit
from classwise.results.compare import Comparison, compare
from classwise.results.compare_groups import GroupComparison
from classwise.results.repair_result import RepairResult
from classwise.show import repair as shown
from classwise.show.comparison import run_text
from classwise.show.group_comparison import (
    WORDS,
    class_legend,
    class_text,
    difference_legend,
    difference_text,
    group_text,
)
from classwise.show.page import first_screen
from classwise.show.page.data import attack_label

_MOST_ROWS = 40  # classes of a comparison that are shown, from both ends
_MOST_SENTENCES = 3  # of a comparison on the first screen
_MOST_NAMED = 12  # classes of a group that are named


def groups(found: Groups, audit: Audit) -> dict[str, Any]:
    """The groups in words: their classes, the share of errors that stays inside, and the fit with the superclasses."""
    inside = pd.Series(found.inside, index=found.class_names)
    several = [members for members in found.members if len(members) > 1]
    alone = len(found.members) - len(several)
    rest = f" {alone} {'class is' if alone == 1 else 'classes are'} in no group." if alone else ""
    return {
        "sentence": f"Classes grouped by how often they are confused with each other under "
        f"{attack_label(audit.headline)}, weakest first: {len(several)} "
        f"{'group' if len(several) == 1 else 'groups'}.{rest}",
        "members": [
            {
                "names": listed(members, _MOST_NAMED),
                "remark": f"{percent(inside[list(members)].mean())} of a class's errors stay inside",
            }
            for members in several
        ],
        "agreement": None if found.superclasses is None else _agreement(found.superclasses),
    }


def _agreement(known: Superclasses) -> str:
    if not math.isfinite(known.rand + known.p):
        return "Agreement with the known superclasses is not defined here."
    beyond = "more than chance would give" if known.p < 0.05 else "no more than chance would give"
    return (
        f"Against the known superclasses: adjusted Rand index {fixed(known.rand, 2)} (1: the same groups, 0: chance), "
        f"purity {percent(known.purity)}, {p_equals(known.p)}: {beyond}."
    )


def comparison(audits: Mapping[str, Audit], base: str | None = None) -> dict[str, Any] | None:
    """All runs against the base: a table of runs, and for each run which classes gained and lost. None for one run."""
    if len(audits) < 2:
        return None
    try:
        made = compare(audits, base)
    except UserError as error:
        return {"problem": str(error)}
    return {
        "base": made.base,
        "level": level(made.confidence),
        "notes": made.notes,
        "caption": f"{len(audits)} runs under {attack_label(made.attack)}, against {made.base}. ρ weighs the gain of "
        "the worst class against the loss of the average; τ is the agreement on the order of the classes.",
        "runs": _runs(made),
        "findings": rules.of_comparison(made),
        "against": [_against(made, *pair) for pair in zip(made.pairs, made.sentences(), strict=True)],
    }


def opening(
    audits: Mapping[str, Audit], base: str | None, badges: Mapping[str, Mapping[str, Any] | None]
) -> dict[str, Any] | None:
    """What a page of several runs opens with: the comparison's verdict, and the runs at a glance. None for one run, or
    where the runs cannot be compared. badges: of each run (`first_screen.badge`)."""
    if len(audits) < 2:
        return None
    try:
        made = compare(audits, base)
    except UserError:
        return None  # the section of the comparison gives the reason
    rows: dict[Any, dict[Any, Any]] = made.table().set_index("run").to_dict("index")
    findings = [
        dataclasses.replace(finding, what=f"{name}: {finding.what}")
        for name, audit in audits.items()
        for finding in rules.of_audit(audit)
    ]
    return {
        "scope": first_screen.common(audits),
        "verdict": made.headline,
        "sentences": made.sentences()[:_MOST_SENTENCES],
        "level": level(made.confidence),
        "alerts": first_screen.alerts(findings),
        "gated": any(badges.values()),
        "runs": [
            {
                "name": name,
                "label": rows[name]["worst_class"],
                "worst": percent(rows[name]["worst"]),
                "interval": interval(rows[name]["worst_low"], rows[name]["worst_high"]),
                "average": percent(rows[name]["average"]),
                "clean": percent(rows[name]["clean"]),
                "badge": badges[name],
            }
            for name in audits
        ],
    }


def over_seeds(made: GroupComparison) -> dict[str, Any]:
    """Groups of runs against the control: means, differences and classes as tables of text, and what they say."""
    tables = {
        f"{made.title}: mean ± standard deviation over the runs": group_text(made),
        difference_legend(made): difference_text(made),
        class_legend(made): class_text(made),
    }
    ends = {caption: table if len(table) <= _MOST_ROWS else _both_ends(table) for caption, table in tables.items()}
    return {
        "notes": made.notes,
        "sentences": made.sentences(),
        "tables": [
            {
                "caption": caption,
                "head": [(column, column in WORDS) for column in table.columns],
                "rows": table.to_numpy().tolist(),
            }
            for caption, table in ends.items()
        ],
    }


def group_options(made: GroupComparison) -> list[str]:
    """The options of the command line that name these groups, as far as they were read from folders."""
    words = []
    for name, runs in made.audits.items():
        folders = [str(audit.folder) for audit in runs.values() if audit.folder is not None]
        words += ["--group", f"{name}={','.join(folders)}"]
    return [*words, "--control", made.control]


def _both_ends(table: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([table.head(_MOST_ROWS // 2), table.tail(_MOST_ROWS // 2)])


def _runs(made: Comparison) -> list[dict[Any, Any]]:
    """The table of runs as text; the base has no difference from itself."""
    text = run_text(made).drop(columns="n")
    text["worst"] = text.pop("worst class") + " " + text["worst"]
    corrected = next(str(column) for column in text if str(column).startswith("p ("))
    text.loc[text["run"] == made.base, ["ρ", "overall", corrected, "τ"]] = ["base", "base", "", ""]
    return text.to_dict("records")


def _against(made: Comparison, run: str, sentence: str) -> dict[str, Any]:
    """One run against the base, class by class, from the largest gain to the largest loss."""
    table = made.by_class()
    own = table[(table["run"] == run) & table["difference"].notna()].sort_values("difference", ascending=False)
    shown = own if len(own) <= _MOST_ROWS else _both_ends(own)
    reach = max(float(own[["low", "high"]].abs().max().max()), 1e-9) if len(own) else 1.0
    test = "McNemar's exact test" if made.pairs[run] else "Fisher's exact test, unpaired"
    cut = "" if len(shown) == len(own) else f" The {len(shown)} classes at both ends, of {len(own)}."
    return {
        "run": run,
        "sentence": sentence,
        "caption": f"Difference of {run} from {made.base} in percentage points, with {level(made.confidence)} "
        f"confidence intervals; p by {test}, corrected by Holm over the classes.{cut}",
        "rows": [_difference(row, reach) for _, row in shown.iterrows()],
    }


def _difference(row: pd.Series[Any], reach: float) -> dict[str, Any]:
    """A row with its bar: left and width in percent of a span from −reach to +reach."""
    value = float(row["difference"])
    return {
        "class": row["class"],
        "base": percent(row["base"]),
        "accuracy": percent(row["accuracy"]),
        "difference": points(value),
        "between": f"{points(row['low'])} to {points(row['high'])}",
        "p": p_value(row["p_holm"]),
        "change": row["change"],
        "left": round(50 + 50 * min(value, 0) / reach, 2),
        "width": round(50 * abs(value) / reach, 2),
        "low": round(50 + 50 * float(row["low"]) / reach, 2),
        "span": round(50 * float(row["high"] - row["low"]) / reach, 2),
    }


def repair(result: RepairResult) -> dict[str, Any]:
    """A repair in words and numbers: what came of it, on which images, and what an attacker can still do."""
    totals = shown.totals_text(result)
    return {
        "sentences": [*result.sentences(), shown.attacker(result)],
        "caption": "Before and after on the images that judge, and on the calibration images; "
        f"{level(result.confidence)} confidence intervals. The last column is what the calibration images promised "
        "too much.",
        "totals": [{str(key): value for key, value in row.items()} for row in totals.to_dict("records")],
        "remarks": result.remarks,
        "command": result.command,
    }


def settings(audit: Audit) -> list[tuple[str, list[tuple[str, str]]]]:
    """Threat, attacks, data and model, versions, timing: captions with rows of key and value."""
    meta, config, timing = audit.records.meta, audit.config, audit.timing
    asked = config.get("audit", {})
    threat = {"norm": meta.norm, "eps": radius(meta.eps), "seed": meta.seed, "confidence": audit.confidence}
    threat |= {key: value for key, value in asked.items() if key not in threat}
    data = {f"data {key}": value for key, value in config.get("data", {}).items() if key != "classes"}
    data |= {f"model {key}": value for key, value in config.get("model", {}).items()}
    attacks = {name: dict(info.settings) or "unperturbed images" for name, info in meta.attacks.items()}
    tables = [("Audit", threat), ("Data and model", data), ("Attacks", attacks)]
    tables += [("Timing", dict(_timing(timing))), ("Versions", dict(meta.versions))]
    return [(caption, setting_rows(rows)) for caption, rows in tables if rows]


def setting_rows(rows: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings as rows of key and value."""
    return [(key, _text(value)) for key, value in rows.items()]


def _timing(timing: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Seconds of the audit and of each attack; then how the work was divided."""
    if "wall_seconds" in timing:
        yield "this call", f"{timing['wall_seconds']:.1f} s"
    for name, cost in timing.get("attacks", {}).items():
        yield name, f"{cost.get('seconds', 0):.1f} s, {int(cost.get('passes', 0)):,} passes"
    for key, value in timing.items():
        if key not in ("wall_seconds", "attacks"):
            yield key.replace("_", " "), _text(value)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items() if item is not None)
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)
