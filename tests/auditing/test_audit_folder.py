"""The run folder: the same command goes on, another one is refused, and nothing is mixed."""

from __future__ import annotations

import dataclasses
import errno
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import classwise as cw
from classwise.auditing.fingerprints import fingerprint_data, fingerprint_model
from classwise.core.errors import UserError
from classwise.core.run_folder import AuditFolder
from classwise.core.run_lock import writing
from classwise.core.storage import atomic_write_text
from classwise.data.images import Images
from classwise.engine import evaluation, run
from classwise.engine.evaluation import BatchPlan

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EPS = 0.02
Run = Callable[..., cw.Audit]


@pytest.fixture
def audit(net: nn.Module, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """An audit into a run folder, cut into parts of 16 examples."""
    monkeypatch.setattr(
        evaluation, "plan", lambda fast, x, count, attacks, batch, workers, shares=1: BatchPlan(batch, 16, workers)
    )

    def call(**changes: Any) -> cw.Audit:
        usual = {"attacks": ["fgsm", "pgd-3"], "eps": EPS, "batch_size": 16, "workers": 1, "out": tmp_path / "run"}
        settings = {"model": net, "data": images.take(np.arange(48)), **usual, **changes}
        return cw.audit(settings.pop("model"), settings.pop("data"), **settings)

    return call


def records_of(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "records").glob("*.parquet"))


def test_holds_config_records_summary_and_tables(audit: Run, tmp_path: Path) -> None:
    audit()
    folder = tmp_path / "run"
    assert records_of(folder) == [
        f"{place}-{name}-{part:05d}.parquet"
        for place, name in (("00", "clean"), ("01", "fgsm"), ("02", "pgd-3"))
        for part in range(3)
    ]
    config = tomllib.loads((folder / "config.toml").read_text())
    assert config["plan"] == {"batch": 16, "part": 16, "workers": 1, "parts": 0}
    assert config["audit"]["eps"] == EPS
    assert config["attacks"]["pgd-3"]["steps"] == 3
    assert (folder / "summary.json").is_file()
    assert sorted(path.name for path in (folder / "tables").iterdir()) == [
        f"{name}{kind}.csv" for name in ("clean", "fgsm", "pgd-3", "worst_case") for kind in ("-confusion", "")
    ]
    assert not list(folder.rglob("*.partial"))


@pytest.mark.slow
def test_the_same_command_again_computes_nothing(
    audit: Run, net: nn.Module, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = audit()
    monkeypatch.setattr(run, "_attack_part", lambda *args, **named: pytest.fail("computed again"))
    again = audit(batch_size=4)  # the plan is the one the run began with
    assert again.records.frame.equals(first.records.frame)
    assert again.timing["batch"] == 16


def test_the_plan_is_the_one_on_disk_also_when_the_run_begins(
    audit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer may have settled on other parts between our look and our writing."""

    def another(path: Path, text: str) -> None:
        atomic_write_text(path, text.replace("part = 16", "part = 24"))

    monkeypatch.setattr("classwise.core.run_config.atomic_write_text", another)
    assert audit().timing["part"] == 24
    assert len(records_of(tmp_path / "run")) == 6


@pytest.mark.slow
def test_two_runs_of_one_command_are_equal_to_the_last_bit(
    net: nn.Module, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the machine is quicker the second time, so that larger parts would take as long."""
    monkeypatch.setattr(evaluation, "_SECONDS_PER_PART", 0.01)
    settings: Any = {"eps": EPS, "coverage": "survivors", "batch_size": 16}
    one = cw.audit(net, images, ["pgd-7", "fgsm"], out=tmp_path / "one", **settings)
    clock = time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: clock() / 100)
    other = cw.audit(net, images, ["pgd-7", "fgsm"], out=tmp_path / "other", **settings)
    assert one.config["plan"] == other.config["plan"]
    assert one.config["plan"]["part"] < len(images)
    assert one.records.frame.equals(other.records.frame)
    np.testing.assert_array_equal(one.records.probs, other.records.probs)
    assert records_of(tmp_path / "one") == records_of(tmp_path / "other")


@pytest.mark.slow
def test_the_older_word_for_survivors_is_understood(audit: Run, tmp_path: Path) -> None:
    """A folder written with it resumes with either word, and says the new one."""
    made = audit(coverage="standing")
    assert made.records.meta.attacks["fgsm"].coverage == "survivors"
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text(encoding="utf-8").replace("survivors", "standing"), encoding="utf-8")
    for coverage in ("standing", "survivors"):
        assert audit(coverage=coverage).summary()["attacks"]["fgsm"]["coverage"] == "survivors"
    assert cw.Audit.load(tmp_path / "run").by_class("pgd-3").equals(made.by_class("pgd-3"))


def test_a_run_whose_attack_of_a_file_was_recorded_by_its_older_name_resumes(audit: Run, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("def attack(model, x, y, eps):\n    return x\n")
    audit(attacks=f"{own}:attack")
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace('name = "foreign"', 'name = "foreign_attacks"'))
    assert 'name = "foreign_attacks"' in config.read_text()
    audit(attacks=f"{own}:attack")


@pytest.mark.slow
def test_a_loaded_audit_is_the_one_that_was_run(audit: Run, tmp_path: Path) -> None:
    made, loaded = audit(), cw.Audit.load(tmp_path / "run")
    assert loaded.summary() == made.summary()
    assert loaded.config == made.config
    assert loaded.by_class("fgsm").equals(made.by_class("fgsm"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"eps": 0.03}, r"audit\.eps: 0\.02 there, 0\.03 now"),
        ({"seed": 1}, r"audit\.seed: 0 there, 1 now"),
        ({"norm": "l2"}, r'audit\.norm: "linf" there, "l2" now'),
        ({"protocol": "final"}, r'audit\.protocol: "any" there, "final" now'),
        ({"coverage": "survivors"}, r'audit\.coverage: "all" there, "survivors" now'),
        ({"eot": 2}, r"attacks\.pgd-3\.eot: 1 there, 2 now"),
        ({"eps": {"ant": 0.01, "*": EPS}}, r"audit\.eps_per_example: absent there"),
        ({"attacks": ["fgsm", "pgd:steps=3,step=0.1"]}, r"attacks\.pgd-3\.step: absent there, 0\.1 now"),
        ({"attacks": ["fgsm"]}, r'attacks: \["clean", "fgsm", "pgd-3"\] there, \["clean", "fgsm"\] now'),
        ({"attacks": ["pgd-3", "fgsm"]}, r'attacks: .* there, \["clean", "pgd-3", "fgsm"\] now'),
        ({"limit": 40}, r"data\.examples: 48 there, 40 now"),
    ],
)
def test_other_settings_are_refused_and_named(audit: Run, tmp_path: Path, changes: dict[str, Any], line: str) -> None:
    audit()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    with pytest.raises(UserError, match=rf"(?s)was made with other settings:.*{line}.*--overwrite"):
        audit(**changes)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}


def test_other_weights_are_refused(audit: Run, net: nn.Module) -> None:
    audit()
    with torch.no_grad():
        net[0].bias += 1e-6  # type: ignore[operator, union-attr]
    with pytest.raises(UserError, match=r"model\.fingerprint"):
        audit()


def test_other_examples_or_class_names_are_refused(audit: Run, images: Images) -> None:
    audit()
    with pytest.raises(UserError, match=r"data\.fingerprint"):
        audit(data=images.take(np.arange(1, 49)))
    with pytest.raises(UserError, match=r"data\.classes"):
        audit(data=dataclasses.replace(images.take(np.arange(48)), class_names=("ape", "bat", "cat", "dog")))


@pytest.mark.slow
def test_other_versions_are_not_refused(audit: Run, tmp_path: Path) -> None:
    audit()
    path = tmp_path / "run" / "config.toml"
    path.write_text(path.read_text().replace(f'numpy = "{np.__version__}"', 'numpy = "1.0"'))
    audit()


@pytest.mark.slow
def test_overwrite_begins_anew(audit: Run, tmp_path: Path) -> None:
    audit()
    audit(attacks=["pgd-2"], eps=0.01, overwrite=True)
    assert {name.partition("-000")[0] for name in records_of(tmp_path / "run")} == {"00-clean", "01-pgd-2"}
    assert not (tmp_path / "run" / "tables" / "fgsm.csv").exists()
    assert cw.Audit.load(tmp_path / "run").attacks == ("pgd-2",)


@pytest.mark.slow
def test_overwrite_leaves_nothing_of_what_was_there_but_the_users_own(
    audit: Run, net: nn.Module, images: Images, tmp_path: Path
) -> None:
    """A search, then an audit with images and slices of the loss, then a plain audit, in one folder."""
    out = tmp_path / "run"
    audit(attacks="pgd-2", eps=0.01, out=tmp_path / "plain")
    cw.find_worst(net, images, "pgd-2", EPS, out=out, workers=1)
    (out / "notes.txt").write_text("mine")
    (out / "job.json").write_text("{}")
    (out / "records" / "00-clean-00000.parquet.partial").touch()
    audit(save_adversarial=True, landscape=1, overwrite=True)
    assert {"notes.txt", "landscape.csv", "01-fgsm-00000.npz"} <= {path.name for path in out.rglob("*")}
    assert not {"worst.json", "worst.csv", "job.json"} & {path.name for path in out.rglob("*")}
    audit(attacks="pgd-2", eps=0.01, overwrite=True)
    plain = {path.relative_to(tmp_path / "plain") for path in (tmp_path / "plain").rglob("*")}
    assert {path.relative_to(out) for path in out.rglob("*")} == plain | {Path("notes.txt")}


def test_overwrite_does_nothing_to_a_folder_that_is_being_written(audit: Run, tmp_path: Path) -> None:
    audit()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.*")}
    refused: list[str] = []

    def overwrite() -> None:
        try:
            audit(eps=0.01, overwrite=True)
        except UserError as error:
            refused.append(str(error))

    with writing(tmp_path / "run"):
        other = threading.Thread(target=overwrite)  # whom the lock of another thread keeps out as it would a process
        other.start()
        other.join()
    assert [f"is being written by process {os.getpid()} on" in words for words in refused] == [True]
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.slow
def test_a_damaged_config_is_an_error_that_says_what_to_do(audit: Run, tmp_path: Path) -> None:
    audit()
    plans = (b"plan = 3", b"[plan]\nsize = 3", b"[plan]\nbatch = 16\npart = -5", b"[plan]\nbatch = 16\npart = 'x'")
    for content in (b"\xff\xfe\x00", b"[audit", b"", *plans):
        (tmp_path / "run" / "config.toml").write_bytes(content)
        with pytest.raises(UserError, match=r"config\.toml is damaged .*--overwrite"):
            audit()
    audit(overwrite=True)


def test_records_without_a_config_are_not_taken_over(audit: Run, tmp_path: Path) -> None:
    audit()
    (tmp_path / "run" / "config.toml").unlink()
    with pytest.raises(UserError, match=r"holds records but no config\.toml"):
        audit()


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match=r"is a file; --out must be a folder|cannot use .* as a run folder"):
            AuditFolder(out).open_or_create({"attacks": {}})


def test_a_disk_full_from_the_start(audit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*config\.toml: No space left on device"):
        audit()
    assert not (tmp_path / "run").exists()


class TestFingerprints:
    def test_of_a_model_see_every_weight_and_buffer(self, net: nn.Module) -> None:
        prints = {fingerprint_model(net)}
        for tensor in net.state_dict().values():
            tensor.reshape(-1)[-1] += 1
            prints.add(fingerprint_model(net))
        assert len(prints) == len(net.state_dict()) + 1

    def test_of_a_model_do_not_depend_on_mode_or_layout(self, net: nn.Module) -> None:
        before = fingerprint_model(net)
        net.train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        assert fingerprint_model(net) == before

    def test_of_data_see_order_labels_and_pixels(self, images: Images) -> None:
        labels = images.labels.copy()
        labels[50] += 1
        others = [
            images.take(np.arange(119)),
            images.take(np.arange(120)[::-1]),
            Images(images.pixels, labels % 4, images.class_names),
            Images(type(images.pixels)(images.pixels.array * 0.99), images.labels, images.class_names),  # type: ignore
        ]
        assert len({fingerprint_data(data) for data in (images, *others)}) == 5


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_run_folder_of_a_training_is_left_alone(audit: Run, tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text('[method]\nname = "wat"\n')
    with pytest.raises(UserError, match="is the run folder of another kind, training; choose another --out"):
        audit(overwrite=overwrite)
    assert "wat" in (tmp_path / "run" / "config.toml").read_text()
