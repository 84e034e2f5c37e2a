"""Does the norm of a class's classifier weights go with its robustness? (Tian et al. 2020, Figure 4.)

For every model: ‖w_c‖₂ of the rows of the last linear layer beside the class's robust and clean accuracy, Spearman's
correlation of the two with its interval. The paper claims that robustness grows with the norm after adversarial
training, and not after standard training.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from classwise import figures
from classwise.figures import weight_norm as figure
from classwise.metrics import accuracy
from classwise.metrics.correlation import correlation
from classwise.results import write_text
from classwise.studies.frame.graph import Derive, Job
from classwise.studies.frame.outcome import Claim, Done, Outcome, Verdict
from classwise.studies.frame.study import OfModels
from classwise.studies.frame.work import Place

_STRONG = 0.5  # a correlation that is surely below this is not the papers' "nearly monotonous" one


@dataclass(frozen=True, kw_only=True)
class WeightNorm(OfModels):
    """Classifier weight norm against class robustness.

    attack: the attack robustness is measured by. standard: which of the models, by name, is the standardly trained one.
    """

    attack: str = "pgd-20"
    standard: str | None = "standard"

    def jobs(self) -> list[Job]:
        found: list[Job] = []
        for subject in self.subjects():
            norms = Derive(f"{subject.name}-norms", f"{__name__}:norms", {"model": subject.model})
            found += [
                *subject.jobs,
                norms,
                subject.audit("audit", [self.attack], per_class=self.per_class, seed=self.seed),
            ]
        return found

    def outcome(self, done: Done) -> Outcome:
        rows = pd.concat([self._rows(done, subject.name) for subject in self.subjects()], ignore_index=True)
        tests = pd.DataFrame(
            [
                {"model": model, "accuracy": kind, "rho": rho, "low": low, "high": high}
                for model, own in rows.groupby("model", sort=False)
                for kind in ("robust", "clean")
                for rho, low, high in [correlation(own["norm"].to_numpy(), own[kind].to_numpy())]
            ]
        )
        shown = rows.assign(robust=100 * rows["robust"], clean=100 * rows["clean"])
        drawn = rows.rename(columns={"robust": "accuracy"})[["model", "class", "accuracy", "norm"]]
        return Outcome(
            {"correlation": tests, "norms": shown},
            {"weight_norm": figures.styled(figure.draw(drawn))},
            self._claims(tests),
            data={"weight_norm": drawn},
        )

    def _rows(self, done: Done, name: str) -> pd.DataFrame:
        audit = done.audit(f"{name}-audit")
        robust, clean = (accuracy.compute(audit.rows(attack)) for attack in (None, "clean"))
        norms = done.table(f"{name}-norms", "norms.csv")
        classes = list(audit.records.class_names)
        return pd.DataFrame(
            {"model": name, "class": classes, "norm": norms["norm"], "robust": robust.values, "clean": clean.values}
        )

    def _claims(self, tests: pd.DataFrame) -> list[Claim]:
        claims = []
        for model, own in tests.groupby("model", sort=False):
            standard = model == self.standard
            chosen = own[own["accuracy"] == ("clean" if standard else "robust")]
            rho, low, high = chosen[["rho", "low", "high"]].to_numpy()[0]
            if standard:
                text = "Without adversarial training class accuracy does not grow with the norm."
                verdict: Verdict = "did not hold" if low > 0 else "held" if high < _STRONG else "not decided here"
            else:
                text = f"After adversarial training ({model}) robustness grows with the classifier weights' norm."
                verdict = "held" if low > 0 else "did not hold" if high < _STRONG else "not decided here"
            numbers = f"Spearman {rho:.2f}, 95% interval {low:.2f} to {high:.2f}"
            claims.append(Claim("tian2020:figure4", text, verdict, numbers))
        return claims


def norms(folder: Path, place: Place, model: str) -> None:
    """norms.csv: the Euclidean norm of each class's row of the last linear layer."""
    from torch import nn

    from classwise.models import load_model

    layers = [module for module in load_model(model).modules() if isinstance(module, nn.Linear)]
    rows = layers[-1].weight.detach().norm(dim=1)
    write_text(folder / "norms.csv", pd.DataFrame({"norm": rows.tolist()}).to_csv(index=False))
