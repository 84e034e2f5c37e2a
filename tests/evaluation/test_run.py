"""The run: parts, what is attacked and what is not, memory and disk that run out."""

from __future__ import annotations

import dataclasses
import errno
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn

import classwise.records
from classwise.attacks.fgsm import Fgsm
from classwise.attacks.nattack import Nattack
from classwise.attacks.noise import Noise
from classwise.attacks.pgd import Pgd
from classwise.attacks.rows import Attack
from classwise.datasets.images import Images
from classwise.errors import UserError
from classwise.evaluation import run
from classwise.records import CLEAN, COLUMNS, Meta, Records

EPS = 0.02
CPU = torch.device("cpu")
ATTACKS: dict[str, Attack] = {"fgsm": Fgsm(), "pgd-5": Pgd(steps=5)}
EXACT = [name for name in COLUMNS if name != "attack"]


def job_of(
    net: Callable[[Tensor], Tensor], images: Images, attacks: dict[str, Attack] = ATTACKS, **changes: Any
) -> run.Job:
    batch, part, workers = (changes.pop(key, default) for key, default in (("batch", 32), ("part", 50), ("workers", 1)))
    protocol, coverage = changes.get("protocol", "any"), changes.pop("coverage", "all")
    eps = np.broadcast_to(np.asarray(changes.pop("eps", EPS), dtype=float), len(images)).copy()
    meta = Meta(images.class_names, eps=EPS, seed=3, attacks=run.attack_infos(attacks, protocol, coverage))
    fast = changes.pop("fast", net)
    return run.Job(net, fast, images, attacks, "linf", eps, meta, run.Plan(batch, part, workers), CPU, **changes)


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
        standing = run.evaluate(job_of(net, images, coverage="standing"))
        left = everything.of(CLEAN).correct & everything.of("fgsm").correct
        np.testing.assert_array_equal(standing.of("pgd-5").index, images.positions[left])
        np.testing.assert_array_equal(standing.worst_case().correct, everything.worst_case().correct)
        assert len(standing.of(CLEAN)) == len(images)
        assert standing.meta.stats["pgd-5"]["attacked"] == left.sum()
        with pytest.raises(UserError, match="saw only the examples still standing"):
            standing.of("pgd-5").single()

    def test_nobody_standing_leaves_no_row(self, net: nn.Module, images: Images, tmp_path: Path) -> None:
        wrong = dataclasses.replace(images, labels=(images.labels + 1) % 4).take(np.arange(10, 30))
        job = job_of(net, wrong, coverage="standing", folder=tmp_path)
        for _ in range(2):  # the second time from the folder
            records = run.evaluate(job)
            assert records.attacks == (CLEAN,)
            assert len(records) == 20
            assert records.meta.stats["pgd-5"]["attacked"] == 0

    def test_a_radius_of_its_own_for_every_example(self, net: nn.Module, images: Images) -> None:
        eps = np.linspace(0.001, 0.04, len(images))
        rows = run.evaluate(job_of(net, images, eps=eps, part=7)).of("pgd-5")
        np.testing.assert_array_equal(rows.frame["eps"], eps)
        assert (rows.frame["distance"] <= eps + 1e-6).all()
        assert (rows.frame["distance"] > EPS).any()

    @pytest.mark.parametrize("changes", [{"batch": 7}, {"workers": 3, "batch": 11}, {"part": 9}, {"part": 1000}])
    def test_the_plan_changes_nothing_but_rounding(self, net: nn.Module, images: Images, changes: Any) -> None:
        one, other = (run.evaluate(job_of(net, images, **settings)) for settings in ({}, changes))
        for attack in one.attacks:
            a, b = by_example(one, attack), by_example(other, attack)
            assert a[["index", "label", "prediction", "step"]].equals(b[["index", "label", "prediction", "step"]])
            np.testing.assert_allclose(a["loss"], b["loss"], rtol=1e-4, atol=1e-6)
        cost = [{k: v for k, v in r.meta.stats["pgd-5"].items() if k != "seconds"} for r in (one, other)]
        assert cost[0] == cost[1]

    def test_order_changes_nothing_but_rounding(self, net: nn.Module, images: Images) -> None:
        shuffled = images.take(np.random.default_rng(1).permutation(len(images)))
        one, other = (run.evaluate(job_of(net, these)).of("pgd-5").frame for these in (images, shuffled))
        assert one[["index", "label", "prediction", "step"]].equals(other[["index", "label", "prediction", "step"]])

    def test_probabilities_may_be_left_out(self, net: nn.Module, images: Images) -> None:
        assert run.evaluate(job_of(net, images, probs=False)).probs is None

    def test_threads_are_put_back(self, net: nn.Module, images: Images) -> None:
        before = torch.get_num_threads()
        run.evaluate(job_of(net, images, workers=2, batch=8))
        assert torch.get_num_threads() == before

    def test_progress_reaches_the_number_of_examples(self, net: nn.Module, images: Images, tmp_path: Path) -> None:
        for _ in range(2):  # the second time from the folder
            done: Counter[str] = Counter()
            run.evaluate(job_of(net, images, folder=tmp_path, report=lambda name, n: done.update({name: n})))  # noqa: B023
            assert done == {CLEAN: 120, "fgsm": 120, "pgd-5": 120}

    def test_settings_of_any_attack_can_be_written_down(self) -> None:
        @dataclasses.dataclass(frozen=True)
        class Odd(Noise):
            helper: Any = dataclasses.field(default_factory=lambda: nn.Linear(1, 1))

        info = run.attack_infos({"odd": Odd()}, "any", "all")["odd"]
        assert info.settings["draws"] == 10
        assert "Linear" in info.settings["helper"]
        assert Meta(("a",), attacks={"odd": info}).to_json()


class TestParts:
    @pytest.mark.parametrize(("seconds", "part"), [(0.02, 96), (2.0, 16)])
    def test_plan_cuts_whole_rounds_of_batches(
        self, net: nn.Module, monkeypatch: pytest.MonkeyPatch, seconds: float, part: int
    ) -> None:
        """The quickest of three passes counts; an attack of 16 steps takes 9 passes on average; at least two rounds."""
        clock = iter([0, 5 * seconds, 0, 8 * seconds, 0, 4 * seconds])  # of 4 images
        monkeypatch.setattr(run.time, "perf_counter", lambda: next(clock))
        monkeypatch.setattr(run, "_SECONDS_PER_PART", 18)
        attacks: dict[str, Attack] = {"pgd": Pgd(steps=8, restarts=2)}
        planned = run.plan(net, torch.rand(4, 1, 8, 8), 1000, attacks, batch=4, workers=2)
        assert planned == run.Plan(batch=4, part=part, workers=2)  # 18 s / (0.02 s · 9) = 100 images, of rounds of 8

    def test_plan_never_cuts_smaller_than_a_batch_nor_larger_than_the_data(self, net: nn.Module) -> None:
        x = torch.rand(8, 1, 8, 8)
        assert run.plan(net, x, 100, {}, batch=16, workers=1).part == 100
        assert run.plan(net, x, 5, ATTACKS, batch=16, workers=2).part == 5

    def test_attacks_of_many_questions_get_short_parts(self) -> None:
        """A step of N Attack asks 300 times: 500 rounds of a model that takes a millisecond are minutes per image."""

        def slow(x: Tensor) -> Tensor:
            time.sleep(0.004)
            return x.flatten(1)[:, :2]

        attacks: dict[str, Attack] = {"nattack": Nattack()}
        assert run.plan(slow, torch.rand(4, 1, 8, 8), 5000, attacks, batch=256, workers=1).part == 16
        short: dict[str, Attack] = {"nattack": Nattack(rounds=1, population=2)}
        assert run.plan(slow, torch.rand(4, 1, 8, 8), 5000, short, batch=256, workers=1).part > 512

    def test_files_are_named_by_attack_and_part(self, net: nn.Module, images: Images, tmp_path: Path) -> None:
        run.evaluate(job_of(net, images, {"pgd:step=1/255 é": Pgd(steps=1)}, folder=tmp_path))
        assert sorted(path.name for path in (tmp_path / "records").iterdir()) == [
            *(f"00-clean-0000{n}.parquet" for n in range(3)),
            *(f"01-pgd_step=1_255_é-0000{n}.parquet" for n in range(3)),
        ]

    def test_a_finished_part_is_read_and_never_computed_again(
        self, net: nn.Module, images: Images, tmp_path: Path
    ) -> None:
        whole = run.evaluate(job_of(net, images, folder=tmp_path))
        stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}

        def never(x: Tensor) -> Tensor:
            raise AssertionError("computed again")

        again = run.evaluate(job_of(never, images, folder=tmp_path))
        assert again.frame[EXACT].equals(whole.frame[EXACT])
        np.testing.assert_array_equal(again.probs, whole.probs)
        assert again.meta.stats == whole.meta.stats
        assert stamps == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}

    @pytest.mark.parametrize("damage", ["truncated", "emptied", "overwritten", "removed", "of other examples", "short"])
    def test_a_damaged_part_is_computed_again(
        self, net: nn.Module, images: Images, tmp_path: Path, damage: str
    ) -> None:
        whole = run.evaluate(job_of(net, images, folder=tmp_path))
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
        else:
            Records.read(part).take(np.arange(5)).write(part)
        again = run.evaluate(job_of(net, images, folder=tmp_path))
        assert again.frame[EXACT].equals(whole.frame[EXACT])
        assert Records.read(part).frame[EXACT].equals(whole.take(np.arange(250, 300)).frame[EXACT])


class TestMemory:
    """A model that fails above some batch size, as one does whose activations do not fit."""

    @staticmethod
    def small(net: nn.Module, most: int, sizes: list[int], patience: int = 0) -> Callable[[Tensor], Tensor]:
        def model(x: Tensor) -> Tensor:
            sizes.append(len(x))
            if len(x) > most and len(sizes) > patience:  # at first there is still room
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return net(x)

        return model

    @pytest.mark.parametrize("workers", [1, 2])
    def test_the_batch_halves_until_it_fits(self, net: nn.Module, images: Images, workers: int) -> None:
        sizes: list[int] = []
        done: Counter[str] = Counter()
        tight = self.small(net, 10, sizes, patience=1)
        changes: dict[str, Any] = {"report": lambda name, n: done.update({name: n}), "workers": workers, "part": 120}
        found = run.evaluate(job_of(tight, images, batch=32, **changes))
        expected = run.evaluate(job_of(net, images, batch=8, workers=workers))
        too_large = {size for size in sizes if size > 10}
        assert {32, 16} <= too_large <= {32, 28, 16}  # 28: what a worker has left after its first batch
        assert 8 in sizes
        for attack in expected.attacks:
            columns = ["index", "prediction", "step"]
            assert by_example(found, attack)[columns].equals(by_example(expected, attack)[columns])
        assert done == {CLEAN: 120, "fgsm": 120, "pgd-5": 120}

    def test_a_single_image_that_does_not_fit_is_an_error(self, net: nn.Module, images: Images) -> None:
        with pytest.raises(UserError, match="out of memory with a batch of 1"):
            run.evaluate(job_of(self.small(net, 0, []), images))

    @pytest.mark.parametrize("workers", [1, 2])
    def test_other_errors_come_through(self, images: Images, workers: int) -> None:
        def broken(x: Tensor) -> Tensor:
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            run.evaluate(job_of(broken, images, workers=workers, batch=8))


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
            patch.setattr(classwise.records.pq, "write_table", full)
            with pytest.raises(UserError, match=r"cannot write .*01-fgsm-00001.parquet: No space left.*is kept"):
                run.evaluate(job_of(net, images, folder=tmp_path))
        assert sorted(path.name for path in (tmp_path / "records").iterdir()) == [
            "00-clean-00000.parquet",
            "00-clean-00001.parquet",
            "01-fgsm-00000.parquet",
            "02-pgd-5-00000.parquet",
        ]
        assert run.evaluate(job_of(net, images, folder=tmp_path)).frame[EXACT].equals(whole.frame[EXACT])

    def test_a_failing_sync_leaves_no_half_file(
        self, net: nn.Module, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(descriptor: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr("os.fsync", fail)
        with pytest.raises(UserError, match="Input/output error"):
            run.evaluate(job_of(net, images, folder=tmp_path))
        assert list((tmp_path / "records").iterdir()) == []
