"""What can be known of a GPU without one: how often the host would wait for it, and that nothing needs its values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from waits import counted_waits, no_prompt_device

from classwise import attacks
from classwise.attacks import square
from classwise.attacks.attack import Attack, Rows, device_table, initial_rows
from classwise.core.meta import Meta, Norm
from classwise.core.records import Records
from classwise.core.threat import LINF, Threat, ball_of
from classwise.data.images import ArrayPixels, Images, IntArray
from classwise.engine import evaluation
from classwise.engine.active_set import ActiveSet
from classwise.engine.attack_copy import AttackCopy, in_few_sizes
from classwise.engine.attack_result import AttackResult
from classwise.engine.run import evaluate
from classwise.engine.verifier import Verifier, tf32

#: Shorter than usual; nattack draws its noise on the host, 300 images of it for each wait.
SPECS = {
    "fgsm": "fgsm", "noise": "noise-12", "pgd": "pgd-20", "margin_pgd": "margin_pgd-20",
    "temperature_pgd": "temperature_pgd:steps=20", "kl_pgd": "kl_pgd:steps=20", "likely": "pgd:steps=20,target=likely",
    "apgd_ce": "apgd_ce:iterations=40", "apgd_dlr": "apgd_dlr:iterations=40",
    "apgd_t": "apgd_t:iterations=20,targets=3", "fab": "fab:iterations=20", "fab_t": "fab_t:iterations=20,targets=3",
    "square": "square:queries=100", "cw": "cw:iterations=20,binary_steps=2",
}  # fmt: skip


def images(count: int = 48) -> Images:
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (count, 3, 8, 8), dtype=np.uint8)
    return Images(ArrayPixels(pixels), np.arange(count) % 5, tuple("abcde"))


class Net(nn.Module):
    """A network whose answers are the labels of `images`, with margins from very small to very large."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head = nn.Conv2d(3, 6, 3), nn.Linear(216, 5)

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.head(self.conv(x).tanh().flatten(1))
        return z


def labelled(net: nn.Module, found: Images) -> Images:
    with torch.no_grad():
        labels = net(found.batch(np.arange(len(found)))[0]).argmax(1).numpy()
    return Images(found.pixels, labels, found.class_names)


@dataclass
class Stepped:
    """An attack that counts its steps."""

    attack: Attack
    steps_made: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.attack, name)

    def advance(self, model: Any, rows: Rows, ball: Any) -> Rows:
        self.steps_made += 1
        return self.attack.advance(model, rows, ball)


def run(spec: str, eps: float, look: int, norm: Norm = "linf", probs: bool = True) -> tuple[AttackResult, int]:
    net = Net().eval().requires_grad_(False)
    part = labelled(net, images())
    (attack,) = attacks.parse(spec).values()
    stepped: Any = Stepped(attack.for_classes(5))
    outcome = AttackResult.empty(part, 5, keep_probs=probs)
    ActiveSet(
        attack=stepped,
        attack_copy=net,
        verifier=Verifier(net, ball_of(norm)),
        part=part,
        eps=np.full(len(part), eps),
        outcome=outcome,
        protocol="any",
        batch=16,
        seed=0,
        device=torch.device("cpu"),
        look=look,
    ).run(np.arange(len(part)))
    return outcome, stepped.steps_made


def waits(spec: str, eps: float, norm: Norm = "linf") -> tuple[Counter[str], int]:
    with no_prompt_device(), counted_waits() as found:
        _, steps = run(spec, eps, 4, norm)
    return found, steps


@pytest.mark.slow
@pytest.mark.parametrize("eps", [0.002, 0.03], ids=["robust", "weak"])
@pytest.mark.parametrize("name", SPECS)
def test_the_host_waits_at_most_once_in_four_steps(name: str, eps: float) -> None:
    found, steps = waits(SPECS[name], eps)
    assert found.total() > 0  # the counting works: what is left is read once
    (attack,) = attacks.parse(SPECS[name]).values()
    # One of a single step is looked at after it. The last examples of all are read when there is no step left.
    allowed = steps / min(4, attack.steps) + 2 * (1 + attack.restarts)
    assert found.total() <= allowed, f"{dict(found)} in {steps} steps"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["apgd_ce", "fab_t", "square", "pgd"])
def test_nor_in_l2(name: str) -> None:
    found, steps = waits(SPECS[name], 0.2, "l2")
    assert found.total() <= steps / 4 + 8, f"{dict(found)} in {steps} steps"


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_rows_are_the_same_however_seldom_one_looks(name: str) -> None:
    often, _ = run(SPECS[name], 0.02, 1)
    with no_prompt_device():
        seldom, _ = run(SPECS[name], 0.02, 4)
    for column, values in often.columns.items():
        np.testing.assert_allclose(seldom.columns[column], values, rtol=1e-3, atol=1e-5, err_msg=column)
    assert often.passes == seldom.passes
    assert often.rejected == seldom.rejected


def test_probabilities_that_are_not_kept_are_not_there() -> None:
    with_probs, _ = run("pgd-5", 0.02, 1)
    without, _ = run("pgd-5", 0.02, 1, probs=False)
    assert with_probs.probs is not None
    assert without.probs is None
    for column, values in with_probs.columns.items():
        np.testing.assert_array_equal(without.columns[column], values)


def test_the_verifier_computes_without_tf32_and_gradients_with_it() -> None:
    seen = []

    def model(x: Tensor) -> Tensor:
        seen.append((torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32))
        return x.flatten(1)[:, :2]

    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    x, y = torch.rand(2, 1, 2, 2), torch.zeros(2, dtype=torch.int64)
    with tf32(True):
        model(x)
        Verifier(model, LINF)(x, x, y, torch.full((2,), 0.1))
        model(x)
    assert seen == [(True, True), (False, False), (True, True)]
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32) == before


@contextmanager
def imagined(device: str) -> Iterator[None]:
    """A device whose tensors have shapes and no values: an attack that mixes devices, or asks for a value, fails.

    FakeTensorMode imagines a GPU. It needs a torch that was built for GPUs; the meta device needs nothing.
    """
    for cache in (device_table, square._table):
        cache.cache_clear()
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) if device == "cuda" else nullcontext():
            yield
    finally:
        for cache in (device_table, square._table):
            cache.cache_clear()


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("device", ["meta", *(["cuda"] if torch.backends.cuda.is_built() else [])])
def test_steps_need_no_values(name: str, device: str, norm: Norm) -> None:
    (attack,) = attacks.parse(SPECS[name]).values()
    attack = attack.for_classes(5)
    if norm not in attack.supports:
        pytest.skip(f"has no {norm} form")
    with imagined(device):
        with torch.device(device):
            net, key = Net(), torch.zeros(4, dtype=torch.int64)
            rows = initial_rows(torch.rand(4, 3, 8, 8), key, torch.full((4,), 0.1), key)
        rows = attack.begin(net, rows, ball_of(norm))
        for _ in range(2 if attack.steps else 0):
            rows = attack.advance(net, rows, ball_of(norm))
    assert {column.device.type for column in rows.values()} == {device}


def test_every_attack_that_takes_steps_is_counted() -> None:
    counted = {type(next(iter(attacks.parse(spec).values()))) for spec in SPECS.values()}
    missing = []
    for name in attacks.names():
        kinds = attacks.parse(name) if name not in ("transfer", "foreign") else {}
        missing += [short for short, one in kinds.items() if one.steps and type(one) not in counted]
    assert set(missing) <= {"nattack-500"}


@dataclass
class Files:
    """Images that are decoded whenever they are asked for, as those in files are; `read_rows` says how often."""

    array: np.ndarray[Any, Any]
    scale: float = 255.0
    read_rows: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.array)

    def read(self, rows: IntArray) -> Tensor:
        self.read_rows += rows.tolist()
        return torch.from_numpy(self.array[rows]).float() / self.scale


def evaluated(pixels: Any, net: nn.Module) -> Records:
    """Two parts under two attacks, one of which begins three times."""
    found = labelled(net, Images(pixels, np.arange(len(pixels)) % 5, tuple("abcde")))
    if isinstance(pixels, Files):
        pixels.read_rows.clear()
    named = attacks.parse(["apgd_t:iterations=4,targets=3", "pgd-3"])
    infos = evaluation.attack_infos(named, "any", "all")
    about = Meta(class_names=found.class_names, superclasses=None, norm="linf", eps=0.004, seed=0, attacks=infos)
    return evaluate(
        evaluation.Evaluation(
            model=net, attack_copy=AttackCopy(model=net), images=found, attacks=named, threat=Threat(eps=0.004),
            eps=np.full(len(found), 0.004), meta=about, plan=evaluation.BatchPlan(16, 40, 2, 2),
            device=torch.device("cpu"),
        )
    )  # fmt: skip


@pytest.mark.parametrize("scale", [255.0, 300.0], ids=["8 bits", "more than 8 bits"])
def test_an_image_of_a_part_is_decoded_once_whatever_attacks_it(scale: float) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (80, 3, 8, 8), dtype=np.uint8)
    net, files = Net().eval().requires_grad_(False), Files(pixels, scale)
    from_files = evaluated(files, net)
    assert Counter(files.read_rows) == Counter(range(80))
    in_memory = evaluated(ArrayPixels(torch.from_numpy(pixels).float() / scale), net)
    pd.testing.assert_frame_equal(from_files.frame, in_memory.frame)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pgd", "apgd_t", "square", "fab_t"])
def test_an_attack_meets_at_most_four_batch_shapes(name: str) -> None:
    sizes: list[int] = []
    net = Net().eval().requires_grad_(False)
    part = labelled(net, images(61))

    def noted(x: Tensor) -> Tensor:
        sizes.append(len(x))
        return net(x)

    outcomes = []
    for copy in (AttackCopy(model=noted), in_few_sizes(AttackCopy(model=noted), 16)):
        sizes.clear()
        (attack,) = attacks.parse(SPECS[name]).values()
        outcome = AttackResult.empty(part, 5)
        active = ActiveSet(
            attack=attack.for_classes(5), attack_copy=copy, verifier=Verifier(net, LINF), part=part,
            eps=np.full(len(part), 0.01), outcome=outcome, protocol="any", batch=16, seed=0,
            device=torch.device("cpu"), look=4,
        )  # fmt: skip
        active.run(np.arange(len(part)))
        outcomes.append(outcome)
    assert set(sizes) <= {2, 4, 8, 16}
    for column, values in outcomes[0].columns.items():
        np.testing.assert_allclose(outcomes[1].columns[column], values, rtol=1e-3, atol=1e-5, err_msg=column)
