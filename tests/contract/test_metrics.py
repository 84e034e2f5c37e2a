"""What every metric keeps to: row order, class order and absent classes do not matter, and torch is never loaded."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from classwise import metrics
from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo, Meta
from classwise.core.per_class import PerClass
from classwise.core.records import Records
from for_each import for_each

NAMES = ("cat", "dog", "car", "ship", "bird")
GROUPS = {"animals": ("cat", "dog", "bird"), "vehicles": ("car", "ship")}
#: Defined over all outputs of the model, so one more output is another number.
COUNTS_OUTPUTS = {"cvc"}


def draw(seed: int) -> Records:
    """Unequal classes; no two have one accuracy and no class has two confounds, for ties go by class number."""
    counts = np.array([[9, 6, 2, 0, 1], [4, 20, 1, 0, 0], [1, 0, 11, 3, 0], [0, 1, 2, 30, 0], [3, 2, 0, 1, 1]])
    rng = np.random.default_rng(seed)
    label, prediction = np.indices(counts.shape).reshape(2, -1).repeat(counts.reshape(-1), axis=1)
    prediction = np.where(rng.random(len(label)) < 0.1 * seed, label, prediction)
    size = len(label)
    frame = pd.DataFrame(
        {
            "index": np.arange(size) * 3,
            "label": label,
            "attack": "pgd",
            "eps": 8 / 255,
            "prediction": prediction,
            **{name: rng.random(size) for name in ("confidence", "true_prob", "loss", "distance")},
            "minimal": np.inf,
            "step": 20,
            "queries": 20,
        }
    )
    meta = Meta(class_names=NAMES, superclasses=GROUPS, attacks={"pgd": AttackInfo()})
    return Records(frame, meta, rng.dirichlet(np.ones(len(NAMES)), size=size))


def shuffled(records: Records) -> Records:
    return records.take(np.random.default_rng(9).permutation(len(records)))


def renumbered(records: Records) -> Records:
    """The same records with the classes listed in another order."""
    order = np.array([3, 0, 4, 1, 2])  # the class now at each place
    number = np.argsort(order)
    frame = records.frame.assign(label=number[records.frame["label"]], prediction=number[records.frame["prediction"]])
    names = tuple(records.class_names[c] for c in order)
    meta = dataclasses.replace(records.meta, class_names=names)
    return Records(frame, meta, records.probs[:, order])


def with_absent(records: Records) -> Records:
    """The same records with one class more, in second place, which no example has and none is taken for."""
    at = 1
    later = {column: records.frame[column] + (records.frame[column] >= at) for column in ("label", "prediction")}
    meta = dataclasses.replace(
        records.meta,
        class_names=(*NAMES[:at], "absent", *NAMES[at:]),
        superclasses={**GROUPS, "vehicles": (*GROUPS["vehicles"], "absent")},
    )
    return Records(records.frame.assign(**later), meta, np.insert(records.probs, at, 0, axis=1))


def measure(name: str, change) -> object:
    """The metric of the changed records; one that compares two runs is given two."""
    compute = importlib.import_module(f"classwise.metrics.{name}").compute
    needed = [p for p in inspect.signature(compute).parameters.values() if p.default is p.empty]
    return compute(*(change(draw(seed)) for seed in range(len(needed))))


def by_name(value, names, drop=()):
    """A metric's result as plain values keyed by class name, so that class numbers play no part."""
    if isinstance(value, PerClass) or hasattr(value, "to_frame"):
        return by_name(value.to_frame(), names, drop)
    if isinstance(value, pd.DataFrame):
        rows = value.set_index("class").drop(index=list(drop)).sort_index()
        return {column: rows[column].to_dict() for column in rows}
    if isinstance(value, np.ndarray):
        assert value.shape == (len(names), len(names))
        table = pd.DataFrame(value, index=names, columns=names).drop(index=list(drop), columns=list(drop))
        return table.stack().sort_index().to_dict()
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if "number" in fields:
            assert names[fields.pop("number")] == fields["name"]
        return {key: by_name(item, names, drop) for key, item in fields.items()}
    return sorted(value) if isinstance(value, tuple) else value


def assert_same(left, right) -> None:
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, float):
        assert left == pytest.approx(right, rel=1e-9, abs=1e-12, nan_ok=True)
    else:
        assert left == right


@for_each("name", metrics.names())
def test_is_described(name):
    assert 10 < len(metrics.describe(name)) <= 120
    assert metrics.describe(name).endswith(".")


@for_each("name", metrics.names())
def test_row_order_does_not_matter(name):
    assert_same(by_name(measure(name, lambda r: r), NAMES), by_name(measure(name, shuffled), NAMES))


@for_each("name", metrics.names())
def test_class_order_does_not_matter(name):
    renamed = renumbered(draw(0)).class_names
    assert renamed != NAMES
    assert_same(by_name(measure(name, lambda r: r), NAMES), by_name(measure(name, renumbered), renamed))


@for_each("name", sorted(set(metrics.names()) - COUNTS_OUTPUTS))
def test_absent_class_changes_nothing_for_the_others(name):
    wider = with_absent(draw(0)).class_names
    expected = by_name(measure(name, lambda r: r), NAMES)
    assert_same(expected, by_name(measure(name, with_absent), wider, drop=["absent"]))


@for_each("name", metrics.names())
def test_does_not_change_its_input(name):
    records = draw(0)
    before = records.frame.copy()
    measure(name, lambda _: records)
    pd.testing.assert_frame_equal(records.frame, before)


@for_each("name", metrics.names())
def test_refuses_the_rows_of_an_attack_that_saw_only_some_examples(name):
    def partial(records: Records) -> Records:
        meta = dataclasses.replace(records.meta, attacks={"pgd": AttackInfo(coverage="survivors")})
        return dataclasses.replace(records, meta=meta)

    with pytest.raises(UserError, match="saw only the examples that survived"):
        measure(name, partial)


@pytest.mark.slow
def test_torch_is_never_loaded():
    code = (
        "import sys, importlib, classwise.core.records, classwise.metrics as m\n"
        "for name in m.names(): importlib.import_module(f'classwise.metrics.{name}')\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
