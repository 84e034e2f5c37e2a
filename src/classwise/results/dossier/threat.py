"""The threat that was simulated, in the terms of NIST AI 100-2 E2025, Adversarial Machine Learning: A Taxonomy and
Terminology of Attacks and Mitigations: the stage, and the attacker's goal, knowledge and capability."""

from __future__ import annotations

from typing import Any

from classwise.core.format import radius
from classwise.core.records import CLEAN
from classwise.results.audit_result import Audit

_CHANGES = {
    "linf": "every pixel value, in [0,1], by at most {eps} (L∞)",
    "l2": "an image, with pixels in [0,1], by at most {eps} in Euclidean distance (L2)",
}


def of(audit: Audit) -> dict[str, Any]:
    """The threat of a run; an empty one where nothing was attacked."""
    meta = audit.records.meta
    infos = {name: meta.attacks[name] for name in audit.attacks if name in meta.attacks}
    if not audit.attacks:
        return {}
    gradient = [name for name, info in infos.items() if info.needs_gradient]
    blind = [name for name, info in infos.items() if not info.needs_gradient]
    targeted = [name for name, info in infos.items() if info.settings.get("target") is not None]
    return {
        "norm": meta.norm,
        "eps": meta.eps,
        "eps_text": radius(meta.eps),
        "own_radii": audit.config.get("audit", {}).get("eps_per_example") is not None,
        "stage": "Deployment: evasion attacks on the finished model. Poisoning of training data was not simulated.",
        "goal": _goal(targeted, list(audit.attacks)),
        "knowledge": _knowledge(gradient, blind),
        "capability": "Testing data control: the attacker changes " + _changes(audit) + ". Training data, labels, "
        "weights and code cannot be changed." + _queries(audit, blind),
    }


def _changes(audit: Audit) -> str:
    meta = audit.records.meta
    text = _CHANGES.get(meta.norm, f"an image by at most {{eps}} in {meta.norm}").format(eps=radius(meta.eps))
    own = audit.config.get("audit", {}).get("eps_per_example") is not None
    return text + (", the largest radius: examples or classes have their own" if own else "")


def _goal(targeted: list[str], attacks: list[str]) -> str:
    base = "Integrity violation by evasion"
    if not targeted:
        return f"{base}, untargeted: any wrong class counts."
    if len(targeted) == len(attacks):
        return f"{base}, targeted ({', '.join(targeted)}): the attacker wants a given class; any wrong class counts."
    return f"{base}: untargeted, and targeted by {', '.join(targeted)}; any wrong class counts."


def _knowledge(gradient: list[str], blind: list[str]) -> str:
    if not gradient:
        return f"Black-box: the attacks use the model's answers only ({', '.join(blind)})."
    also = f" Black-box, by its answers only: {', '.join(blind)}." if blind else ""
    return f"White-box: the attacker knows architecture, weights and gradients ({', '.join(gradient)}).{also}"


def _queries(audit: Audit, blind: list[str]) -> str:
    if not blind:
        return ""
    frame = audit.records.frame
    most = {name: int(frame.loc[frame["attack"] == name, "queries"].max()) for name in blind if name != CLEAN}
    spent = ", ".join(f"{count:,} for an image by {name}" for name, count in most.items() if count)
    return f" Query access: at most {spent}." if spent else " Query access."
