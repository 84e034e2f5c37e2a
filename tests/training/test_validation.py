"""The validation of a training says what an audit of the same network on the same images says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import run, small
from torch import nn

import classwise as cw
from classwise import attacks
from classwise.core.meta import Protocol
from classwise.core.records import CLEAN, Records
from classwise.core.threat import Threat
from classwise.data import load as load_data
from classwise.data.images import Images
from classwise.engine.attack_copy import follow
from classwise.training.processes import Processes
from classwise.training.validation import Validation, _join

pytestmark = pytest.mark.slow

EPS = 0.1


@pytest.fixture(scope="module")
def images() -> Images:
    return load_data("digits", split="test").subset(per_class=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> nn.Module:
    folder = tmp_path_factory.mktemp("model")
    tree = small(folder, "normed", data={"per_class": 30}, train={"epochs": 4}, method={"name": "standard"})
    return run(tree, folder / "run").model("last")


def validation(images: Images, protocol: Protocol, processes: Processes, own: tuple[str, ...] = ()) -> Validation:
    extra = attacks.parse(list(own)) if own else {}
    return Validation(
        images=images,
        attacks=attacks.parse(["pgd-3"]),
        own=extra,
        protocol=protocol,
        threat=Threat("linf", EPS),
        seed=0,
        processes=processes,
    )


def records(made: Validation, model: nn.Module) -> Records:
    x = made.images.batch(np.arange(2))[0]
    return made(model, follow(model, x), lambda attack, finished: None)


@pytest.mark.parametrize("protocol", ["any", "final"])
def test_it_is_an_audit(protocol: Protocol, images: Images, model: nn.Module) -> None:
    found = records(validation(images, protocol, Processes()), model)
    audit = cw.audit(model, images, "pgd-3", EPS, protocol=protocol, progress=False)
    for attack in (CLEAN, "pgd-3"):
        assert (found.of(attack).index == audit.records.of(attack).index).all()
        assert (found.of(attack).prediction == audit.records.of(attack).prediction).all()
    assert 0 < found.of("pgd-3").correct.mean() < found.of(CLEAN).correct.mean()


def test_a_method_s_own_attack_is_judged_at_its_last_iterate(images: Images, model: nn.Module) -> None:
    found = records(validation(images, "any", Processes(), own=("kl_pgd-2",)), model)
    assert found.attacks == (CLEAN, "pgd-3", "kl_pgd-2")
    assert [found.meta.attacks[name].protocol for name in ("pgd-3", "kl_pgd-2")] == ["any", "final"]
    alone = records(validation(images, "final", Processes(), own=("kl_pgd-2",)), model)
    assert (found.of("kl_pgd-2").prediction == alone.of("kl_pgd-2").prediction).all()
    assert len(found.of(CLEAN)) == len(images)


def test_shared_out_it_is_the_same(images: Images, model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = records(validation(images, "final", Processes()), model)
    monkeypatch.setattr(Processes, "gather", lambda self, mine: [mine])
    parts = [records(validation(images, "final", Processes(rank, 3)), model) for rank in range(3)]
    assert sorted(len(part.of(CLEAN)) for part in parts) == [13, 13, 14]
    together = _join(parts)
    assert (together.frame["attack"] == alone.frame["attack"]).all()
    assert (together.index == alone.index).all()
    assert (together.prediction == alone.prediction).all()
    torch.testing.assert_close(torch.tensor(together.probs), torch.tensor(alone.probs), atol=1e-4, rtol=1e-4)


def test_the_history_is_of_the_images_held_out(tmp_path: Path) -> None:
    tree = small(tmp_path, "normed", data={"per_class": 20, "validation": 8}, validate={"protocol": "any"})
    done = run(tree, tmp_path / "run")
    last = done.history.iloc[-1]
    chosen = load_data("digits", split="train").subset(per_class=20)
    held = np.sort(np.concatenate([np.flatnonzero(chosen.labels == k)[-8:] for k in range(10)]))
    audit = cw.audit(done.model("last"), chosen.take(held), "pgd-2", EPS, progress=False)
    by_class = audit.by_class("pgd-2").set_index("class")["accuracy"]
    for digit in map(str, range(10)):
        assert last[f"robust:{digit}"] == pytest.approx(by_class[digit])
    assert last["worst"] == pytest.approx(by_class.min())
    assert last["clean"] == pytest.approx(audit.records.of(CLEAN).correct.mean())
