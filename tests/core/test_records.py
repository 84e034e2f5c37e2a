from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo, Meta
from classwise.core.per_class import PerClass
from classwise.core.records import CLEAN, COLUMNS, WORST_CASE, Records

NAMES = ("cat", "dog", "ship")
META = Meta(
    class_names=NAMES,
    superclasses={"animals": ("cat", "dog"), "vehicles": ("ship",)},
    norm="l2",
    eps=0.5,
    seed=7,
    attacks={
        CLEAN: AttackInfo(),
        "fgsm": AttackInfo(settings={"step": 0.5}, protocol="final"),
        "pgd": AttackInfo(settings={"steps": 20, "restarts": 5}),
    },
    versions={"classwise": "0.1.0"},
)


def rows(attack, index, label, prediction, loss=1.0):
    return pd.DataFrame(
        {
            "index": np.asarray(index, dtype=np.int64),
            "label": np.asarray(label, dtype=np.int32),
            "attack": attack,
            "eps": 0.5,
            "prediction": np.asarray(prediction, dtype=np.int32),
            "confidence": np.float32(0.5),
            "true_prob": np.float32(0.25),
            "loss": np.broadcast_to(np.asarray(loss, dtype=np.float32), len(index)),
            "distance": np.float32(0.125),
            "minimal": np.float32(np.inf),
            "step": np.int32(20),
            "queries": np.int64(20),
        }
    )


@pytest.fixture
def records():
    """Example 0 falls to pgd, 1 to fgsm and pgd, 2 stands, 3 is wrong from the start."""
    label = [0, 1, 2, 0]
    frame = pd.concat(
        [
            rows("pgd", [0, 1, 2, 3], label, [2, 0, 2, 1], [3.0, 3.0, 0.5, 5.0]),
            rows("fgsm", [0, 1, 2, 3], label, [0, 2, 2, 1], [0.3, 2.0, 0.7, 4.0]),
            rows(CLEAN, [0, 1, 2, 3], label, [0, 1, 2, 1], [0.1, 0.1, 0.1, 2.0]),
        ],
        ignore_index=True,
    )
    return Records(frame, META)


def with_probs(records):
    probs = np.random.default_rng(0).dirichlet(np.ones(3), size=len(records)).astype(np.float32)
    return dataclasses.replace(records, probs=probs)


# ---- choosing rows ------------------------------------------------------------------------------------------


def test_attacks_come_in_the_order_they_ran(records):
    assert records.attacks == (CLEAN, "fgsm", "pgd")


def test_of_gives_one_attack_ordered_by_example(records):
    reversed_rows = with_probs(records).take(np.arange(len(records))[::-1])
    chosen = reversed_rows.of("fgsm")
    assert chosen.attacks == ("fgsm",)
    assert chosen.index.tolist() == [0, 1, 2, 3]
    assert chosen.correct.tolist() == [True, False, True, False]
    np.testing.assert_array_equal(chosen.probs, with_probs(records).probs[4:8])


def test_of_an_unknown_attack_names_the_near_miss(records):
    with pytest.raises(UserError, match=r"'fgms'; did you mean 'fgsm'\?.*worst_case"):
        records.of("fgms")


def test_worst_case_takes_the_first_attack_that_broke_each_example(records):
    worst = with_probs(records).worst_case()
    assert worst.index.tolist() == [0, 1, 2, 3]
    assert worst.prediction.tolist() == [2, 2, 2, 1]
    assert worst.frame["broken_by"].tolist() == ["pgd", "fgsm", "", CLEAN]
    assert worst.frame["loss"].tolist() == pytest.approx([3.0, 2.0, 0.7, 2.0])  # standing: the row of highest loss
    np.testing.assert_array_equal(worst.probs, with_probs(records).probs[[0, 5, 6, 11]])
    assert worst.attacks == (WORST_CASE,)
    assert worst.single() is worst
    assert len(records.of(WORST_CASE)) == 4


def test_worst_case_over_chosen_attacks(records):
    worst = records.worst_case([CLEAN, "fgsm"])
    assert worst.correct.tolist() == [True, False, True, False]
    assert worst.meta.attacks[WORST_CASE].settings == {"attacks": [CLEAN, "fgsm"]}


def test_worst_case_is_never_better_than_any_attack(records):
    worst = records.worst_case()
    for attack in records.attacks:
        assert not (worst.correct & ~records.of(attack).correct).any()


@pytest.mark.parametrize(
    ("attacks", "protocol"), [(["fgsm"], "final"), (["fgsm", "pgd"], "any"), ([CLEAN, "pgd"], "any")]
)
def test_worst_case_is_judged_by_the_final_iterate_only_if_every_attack_was(records, attacks, protocol):
    assert records.worst_case(attacks).meta.attacks[WORST_CASE].protocol == protocol


def test_worst_case_covers_examples_a_later_attack_did_not_see(records):
    """pgd saw only example 0 and 2, which had survived; the others keep the row that broke them."""
    meta = dataclasses.replace(META, attacks={**META.attacks, "pgd": AttackInfo(coverage="survivors")})
    seen = (records.frame["attack"] != "pgd") | records.frame["index"].isin([0, 2])
    part = Records(records.frame[seen].reset_index(drop=True), meta)
    assert part.worst_case().correct.tolist() == [False, False, True, False]
    with pytest.raises(UserError, match=r"pgd saw only the examples that survived.*worst_case"):
        part.of("pgd").single()


def test_single_refuses_several_attacks_and_an_example_twice(records):
    with pytest.raises(UserError, match=r"these hold clean, fgsm, pgd\. Choose with records\.of"):
        records.single()
    twice = records.of("pgd").take(np.array([0, 1, 1]))
    with pytest.raises(UserError, match="hold an example twice"):
        twice.single()


# ---- what is refused at once --------------------------------------------------------------------------------


def test_missing_columns_are_named(records):
    with pytest.raises(UserError, match=r"lack the column\(s\) eps, loss; expected index"):
        Records(records.frame.drop(columns=["loss", "eps"]), META)


def test_probs_of_another_shape_are_refused(records):
    with pytest.raises(UserError, match=r"shape \(12, 2\), expected \(12, 3\)"):
        Records(records.frame, META, np.zeros((12, 2)))


# ---- storing ------------------------------------------------------------------------------------------------


def test_written_and_read_back_the_same(records, tmp_path):
    path = tmp_path / "deep" / "part.parquet"
    full = with_probs(records)
    full.write(path)
    back = Records.read(path)
    assert back.meta == META
    assert back.frame.columns.tolist() == list(COLUMNS)
    for name in COLUMNS:
        np.testing.assert_array_equal(back.frame[name], full.frame[name], err_msg=name)
    np.testing.assert_array_equal(back.probs, full.probs)
    assert [file.name for file in path.parent.iterdir()] == ["part.parquet"]


def test_a_path_may_be_text_and_so_may_several(records, tmp_path):
    path = str(tmp_path / "part.parquet")
    records.write(tmp_path / "part.parquet")
    assert len(Records.read(path)) == len(records)
    assert len(Records.read([path, path])) == 2 * len(records)


def test_without_probs_there_are_none_on_return(records, tmp_path):
    records.write(tmp_path / "part.parquet")
    assert Records.read(tmp_path / "part.parquet").probs is None


def test_stored_types_are_as_documented(records, tmp_path):
    records.write(tmp_path / "part.parquet")
    schema = pq.read_schema(tmp_path / "part.parquet")
    assert {name: schema.field(name).type for name in schema.names} == COLUMNS


def test_parts_are_read_together_in_order_of_name(records, tmp_path):
    full = with_probs(records)
    full.take(np.arange(4, 12)).write(tmp_path / "records" / "part-001.parquet")
    full.take(np.arange(4)).write(tmp_path / "records" / "part-000.parquet")
    for place in (tmp_path, tmp_path / "records", str(tmp_path), str(tmp_path / "records")):
        back = Records.read(place)
        np.testing.assert_array_equal(back.frame["index"], full.frame["index"])
        assert back.frame["attack"].tolist() == full.frame["attack"].tolist()
        np.testing.assert_array_equal(back.probs, full.probs)


def test_parts_add_up_what_they_cost(records, tmp_path):
    costs = [
        {"pgd": {"seconds": 1.5, "forwards": 20}},
        {"pgd": {"seconds": 2.0, "forwards": 5}, CLEAN: {"seconds": 0.5}},
    ]
    parts = [
        dataclasses.replace(with_probs(records), meta=dataclasses.replace(META, stats=cost)).take(
            np.arange(4 * at, 4 * at + 4)
        )
        for at, cost in enumerate(costs)
    ]
    for at, part in enumerate(parts):
        part.write(tmp_path / f"part-{at}.parquet")
    for whole in (Records.concat(parts), Records.read(sorted(tmp_path.iterdir()))):
        assert whole.meta.stats == {"pgd": {"seconds": 3.5, "forwards": 25}, CLEAN: {"seconds": 0.5}}
        np.testing.assert_array_equal(whole.probs, with_probs(records).probs[:8])
        assert whole.index.tolist() == [0, 1, 2, 3] * 2


def test_a_failed_write_leaves_the_old_file_and_nothing_else(records, tmp_path, monkeypatch):
    path = tmp_path / "part.parquet"
    records.write(path)
    before = path.read_bytes()

    def full_disk(*_args, **_kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(pq, "write_table", full_disk)
    with pytest.raises(OSError, match="no space left"):
        records.of("pgd").write(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["part.parquet"]


@pytest.mark.parametrize("damage", [b"", b"not parquet at all", None])
def test_a_corrupt_file_is_named_with_what_to_do(records, tmp_path, damage):
    path = tmp_path / "part.parquet"
    records.write(path)
    path.write_bytes(path.read_bytes()[:-40] if damage is None else damage)
    with pytest.raises(UserError, match=r"cannot read records .*part\.parquet.*repeat the audit's command"):
        Records.read(path)


def test_a_foreign_parquet_file_is_refused(tmp_path):
    pq.write_table(pa.table({"index": [1]}), tmp_path / "other.parquet")
    with pytest.raises(UserError, match="was not written by classwise"):
        Records.read(tmp_path / "other.parquet")


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no records \(\*\.parquet\) in .*run folder"):
        Records.read(tmp_path)


def test_meta_survives_json():
    assert Meta.from_json(META.to_json()) == META
    plain = Meta(class_names=NAMES)
    assert Meta.from_json(plain.to_json().encode()) == plain


# ---- one number per class -----------------------------------------------------------------------------------


def test_per_class_worst_and_best_skip_absent_classes():
    low, high = np.zeros((2, 4))
    accuracies, support = np.array([np.nan, 0.2, 0.2, 0.9]), np.array([0, 5, 5, 10])
    values = PerClass(values=accuracies, support=support, low=low, high=high, class_names=tuple("abcd"))
    assert (values.worst, values.best) == (1, 3)
    assert values.to_frame().columns.tolist() == ["class", "n", "value", "low", "high"]


def test_per_class_of_nothing_says_so():
    nothing = np.full(2, np.nan)
    with pytest.raises(UserError, match="no class has an example"):
        _ = PerClass(values=nothing, support=np.zeros(2), low=nothing, high=nothing, class_names=("a", "b")).worst
