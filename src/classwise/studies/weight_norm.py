"""Does the norm of a class's classifier weights correlate with its robustness? (Tian et al. 2020, Figure 4.)

For every model: ‖w_c‖₂ of the rows of the last linear layer, the class's robust and clean accuracy, and Spearman's
correlation of the two with its interval. The paper claims that robustness grows with the norm after adversarial
training, but not after standard training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from classwise.core.csv_files import write_csv
from classwise.core.records import CLEAN
from classwise.metrics import accuracy
from classwise.results.audit_result import Audit
from classwise.show.figures import weight_norm as figure
from classwise.stats.correlation import rank_test
from classwise.studies.runner.graph import StudyJob
from classwise.studies.runner.models_under_study import ModelUnderStudy
from classwise.studies.runner.result import Claim, Done, StudyResult
from classwise.studies.runner.work import Environment
from classwise.studies.shared.together import RANKS, columns_in_percent, of_models
from classwise.studies.shared.under_attack import UnderAttack
from classwise.studies.shared.verdicts import classes as classes_of
from classwise.studies.shared.verdicts import contrary, either, falls_short, images, tails

_STRONG = 0.5  # a correlation significantly below this is not the papers' "nearly monotonous" one


@dataclass(frozen=True, kw_only=True)
class WeightNorm(UnderAttack):
    """Classifier weight norm against class robustness.

    standard: the name of the model with standard training.
    """

    standard: str | None = "standard"

    def jobs_of(self, model: ModelUnderStudy) -> list[StudyJob]:
        return [*super().jobs_of(model), model.derive("norms", f"{__name__}:norms")]

    def result(self, done: Done) -> StudyResult:
        audits = self.audits(done)
        rows = of_models(
            {name: _rows(audit, done.table(f"{name}-norms", "norms.csv")) for name, audit in audits.items()}
        )
        tests = pd.DataFrame(
            [
                {"model": model, "accuracy": kind, "rho": found.rho, "low": found.low, "high": found.high}
                for model, own in rows.groupby("model", sort=False)
                for kind in ("robust", "clean")
                for found in [rank_test(own["norm"].to_numpy(), own[kind].to_numpy())]
            ]
        )
        shown = columns_in_percent(rows.drop(columns="n"), "robust", "clean")
        drawn = rows.rename(columns={"robust": "accuracy"})[["model", "class", "accuracy", "norm"]]
        return StudyResult(
            {"correlation": tests, "norms": shown},
            figures={"weight_norm": figure.draw(drawn)},
            claims=list(self._claims(rows)),
            data={"weight_norm": drawn},
        )

    def _claims(self, rows: pd.DataFrame) -> Iterator[Claim]:
        for model, own in rows.groupby("model", sort=False):
            standard = model == self.standard
            found = rank_test(own["norm"].to_numpy(), own["clean" if standard else "robust"].to_numpy())
            sample = (images(own["n"].min()), classes_of(found.n))
            margin = f"Bonett and Wright's interval of Spearman's ρ, margin {_STRONG:g}"
            grows = either(
                tails(found.p_greater, found.p_less, test=RANKS, sample=sample),
                falls_short(found.low, found.high, _STRONG, test=margin, sample=sample),
            )
            text = f"After adversarial training ({model}) robustness grows with the classifier weights' norm."
            if standard:
                text = "Without adversarial training class accuracy does not grow with the norm."
            yield Claim("tian2020:figure4", text, contrary(grows) if standard else grows, str(found))


def _rows(audit: Audit, norms: pd.DataFrame) -> pd.DataFrame:
    robust, clean = (accuracy.compute(audit.rows(attack)) for attack in (None, CLEAN))
    front = pd.DataFrame({"class": robust.class_names, "n": robust.support})
    return front.assign(norm=norms["norm"], robust=robust.values, clean=clean.values)


def norms(folder: Path, environment: Environment, model: str) -> None:
    """norms.csv: the Euclidean norm of each class's row of the last linear layer."""
    from torch import nn

    from classwise.models import load_model

    layers = [module for module in load_model(model).modules() if isinstance(module, nn.Linear)]
    rows = layers[-1].weight.detach().norm(dim=1)
    write_csv(folder / "norms.csv", pd.DataFrame({"norm": rows.tolist()}))
