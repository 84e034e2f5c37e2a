"""Attacks of torchattacks, Foolbox, ART, adv_lib and SecML-Torch on a network small enough to be sure of the answer."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import classwise as cw
from classwise.attacks import foreign
from classwise.attacks.attack import Attack, craft, initial_rows
from classwise.attacks.pgd import Pgd
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.threat import L2, LINF, Norm, Threat
from classwise.engine.attack_copy import accelerate

pytestmark = [pytest.mark.adapters, pytest.mark.slow]  # Foolbox starts git when it is imported

EPS: dict[Norm, float] = {"linf": 0.1, "l2": 0.5}
ATTACKS = [
    ("torchattacks:PGD,steps=20,alpha=0.02", "linf"),
    ("torchattacks:FGSM", "linf"),
    ("torchattacks:APGD,steps=10", "linf"),
    ("torchattacks:APGD,steps=10", "l2"),
    ("torchattacks:Square,n_queries=60", "linf"),
    ("torchattacks:PGDL2,eps_for_division=1e-8", "l2"),
    ("foolbox:LinfPGD,steps=20", "linf"),
    ("foolbox:L2PGD,steps=20", "l2"),
    ("foolbox:LinfDeepFoolAttack", "linf"),
    ("foolbox:L2CarliniWagnerAttack,steps=30,binary_search_steps=3,stepsize=0.1,initial_const=1", "l2"),
    ("art:ProjectedGradientDescent,max_iter=10", "linf"),
    ("art:ProjectedGradientDescent,max_iter=10", "l2"),
    ("art:SquareAttack,max_iter=60", "linf"),
    ("adv_lib:pgd_linf,steps=20", "linf"),
    ("adv_lib:apgd,n_iter=20", "linf"),
    ("adv_lib:apgd,n_iter=20", "l2"),
    ("adv_lib:fmn,steps=100", "linf"),
    ("adv_lib:ddn,steps=50,levels=none", "l2"),
    ("adv_lib:fab,n_iter=20,restarts=1", "l2"),
    ("secmlt:PGD,num_steps=20", "linf"),
    ("secmlt:PGD,num_steps=20", "l2"),
    ("secmlt:FGSM", "linf"),
    ("secmlt:DDN,num_steps=50,eps_init=0.5", "l2"),
    ("secmlt:FMN,num_steps=100,step_size=1.0", "l2"),
]


class Net(nn.Module):
    """Conv, batch-norm, ReLU, with a branch, so that folding has to trace it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 36, 5)
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3, generator=generator)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.conv(x))
        logits: Tensor = self.head((h + torch.relu(h)).flatten(1))
        return logits


def images(net: nn.Module, count: int = 24) -> tuple[Tensor, Tensor]:
    x = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return x, net(x).argmax(1)


def load(spec: str) -> Attack:
    name = spec.partition(":")[0]
    pytest.importorskip(name)
    return foreign.load(spec)


@pytest.mark.parametrize(("spec", "norm"), ATTACKS)
def test_an_audit_with_it_breaks_images_inside_the_ball(spec: str, norm: Norm) -> None:
    """On the folded model, channels-last, in batches of eight and by two workers."""
    attack, net = load(spec), Net()
    x, y = images(net)

    def frame() -> list[int]:
        audit = cw.audit(
            net, (x, y), attack, EPS[norm], norm=norm, num_classes=5, batch_size=8, workers=2, progress=False
        )
        (stats,) = (stats for name, stats in audit.records.meta.stats.items() if name != "clean")
        assert stats["attacked"] == 24
        assert stats["outside"] == 0
        assert audit.timing["folded_batch_norms"] == 1
        return [int(p) for p in audit.records.frame.query("attack != 'clean'")["prediction"]]

    first = frame()
    before = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert np.mean(np.array(first) != y.numpy()) > 0.2
    assert frame() == first
    after = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert all(parameter.grad is None and parameter.requires_grad for parameter in net.parameters())


@pytest.mark.parametrize(
    "spec",
    [
        "torchattacks:PGD,steps=10,alpha=0.02,random_start=false",
        "foolbox:LinfPGD,steps=10,abs_stepsize=0.02,random_start=false",
        "art:ProjectedGradientDescent,max_iter=10,eps_step=0.02,num_random_init=0",
        "secmlt:PGD,num_steps=10,step_size=0.02,backend=foolbox",
    ],
)
@pytest.mark.parametrize("folded", [False, True])
def test_pgd_is_pgd_in_every_library(spec: str, folded: bool) -> None:
    attack, net = load(spec), Net()
    x, y = images(net)
    model = accelerate(net, x) if folded else net
    rows = initial_rows(x, y, 0.1, rng.keys(0, torch.arange(len(x))))
    theirs = attack.begin(model, rows, LINF)["x_adv"]
    ours = craft(Pgd(steps=10, step=0.02, start="none"), net, x, y, Threat("linf", 0.1))
    assert (theirs - ours).abs().amax() < 1e-5
    assert LINF.norm(theirs - x).max() <= 0.1 + 1e-6


@pytest.mark.parametrize(
    "spec", ["torchattacks:FGSM", "foolbox:LinfPGD,steps=2", "art:FastGradientMethod", "secmlt:FGSM"]
)
def test_every_example_gets_its_own_radius(spec: str) -> None:
    attack, net = load(spec), Net()
    x, y = images(net, 6)
    eps = torch.tensor([0.0, 0.05, 0.1, 0.05, 0.1, 0.0])
    found = attack.begin(net, initial_rows(x, y, eps, torch.arange(6)), LINF)["x_adv"]
    assert torch.allclose(LINF.norm(found - x), eps, atol=1e-6)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("torchattacks:PGD,stepz=1", "unknown setting of torchattacks:PGD 'stepz'; did you mean 'steps'"),
        ("foolbox:LinfPGD,alpha=1", r"unknown setting of foolbox:LinfPGD 'alpha'.* Known: abs_stepsize"),
        ("art:ProjectedGradientDescent,steps=1", r"unknown setting .*'steps'.* Known: .*max_iter"),
        ("torchattacks:PGDX", r"unknown attack of torchattacks 'PGDX'.* PGDL2"),
        ("foolbox:Attack", "unknown attack of foolbox 'Attack'"),
        ("adv_lib:fmn,step=1", "unknown setting of adv_lib:fmn 'step'; did you mean 'steps'"),
        ("adv_lib:pgd", r"unknown attack of adv_lib 'pgd'.* pgd_linf"),
        ("secmlt:PGD,steps=1", r"unknown setting of secmlt:PGD 'steps'.* Known: .*num_steps"),
        ("secmlt:PGDNative", r"unknown attack of secmlt 'PGDNative'.* HopSkipJump"),
    ],
)
def test_names_and_settings_are_checked_when_read(spec: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(spec)


@pytest.mark.parametrize("spec", ["adv_lib:ddn,levels=none", "secmlt:DDN,num_steps=300,eps_init=1"])
def test_the_nearest_example_counts_only_inside_the_ball(spec: str) -> None:
    """What lies further away comes back projected: inside, and no longer misclassified."""
    attack, net = load(spec), Net()
    x, y = images(net, 12)
    near, far = 0.02, 2.0
    found = {eps: attack.begin(net, initial_rows(x, y, eps, torch.arange(12)), L2)["x_adv"] for eps in (near, far)}
    with torch.no_grad():
        broken = {eps: net(points).argmax(1) != y for eps, points in found.items()}
    assert L2.norm(found[near] - x).max() <= near + 1e-6
    assert broken[far].all()
    assert not broken[near].all()


@pytest.mark.parametrize(
    ("spec", "needed"), [("adv_lib:fmn", True), ("secmlt:PGD,num_steps=3", True), ("secmlt:HopSkipJump", False)]
)
def test_whether_an_attack_needs_a_gradient_is_known(spec: str, needed: bool) -> None:
    assert load(spec).needs_gradient is needed


def test_what_a_library_refuses_is_said_in_a_sentence() -> None:
    attack, net = load("art:ProjectedGradientDescent,max_iter=-1"), Net()
    x, y = images(net, 2)
    with pytest.raises(UserError, match="art:ProjectedGradientDescent failed: ValueError"):
        attack.begin(net, initial_rows(x, y, 0.1, torch.arange(2)), LINF)
