"""Which classes are confused with each other, on small models and on records made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import classwise as cw
from classwise import studies
from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import CLEAN, Records
from classwise.metrics import groups, symmetry
from classwise.results.audit_result import Audit
from classwise.studies.runner.result import Done
from quick import nothing_decided

Found = tuple[Path, studies.StudyResult]
NAMES = ("car", "ship", "truck", "cat", "dog", "deer")
SUPERCLASSES = {"vehicles": NAMES[:3], "animals": NAMES[3:]}


@pytest.fixture(scope="module")
def found(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Found:
    out = tmp_path_factory.mktemp("study")
    options = {"model": [str(folder) for folder in models.values()], "per_class": 8, "attack": "pgd-2"}
    return out, studies.run(studies.parse("relations", options), out)


def test_symmetry_and_pairs_are_those_of_the_audits(found: Found) -> None:
    out, result = found
    rows = cw.Audit.load(out / "jobs" / "madry-audit").rows("pgd-2")
    table = result.tables["relations"].set_index(["model", "images"])
    assert table.loc[("madry", "pgd-2"), "symmetry"] == pytest.approx(symmetry.compute(rows))
    assert table.loc[("madry", "pgd-2"), "errors"] == (~rows.correct).sum()
    top = result.tables["pairs"].query("model == 'madry'").iloc[0]
    shares = cw.Audit.load(out / "jobs" / "madry-audit").confusion("pgd-2", rates=True)
    assert top["share (%)"] == pytest.approx(100 * shares.loc[top["class"], top["misclassified as"]])
    both = shares.to_numpy() + shares.to_numpy().T
    np.fill_diagonal(both, 0)
    assert top["share (%)"] + top["reverse (%)"] == pytest.approx(100 * both.max())


def test_groups_are_those_of_the_metric(found: Found) -> None:
    out, result = found
    rows = cw.Audit.load(out / "jobs" / "standard-audit").rows("pgd-2")
    listed = result.tables["groups"].query("model == 'standard'")["classes"].tolist()
    assert listed == [", ".join(members) for members in groups.compute(rows).members]


def test_without_superclasses_only_symmetry_is_judged(found: Found) -> None:
    out, result = found
    nothing_decided(result)
    assert [claim.source for claim in result.claims] == ["tian2021:figure2"] * 2
    assert "inside superclass (%)" not in result.tables["relations"]
    assert (out / "figures" / "confusion.svg").is_file()


def by_hand(counts: np.ndarray) -> Audit:
    """An audit whose clean and attacked confusion is the given one."""
    label, prediction = np.indices(counts.shape).reshape(2, -1).repeat(counts.reshape(-1), axis=1)
    zero = dict.fromkeys(("eps", "confidence", "true_prob", "loss", "distance", "minimal", "step", "queries"), 0)
    rows = {"index": np.arange(len(label)), "label": label, "prediction": prediction, **zero}
    frame = pd.concat([pd.DataFrame(rows).assign(attack=name) for name in (CLEAN, "pgd-20")], ignore_index=True)
    attacks = {CLEAN: AttackInfo(), "pgd-20": AttackInfo()}
    return Audit(Records(frame, Meta(class_names=NAMES, superclasses=SUPERCLASSES, attacks=attacks)))


class OneAudit(Done):
    """A study's finished jobs, all of which are one audit."""

    def audit(self, name: str) -> Audit:
        return self.workspace  # type: ignore[return-value]


def verdicts(models: dict[str, Path], counts: np.ndarray) -> tuple[pd.Series, list[str]]:
    study = studies.parse("relations", {"model": [str(models["madry"])]})
    result = study.result(OneAudit(by_hand(counts)))  # type: ignore[arg-type]
    return result.tables["relations"].iloc[0], [claim.verdict for claim in result.claims]


def test_confusion_inside_superclasses(models: dict[str, Path]) -> None:
    """Ten errors to each relative and one to each other class, both ways alike."""
    same = np.kron(np.eye(2, dtype=int), np.ones((3, 3), dtype=int))
    counts = np.where(np.eye(6, dtype=bool), 60, 1 + 9 * same)
    row, found = verdicts(models, counts)
    assert row["symmetry"] == 1
    assert row["inside superclass (%)"] == pytest.approx(100 * 20 / 23)
    assert row["inside by chance (%)"] == pytest.approx(100 * 2 / 5)
    assert row["Rand index of groups"] == 1
    # Ten ways to part six classes into two threes: the superclasses' p-value cannot be below a tenth.
    assert found == ["held", "held", "not decided here"]
    assert row["p of superclasses"] == pytest.approx(0.1, abs=0.03)


def test_confusion_in_a_ring_across_superclasses(models: dict[str, Path]) -> None:
    """Each class is misclassified as the next but two, which is in the other superclass, and never the other way."""
    shift = np.array([3, 4, 5, 1, 2, 0])
    counts = np.full((6, 6), 0)
    counts[np.arange(6), np.arange(6)] = 50
    counts[np.arange(6), shift] = 30
    row, found = verdicts(models, counts)
    assert row["inside superclass (%)"] == 0
    assert row["symmetry"] == 0
    assert found[1] == "did not hold"
    assert "held" not in found
