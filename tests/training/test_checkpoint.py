"""Checkpoints: a training that was killed anywhere ends as one that was not, bit by bit; what is damaged is noticed."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import Killed, assert_same_run, content, dying_after, history, net_file, run, small
from torch import nn

from classwise.core.errors import UserError
from classwise.core.run_folder import TrainingFolder
from classwise.data import load as load_data
from classwise.training import pseudo, recipe
from classwise.training.checkpoint import Checkpoints
from classwise.training.state import TrainingState

pytestmark = pytest.mark.slow

AT_EVERY_STEP: dict[str, Any] = {"save_minutes": 0}

RUNS: dict[str, dict[str, Any]] = {
    "dropout": {"net": "dropping", "train": AT_EVERY_STEP},
    "epochs only": {"net": "dropping"},
    "ema": {"net": "normed", "train": {**AT_EVERY_STEP, "averaging": "ema:decay=0.8"}},
    "swa": {"net": "dropping", "train": {**AT_EVERY_STEP, "averaging": "swa:start=1,estimate=true"}},
    "fawa": {"net": "normed", "train": {**AT_EVERY_STEP, "averaging": "fawa:threshold=0,start=1"}},
    "awp": {"net": "dropping", "train": {**AT_EVERY_STEP, "awp": "awp:gamma=0.01"}},
    "stop_drop": {"net": "normed", "train": {**AT_EVERY_STEP, "stop_drop": 1.0}},
    "adam": {
        "data": {"augment": ["crop:padding=1", "flip"]},
        "train": {**AT_EVERY_STEP, "optimizer": "adam:lr=1e-2", "clip": 1.0, "smoothing": 0.1, "joint": True},
    },
    "train mode": {"net": "dropping", "method": {"name": "madry", "steps": 2, "mode": "train"}, "train": AT_EVERY_STEP},
    "wat": {"method": {"name": "wat", "steps": 2, "eta": 0.5}, "train": AT_EVERY_STEP},
    "csl": {"method": {"name": "csl", "steps": 2, "rate": 0.5}, "train": AT_EVERY_STEP},
    "cfa": {"method": {"name": "cfa", "steps": 2, "begin": 1}, "train": AT_EVERY_STEP},
    "dafa": {"method": {"name": "dafa", "steps": 2, "warmup": 1}, "train": AT_EVERY_STEP},
    "csr": {"net": "normed", "method": {"name": "csr", "steps": 2}, "train": AT_EVERY_STEP},
    "cfol": {"net": "normed", "method": {"name": "cfol", "steps": 2, "eta": 0.01}, "train": AT_EVERY_STEP},
    "cfa clean pass": {
        "net": "normed",
        "method": {"name": "cfa", "base": "fat", "start": "uniform", "steps": 2, "begin": 1, "clean_pass": True},
        "train": AT_EVERY_STEP,
    },
    "fair_tat": {"net": "normed", "method": {"name": "fair_tat", "steps": 2, "passes": 3}, "train": AT_EVERY_STEP},
    "trix": {"net": "normed", "method": {"name": "trix", "steps": 2, "warmup": 1}, "train": AT_EVERY_STEP},
    "ham": {"net": "normed", "method": {"name": "ham", "steps": 2, "check": 1, "begin": 1}, "train": AT_EVERY_STEP},
    "bat": {"net": "normed", "method": {"name": "bat", "steps": 2}, "train": AT_EVERY_STEP},
    "fat_var": {"net": "normed", "method": {"name": "fat_var", "steps": 2}, "train": AT_EVERY_STEP},
    "codat": {"net": "normed", "method": {"name": "codat", "steps": 2}, "train": AT_EVERY_STEP},
    "sy_far": {"net": "normed", "method": {"name": "sy_far", "steps": 2}, "train": AT_EVERY_STEP},
    "rst": {"method": {"name": "rst", "steps": 2}, "data": {"epoch_size": 50}, "train": AT_EVERY_STEP},
    "frl_rwrm": {"method": {"name": "frl_rwrm", "steps": 2}, "train": AT_EVERY_STEP},
    "ard": {"net": "dropping", "method": {"name": "ard", "steps": 2, "alpha": 0.9}, "train": AT_EVERY_STEP},
    "iad": {"net": "normed", "method": {"name": "iad", "steps": 2, "begin": 1}, "train": AT_EVERY_STEP},
    "rslad": {"net": "normed", "method": {"name": "rslad", "steps": 2}, "train": AT_EVERY_STEP},
    "mtard": {"net": "normed", "method": {"name": "mtard", "steps": 2, "rate": 0.3}, "train": AT_EVERY_STEP},
    "absld": {"net": "normed", "method": {"name": "absld", "steps": 2}, "train": AT_EVERY_STEP},
    **{
        f"fair_ard {base}": {
            "net": "normed",
            "method": {"name": "fair_ard", "base": base, "steps": 2, "begin": 1},
            "train": AT_EVERY_STEP,
        }
        for base in ("ard", "rslad", "iad", "mtard")
    },
}


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of RECIPE that nobody disturbed, and in its folder's folder what others begin from."""
    folder = tmp_path_factory.mktemp("once")
    run(small(folder), folder / "run")
    for teacher, epoch in (("teacher", "last.pt"), ("teacher_clean", "previous.pt")):
        shutil.copy(folder / "run" / epoch, folder / f"{teacher}.pt")
    return folder / "run"


def made(kind: str, folder: Path, once: Path) -> dict[str, Any]:
    tree = small(folder, **RUNS[kind])
    if kind == "frl_rwrm":
        tree["model"]["weights"] = str(once / "best.pt")
    for teacher in recipe.load(tree).method.needs_teacher():
        tree[teacher] = {"spec": f"{net_file(folder)}:plain", "weights": str(once.parent / f"{teacher}.pt")}
    if kind == "rst":
        images = load_data("digits", split="test").subset(limit=30)
        pseudo.write_pseudo(folder / "extra.npz", images, images.labels - (images.labels == 3) * 4, np.ones(30))
        tree["data"]["extra"] = str(folder / "extra.npz")
    return tree


@pytest.mark.filterwarnings("ignore:data.augment flips images of digits")
@pytest.mark.parametrize("kind", RUNS)
def test_killed_twice_it_ends_the_same_bit_by_bit(kind: str, tmp_path: Path, once: Path) -> None:
    tree = made(kind, tmp_path, once)
    run(tree, tmp_path / "whole")
    # With a checkpoint at each step the first death costs one step of three, and the second comes in the other epoch.
    for steps in (2, 4):
        with dying_after(steps):
            run(tree, tmp_path / "killed")
    run(tree, tmp_path / "killed")
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


def test_training_leaves_the_global_generators_alone(tmp_path: Path) -> None:
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    run(small(tmp_path, "dropping", train={"epochs": 1}), tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002


def test_it_resumes_whichever_renaming_was_the_last(
    tmp_path: Path, once: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, rename = small(once.parent), Path.replace
    renamed = 0
    for last in range(1, 100):
        left = [last]

        def mortal(self: Path, target: Path, left: list[int] = left) -> Path:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return rename(self, target)

        out = tmp_path / f"run{last}"
        monkeypatch.setattr(Path, "replace", mortal)
        try:
            run(tree, out)
            break
        except Killed:
            renamed = last
        finally:
            monkeypatch.setattr(Path, "replace", rename)
        run(tree, out)
        assert_same_run(out, once)
    assert renamed >= 9  # the settings; best.pt and last.pt, to its place, and history of each epoch; previous.pt


def test_a_finished_run_is_left_as_it_is(once: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in once.glob("*.pt")}
    run(small(once.parent), once)
    assert {path.name: path.stat().st_mtime_ns for path in once.glob("*.pt")} == before


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def test_a_truncated_last_checkpoint_falls_back_to_the_one_before(tmp_path: Path, once: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(once, out)
    cut(out / "last.pt")
    with pytest.warns(UserWarning, match=r"last\.pt cannot be read \(.*resuming from the checkpoint before it"):
        run(small(once.parent), out)
    assert_same_run(out, once)


def test_a_whole_checkpoint_that_had_no_time_to_be_renamed_is_found(tmp_path: Path, once: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(once, out)
    (out / "last.pt").replace(out / "next.pt")
    cut(out / "previous.pt")
    run(small(once.parent), out)
    assert history(out).equals(history(once))


def test_two_damaged_checkpoints_are_an_error_and_nothing_is_overwritten(tmp_path: Path, once: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(once, out)
    cut(out / "last.pt")
    cut(out / "previous.pt")
    with (
        pytest.warns(UserWarning, match=r"last\.pt cannot be read"),
        pytest.raises(UserError, match=r"no checkpoint in .* can be read \(last\.pt, previous\.pt\).*--overwrite"),
    ):
        run(small(once.parent), out)
    run(small(once.parent), out, overwrite=True)
    assert_same_run(out, once)


def test_a_full_disk_is_an_error_and_the_checkpoint_before_is_whole(
    tmp_path: Path, once: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, sync, left = tmp_path / "run", os.fsync, [5]

    def full(handle: int) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*run/\w+\.\w+: No space left on device\..*[Mm]ake room"):
        run(small(once.parent), out)
    assert not list(out.glob("*.partial"))
    assert content(out)["epoch"] >= 1
    monkeypatch.setattr(os, "fsync", sync)
    run(small(once.parent), out)
    assert_same_run(out, once)


def test_a_write_cut_short_is_the_same_error(tmp_path: Path) -> None:
    """torch answers a write that fails half-way with an error of its own, in which the disk's is hidden."""
    checkpoints = Checkpoints(
        folder=TrainingFolder(tmp_path), spec="resnet-18", num_classes=2, in_channels=1, method={}
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        with pytest.raises(UserError, match=r"cannot write .*best\.pt: File too large\. The checkpoint before it is"):
            checkpoints.save(checkpoints.folder.best, nn.Linear(1000, 100), TrainingState(method_state={}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_another_model_than_the_checkpoint_s_is_refused(tmp_path: Path) -> None:
    tree = small(tmp_path, train={"epochs": 1})
    first, other = (nn.Sequential(nn.Flatten(), nn.Linear(64, n), nn.Linear(n, 10)) for n in (5, 6))
    run(tree, tmp_path / "run", model=first)
    with pytest.raises(UserError, match=r"the checkpoint to resume from is of another model.*--overwrite"):
        run(tree, tmp_path / "run", model=other)


def test_one_s_own_model_resumes_whatever_weights_it_begins_with(tmp_path: Path) -> None:
    tree = small(tmp_path, train=AT_EVERY_STEP)

    def net(seed: int) -> nn.Module:
        made = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)))
        return made

    run(tree, tmp_path / "whole", model=net(1))
    with dying_after(4):
        run(tree, tmp_path / "killed", model=net(1))
    run(tree, tmp_path / "killed", model=net(2))
    assert_same_run(tmp_path / "killed", tmp_path / "whole")
