"""Digits on coloured backgrounds: are classes that share one misclassified as each other? (First part of `background`.)

An error follows the background if the predicted class has the image's own colour behind it. The share of such errors is
compared with the share if errors were spread evenly over the other classes, with what other pairings of the classes
would give (a permutation test, `metrics.kinship`), and with the share in models trained with other pairings, where the
same digits are as similar as here but do not share the background.

At the paper's ε = 0.5 an attack can make every image the same grey, so nothing can be robust against a strong one, nor
learned from one. The paper's attack takes 40 steps of 0.01 from a random start: pixels move by 0.4 at most, so that a
trace of the colour remains, and less of the digit. What follows the background is therefore what that attack leaves. A
training that sees only attacked images learns the colours within a small budget and not the digits; TRADES, whose loss
has a term for natural images, learns both.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from classwise.core.errors import UserError, unknown
from classwise.core.format import percent
from classwise.core.records import CLEAN, Records
from classwise.data.coloured import assignments, colours_of, drawn
from classwise.metrics import accuracy, confusion, difference, kinship, overall
from classwise.metrics.kinship import Kinship
from classwise.results.audit_result import Audit
from classwise.show import figures
from classwise.show.figures import background as figure
from classwise.show.figures.style import Chart
from classwise.stats import comparisons
from classwise.stats.intervals import Array
from classwise.studies.runner.result import Claim, StudyResult
from classwise.studies.shared.together import EXACT, PAIRED, exact, in_percent
from classwise.studies.shared.verdicts import LEVEL, Ruling, all_held, exceeds, falls_short, images, tails

_SOURCE = "tian2021:figure5"
_MARGIN = 0.1  # a share of errors above chance that counts as nothing
_SEED = 0  # by which the data set `coloured` draws an image's colour


def check_pairings(pairings: Sequence[str]) -> None:
    """Raise for a pairing that does not exist, and where none is given that tells classes apart."""
    for name in pairings:
        if name not in assignments():
            raise unknown("pairing", name, assignments())
    four = ("a", "b", "c", "d")
    if not any(tells_apart(relation(name, four)) for name in pairings):
        given = ", ".join(pairings) or "none"
        raise UserError(f"--pairing {given}: these give every class the same backgrounds; add one such as pairs.")


def relation(pairing: str, class_names: Sequence[str]) -> Array:
    """Whether class j may have the k-th colour of class c, as (c, k, j)."""
    colours = list(colours_of(class_names, pairing).values())
    return np.array([[[colour in others for others in colours] for colour in own] for own in colours])


def tells_apart(related: Array) -> bool:
    """Whether some class lacks a background that another has."""
    return not bool(related.all())


def errors(records: Records, pairing: str) -> Array:
    """Errors by true class, which of its colours the image has, and predicted class."""
    place, wrong = _places(records, pairing), ~records.correct
    found = np.zeros(relation(pairing, records.class_names).shape, dtype=np.int64)
    np.add.at(found, (records.label[wrong], place[wrong], records.prediction[wrong]), 1)
    return found


def follows(records: Records, pairing: str) -> Array:
    """Whether each image is misclassified as another class that has its own background."""
    related = relation(pairing, records.class_names)
    return np.asarray(related[records.label, _places(records, pairing), records.prediction] & ~records.correct)


def _places(records: Records, pairing: str) -> Array:
    """Which of its class's colours each image has."""
    counts = [len(own) for own in colours_of(records.class_names, pairing).values()]
    return drawn(records.label, records.index, counts, _SEED)


def following(records: Records, pairing: str) -> Kinship:
    """How many of the errors go to a class with the image's own background under that pairing."""
    confusion.require_classes(records.single(), "label")
    return kinship.of(errors(records, pairing), relation(pairing, records.class_names))


def result(audits: Mapping[str, Audit]) -> StudyResult:
    """Tables, figures and claims of models trained with each pairing, by the pairing's name."""
    attacked = {pairing: audit.rows() for pairing, audit in audits.items()}
    clean = {pairing: audit.rows(CLEAN) for pairing, audit in audits.items()}
    names = next(iter(clean.values())).class_names
    judged = [pairing for pairing in audits if tells_apart(relation(pairing, names))]
    kinds = {"clean": clean, "attacked": attacked}
    found = {
        (run, kind, pairing): following(rows[run], pairing)
        for run, (kind, rows), pairing in itertools.product(audits, kinds.items(), judged)
    }
    return StudyResult(
        {"backgrounds": _table(found), "accuracy_on_backgrounds": _accuracies(clean, attacked)},
        figures={f"confusion_on_{run}": _chart(run, audit) for run, audit in audits.items()},
        claims=[
            claim
            for pairing in judged
            for claim in (
                _attacked(pairing, found, _controls(pairing, list(audits), names)),
                _natural(pairing, found),
                _more(pairing, clean[pairing], attacked[pairing]),
            )
        ],
        notes=(
            "Which classes share a background is not in the paper's text; pairs is one reading of it.",
            "Each pairing was trained once; intervals take errors as independent.",
        ),
        data=_data(audits),
    )


def _controls(pairing: str, runs: Sequence[str], names: Sequence[str]) -> list[str]:
    """The runs in which no two classes that share a background here share one there, unless all do."""
    own = relation(pairing, names).any(axis=1) & ~np.eye(len(names), dtype=bool)
    others = {run: relation(run, names) for run in runs if run != pairing}
    return [run for run, of in others.items() if not tells_apart(of) or not (own & of.any(axis=1)).any()]


def _table(found: Mapping[tuple[str, str, str], Kinship]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "trained on": run,
                "images": kind,
                "pairing": pairing,
                "errors": kin.errors,
                "on the same background (%)": 100 * kin.inside,
                "low": 100 * kin.low,
                "high": 100 * kin.high,
                "by chance (%)": 100 * kin.chance,
                "p": kin.p,
            }
            for (run, kind, pairing), kin in found.items()
        ]
    )


def _accuracies(clean: Mapping[str, Records], attacked: Mapping[str, Records]) -> pd.DataFrame:
    rows = []
    for run, own in clean.items():
        natural, robust = overall.compute(own), overall.compute(attacked[run])
        weakest = own.class_names[accuracy.compute(attacked[run]).worst]
        shares = {**in_percent("clean", natural), **in_percent("robust", robust)}
        rows.append({"trained on": run, "n": natural.support, **shares, "weakest class": weakest})
    return pd.DataFrame(rows)


def _chart(run: str, audit: Audit) -> Chart:
    """Clean and attacked confusion, framed by background where each class has one and they are not all the same."""
    if not _one_each(run, audit.records.class_names):
        return figures.from_runs("confusion", {run: audit})
    cells = _cells(run, audit)
    return figure.draw(cells, dict(zip(cells["true"], cells["background"], strict=True)))


def _one_each(run: str, names: Sequence[str]) -> bool:
    """Whether each class has one background and they are not all the same."""
    return tells_apart(relation(run, names)) and all(len(own) == 1 for own in colours_of(names, run).values())


def _cells(run: str, audit: Audit) -> pd.DataFrame:
    """The confusion, clean and attacked: kind, true, predicted, images, and the background of the true class."""
    names, parts = audit.records.class_names, []
    for kind in (CLEAN, audit.headline):
        counts = confusion.compute(audit.rows(kind))
        true, predicted = (np.array(names)[axis.ravel()] for axis in np.indices(counts.shape))
        parts.append(pd.DataFrame({"kind": kind, "true": true, "predicted": predicted, "images": counts.ravel()}))
    colours = {name: own[0] for name, own in colours_of(names, run).items()}
    return pd.concat(parts, ignore_index=True).assign(background=lambda cells: cells["true"].map(colours))


def _data(audits: Mapping[str, Audit]) -> dict[str, pd.DataFrame]:
    own = {run: audit for run, audit in audits.items() if _one_each(run, audit.records.class_names)}
    cells = [_cells(run, audit).assign(model=run) for run, audit in own.items()]
    return {"background": pd.concat(cells, ignore_index=True)} if cells else {}


def _attacked(pairing: str, found: Mapping[tuple[str, str, str], Kinship], controls: Sequence[str]) -> Claim:
    """Beyond chance, and more than where the same classes do not share a background."""
    own = found[pairing, "attacked", pairing]
    rulings, numbers = [_beyond_chance(own)], [_describe(own)]
    test = "Newcombe's interval of two shares, Bonferroni over the pairings"
    for run in controls:
        there = found[run, "attacked", pairing]
        low, high = _gap(there, own, 1 - LEVEL / len(controls))
        sample = images(min(own.errors, there.errors), "errors")
        rulings.append(exceeds(low, high, test=test, sample=sample))
        numbers.append(
            f"{percent(there.inside)} of {there.errors} after training on {run}, "
            f"{100 * (own.inside - there.inside):+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"
        )
    return Claim(
        _SOURCE,
        f"Under attack, classes are misclassified as those that share their background ({pairing}).",
        all_held(*rulings),
        "; ".join(numbers) if controls else f"{numbers[0]}; no other pairing to compare with",
    )


def _natural(pairing: str, found: Mapping[tuple[str, str, str], Kinship]) -> Claim:
    """An equivalence test: what is seen is at most a margin more than chance gives."""
    natural, attacked = found[pairing, "clean", pairing], found[pairing, "attacked", pairing]
    test = f"{EXACT}, margin {100 * _MARGIN:g} points above chance"
    ends, sample = exact(natural.inside, natural.errors), images(natural.errors, "errors")
    return Claim(
        _SOURCE,
        f"On natural images the errors do not follow the background ({pairing}).",
        falls_short(*ends, natural.chance + _MARGIN, test=test, sample=sample),
        f"natural {_describe(natural)}; attacked {_describe(attacked)}",
    )


def _more(pairing: str, clean: Records, attacked: Records) -> Claim:
    """In images and not in errors, as a confusion matrix shows it; paired."""
    row = difference.compute(_as_flips(clean, pairing), _as_flips(attacked, pairing)).iloc[-1]
    return Claim(
        _SOURCE,
        f"More images are misclassified as a class with the same background under attack than without ({pairing}).",
        exceeds(float(row["low"]), float(row["high"]), test=PAIRED, sample=images(row["n_first"], "images")),
        f"{percent(row['first'])} and {percent(row['second'])} of images: {100 * row['difference']:+.1f} points, 95% "
        f"CI {100 * row['low']:+.1f} to {100 * row['high']:+.1f}",
    )


def _as_flips(records: Records, pairing: str) -> Records:
    """The same images with one question, "right" where they are misclassified as a class with the same background."""
    frame = records.frame.assign(label=1, prediction=follows(records, pairing).astype(np.int64))
    return Records(frame, replace(records.meta, class_names=("elsewhere", "same background"), superclasses=None))


def _beyond_chance(kin: Kinship) -> Ruling:
    """Beyond an even spread over the other classes, and beyond what other pairings of the classes would show."""
    sample = images(kin.errors, "errors")
    return all_held(
        exceeds(*exact(kin.inside, kin.errors), kin.chance, test=EXACT, sample=sample),
        tails(kin.p, kin.p_less, test="permutation of the pairing", sample=sample),
    )


def _gap(first: Kinship, second: Kinship, confidence: float = 1 - LEVEL) -> tuple[float, float]:
    """The interval of the second share minus the first; NaN where a side has no errors."""
    (inside, total), (inside_second, total_second) = (
        (np.array(round(kin.inside * kin.errors) if kin.errors else 0), np.array(kin.errors)) for kin in (first, second)
    )
    low, high = comparisons.newcombe(inside, total, inside_second, total_second, np.array(0.0), confidence)
    return float(low), float(high)


def _describe(kin: Kinship) -> str:
    if not kin.errors:
        return "no errors"
    return (
        f"{percent(kin.inside)} of {kin.errors} errors ({percent(kin.low)} to {percent(kin.high)}), by chance "
        f"{percent(kin.chance)}, p {kin.p:.2g}"
    )
