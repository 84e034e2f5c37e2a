"""Does adversarial training widen the gap between classes? (Tian et al. 2021, Figure 1 and Table 5.)

For each data set a standard model and adversarially trained ones: accuracy and robustness of every class, over the
epochs (on test images, where the trainings keep their epochs: train.keep) and at the end; CV and MCD of the standard
model's clean accuracy compared with those of the others' robustness; and whether the order of the classes is the same
(Tian et al. 2020, Figure 7; Benz et al. 2020, Figures 1 and 2; Li and Liu 2023, Figure 2).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from classwise.core.errors import UserError
from classwise.core.records import CLEAN, Records
from classwise.core.run_folder import TrainingFolder
from classwise.core.storage import safe_name
from classwise.metrics import accuracy, average, cv, widening, worst
from classwise.models.zoo import run_of
from classwise.results.audit_result import Audit
from classwise.show.figures import discrepancy
from classwise.show.figures import epochs as epochs_figure
from classwise.show.figures import gap as gap_figure
from classwise.show.figures.epochs import What
from classwise.show.figures.style import Chart, side_by_side
from classwise.stats.correlation import Correlation, rank_test
from classwise.stats.intervals import Estimate
from classwise.studies.runner.epochs import kept
from classwise.studies.runner.graph import StudyJob
from classwise.studies.runner.models_under_study import ModelUnderStudy
from classwise.studies.runner.result import Claim, Done, StudyResult, named_charts
from classwise.studies.shared.together import CV_RATIO, halves, in_percent, of_models, smallest, times
from classwise.studies.shared.under_attack import UnderAttack
from classwise.studies.shared.verdicts import Sample, classes, either, exceeds, falls_short, images
from classwise.training.history import accuracies

_FAR = 0.1  # below the average, as a fraction: the papers' worst classes are 20 points below it
_SIMILAR = 0.5  # rank correlation above which two orders count as similar
_HELD_OUT = (
    "The curves over the epochs of {} are of images held out from training. With --set train.keep=all every epoch is "
    "kept and audited on the test images."
)
_BOUNDS = "simultaneous exact bounds of the classes (Šidák)"
_NOTABLE = 0.01  # a gap between classes that counts, as a fraction


@dataclass(frozen=True, kw_only=True)
class ClassBias(UnderAttack):
    """Standard and adversarial training, class by class.

    Give for each data set one standard model and at least one other, as models or recipes, of several data sets at once
    if you like. standard: the word in a model's name that says it is the standard one, as in mnist-standard.
    """

    standard: str = "standard"

    def jobs(self) -> list[StudyJob]:
        self._pairs()
        over_epochs = [
            model.audit(_epoch_audit(epoch), [self.attack_on(model)], **self.audit_options())
            for model in self.trained()
            for epoch, model in kept(model)
        ]
        return super().jobs() + over_epochs

    def result(self, done: Done) -> StudyResult:
        pairs = self._pairs()
        audits = self.audits(done)
        histories = {each.name: rows for each in self.trained() if (rows := _history(done, each)) is not None}
        found = [_Comparison(model, audits[model.name], audits[own.name].rows(CLEAN)) for model, own in pairs]
        tables = {
            "spread": pd.DataFrame([row for each in self.models() for row in _spread(each, audits[each.name])]),
            "against_standard": pd.DataFrame([row for each in found for row in each.rows()]),
            "classes": pd.concat([_classes(each, audits[each.name]) for each in self.models()], ignore_index=True),
        }
        robust = {model.name: histories[model.name] for model, _ in pairs if model.name in histories}
        if robust:
            tables["epochs"] = of_models({name: _epochs(history) for name, history in robust.items()})
        standard = {own.name: histories[own.name] for _, own in pairs if own.name in histories}
        curves: dict[What, dict[str, pd.DataFrame]] = {"robust": robust, "clean": standard}
        held = [model.name for model in self.trained() if model.name in histories and not any(kept(model))]
        return StudyResult(
            tables,
            figures={
                "gap": side_by_side({each.model.name: gap_figure.draw(each.base, each.robust) for each in found}),
                **_curves(curves),
                **self._off_average(audits),
                **_curves(curves, subtract_mean=True),
            },
            claims=[claim for each in found for claim in each.claims()],
            notes=[_HELD_OUT.format(", ".join(held))] if held else [],
        )

    def _off_average(self, audits: Mapping[str, Audit]) -> dict[str, Chart]:
        """Each class's distance from the average, by data set (Benz et al. 2020, Figures 1 and 2)."""
        by_data: dict[str, dict[str, dict[str, Records]]] = {}
        for model in self.models():
            by_data.setdefault(model.data, {})[model.name] = _kinds(audits[model.name])
        charts = {safe_name(data): discrepancy.draw(discrepancy.rows_of(models)) for data, models in by_data.items()}
        return named_charts("discrepancy", charts)

    def _pairs(self) -> list[tuple[ModelUnderStudy, ModelUnderStudy]]:
        """Each adversarially trained model with the standard one of its data."""
        by_data: dict[str, list[ModelUnderStudy]] = {}
        for model in self.models():
            by_data.setdefault(model.data, []).append(model)
        pairs = []
        for data, own in by_data.items():
            standard = [model for model in own if self.standard in model.name.split("-")]
            others = [model for model in own if model not in standard]
            if len(standard) != 1 or not others:
                raise UserError(
                    f"of {data} there are {len(standard)} standard models and {len(others)} others; there must be one "
                    f"standard model, called {self.standard} or {data}-{self.standard}, and at least one other. "
                    "NAME=MODEL names a model, --standard WORD chooses another word."
                )
            pairs += [(model, standard[0]) for model in others]
        return pairs


@dataclass(frozen=True)
class _Comparison:
    """An adversarially trained model compared with the clean records of the standard one, `base`."""

    model: ModelUnderStudy
    audit: Audit
    base: Records

    @property
    def robust(self) -> Records:
        return self.audit.rows()

    @functools.cached_property
    def wider(self) -> dict[str, widening.Widening]:
        """How much more the classes differ than the standard model's, in clean accuracy and in robustness."""
        return {kind: widening.compute(rows, self.base) for kind, rows in _kinds(self.audit).items()}

    def order(self, rows: Records, base: Records | None = None) -> Correlation:
        """Spearman's ρ of the classes' order and the standard model's."""
        return rank_test(accuracy.compute(rows).values, accuracy.compute(self.base if base is None else base).values)

    def _same_order(self) -> Claim:
        """An image that is hard for both models makes their orders more similar, and few images make them less similar:
        the claim is tested on different images for each model, its contrary on the same ones."""
        first, second = halves([self.robust, self.base])
        apart, whole = self.order(first[0], second[1]), self.order(self.robust)
        test, sample = "Bonett and Wright's interval of Spearman's ρ over the classes", classes(whole.n)
        enough = (images(smallest(self.robust, self.base)), sample)
        return Claim(
            "tian2020:figure7",
            f"The order of the classes of {self._of} is almost that of standard training (ρ above {_SIMILAR:g}).",
            either(
                exceeds(apart.low, apart.high, _SIMILAR, test=test, sample=enough),
                falls_short(whole.low, whole.high, _SIMILAR, test=test, sample=enough),
            ),
            f"{whole}; between two halves of the images {apart}",
        )

    @property
    def _of(self) -> str:
        return f"{self.model.name} on {self.model.data}"

    def rows(self) -> Iterator[dict[str, str | float]]:
        for kind, rows in _kinds(self.audit).items():
            wider, order = self.wider[kind], self.order(rows)
            yield {
                "data": self.model.data,
                "model": self.model.name,
                "accuracy": kind,
                "CV ratio": wider.ratio,
                "CV ratio low": wider.ratio_low,
                "CV ratio high": wider.ratio_high,
                "MCD change (points)": 100 * wider.gap,
                "MCD change low": 100 * wider.gap_low,
                "MCD change high": 100 * wider.gap_high,
                "order (Spearman)": order.rho,
                "order low": order.low,
                "order high": order.high,
            }

    def claims(self) -> Iterator[Claim]:
        of, sample = self._of, images(smallest(self.robust, self.base))
        gap = widening.gap(self.robust)
        text = f"The classes of {of} differ in robustness."
        ruling = exceeds(gap.low, gap.high, _NOTABLE, test=_BOUNDS, sample=sample)
        yield Claim("tian2021:figure1", text, ruling, f"MCD {_points(gap)}")
        below = _below_average(self.robust)
        text = f"The worst class of {of} is far ({100 * _FAR:g} points) below the average in robustness."
        numbers = f"{worst.compute(self.robust).name}, {_points(below)}"
        ruling = exceeds(below.low, below.high, _FAR, test=_BOUNDS, sample=sample)
        yield Claim("li2023:figure2", text, ruling, numbers)
        yield from _wider("tian2021:table5", f"robustness of {of}", self.wider["robust"], sample)
        yield self._same_order()
        yield from _wider("benz2020:figure2", f"clean accuracy of {of}", self.wider["clean"], sample)


def _epoch_audit(epoch: int) -> str:
    return f"epoch{epoch:04}-audit"


def _history(done: Done, model: ModelUnderStudy) -> pd.DataFrame | None:
    """The classes in each epoch of a model's training: on test images for the epochs that it keeps; if it keeps none,
    on the held-out images; None if there are none either."""
    audits = {epoch: done.audit(f"{model.name}-{_epoch_audit(epoch)}") for epoch, _ in kept(model)}
    if audits:
        rows = [{"epoch": epoch, **accuracies(own.rows(CLEAN), own.rows())} for epoch, own in audits.items()]
        return pd.DataFrame(rows)
    run = TrainingFolder(done.folder(model.name)) if model.training is not None else run_of(model.checkpoint)
    if not run.history_file.is_file():
        return None
    history = run.history()
    return history if "worst_class" in history else None


def _kinds(audit: Audit) -> dict[str, Records]:
    return {"clean": audit.rows(CLEAN), "robust": audit.rows()}


def _spread(model: ModelUnderStudy, audit: Audit) -> Iterator[dict[str, str | float]]:
    """How much the classes of a model differ, on clean images and under attack."""
    for kind, rows in _kinds(audit).items():
        mean, lowest, gap = average.estimate(rows), worst.compute(rows), widening.gap(rows)
        yield {
            "data": model.data,
            "model": model.name,
            "accuracy": kind,
            "n": mean.support,
            **in_percent("average", mean, ""),
            "worst class": lowest.name,
            **in_percent("worst", lowest),
            "CV (%²)": cv.compute(rows),
            "CV without sampling noise (%²)": widening.unbiased(rows),
            **in_percent("MCD", gap),
        }


def _classes(model: ModelUnderStudy, audit: Audit) -> pd.DataFrame:
    table = pd.DataFrame({"data": model.data, "model": model.name, "class": list(audit.records.class_names)})
    for kind, rows in _kinds(audit).items():
        found = accuracy.compute(rows)
        table = table.assign(n=found.support, **in_percent(kind, found))
    return table


def _curves(histories: Mapping[What, Mapping[str, pd.DataFrame]], subtract_mean: bool = False) -> dict[str, Chart]:
    """The classes over the epochs, of adversarial and of standard training, as far as they are known."""
    names, end = {"robust": "epochs", "clean": "epochs_standard"}, "_less_mean" if subtract_mean else ""
    return {
        f"{names[what]}{end}": epochs_figure.from_history(own, what, subtract_mean=subtract_mean)
        for what, own in histories.items()
        if own
    }


def _epochs(history: pd.DataFrame) -> pd.DataFrame:
    """The gap between the classes in each epoch."""
    return pd.DataFrame(
        {
            "epoch": history["epoch"],
            "robust (%)": 100 * history["robust"],
            "worst class": history["worst_class"].astype(str),
            "worst (%)": 100 * history["worst"],
            "MCD (%)": 100 * history["mcd"],
            "CV (%²)": history["cv"],
        }
    )


def _below_average(rows: Records) -> Estimate:
    """How far the worst class is below the average, from the intervals of both, each at half the error."""
    lowest, mean = worst.compute(rows, confidence=0.975), average.estimate(rows, confidence=0.975)
    return Estimate(mean.value - lowest.value, mean.low - lowest.high, mean.high - lowest.low, mean.support)


def _wider(source: str, what: str, found: widening.Widening, sample: Sample) -> Iterator[Claim]:
    ratio = times(found.ratio, found.ratio_low, found.ratio_high)
    text = f"The {what} has a larger {{}} than the clean accuracy of standard training."
    ruling = exceeds(found.ratio_low, found.ratio_high, 1.0, test=CV_RATIO, sample=sample)
    yield Claim(source, text.format("CV"), ruling, ratio)
    change = _points(Estimate(found.gap, found.gap_low, found.gap_high, 0))
    ruling = exceeds(found.gap_low, found.gap_high, test=_BOUNDS, sample=sample)
    yield Claim(source, text.format("MCD"), ruling, f"by {change}")


def _points(found: Estimate) -> str:
    return f"{100 * found.value:.1f} points, 95% CI {100 * found.low:.1f} to {100 * found.high:.1f}"
