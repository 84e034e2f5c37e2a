"""What a dossier does not show: limits that follow from how the audits were made."""

from __future__ import annotations

from collections.abc import Mapping

from classwise.core.format import listed, radius
from classwise.metrics import accuracy, worst
from classwise.results.audit_result import Audit
from classwise.results.dossier.statistics import is_corrupted
from classwise.results.finding import SERIOUS

_FEW = 100  # images of a class below which its interval is wide


def of(audits: Mapping[str, Audit]) -> list[str]:
    """Sentences, the general ones first."""
    attacked = [audit for audit in audits.values() if audit.attacks]
    found = [
        "Robustness was tested by attacks, not proved: there is no certificate that no attack succeeds.",
        "Only changes within the stated radius and norm were tested. Other threats (patches, rotations, physical "
        "changes, poisoning, extraction of model or data) were not.",
        "The numbers are about images like those audited. Nothing is claimed for other data.",
        "The fingerprint of the data covers which images and labels were used and the pixels of eight of them; name "
        "the files of the data in the facts for digests of all of it.",
        "The digest of classwise and of the environment are of the software that wrote this dossier; the versions that "
        "made each audit are recorded with it.",
    ]
    if not any(is_corrupted(audit) for audit in audits.values()):
        found.append("Corrupted images (noise, blur, weather) were not tested.")
    if attacked and not any(len(audit.attacks) > 1 for audit in attacked):
        found.append("Only one attack was run; a suite of different attacks, such as autoattack, finds more.")
    if attacked and all(_by_gradient(audit) for audit in attacked):
        found.append("No gradient-free attack was run, which would tell masked gradients from robustness.")
    if len({radius(audit.records.meta.eps) for audit in attacked}) == 1 and not any(a.has_curve for a in attacked):
        found.append("One radius was tested; how accuracy falls with the radius is not known.")
    for name, audit in audits.items():
        found += _of_run(name, audit)
    return found


def _by_gradient(audit: Audit) -> bool:
    infos = audit.records.meta.attacks
    return all(infos[name].needs_gradient for name in audit.attacks if name in infos)


def _of_run(name: str, audit: Audit) -> list[str]:
    counts = accuracy.counts(audit.rows())[1]
    names, found = audit.records.class_names, []
    few = [names[place] for place, count in enumerate(counts) if 0 < count < _FEW]
    absent = [names[place] for place, count in enumerate(counts) if count == 0]
    if few:
        found.append(f"{name}: fewer than {_FEW} images of {listed(few)}, so the intervals are wide.")
    if absent:
        found.append(f"{name}: no images of {listed(absent)}.")
    possible = worst.compute(audit.rows(), confidence=audit.confidence).possible
    if len(possible) > 1:
        found.append(f"{name}: the images do not decide which class is the worst; {listed(possible)} may be.")
    serious = sum(finding.severity in SERIOUS for finding in audit.findings)
    if serious:
        what = "a warning" if serious == 1 else f"{serious} warnings"
        found.append(f"{name}: {what} about model or attack, see attack adequacy.")
    return found
