"""The loop: every method trains, the history says how, the best epoch is the one the rule says."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from small_runs import assert_same, content, run, small
from torch import Tensor, nn

import classwise as cw
from classwise import methods
from classwise.core.errors import UserError
from classwise.core.threat import Threat
from classwise.data import load as load_data
from classwise.data.images import Images
from classwise.engine.attack_copy import follow
from classwise.methods.method import Batch, Loss, State
from classwise.models import load_model
from classwise.results.audit_result import Audit
from classwise.training import history, loop, prepare, pseudo
from classwise.training.epoch_records import EpochRecords, meta_of, to_records
from classwise.training.processes import Processes

pytestmark = pytest.mark.slow

SHRUNK = [
    "data.per_class=9", "data.validation=3", "train.epochs=2", "train.batch=32", 'validate.attack=["pgd-2"]',
]  # fmt: skip

#: Methods that wait, in trainings of two epochs.
_EARLY = {
    "cfa": ["method.begin=1"], "dafa": ["method.warmup=1"], "ham": ["method.begin=1"], "iad": ["method.begin=1"],
    "trix": ["method.warmup=1"],
}  # fmt: skip


@pytest.fixture(scope="module")
def robust(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What fine-tuning begins from."""
    out = tmp_path_factory.mktemp("robust") / "run"
    return cw.train("desk/digits/trades", out=out, changes=[*SHRUNK, "method.steps=2"], progress=False).best


@pytest.fixture(scope="module")
def extra(tmp_path_factory: pytest.TempPathFactory, robust: Path) -> Path:
    """Digits that the robust model labelled."""
    path = tmp_path_factory.mktemp("extra") / "extra.npz"
    images = load_data("digits", split="test").subset(limit=40)
    pseudo.write_pseudo(path, images, *pseudo.label(load_model(robust), images, 0.12))
    return path


@pytest.mark.parametrize("name", methods.names())
def test_every_method_trains_on_the_digits(name: str, tmp_path: Path, robust: Path, extra: Path) -> None:
    changes = list(SHRUNK)
    method = methods.method_class(name)
    if "steps" in {field.name for field in dataclasses.fields(method)} and name != "fast":
        changes.append("method.steps=2")
    changes += _EARLY.get(name, [])  # of the two epochs there are
    if name.startswith("frl"):
        changes.append(f"model.weights={robust}")
    if name == "rst":
        changes.append(f"data.extra={extra}")
    changes += [f"{teacher}.weights={robust}" for teacher in method().needs_teacher()]
    done = cw.train(f"desk/digits/{name}", out=tmp_path / "run", changes=changes, progress=False)

    rows = done.history
    assert rows["epoch"].tolist() == [1, 2]
    assert np.isfinite(rows[["train_loss", "train_accuracy", "clean", "robust", "worst", "lr", "seconds"]]).all(
        axis=None
    )
    assert {"worst_class", "cv", "mcd"} <= {*rows}
    for what in ("clean", "robust", "weight", "margin", "temperature"):
        assert [f"{what}:{digit}" for digit in range(10)] == [c for c in rows if str(c).startswith(f"{what}:")]
    assert (rows["robust"] - rows[[f"robust:{digit}" for digit in range(10)]].mean(axis=1)).abs().max() < 1e-9

    for which in ("best", "last"):
        torch.load(tmp_path / "run" / f"{which}.pt", weights_only=True)
        with torch.no_grad():
            assert torch.isfinite(done.model(which)(torch.zeros(2, 1, 8, 8))).all()
    assert content(tmp_path / "run")["state"].keys() == method().init(list("0123456789")).keys()


def test_it_learns(tmp_path: Path) -> None:
    done = cw.train(
        "desk/digits/madry", out=tmp_path / "run", progress=False,
        changes=["data.per_class=50", "data.validation=10", "train.epochs=4", "method.steps=3", "threat.eps=0.05"],
    )  # fmt: skip
    assert done.history["robust"].iloc[-1] > 0.5
    audit = done.audit("pgd-5", per_class=10, progress=False)
    assert audit.records.of("pgd-5").correct.mean() > 0.5


# ---- which epoch is the best


class Foretold:
    """A validation whose records are known beforehand: so many of eight right, of each of two classes."""

    attacks = ("pgd-2",)

    def __init__(self, images: Images, right: Sequence[Sequence[int]], audit_of: Callable[..., Audit]) -> None:
        self.images = images
        self.records = [audit_of({"pgd-2": pair}, support=[8, 8]).records for pair in right]

    def __call__(self, *args: Any) -> Any:
        return self.records.pop(0)


RIGHT = [(6, 2), (4, 4), (5, 4), (8, 2), (0, 0)]


@pytest.mark.parametrize(("rule", "best"), [("worst", 3), ("average", 4), ("minimax", 2), ("last", 5)])
def test_the_best_epoch_is_the_rule_s(
    rule: str, best: int, tmp_path: Path, audit_of: Callable[..., Audit], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worst prefers the higher average of two worst classes alike; the others the earlier of two alike."""
    x, y = torch.rand(24, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 2
    monkeypatch.setattr(prepare, "_validation", lambda chosen, held_out, processes: Foretold(held_out, RIGHT, audit_of))
    tree = small(
        tmp_path, data={"per_class": None}, method={"name": "standard"}, train={"epochs": 5}, validate={"select": rule}
    )
    tree["data"].pop("per_class")
    done = run(tree, tmp_path / "run", data=(x, y))
    assert done.best_epoch == best
    assert done.history["worst"].tolist() == [2 / 8, 4 / 8, 4 / 8, 2 / 8, 0]
    weights = content(tmp_path / "run", "best.pt")["shown"]
    last = content(tmp_path / "run")["shown"]
    assert all(torch.equal(weights[key], last[key]) for key in last) == (best == 5)


def test_minimax_goes_by_the_method_s_own_losses_where_it_has_some(audit_of: Callable[..., Audit]) -> None:
    records = audit_of({"pgd-2": (4, 2)}, support=[8, 8]).records
    by_entropy = history.score("minimax", 1, records, ["pgd-2"], None)
    assert by_entropy == pytest.approx([-(2 * 0.7 + 6 * 1.4) / 8])
    assert history.score("minimax", 1, records, ["pgd-2"], torch.tensor([0.5, 3.0])) == [-3.0]


def test_several_attacks_count_together(audit_of: Callable[..., Audit]) -> None:
    records = audit_of({"pgd-2": (4, 6), "fgsm": (6, 2)}, support=[8, 8]).records
    assert history.score("worst", 1, records, ["pgd-2", "fgsm"], None) == [2 / 8, 6 / 16]
    assert history.score("average", 1, records, ["pgd-2"], None) == [10 / 16]


def test_validation_every_second_epoch_and_after_the_last(tmp_path: Path) -> None:
    done = run(small(tmp_path, train={"epochs": 5}, validate={"every": 2}), tmp_path / "run")
    assert done.history["robust"].notna().tolist() == [False, True, False, True, True]
    assert done.best_epoch in (2, 4, 5)


def test_nothing_held_out_keeps_the_last(tmp_path: Path) -> None:
    done = run(small(tmp_path, data={"validation": 0}, validate={"select": "last"}), tmp_path / "run")
    assert done.best_epoch == 2
    assert "robust" not in done.history


def test_the_average_is_what_is_validated_and_saved(tmp_path: Path) -> None:
    done = run(small(tmp_path, "normed", train={"averaging": "swa:start=1"}), tmp_path / "run")
    saved = content(tmp_path / "run")
    mean = {name: value for name, value in saved["average"].items() if not name.startswith(".")}
    assert_same(saved["shown"], mean)
    assert_same(dict(done.model("last").state_dict()), mean)
    assert not torch.equal(mean["0.weight"], saved["weights"]["0.weight"])


# ---- ends


def test_catastrophic_overfitting_goes_back_an_epoch_and_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack does nothing after the first epoch, and leaves of the images of the second only their negatives."""
    epochs = itertools.count()
    monkeypatch.setattr(loop, "craft", lambda attack, model, x, *rest, **more: x if next(epochs) == 0 else 1 - x)
    run(small(tmp_path, "normed", train={"epochs": 1, "schedule": "constant"}), tmp_path / "one")
    tree = small(
        tmp_path, "normed", train={"epochs": 6, "schedule": "constant", "stop_drop": 0.0}, validate={"every": 6}
    )
    done = run(tree, tmp_path / "stopped")
    assert len(done.history) == 2
    one, stopped, best = (content(tmp_path / place, name)["shown"] for place, name in (
        ("one", "last.pt"), ("stopped", "last.pt"), ("stopped", "best.pt")))  # fmt: skip
    assert all(torch.equal(stopped[key], one[key]) and torch.equal(best[key], one[key]) for key in one)
    assert "catastrophic overfitting: PGD-5 accuracy" in content(tmp_path / "stopped")["stopped"]
    run(tree, tmp_path / "stopped")  # and it stays stopped
    assert len(done.history) == 2


def test_a_loss_that_is_not_finite_stops_with_the_batch_saved(tmp_path: Path) -> None:
    tree = small(tmp_path, train={"optimizer": "sgd:lr=1e30"})
    with pytest.raises(UserError, match=r"of 20 examples is not finite after 0\.\d+ epochs.*not_finite_0\.pt.*Lower"):
        run(tree, tmp_path / "run")
    kept = torch.load(tmp_path / "run" / "not_finite_0.pt", weights_only=True)
    assert kept["x"].shape == kept["x_adv"].shape == (20, 1, 8, 8)
    assert not torch.isfinite(kept["loss"]).all()
    assert len(kept["index"]) == len(kept["y"]) == 20
    with pytest.raises(UserError, match=r"train\.optimizer: .*lr=1e30.* there"):
        run(small(tmp_path), tmp_path / "run")
    run(small(tmp_path), tmp_path / "run", overwrite=True)
    assert not (tmp_path / "run" / "not_finite_0.pt").exists()


def test_a_diverged_training_says_so_on_a_full_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("classwise.training.step.torch.save", full)
    with pytest.raises(UserError, match=r"diverged.*could not be written to .*No space left on device.*Lower"):
        run(small(tmp_path, train={"optimizer": "sgd:lr=1e30"}), tmp_path / "run")


# ---- the attack on the folded copy


def test_attacking_the_folded_copy_changes_nothing_but_rounding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trades, differences = methods.method_class("trades"), []
    attack = trades.attack

    def both(self: Any, model: nn.Module, batch: Batch, state: State) -> Tensor:
        """The attack as it is, beside one on the network itself: what either makes of the loss."""
        plain = copy.deepcopy(model).eval()
        points = attack(self, model, batch, state), attack(self, model, dataclasses.replace(batch, fast=plain), state)
        losses = [
            self.loss(copy.deepcopy(model), dataclasses.replace(batch, x_adv=x_adv), state).value.mean()
            for x_adv in points
        ]
        differences.append((losses[0] - losses[1]).abs().item())
        return points[0]

    monkeypatch.setattr(trades, "attack", both)
    run(small(tmp_path, "normed", train={"batch": 60, "epochs": 8, "fold": "yes"}), tmp_path / "run")
    assert len(differences) == 8
    assert np.median(differences) < 1e-5
    assert max(differences) < 1e-3  # rounding decides the sign of a gradient of almost 0, on each processor otherwise


def normed() -> nn.Sequential:
    net = nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 10))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return net


def test_the_attack_copy_follows_the_weights() -> None:
    net, x = normed().eval(), torch.rand(16, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    synced_copy = follow(net, x)
    assert synced_copy.attack_copy.folded == 1
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(3):
        net.train()
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        net.eval()
        with torch.no_grad():
            assert (synced_copy.attack_copy(x) - net(x)).abs().max() > 1e-3  # it is behind
            synced_copy.refresh()
            torch.testing.assert_close(synced_copy.attack_copy(x), net(x), atol=1e-5, rtol=1e-5)


def test_an_attack_in_eval_mode_leaves_neither_gradients_nor_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack, seen = methods.method_class("trades").attack, []

    def watched(self: Any, model: nn.Module, batch: Any, state: Any) -> Tensor:
        for parameter in model.parameters():
            parameter.grad = None
        before = [buffer.clone() for buffer in model.buffers()]
        x_adv = attack(self, model, batch, state)
        assert all(parameter.grad is None for parameter in model.parameters())
        assert all(torch.equal(a, b) for a, b in zip(before, model.buffers(), strict=True))
        assert model.training
        assert not x_adv.requires_grad
        assert float((x_adv - batch.x).abs().amax()) <= 0.1 + 1e-6
        seen.append(len(x_adv))
        return x_adv

    monkeypatch.setattr(methods.method_class("trades"), "attack", watched)
    run(small(tmp_path, "normed", train={"epochs": 1}), tmp_path / "run")
    assert seen == [20, 20, 20]


def test_the_rate_and_the_state_of_each_epoch_are_in_the_history(tmp_path: Path) -> None:
    done = run(small(tmp_path, method={"name": "wat", "steps": 2, "eta": 0.5}), tmp_path / "run")
    weights = done.history[[f"weight:{digit}" for digit in range(10)]].to_numpy()
    assert (weights[0] == 2).all()  # what the first epoch was trained with
    assert weights[1].std() > 0
    assert done.history["lr"].iloc[-1] == pytest.approx(0.1 * (1 + math.cos(math.pi * (5 / 3) / 2)) / 2)
    pd.testing.assert_series_equal(
        done.history["worst"], done.history.filter(regex="^robust:").min(axis=1), check_names=False
    )


def test_methods_that_read_probabilities_have_them_however_many_classes_there_are(tmp_path: Path) -> None:
    x, y = torch.rand(3 * 120, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(3 * 120) % 120
    tree = small(
        tmp_path, data={"validation": 1}, method={"name": "dafa", "steps": 1, "warmup": 1}, train={"epochs": 2}
    )
    done = run(tree, tmp_path / "run", data=(x, y))
    weights = content(tmp_path / "run")["state"]["weight"]
    assert len(done.history.filter(regex="^weight:").columns) == len(weights) == 120
    assert float(weights.sum()) == pytest.approx(120, rel=1e-4)
    assert float(weights.std()) > 0


def test_an_example_seen_twice_counts_as_last_seen_whichever_process_saw_it() -> None:
    def batch(*labels: int) -> tuple[Tensor, Loss]:
        y = torch.tensor(labels)
        return y, Loss(torch.zeros(len(y)), 5.0 * torch.nn.functional.one_hot(y, 3))

    first, second = EpochRecords(), EpochRecords()
    y, loss = batch(0, 1)
    first.add(0, torch.tensor([10, 11]), y, loss)
    second.add(0, torch.tensor([12]), *batch(2))
    first.add(1, torch.tensor([12]), torch.tensor([2]), batch(0)[1])  # the first process has the second sight of 12
    second.add(1, torch.tensor([13]), torch.tensor([-1]), batch(0)[1])  # has no label, so is not recorded
    parts = [seen.columns(Processes()) for seen in (first, second)]
    together = EpochRecords(parts).columns(Processes())
    records = to_records(together, meta_of(("a", "b", "c"), Threat("linf", 0.1), seed=0))
    assert records.index.tolist() == [10, 11, 12]
    assert records.prediction.tolist() == [0, 1, 0]
    assert records.attacks == ("train",)
