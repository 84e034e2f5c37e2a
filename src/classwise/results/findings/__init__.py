"""Every rule about the numbers of an audit, each stated once: what is wrong with them, and what they suggest doing.

A rule is a test or a formula over the records; it is silent where they do not support it. What has to be asked of the
model itself is in `classwise.auditing.sanity`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from classwise.core.format import distance, level, p_equals, points
from classwise.results.audit_result import Audit
from classwise.results.compare import Comparison
from classwise.results.finding import Finding, Found, Severity
from classwise.results.findings import attacks, images, training

_DOCS = "docs/compare.md"


@dataclass(frozen=True)
class Rule:
    """A rule by its code. `find` yields what was found, what to do about it, and the numbers both rest on."""

    code: str
    severity: Severity
    find: Callable[[Audit], Found]
    section: str = ""

    def apply(self, audit: Audit) -> Iterator[Finding]:
        for what, remedy, numbers in self.find(audit):
            yield Finding(self.code, self.severity, what, remedy, numbers=numbers, section=self.section)


RULES = (
    Rule("near_chance", "error", images.near_chance),
    Rule("blind_beats_gradient", "error", attacks.blind_beats_gradient),
    Rule("more_steps_weaker", "error", attacks.more_steps_weaker),
    Rule("larger_eps_weaker", "error", attacks.larger_eps_weaker),
    Rule("outside_ball", "error", attacks.outside_ball),
    Rule("temperature_beats_pgd", "warning", attacks.temperature_beats_pgd, f"{_DOCS}#hidden-gradients"),
    Rule("wrong_without_attack", "warning", images.wrong_without_attack),
    Rule("radius_too_large", "warning", attacks.radius_too_large),
    Rule("few_images", "warning", images.few_images),
    Rule("train_adversarially", "recommendation", training.train_adversarially, f"{_DOCS}#which-beta-to-lower"),
    Rule("lower_beta", "recommendation", training.lower_beta, f"{_DOCS}#which-beta-to-lower"),
    Rule("worst_undecided", "recommendation", images.worst_undecided, f"{_DOCS}#how-many-images"),
    Rule("absent_class", "info", images.absent_class),
    Rule("open_gradients", "info", attacks.open_gradients, f"{_DOCS}#hidden-gradients"),
    Rule("verification", "info", attacks.verification),
)


def of_audit(audit: Audit) -> list[Finding]:
    """What the checks of the model found, as the audit holds it, and what each rule finds in its records."""
    codes = {rule.code for rule in RULES}
    of_model = [finding for finding in audit.findings if finding.code not in codes]
    return [*of_model, *(finding for rule in RULES for finding in rule.apply(audit))]


def of_comparison(comparison: Comparison) -> list[Finding]:
    """Whether each run differs from the base over all examples, corrected by Holm for the number of runs.

    Chance is that of drawing the images. It is not that of training: another seed makes another model.
    """
    return [_chance(comparison, run) for run in comparison.table().to_dict("records") if run["run"] != comparison.base]


def _chance(comparison: Comparison, run: Mapping[Any, Any]) -> Finding:
    beyond = run["p_holm"] < 1 - comparison.confidence
    test = "exact McNemar test of the same images" if run["paired"] else "Fisher's exact test of different images"
    return Finding(
        "beyond_chance" if beyond else "within_chance",
        "info" if beyond else "recommendation",
        f"{run['run']} is {distance(run['difference'])} points {'below' if run['difference'] < 0 else 'above'} "
        f"{comparison.base} over all images ({level(comparison.confidence)} confidence interval {points(run['low'])} "
        f"to {points(run['high'])}; {test}, {p_equals(run['p_holm'])}).",
        "The difference is beyond the chance of drawing images. Train with other seeds before crediting the method."
        if beyond
        else "Call them equal, or audit more images: a difference of this size can come from the images drawn.",
        numbers={
            "run": run["run"],
            "base": comparison.base,
            "paired": run["paired"],
            **{key: float(run[key]) for key in ("difference", "low", "high", "p", "p_holm")},
        },
        section=f"{_DOCS}#beyond-chance",
    )
