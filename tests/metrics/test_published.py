"""The numbers printed in the papers follow from the class accuracies printed beside them.

Each row becomes records with exactly those accuracies, and the metric must give the number printed. The few that are
known not to follow are listed; the test fails if one of them starts to match, or another stops.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from classwise.metrics import accuracy, average, confound, cv, mcd, overall, rho, superclass, worst
from classwise.published.index import HOME

CLASSES = [str(c) for c in range(10)]
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SUPERCLASSES = {
    "transportation": ("airplane", "automobile", "ship", "truck"),
    "animals": ("bird", "cat", "deer", "dog", "frog", "horse"),
}

#: KDD Table 1: the class 9 accuracy is misprinted (90.0 for 90.2), so CV is not 99.2.
KNOWN_CV = {("tian2021_table1", "MART", "transfer")}
#: WAT Tables 1 and 2: values of ρ that do not follow from the printed accuracies.
KNOWN_RHO = {
    ("CIFAR-10", "wrn-34-10", "WAT", "natural"),
    ("CIFAR-100", "resnet18", "WAT", "natural"),
    ("CIFAR-100", "resnet18", "WAT", "pgd100"),
    ("CIFAR-100", "resnet18", "WAT", "cw"),
}


def read(name):
    return pd.read_csv(HOME / f"{name}.csv", dtype={"eta": str}, keep_default_na=False)


def truncated_to(printed, value, unit=0.1):
    """Whether `value` cut off after the last printed digit is `printed`; 42.4 held as 42.39999 is printed 42.3."""
    return -1e-9 <= value - printed <= unit + 1e-9


def records_of(row, from_correct):
    return from_correct([round(10 * float(row[c])) for c in CLASSES], 1000)


@pytest.fixture
def kdd(from_correct):
    """(table, defense, attack or 1/T), the row, and its records."""
    return [
        ((table, row.iloc[0], str(row.iloc[1])), row, records_of(row, from_correct))
        for table in ("tian2021_table1", "tian2021_table3")
        for _, row in read(table).iterrows()
    ]


def test_kdd_cv(kdd):
    assert len(kdd) == 25
    assert {key for key, row, records in kdd if not truncated_to(row["cv"], cv.compute(records))} == KNOWN_CV


def test_kdd_mcd_total_and_worst(kdd):
    for key, row, records in kdd:
        assert truncated_to(row["mcd"], 100 * mcd.compute(records)), key
        assert truncated_to(row["total"], 100 * average.compute(records)), key
        assert worst.compute(records).number == 3, key


def test_kdd_misprint_is_explained_by_the_submission(from_correct):
    rows = read("tian2020_table2").set_index(["defense", "attack"])
    assert truncated_to(99.2, cv.compute(records_of(rows.loc[("MART", "transfer")], from_correct)))


def test_kdd_table_3_follows_from_the_submission(from_correct):
    """PGD plus the submission's change by Temperature-PGD; for Madry the two papers differ in classes 3 and 5."""
    pgd = read("tian2020_table2").query("attack == 'pgd'").set_index("defense")
    printed = read("tian2021_table3").set_index(["defense", "inv_temperature"])
    follows = {}
    for _, row in read("tian2020_table3").query("defense != 'RST'").iterrows():
        changed = {c: pgd.loc[row["defense"], c] + float(row[f"change_{c}"]) for c in CLASSES}
        value = cv.compute(records_of(changed, from_correct))
        follows[row["defense"]] = truncated_to(printed.loc[(row["defense"], row["inv_temperature"]), "cv"], value)
    assert follows == {"Madry": False, "TRADES": True, "MART": True}


def test_submission_totals(from_correct):
    for _, row in read("tian2020_table2").iterrows():
        assert 100 * overall.compute(records_of(row, from_correct)).value == pytest.approx(row["total"], abs=0.051)


def test_kdd_table_5_follows_from_the_submission(from_correct):
    """The CIFAR-10 row of KDD Table 5 is the ResNet-18 Madry model of the submission's Table 5."""
    records = records_of(read("tian2020_table5").iloc[0], from_correct)
    printed = read("tian2021_table5").set_index("dataset").loc["CIFAR-10"]
    assert cv.compute(records) == pytest.approx(printed["adversarial_cv"], abs=0.005)
    assert 100 * mcd.compute(records) == pytest.approx(printed["adversarial_mcd"])


@pytest.mark.parametrize(
    ("row", "robustness", "confused_with", "count"),
    [(0, 0.710, "dog", 88), (3, 0.262, "dog", 254), (4, 0.403, "dog", 136), (5, 0.435, "frog", 111)],
)
def test_kdd_table_4_is_a_row_of_the_confusion_matrix(from_confusion, row, robustness, confused_with, count):
    counts = np.zeros((10, 10), dtype=int)
    counts[3] = read("tian2021_table4").loc[row, CLASSES]
    records = from_confusion(counts, CIFAR10, superclasses=SUPERCLASSES)
    assert accuracy.compute(records).values[3] == robustness
    result = confound.compute(records)
    assert (result.names[3], result.count[3]) == (confused_with, count)
    inside = sum(counts[3, c] for c in (2, 4, 5, 6, 7))
    assert superclass.compute(records).inside == pytest.approx(inside / (1000 - counts[3, 3]))


def records_with(average_percent, worst_percent, classes, from_correct):
    """Balanced records of 10,000 examples with the given mean and lowest class accuracy."""
    size = 10_000 // classes
    lowest, total = round(worst_percent * size / 100), round(average_percent * 100)
    share, rest = divmod(total - lowest, classes - 1)
    assert lowest <= share < size
    correct = np.full(classes, share)
    correct[0] = lowest
    correct[1 : rest + 1] += 1
    return from_correct(correct, size)


def test_wat_rho(from_correct):
    first, second, third = (read(f"li2023_table{number}") for number in (1, 2, 3))
    wide = second.assign(dataset="CIFAR-10", model="wrn-34-10")
    swept = third[third["method"] != "TRADES"].assign(dataset="CIFAR-10", model="resnet18")
    rows = pd.concat([first.assign(model="resnet18"), wide, swept])
    base = {(row["dataset"], row["model"]): row for _, row in rows.iterrows() if row["method"] == "TRADES"}
    mismatches, checked = set(), 0
    for _, row in rows.iterrows():
        start = base[row["dataset"], row["model"]]
        classes = {"CIFAR-10": 10, "CIFAR-100": 100}[row["dataset"]]
        for attack in ("natural", "pgd100", "cw", "autoattack"):
            run, trades = (
                records_with(float(which[f"{attack}_avg"]), float(which[f"{attack}_worst"]), classes, from_correct)
                for which in (row, start)
            )
            checked += 1
            if abs(rho.compute(run, trades) - float(row[f"{attack}_rho"])) > 0.0005 + 1e-9:
                mismatches.add((row["dataset"], row["model"], row["method"], attack))
    assert checked == 76
    assert mismatches == KNOWN_RHO
