"""The run: parts, what is attacked and what is not, a disk that runs full."""

from __future__ import annotations

import dataclasses
import errno
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from torch import Tensor, nn

from classwise.attacks.pgd import Pgd
from classwise.core.errors import UserError
from classwise.core.records import CLEAN, COLUMNS, Records
from classwise.core.run_folder import AuditFolder
from classwise.data.images import Images
from classwise.engine import run
from made_job import EPS, job_of

EXACT = [name for name in COLUMNS if name != "attack"]


def by_example(records: Records, attack: str) -> Any:
    return records.of(attack).frame[EXACT]


class TestRows:
    def test_one_row_per_example_and_attack_in_parts(self, net: nn.Module, images: Images) -> None:
        records = run.evaluate(job_of(net, images))
        assert records.attacks == (CLEAN, "fgsm", "pgd-5")
        assert len(records) == 3 * len(images)
        for attack in records.attacks:
            rows = records.of(attack)
            np.testing.assert_array_equal(rows.index, images.positions)
            np.testing.assert_array_equal(rows.label, images.labels)
            assert rows.probs is not None
            np.testing.assert_allclose(rows.probs.sum(1), 1, atol=1e-6)
            np.testing.assert_array_equal(rows.probs.argmax(1), rows.prediction)
        assert (records.of(CLEAN).frame[["eps", "distance", "step"]] == 0).all(axis=None)
        assert (records.of("fgsm").frame["eps"] == EPS).all()
        assert (records.of("pgd-5").frame["distance"] <= EPS + 1e-6).all()

    def test_misclassified_when_clean_is_never_attacked(self, net: nn.Module, images: Images) -> None:
        asked: Counter[bytes] = Counter()

        def spy(x: Tensor) -> Tensor:
            asked.update(image.numpy().tobytes() for image in x.detach())
            return net(x)

        start_at_the_image = {"pgd": Pgd(steps=3, start="none")}
        records = run.evaluate(job_of(net, images, start_at_the_image, fast=spy))
        wrong = ~records.of(CLEAN).correct
        assert wrong.sum() == 6
        seen = np.array([asked[image.numpy().tobytes()] > 0 for image in images.batch(np.arange(len(images)))[0]])
        np.testing.assert_array_equal(seen, ~wrong)
        clean, attacked = by_example(records, CLEAN), by_example(records, "pgd")
        same = ["prediction", "confidence", "true_prob", "loss", "distance", "step"]
        assert clean[same][wrong].equals(attacked[same][wrong])
        assert records.meta.stats["pgd"]["attacked"] == (~wrong).sum()

    def test_final_attacks_everything_for_all_steps(self, net: nn.Module, images: Images) -> None:
        records = run.evaluate(job_of(net, images, protocol="final"))
        assert (records.of("pgd-5").frame["step"] == 5).all()
        assert records.meta.stats["pgd-5"]["attacked"] == len(images)
        assert records.meta.stats["pgd-5"]["passes"] == 5 * len(images)
        assert records.meta.attacks["pgd-5"].protocol == "final"
        any_way = run.evaluate(job_of(net, images)).of("pgd-5").correct.mean()
        assert any_way <= records.of("pgd-5").correct.mean()

    def test_standing_attacks_only_what_no_earlier_attack_broke(self, net: nn.Module, images: Images) -> None:
        everything = run.evaluate(job_of(net, images))
        standing = run.evaluate(job_of(net, images, coverage="survivors"))
        left = everything.of(CLEAN).correct & everything.of("fgsm").correct
        np.testing.assert_array_equal(standing.of("pgd-5").index, images.positions[left])
        np.testing.assert_array_equal(standing.worst_case().correct, everything.worst_case().correct)
        assert len(standing.of(CLEAN)) == len(images)
        assert standing.meta.stats["pgd-5"]["attacked"] == left.sum()
        with pytest.raises(UserError, match="saw only the examples that survived"):
            standing.of("pgd-5").single()

    def test_nobody_standing_leaves_no_row(self, net: nn.Module, images: Images, tmp_path: Path) -> None:
        wrong = dataclasses.replace(images, labels=(images.labels + 1) % 4).take(np.arange(10, 30))
        job = job_of(net, wrong, coverage="survivors", folder=AuditFolder(tmp_path))
        for _ in range(2):  # the second time from the folder
            records = run.evaluate(job)
            assert records.attacks == (CLEAN,)
            assert len(records) == 20
            assert records.meta.stats["pgd-5"]["attacked"] == 0

    @pytest.mark.slow
    def test_a_radius_of_its_own_for_every_example(self, net: nn.Module, images: Images) -> None:
        eps = np.linspace(0.001, 0.04, len(images))
        rows = run.evaluate(job_of(net, images, eps=eps, part=7)).of("pgd-5")
        np.testing.assert_array_equal(rows.frame["eps"], eps)
        assert (rows.frame["distance"] <= eps + 1e-6).all()
        assert (rows.frame["distance"] > EPS).any()

    @pytest.mark.slow
    @pytest.mark.parametrize("changes", [{"batch": 7}, {"workers": 3, "batch": 11}, {"part": 9}, {"part": 1000}])
    def test_the_plan_changes_nothing_but_rounding(self, net: nn.Module, images: Images, changes: Any) -> None:
        one, other = (run.evaluate(job_of(net, images, **settings)) for settings in ({}, changes))
        for attack in one.attacks:
            a, b = by_example(one, attack), by_example(other, attack)
            assert a[["index", "label", "prediction", "step"]].equals(b[["index", "label", "prediction", "step"]])
            np.testing.assert_allclose(a["loss"], b["loss"], rtol=1e-4, atol=1e-6)
        cost = [{k: v for k, v in r.meta.stats["pgd-5"].items() if k != "seconds"} for r in (one, other)]
        assert cost[0] == cost[1]

    @pytest.mark.slow
    def test_order_changes_nothing_but_rounding(self, net: nn.Module, images: Images) -> None:
        shuffled = images.take(np.random.default_rng(1).permutation(len(images)))
        one, other = (run.evaluate(job_of(net, these)).of("pgd-5").frame for these in (images, shuffled))
        assert one[["index", "label", "prediction", "step"]].equals(other[["index", "label", "prediction", "step"]])

    def test_probabilities_may_be_left_out(self, net: nn.Module, images: Images) -> None:
        assert run.evaluate(job_of(net, images, probs=False)).probs is None

    def test_progress_reaches_the_number_of_examples(self, net: nn.Module, images: Images, tmp_path: Path) -> None:
        for _ in range(2):  # the second time from the folder
            done: Counter[str] = Counter()
            job = job_of(net, images, folder=AuditFolder(tmp_path))
            run.evaluate(dataclasses.replace(job, report=lambda name, n: done.update({name: n})))  # noqa: B023
            assert done == {CLEAN: 120, "fgsm": 120, "pgd-5": 120}


class TestParts:
    def test_files_are_named_by_attack_and_part(self, net: nn.Module, images: Images, tmp_path: Path) -> None:
        run.evaluate(job_of(net, images, {"pgd:step=1/255 é": Pgd(steps=1)}, folder=AuditFolder(tmp_path)))
        assert sorted(path.name for path in (tmp_path / "records").iterdir()) == [
            *(f"00-clean-0000{n}.parquet" for n in range(3)),
            *(f"01-pgd_step=1_255_é-0000{n}.parquet" for n in range(3)),
        ]

    def test_a_finished_part_is_read_and_never_computed_again(
        self, net: nn.Module, images: Images, tmp_path: Path
    ) -> None:
        whole = run.evaluate(job_of(net, images, folder=AuditFolder(tmp_path)))
        stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}

        def never(x: Tensor) -> Tensor:
            raise AssertionError("computed again")

        again = run.evaluate(job_of(never, images, folder=AuditFolder(tmp_path)))
        assert again.frame[EXACT].equals(whole.frame[EXACT])
        np.testing.assert_array_equal(again.probs, whole.probs)
        assert again.meta.stats == whole.meta.stats
        assert stamps == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "damage", ["truncated", "emptied", "overwritten", "removed", "of other examples", "short", "of another attack"]
    )
    @pytest.mark.parametrize("coverage", ["all", "survivors"])
    def test_a_damaged_part_is_computed_again(
        self, net: nn.Module, images: Images, tmp_path: Path, damage: str, coverage: str
    ) -> None:
        job = job_of(net, images, folder=AuditFolder(tmp_path), coverage=coverage)
        whole = run.evaluate(job)
        part = tmp_path / "records" / "02-pgd-5-00001.parquet"
        content = part.read_bytes()
        if damage == "truncated":
            part.write_bytes(content[: len(content) // 2])
        elif damage == "emptied":
            part.write_bytes(b"")
        elif damage == "overwritten":
            part.write_bytes(b"PAR1" + bytes(len(content)))
        elif damage == "removed":
            part.unlink()
        elif damage == "of other examples":
            part.write_bytes((tmp_path / "records" / "02-pgd-5-00002.parquet").read_bytes())
        elif damage == "of another attack":
            part.write_bytes((tmp_path / "records" / "01-fgsm-00001.parquet").read_bytes())
        else:
            Records.read(part).take(np.arange(5)).write(part)
        again = run.evaluate(job)
        assert again.frame[EXACT].equals(whole.frame[EXACT])
        assert part.read_bytes()[-4:] == b"PAR1"
        assert len(Records.read(tmp_path)) == len(whole)
        assert set(Records.read(part).index) == set(whole.of("pgd-5").index) & set(range(50, 100))

    @pytest.mark.slow
    def test_any_flip_or_cut_of_any_part_is_repaired(self, net: nn.Module, images: Images, tmp_path: Path) -> None:
        """Whatever the damage makes Arrow raise, the same command gives the same rows."""
        job = job_of(net, images, {"pgd-2": Pgd(steps=2)}, folder=AuditFolder(tmp_path), coverage="survivors")
        whole, chance = run.evaluate(job), random.Random(0)
        parts = sorted((tmp_path / "records").iterdir())
        for _ in range(6):
            for path in parts:  # all at once: a run reads every part
                content = bytearray(path.read_bytes())
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
                path.write_bytes(content if chance.random() < 0.8 else content[: chance.randrange(len(content))])
            again = run.evaluate(job)
            assert again.frame[EXACT].equals(whole.frame[EXACT])
            np.testing.assert_array_equal(again.probs, whole.probs)


class TestDisk:
    def test_a_full_disk_keeps_what_is_finished(
        self, net: nn.Module, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = run.evaluate(job_of(net, images))
        written = 0
        write_table = pq.write_table

        def full(table: Any, handle: Any, **options: Any) -> None:
            nonlocal written
            written += 1
            if written > 4:
                handle.write(b"half a file")
                raise OSError(errno.ENOSPC, "No space left on device")
            write_table(table, handle, **options)

        with monkeypatch.context() as patch:
            patch.setattr(pq, "write_table", full)
            with pytest.raises(UserError, match=r"cannot write .*01-fgsm-00001.parquet: No space left.*is kept"):
                run.evaluate(job_of(net, images, folder=AuditFolder(tmp_path)))
        assert sorted(path.name for path in (tmp_path / "records").iterdir()) == [
            "00-clean-00000.parquet",
            "00-clean-00001.parquet",
            "01-fgsm-00000.parquet",
            "02-pgd-5-00000.parquet",
        ]
        assert run.evaluate(job_of(net, images, folder=AuditFolder(tmp_path))).frame[EXACT].equals(whole.frame[EXACT])

    def test_a_failing_sync_leaves_no_half_file(
        self, net: nn.Module, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(descriptor: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr("os.fsync", fail)
        with pytest.raises(UserError, match="Input/output error"):
            run.evaluate(job_of(net, images, folder=AuditFolder(tmp_path)))
        assert list((tmp_path / "records").iterdir()) == []
