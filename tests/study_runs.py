"""The folder of a finished study for tests of its page: what the worst-class study makes of made-up audits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from board_runs import write_entry
from classwise.published import printed_gains
from classwise.results.compare_groups import compare_groups
from classwise.results.stored_study import Job
from classwise.show.figures import forest
from classwise.studies import StudyResult
from classwise.studies.runner.result import Claim, write
from classwise.studies.shared.verdicts import exceeds, images
from classwise.studies.worst_class import _claims

#: Of 40 images of each class those that are robust, of each method; one more or less for each seed.
METHODS = {
    "trades-tuned": (26, 32, 15, 2, 12, 16, 24, 27, 29, 28),
    "wat-tuned": (25, 30, 17, 19, 18, 18, 24, 26, 28, 27),
    "csl-tuned": (26, 31, 15, 3, 12, 16, 24, 27, 29, 28),
    "trades-tuned-repaired": (24, 30, 17, 17, 16, 17, 23, 26, 27, 26),
}
SETTINGS = {
    "base": "protocol/cifar10/trades",
    "tuned": [f"protocol/cifar10/tuned/{name}" for name in ("trades", "wat", "csl")],
    "control": "trades",
    "seeds": [0, 1, 2],
    "per_class": 40,
    "seed": 0,
}


def result(root: Path) -> StudyResult:
    """The tables, forest plots and claims of the methods, and a claim that did not hold."""
    draw = np.random.default_rng(0)
    audits = {
        name: {
            f"seed{seed}": write_entry(
                root / f"{name}-{seed}", np.clip(right + draw.integers(-1, 2, 10), 0, 40).tolist()
            )
            for seed in range(3)
        }
        for name, right in METHODS.items()
    }
    found = compare_groups(audits, "trades-tuned", columns=("clean", "average", "worst", "cv"), pair="name")
    gains = printed_gains("cifar10")
    beside = gains[gains["method"] == "wat"].assign(group="wat-tuned")[["group", "worst", "average"]]
    costs = pd.DataFrame({"group": [*METHODS], "models": 3, "minutes each": [31.0, 33.5, 30.25, 4.0]})
    contrary = exceeds(-2.1, -0.4, test="Newcombe's interval", sample=images(40))
    failed = Claim("li2023:table1", "WAT costs no average robustness.", contrary, "−1.2 points (−2.1 to −0.4)")
    return StudyResult(
        {"costs": costs, "trades-tuned_audit": found.table(), "trades-tuned_audit_classes": found.by_class()},
        figures={"forest_trades-tuned_audit": forest.differences(found, beside)},
        claims=[*_claims(found), failed],
        notes=["Audits are made up.", "Differences are over 3 seeds & the test images <together>."],
    )


def write_study(folder: Path) -> Path:
    """The folder, as a study leaves it."""
    jobs: list[Job] = [{"name": f"trades-{seed}", "kind": "train", "seconds": 1860.0} for seed in range(3)]
    jobs += [{"name": f"{name}-0-audit", "kind": "audit", "seconds": 95.0} for name in METHODS]
    write(result(folder / "audits"), folder, "Methods that raise the worst class, over seeds", SETTINGS, jobs)
    asked = [
        {"kind": "train", "name": "trades-0", "recipe": "protocol/cifar10/trades", "changes": []},
        {"kind": "audit", "name": "trades-0-audit", "model": "{trades-0}/best.pt", "data": "cifar10", "eps": "8/255"}
        | {"attacks": ["pgd-20", "margin_pgd-30"], "options": {"seed": 0}},
    ]
    (folder / "jobs.json").write_text(json.dumps({"jobs": asked}), encoding="utf-8")
    return folder
