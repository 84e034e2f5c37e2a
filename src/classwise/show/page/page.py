"""The page itself: run folders read, everything computed, one HTML file written."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from classwise.core.csv_files import visible
from classwise.core.errors import UserError
from classwise.core.format import listed
from classwise.core.run_folder import TrainingFolder, kind_of
from classwise.core.storage import atomic_write_text
from classwise.metrics import groups
from classwise.results import findings as rules
from classwise.results.audit_result import Audit, unique_names
from classwise.results.compare_groups import GroupComparison
from classwise.results.criteria import Criteria
from classwise.results.finding import by_heading
from classwise.results.repair_result import AFTER, BEFORE, RepairResult
from classwise.results.training_result import TrainingResult
from classwise.show.page import (
    charts,
    commands,
    data,
    document,
    first_screen,
    gallery,
    glossary,
    panels,
    sections,
    study,
)
from classwise.show.page import trainings as trained

_SCRIPTS = (
    "dom.js", "theme.js", "table.js", "confusion.js", "confusion_map.js", "charts.js", "panel.js", "download.js",
    "page.js",
)  # fmt: skip
_IMAGE_BYTES = 2_500_000  # of all images together, so that a page stays under five million

_SECTIONS = {
    "repair": "Repair",
    "comparison": "Comparison",
    "classes": "Classes",
    "confusion": "Confusion",
    "intervals": "Intervals",
    "curves": "Curves",
    "training": "Training",
    "findings": "Warnings",
    "groups": "Groups",
    "seeds": "Seeds",
    "settings": "Settings",
    "glossary": "Glossary",
}


@dataclass(frozen=True)
class Runs:
    """The contents of the run folders, by name: finished audits, trainings, and finished repairs, whose audits before
    and after are among the audits."""

    audits: Mapping[str, Audit]
    trainings: Mapping[str, TrainingResult] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)  # of the trainings
    repairs: Mapping[str, RepairResult] = field(default_factory=dict)
    metrics: Sequence[str] = ()  # to be shown besides the usual ones
    groups: GroupComparison | None = None
    criteria: Criteria = field(default_factory=Criteria)  # of the gate; without any, those that each audit recorded
    note: str = ""

    @property
    def histories(self) -> dict[str, pd.DataFrame]:
        """The histories of the trainings, the selected epoch in each, where it is known."""
        return {name: _marked(run.history, run.selected) for name, run in self.trainings.items()}


def _marked(history: pd.DataFrame, selected: int | None) -> pd.DataFrame:
    """The history with the selected epoch, where it is known."""
    if selected is None or "best_epoch" in history:
        return history
    return pd.concat([history, pd.Series(selected, index=history.index, name="best_epoch")], axis=1)


def build(
    folders: Sequence[Path],
    out: Path,
    names: Sequence[str] | None = None,
    title: str | None = None,
    base: str | None = None,
    image_bytes: int = _IMAGE_BYTES,
    metrics: Sequence[str] = (),
    groups: GroupComparison | None = None,
    note: str = "",
    requirements: Sequence[str] = (),
    confident: bool = False,
    baseline: str | Path | None = None,
    margin: float | str | None = None,
) -> Path:
    """Write the page of these run folders, of audits, trainings and repairs, or of one study, to `out`.

    names: what to call the runs; by default the folders' names. base: the run the others are compared with; by default
    the first. image_bytes: room for the images of the confusion; 0 leaves them out. metrics: shown besides the usual.
    groups: a comparison over seeds, which has a section of its own, with or without run folders. note: said below the
    title. requirements, confident, baseline, margin: of the gate, whose results the first screen shows; without them
    those that each audit recorded.
    """
    if any(kind_of(Path(folder)) == "study" for folder in folders):
        besides = {"names": names, "base": base, "metrics": metrics, "groups": groups}
        gated = {"requirements": requirements, "confident": confident, "baseline": baseline, "margin": margin}
        return _study(folders, out, title, note, {**besides, **gated})
    criteria = Criteria.of(requirements, confident, baseline, margin)
    given = Runs({}) if groups is not None and not folders else read(folders, names)
    runs = dataclasses.replace(
        given, metrics=[*metrics, *criteria.own_metrics()], groups=groups, note=note, criteria=criteria
    )
    extra = [word for name in metrics for word in ("--metric", name)]
    extra += [word for text in requirements for word in ("--require", text)] + (["--confident"] if confident else [])
    extra += [] if baseline is None else ["--baseline", str(baseline)]
    extra += [] if margin is None else ["--margin", str(margin)]
    extra += [*(["--title", title] if title else []), *(["--note", note] if note else [])]
    extra += [] if groups is None else sections.group_options(groups)
    command = shlex.join(["classwise", "report", *map(str, folders), "--out", str(out), *extra])
    atomic_write_text(out, visible(render(runs, title or _title(runs), base, image_bytes, command)))
    return out


def _study(folders: Sequence[Path], out: Path, title: str | None, note: str, besides: Mapping[str, Any]) -> Path:
    """The page of a study, which has a page of its own."""
    if len(folders) > 1:
        raise UserError(
            f"a study has a page of its own: give its folder and no other; got {listed([*map(str, folders)])}."
        )
    if given := [name for name, value in besides.items() if value]:
        raise UserError(f"the page of a study has no {listed(given)}: these are of audits. Leave them out.")
    return study.build(Path(folders[0]), out, title, note)


def read(folders: Sequence[Path], names: Sequence[str] | None = None) -> Runs:
    """The audits, trainings and repairs in these folders, in the order given."""
    if not folders:
        raise UserError("a report needs at least one run folder, of an audit, a training or a repair.")
    if names is not None and not len(folders) == len(names) == len(set(names)):
        raise UserError(f"{len(folders)} run folders need as many different names; got {', '.join(names) or 'none'}.")
    paths = [Path(folder) for folder in folders]
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path} is not a folder; give run folders of audits, trainings or repairs.")
    unique_names(paths)  # none is given twice
    chosen = dict(zip(paths, names or [""] * len(paths), strict=True))
    trained, repaired = ([path for path in paths if kind_of(path) == kind] for kind in ("training", "repair"))
    audited = [path for path in paths if path not in (*trained, *repaired)]
    trainings = {
        chosen[path] or name: TrainingFolder(path) for name, path in zip(unique_names(trained), trained, strict=True)
    }
    repairs = {
        chosen[path] or name: RepairResult.load(path)
        for name, path in zip(unique_names(repaired), repaired, strict=True)
    }
    audits = {chosen[path] or name: Audit.load(path) for name, path in zip(unique_names(audited), audited, strict=True)}
    for name, repair in repairs.items():
        prefix = "" if len(paths) == 1 else f"{name} "
        audits |= {f"{prefix}{BEFORE}": repair.before, f"{prefix}{AFTER}": repair.after}
    return Runs(
        audits,
        {name: TrainingResult.load(run) for name, run in trainings.items()},
        {name: run.path for name, run in trainings.items()},
        repairs,
    )


def render(runs: Runs, title: str, base: str | None, image_bytes: int, command: str) -> str:
    """The page as text."""
    kept = {name: gallery.Kept.of(audit) for name, audit in runs.audits.items()}
    pool = gallery.Pool(image_bytes)
    portraits = panels.images(kept, pool)
    shown = gallery.collect(kept, pool)
    badges = {name: first_screen.badge(audit, runs.criteria) for name, audit in runs.audits.items()}
    found = {name: groups.compute(audit.rows()) for name, audit in runs.audits.items()}
    drawn = [*charts.of_audits(runs.audits), *charts.of_repairs(runs.repairs), *charts.of_groups(runs.groups)]
    trainings = [
        {
            **trained.describe(name, runs.trainings[name], runs.folders[name]),
            "charts": _shown_charts(charts.of_training(name, history, place)),
        }
        for place, (name, history) in enumerate(runs.histories.items())
    ]
    payload = {
        "runs": [
            {
                **data.of_run(name, own.audit, found[name], shown[name], own.why),
                "curves": panels.curves(own.audit),
                "portraits": portraits[name],
            }
            for name, own in kept.items()
        ],
        "images": pool.images,
    }
    context: dict[str, Any] = {
        "title": title,
        "note": runs.note,
        "command": command,
        "explained": glossary.anchor,
        "terms": glossary.of(_parts(runs, bool(pool.images), any(badges.values()))),
        "opening": sections.opening(runs.audits, base, badges),
        "runs": [
            {**_describe(name, own.audit, found[name], own.failed, runs), "badge": badges[name]}
            for name, own in kept.items()
        ],
        "charts": _shown_charts(drawn),
        "trainings": trainings,
        "repairs": {name: sections.repair(repair) for name, repair in runs.repairs.items()},
        "comparison": sections.comparison(runs.audits, base),
        "sections": _shown_sections(runs, drawn),
        "over_seeds": None if runs.groups is None else sections.over_seeds(runs.groups),
    }
    return document.render("page.html", _SCRIPTS, payload, **context)


def _shown_charts(drawn: Sequence[charts.Drawing]) -> list[tuple[charts.PageFigure, Markup, str]]:
    return [(drawing.figure, Markup(drawing.svg), drawing.problem) for drawing in drawn]


def _describe(name: str, audit: Audit, found: groups.Groups, failed: Sequence[str], runs: Runs) -> dict[str, Any]:
    """What the template shows of a run."""
    verdict, findings = audit.verdict(), rules.of_audit(audit)
    return {
        "name": name,
        "scope": first_screen.scope(audit),
        "headline": verdict.headline,
        "verdict": verdict.sentence,
        "alerts": first_screen.alerts(findings),
        "failed": failed,
        "numbers": data.headline_numbers(audit, runs.metrics),
        "findings": by_heading(findings),
        "groups": sections.groups(found, audit),
        "command": commands.of_audit(audit),
        "settings": sections.settings(audit),
    }


def _parts(runs: Runs, images: bool, gated: bool) -> set[glossary.Part]:
    """What the page holds, for the glossary."""
    there: dict[glossary.Part, bool] = {
        "audit": bool(runs.audits),
        "comparison": len(runs.audits) > 1,
        "curve": any(audit.has_curve for audit in runs.audits.values()),
        "training": bool(runs.trainings),
        "seeds": runs.groups is not None,
        "images": images,
        "gate": gated,
    }
    return {part for part, shown in there.items() if shown}


def _shown_sections(runs: Runs, drawn: Sequence[charts.Drawing]) -> list[tuple[str, str]]:
    there = {drawing.figure.section for drawing in drawn} | {"settings", "glossary"}
    if runs.audits:
        there |= {"classes", "confusion", "intervals", "findings", "groups"}
    if runs.trainings:
        there.add("training")
    if runs.repairs:
        there.add("repair")
    if runs.groups is not None:
        there.add("seeds")
    there = there - {"comparison"} | ({"comparison"} if len(runs.audits) > 1 else set())
    return [(anchor, name) for anchor, name in _SECTIONS.items() if anchor in there]


def _title(runs: Runs) -> str:
    if runs.groups is not None and not runs.audits and not runs.trainings:
        return f"Robustness over seeds: {listed([*runs.groups.audits], 4)}"
    if runs.repairs and len(runs.audits) == 2:
        return f"Repair of the worst class: {next(iter(runs.repairs))}"
    what, names = ("Robustness by class", [*runs.audits]) if runs.audits else ("Training", [*runs.trainings])
    return f"{what}: {listed(names, 4)}"
