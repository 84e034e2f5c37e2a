"""Rules about the training of the model that was audited: to train it adversarially, or whose β to lower."""

from __future__ import annotations

import json
import re

import numpy as np
import scipy  # its stats are loaded at their first use

from classwise.core.errors import UserError
from classwise.core.format import distance, p_equals, percent
from classwise.core.records import CLEAN
from classwise.metrics import accuracy, misclassified, overall
from classwise.results.audit_result import Audit
from classwise.results.finding import Found
from classwise.results.findings.images import is_near_chance
from classwise.stats import intervals
from classwise.stats.intervals import Array

_MOST = 3  # pairs of classes named
_LEAST_ROBUST = 0.25  # share of its clean accuracy that an adversarially trained model keeps under attack, at least


def _is_broken(audit: Audit) -> bool:
    """Whether robust accuracy may be no better than guessing, or is a small share of clean accuracy."""
    robust = overall.compute(audit.rows(), confidence=audit.confidence).low
    clean = overall.compute(audit.rows(CLEAN)).value
    return robust <= max(1 / audit.records.num_classes, _LEAST_ROBUST * clean)


def _is_another_model(audit: Audit) -> bool:
    """Whether the audit is not about the model as it was trained, so that no advice on training can follow from it."""
    wrong = any(finding.code == "normalisation" for finding in audit.findings)
    return wrong or is_near_chance(audit.rows(CLEAN), audit.confidence)


def train_adversarially(audit: Audit) -> Found:
    """A model with a high clean accuracy that the attack breaks, unless it is known to be adversarially trained."""
    if audit.adversarially_trained or audit.headline == CLEAN or not _is_broken(audit) or _is_another_model(audit):
        return
    clean, robust = (overall.compute(audit.rows(name)).value for name in (CLEAN, audit.headline))
    is_known = audit.adversarially_trained is not None
    how = "was trained without adversarial examples" if is_known else "does not look adversarially trained"
    yield (
        f"Clean accuracy is {percent(clean)} and robust accuracy {percent(robust)}: the model {how}.",
        "Train it adversarially before balancing its classes; the method madry is the usual first step.",
        {"clean": clean, "robust": robust},
    )


def lower_beta(audit: Audit, homing: Array | None = None) -> Found:
    """Which class's β of TRADES to lower to help which (Tian et al., KDD 2021, Section 6.1); the weakest three first.

    Lowering β_j makes class j less robust, and those classes more robust that are misclassified as j. One β alone helps
    class i if the two have a one-to-one relation, see `_one_to_one`. Given only for classes below the average, and only
    if j is the more robust of the two, since j loses. It takes an adversarially trained model: one that is known to be,
    or of which nothing is known and whose robust accuracy is not that of an undefended one.

    homing: counts H_ij of the errors i → j that vanish when the model is trained again without class j; where it is
    known it replaces the counts of errors, as in the paper.
    """
    rows = audit.rows()
    errors = misclassified.compute(rows) if homing is None else _off_diagonal(homing, rows.num_classes)
    if audit.headline == CLEAN or audit.adversarially_trained is False or _is_broken(audit):
        return
    if _is_another_model(audit):
        return
    correct, support = accuracy.counts(rows)
    share, names = intervals.ratio(correct, support), rows.class_names
    weak = [i for i in np.argsort(share, kind="stable").tolist() if share[i] < np.nanmean(share)]
    related = ((i, _one_to_one(i, errors, support)) for i in weak)
    helped = [(i, *r) for i, r in related if r is not None and r[2] < 1 - audit.confidence and share[r[0]] > share[i]]
    for i, j, k, p in helped[:_MOST]:
        home = "" if homing is None else " and would be correct without it"
        yield (
            f"{names[i]} ({percent(share[i])}) and {names[j]} ({percent(share[j])}) are one to one: {errors[i, j]:,} "
            f"of the {support[i]:,} images of {names[i]} are misclassified as {names[j]}{home}, {errors[i, k]:,} as "
            f"{names[k]}, the next most frequent class ({p_equals(p)}).",
            f"To make {names[i]} more robust, train with TRADES and a lower beta for {names[j]}: "
            f"beta = {{{_toml_key(names[j])} = 0.5}}. {names[i]} gains at most {distance(errors[i, j] / support[i])} "
            f"points, at the expense of {names[j]}.",
            {
                "help": names[i],
                "lower": names[j],
                "errors": int(errors[i, j]),
                "next": names[k],
                "next_errors": int(errors[i, k]),
                "images": int(support[i]),
                "p": p,
            },
        )


def _one_to_one(i: int, errors: Array, support: Array) -> tuple[int, int, float] | None:
    """The class j that i is one to one with, the runner-up k and the p-value; None if there is none.

    No class is misclassified as j at a higher rate than i, and i is misclassified as j more often than as any other:
    the exact binomial test of N_ij out of N_ij + N_ik, by Bonferroni over the classes the runner-up k was chosen from.
    The paper reads the relation from the matrix by eye; the rule is ours.
    """
    others = np.flatnonzero((support > 0) & (np.arange(len(support)) != i))
    if len(others) < 2:
        return None
    *_, k, j = others[np.argsort(errors[i, others], kind="stable")].tolist()
    rates = intervals.ratio(errors[:, j], support)
    if rates[i] < np.nanmax(rates) or not errors[i, j]:
        return None
    p = scipy.stats.binomtest(int(errors[i, j]), int(errors[i, j] + errors[i, k])).pvalue
    return j, k, min(1.0, (len(others) - 1) * float(p))


def _off_diagonal(matrix: Array, size: int) -> Array:
    if np.shape(matrix) != (size, size):
        raise UserError(f"the homing matrix has shape {np.shape(matrix)}, expected ({size}, {size}).")
    return np.asarray(matrix) * (1 - np.eye(size, dtype=np.int64))


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
