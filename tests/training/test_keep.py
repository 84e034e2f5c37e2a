"""Checkpoints of single epochs, kept on request."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli_w
import torch
from small_runs import assert_same, content, dying_after, run, small

from classwise.core.errors import UserError
from classwise.core.run_folder import RunFolder
from classwise.training.checkpoint import Checkpoints
from classwise.training.train import Trained

pytestmark = pytest.mark.slow


def names(out: Path) -> list[str]:
    return sorted(path.name for path in out.glob("epochs/*"))


@pytest.mark.parametrize(
    ("keep", "expected"),
    [("best", []), ("all", ["0001.pt", "0002.pt", "0003.pt"]), (2, ["0002.pt", "0003.pt"]), (3, ["0003.pt"])],
)
def test_the_wanted_epochs_are_kept(keep: str | int, expected: list[str], tmp_path: Path) -> None:
    trained = run(small(tmp_path, train={"epochs": 3, "keep": keep}), tmp_path / "run")
    assert names(trained.folder) == expected
    assert trained.epochs == [int(name[:4]) for name in expected]


def test_each_is_the_model_as_it_was_after_that_epoch(tmp_path: Path) -> None:
    constant = {"schedule": "constant"}
    kept = run(small(tmp_path, "normed", train={**constant, "epochs": 3, "keep": "all"}), tmp_path / "run")
    for epochs in (1, 2):
        short = run(small(tmp_path, "normed", train={**constant, "epochs": epochs}), tmp_path / str(epochs))
        assert_same(content(kept.folder, f"epochs/000{epochs}.pt")["shown"], content(short.folder)["shown"])
        audit = kept.audit("pgd-2", epochs, per_class=4)
        assert audit.rows().correct.tolist() == short.audit("pgd-2", "last", per_class=4).rows().correct.tolist()
    assert torch.equal(next(kept.model(3).parameters()), next(kept.model("last").parameters()))
    with pytest.raises(UserError, match=r"does not keep epoch 4; it keeps 1, 2, 3\. Train with train\.keep = 4"):
        kept.model(4)


def test_the_average_is_kept_where_there_is_one(tmp_path: Path) -> None:
    train = {"epochs": 2, "keep": "all", "averaging": "ema:decay=0.5"}
    out = run(small(tmp_path, train=train), tmp_path / "run").folder
    assert_same(content(out, "epochs/0002.pt")["shown"], content(out)["shown"])


def test_a_killed_training_keeps_the_same_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = small(tmp_path, "dropping", train={"epochs": 3, "keep": "all", "save_minutes": 0})
    whole, out = run(tree, tmp_path / "whole").folder, tmp_path / "run"
    with dying_after(4):
        run(tree, out)
    assert names(out) == ["0001.pt"]

    class Dead(BaseException):
        pass

    def die(*_: object) -> None:
        raise Dead

    with monkeypatch.context() as patch:  # between the epoch's own checkpoint and last.pt
        patch.setattr(Checkpoints, "save_last", lambda self, model, state, more: state.step or die())
        with pytest.raises(Dead):
            run(tree, out)
    assert names(out) == ["0001.pt", "0002.pt"]
    run(tree, out)
    assert names(out) == names(whole) == ["0001.pt", "0002.pt", "0003.pt"]
    for name in names(whole):
        assert_same(content(out, f"epochs/{name}"), content(whole, f"epochs/{name}"))


def test_overwriting_deletes_them(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(small(tmp_path, train={"epochs": 3, "keep": "all"}), out)
    run(small(tmp_path, train={"epochs": 1}), out, overwrite=True)
    assert names(out) == []


def test_a_run_folder_of_a_version_without_the_setting_is_resumed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with dying_after(4):
        run(small(tmp_path), out)
    stored = RunFolder(out).config()
    del stored["train"]["keep"]
    (out / "config.toml").write_text(tomli_w.dumps(stored))
    assert len(run(small(tmp_path), out).history) == 2
    with pytest.raises(UserError, match=r'train\.keep: "best" there, "all" now'):
        run(small(tmp_path, train={"keep": "all"}), out)


@pytest.mark.parametrize("keep", ["some", 0, -1, 1.5])
def test_anything_else_is_refused(keep: str | float, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train\.keep"):
        run(small(tmp_path, train={"keep": keep}), tmp_path / "run")


def test_a_folder_that_keeps_none_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it keeps none"):
        Trained(tmp_path).checkpoint(2)
