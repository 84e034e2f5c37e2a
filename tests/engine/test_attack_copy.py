"""Acceleration: the same function and the same gradient, with the batch-norms folded wherever that is allowed."""

from __future__ import annotations

import copy
import itertools
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import classwise as cw
from classwise.attacks.attack import Model, value_and_gradient
from classwise.engine.attack_copy import AttackCopy, accelerate, halved, replica, trains_channels_last, unsettled
from classwise.engine.batch_size import choose_batch
from classwise.models import load_model, names


def images(channels: int = 3, size: int = 8, count: int = 4) -> Tensor:
    return torch.rand(count, channels, size, size, generator=torch.Generator().manual_seed(0))


def worn(model: nn.Module, x: Tensor | None = None) -> nn.Module:
    """The model in eval mode with batch-norms as after training: fitted to `x`, with weights and biases."""
    generator = torch.Generator().manual_seed(1)
    norms = [module for module in model.eval().modules() if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d))]
    for norm in norms:
        norm.weight.data.copy_(0.5 + torch.rand(norm.weight.shape, generator=generator))
        norm.bias.data.copy_(torch.rand(norm.bias.shape, generator=generator) - 0.5)
        norm.reset_running_stats()
        norm.momentum, norm.training = 1.0, True
    with torch.no_grad():
        model(images() if x is None else x)
    return model.eval()


def logits_and_gradient(model: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    z = model(x)
    (gradient,) = torch.autograd.grad(F.cross_entropy(z, torch.arange(len(x)) % z.shape[1], reduction="sum"), x)
    return z.detach(), gradient


def assert_same(fast: Callable[[Tensor], Tensor], model: nn.Module, x: Tensor, precision: float = 1e-4) -> None:
    for found, wanted in zip(logits_and_gradient(fast, x), logits_and_gradient(model, x), strict=True):
        torch.testing.assert_close(found, wanted, atol=precision * float(wanted.abs().max()), rtol=precision)


class Plain(nn.Module):
    """conv → norm → relu → conv → norm, called by hand; `twice` lets a second reader see the first convolution."""

    def __init__(self, twice: bool = False) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.conv2, self.norm2 = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)
        self.twice = twice

    def forward(self, x: Tensor) -> Tensor:
        first = self.conv1(x)
        inner = F.relu(self.norm1(first))
        if self.twice:
            inner = inner + first
        return self.head(F.relu(self.norm2(self.conv2(inner))).mean((2, 3)))


class Shared(nn.Module):
    """One convolution and one norm at two places, and a norm of its own behind another convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem_norm(self.stem(x)))
        for _ in range(2):
            x = F.relu(self.norm(self.conv(x)))
        return self.head(x.mean((2, 3)))


class Branching(nn.Module):
    """Control flow that depends on the data cannot be traced; the convolutions sit in a `Sequential`."""

    def __init__(self, sequential: bool = True) -> None:
        super().__init__()
        conv, norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.body = nn.Sequential(conv, norm) if sequential else nn.ModuleList([conv, norm])
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        if x.mean() > 0.9:
            x = 1 - x
        for layer in self.body if isinstance(self.body, nn.ModuleList) else [self.body]:
            x = layer(x)
        return self.head(F.relu(x).mean((2, 3)))


class BranchingShared(Branching):
    """Besides, one pair of modules at two places."""

    def __init__(self) -> None:
        super().__init__()
        pair = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.first, self.second = nn.Sequential(*pair, nn.ReLU()), nn.Sequential(*pair)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.second(self.first(x)))


class Alternating(Plain):
    """Answers differently at every second call, whoever calls: a trace freezes whichever it saw."""

    calls = itertools.count()

    def __deepcopy__(self, memo: object) -> Alternating:
        twin = Alternating()
        twin.load_state_dict(self.state_dict())
        return twin

    def forward(self, x: Tensor) -> Tensor:
        z = super().forward(x)
        return z if next(self.calls) % 2 else -z


def test_conv_and_norm_of_a_plain_module() -> None:
    model, x = worn(Plain()), images()
    fast = accelerate(model, x)
    assert (fast.folded, fast.notes) == (2, ())
    assert not any(isinstance(module, nn.BatchNorm2d) for module in fast.model.modules())
    assert_same(fast, model, x)


def test_a_convolution_read_twice_is_not_folded() -> None:
    model, x = worn(Plain(twice=True)), images()
    fast = accelerate(model, x)
    assert fast.folded == 1  # the second pair only
    assert_same(fast, model, x)


def test_shared_modules_are_not_folded() -> None:
    model, x = worn(Shared()), images()
    fast = accelerate(model, x)
    assert fast.folded == 1  # the stem only
    assert_same(fast, model, x)


def test_sequential_with_linear_and_batch_norm_1d() -> None:
    layers = OrderedDict[str, nn.Module](
        conv=nn.Conv2d(3, 4, 3),
        norm=nn.BatchNorm2d(4),
        relu=nn.ReLU(inplace=True),
        flat=nn.Flatten(),
        fc=nn.Linear(4 * 36, 6),
        norm1d=nn.BatchNorm1d(6),
        out=nn.Linear(6, 5),
    )
    model, x = worn(nn.Sequential(layers)), images()
    fast = accelerate(model, x)
    assert fast.folded == 2
    assert_same(fast, model, x)


def test_norms_that_follow_nothing_to_fold_into_stay() -> None:
    model = worn(nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten()))
    fast = accelerate(model, images())
    assert fast.folded == 0
    assert fast.notes[-1].startswith("batch-norm was not folded")
    assert_same(fast, model, images())


def test_a_norm_without_running_statistics_is_left_alone() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False), nn.Flatten()).eval()
    fast = accelerate(model, images())
    assert fast.folded == 0
    assert_same(fast, model, images())


# Each family's norms, and how many of them directly follow a convolution that nothing else reads.
NETWORKS = {
    "densenet:growth=4,blocks=2-2": (10, 4),  # norm-first: only the one between a layer's two convolutions
    "googlenet": (64, 64),
    "inception_v3": (94, 94),
    "lenet": (0, 0),
    "preact_resnet:width=4,blocks=1-1": (5, 2),  # norm-first: only the one between a block's two convolutions
    "resnet:width=4,blocks=1-1-1": (9, 9),
    "resnet:width=2,blocks=1-1,block=bottleneck": (9, 9),
    "smallcnn:in_channels=3": (0, 0),
    "vgg-16:width=4": (13, 13),
    "wideresnet-10-1": (7, 3),
}


def test_every_network_is_covered() -> None:
    assert {spec.partition(":")[0].partition("-")[0] for spec in NETWORKS} == set(names())


def network(spec: str, x: Tensor) -> nn.Module:
    """A built-in network in float64 with quickly drawn weights: the rounding of float32 grows through a hundred layers,
    the algebra's errors do not, and proper initial weights of Inception take longer to draw than to use."""
    with torch.device("meta"):
        model = load_model(spec, num_classes=7)
    model = model.to_empty(device="cpu").double()
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        fan_in = parameter[0].numel() if parameter.ndim > 1 else 1
        parameter.data.uniform_(-1, 1, generator=generator).mul_((6 / fan_in) ** 0.5)
    return worn(load_model(model, normalize="cifar10").double(), x)


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "norms", "folded"), [(spec, *counts) for spec, counts in NETWORKS.items()])
def test_built_in_networks(spec: str, norms: int, folded: int) -> None:
    x = images(size=16, count=2).double()
    model = network(spec, x)
    fast = accelerate(model, x)
    assert sum(isinstance(module, nn.BatchNorm2d) for module in model.modules()) == norms
    assert (fast.folded, fast.notes) == (folded, ())
    assert_same(fast, model, x, 1e-8)


class Counting(nn.Module):
    """Each pixel's double, and a note, shared with its copies, of how many images were looked at in each pass."""

    sizes: ClassVar[list[int]]

    def __init__(self) -> None:
        super().__init__()
        Counting.sizes = []

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        return x.flatten(1) * 2


class TestFilling:
    """On a CPU kernels are compiled for each batch size."""

    def test_batches_are_filled_until_their_size_has_settled(self) -> None:
        model, x = Counting(), images(count=13)
        fast = AttackCopy(model=model, multiple=8)
        for _ in range(20):
            assert torch.equal(fast(x), x.flatten(1) * 2)
        assert model.sizes == [16] * 16 + [13] * 4
        fast(x[:5])
        fast(x)
        assert model.sizes[-2:] == [8, 16]  # another size begins anew

    def test_a_part_begins_with_no_memory_of_the_last(self) -> None:
        model, x = Counting(), images(count=3)
        fast = AttackCopy(model=model, multiple=8)
        for _ in range(17):
            fast(x)
        for anew in (unsettled(fast), replica(fast)):
            anew(x)
        assert model.sizes[-3:] == [3, 8, 8]
        assert unsettled(model) is model


class TestPieces:
    """An attack may ask about more images at once than are quickly looked at, or than fit."""

    def test_many_images_are_looked_at_in_equal_pieces(self) -> None:
        model, x = Counting(), images(count=300)
        assert torch.equal(AttackCopy(model=model, most=128)(x), x.flatten(1) * 2)
        assert model.sizes == [100, 100, 100]
        AttackCopy(model=model, most=300)(x)
        assert model.sizes[3:] == [300]

    def test_half_as_many_at_once_until_one_by_one(self) -> None:
        model, x = Counting(), images(count=4)
        fast: Model = AttackCopy(model=model, most=4)
        for _ in range(4):
            fast(x)
            fast = halved(fast)
        assert model.sizes == [4, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]
        assert halved(fast) == fast
        anything = AttackCopy(model=model)
        assert [halved(one) for one in (anything, model)] == [anything, model]  # no bound to halve

    def test_a_gradient_comes_of_one_pass(self) -> None:
        model = Counting()
        value_and_gradient(AttackCopy(model=model, most=8), images(count=20), torch.Tensor.sum)
        assert model.sizes == [20]

    def test_an_audit_bounds_what_is_asked_at_once(self) -> None:
        model, x, y = Counting(), images(size=1, count=5) / 2, torch.zeros(5, dtype=torch.long)
        x[:, 0] = 0.9  # the first class
        cw.audit(model, (x, y), "nattack:rounds=2,population=100", eps=0.01, batch_size=16)
        assert model.sizes.count(16) == 2 * 32  # two rounds of 500 images


def test_reduced_precision_is_for_the_passes_alone() -> None:
    precisions: list[torch.dtype | None] = []

    def model(x: Tensor) -> Tensor:
        precisions.append(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None)
        return x.flatten(1).half()

    for amp in (None, "float16", "bfloat16"):
        found = AttackCopy(model=model, amp=amp)(images())
        assert found.dtype == (torch.float32 if amp else torch.float16)
    assert precisions == [None, torch.float16, torch.bfloat16]
    assert not torch.is_autocast_enabled("cpu")


class Residual(nn.Module):
    """Sums and ReLUs of every kind: some may write over what they read, some must not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.pooled, self.norm = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.relu, self.linear = nn.ReLU(), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        h = torch.relu(h) + 0.5 * h  # h is read twice
        h = self.relu(self.norm(self.second(h)) + h)
        narrow = self.pooled(h.mean((2, 3), keepdim=True))
        h = self.relu(narrow + h)  # the sum is larger than what stands on its left
        return self.linear((h.sigmoid().relu() * h).mean((2, 3)).relu() + 1)


def test_sums_and_relus_write_only_over_what_nobody_else_reads() -> None:
    model = worn(Residual())
    fast = accelerate(model, images())
    assert fast.folded == 1
    code = fast.model.code  # type: ignore[union-attr]
    assert code.count("relu_(") == 2  # of the two sums; not of what is read twice, not of a sigmoid or a mean
    assert code.count("_add_into(") == 2
    assert_same(fast, model, images())
    x = images()
    before = x.clone()
    logits_and_gradient(fast, x)
    assert torch.equal(x, before)


def test_an_untraceable_model_folds_inside_its_sequentials() -> None:
    model, x = worn(Branching()), images()
    fast = accelerate(model, x)
    assert fast.folded == 1
    assert len(fast.notes) == 1
    assert fast.notes[0].startswith("fold_traced failed")
    assert_same(fast, model, x)
    assert_same(fast, model, x * 0 + 0.95)  # the other branch: the decision is still made anew


def test_an_untraceable_model_folds_no_shared_modules() -> None:
    model, x = worn(BranchingShared()), images()
    fast = accelerate(model, x)
    assert fast.folded == 1
    assert_same(fast, model, x)


def test_an_untraceable_model_without_sequentials_is_used_unfolded() -> None:
    model, x = worn(Branching(sequential=False)), images()
    fast = accelerate(model, x)
    assert fast.folded == 0
    assert any("fold_traced failed" in note for note in fast.notes)
    assert "batch-norm was not folded" in fast.notes[-1]
    assert_same(fast, model, x)


def test_a_trace_that_froze_a_decision_is_refused() -> None:
    Alternating.calls = itertools.count()
    fast = accelerate(worn(Alternating()), images())
    assert fast.folded == 0
    assert any("changed the model's answer" in note for note in fast.notes)


def test_weights_read_past_their_module_are_noticed() -> None:
    class Reader(Plain):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + self.conv1.weight.sum()

    model, x = worn(Reader()), images()
    fast = accelerate(model, x)
    assert_same(fast, model, x)
    assert any("changed the model's answer" in note for note in fast.notes)


@pytest.mark.parametrize("training", [True, False])
def test_the_original_is_untouched(training: bool) -> None:
    model = worn(Plain()).train(training)
    model.conv2.weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    model.eval()
    fast = accelerate(model, images())
    model.train(training)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert [p.requires_grad for p in model.conv2.parameters()] == [False, True]
    assert model.conv1.weight.requires_grad
    assert model.norm1.training is training
    assert model.conv1.weight.is_contiguous()
    assert not any(parameter.requires_grad for parameter in fast.model.parameters())
    assert fast.model.conv1.weight.is_contiguous(memory_format=torch.channels_last)  # type: ignore[union-attr]


def test_a_model_that_cannot_be_copied_is_used_as_it_is() -> None:
    class Single(Plain):
        def __deepcopy__(self, memo: object) -> Single:
            raise RuntimeError("there can be only one")

    model = worn(Single())
    fast = accelerate(model, images())
    assert fast.model is model
    assert "cannot be copied (there can be only one)" in fast.notes[0]


@pytest.mark.parametrize("program", [torch.jit.script, lambda model: torch.jit.trace(model, images())])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_accelerated_as_far_as_it_goes(program: Callable[[nn.Module], nn.Module]) -> None:
    model, x = program(worn(Plain())), images()
    fast = accelerate(model, x)
    assert_same(fast, model, x)
    assert not any(parameter.requires_grad for parameter in fast.model.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert choose_batch(model, x) == 1024


class Keeper(Plain):
    """Leaves activations on itself, as research code does; they belong to a graph and refuse to be copied."""

    def forward(self, x: Tensor) -> Tensor:
        self.kept = {"inner": [self.conv1(x)]}
        self.kept["self"] = self.kept  # type: ignore[assignment]
        return self.head(F.relu(self.norm1(self.kept["inner"][0])).mean((2, 3)))


class TestCopies:
    def test_what_a_pass_left_behind_is_in_nobodys_way(self) -> None:
        model, x = worn(Keeper()), images()
        model(x.requires_grad_())
        assert not model.kept["inner"][0].is_leaf
        fast = accelerate(model, x.detach())
        assert fast.model is not model
        assert_same(fast, model, x.detach())
        assert replica(model) is not model

    def test_a_replica_has_modules_of_its_own_around_the_same_weights(self) -> None:
        model, x = worn(Keeper()), images()
        twin = replica(model)
        assert isinstance(twin, Keeper)
        tensors = (*model.parameters(), *model.buffers())
        assert [id(tensor) for tensor in tensors] == [id(t) for t in (*twin.parameters(), *twin.buffers())]
        assert all(one is not other for one, other in zip(model.modules(), twin.modules(), strict=True))
        model(x)
        twin(x[:1])
        assert len(model.kept["inner"][0]) == 4  # not the twin's
        assert_same(twin, model, x)

    def test_a_replica_of_what_is_fast_stays_so(self) -> None:
        fast = accelerate(worn(Plain()), images())
        twin = replica(fast)
        assert (twin.folded, twin.notes) == (fast.folded, fast.notes)  # type: ignore[attr-defined]
        torch.testing.assert_close(twin(images()), fast(images()))

    def test_a_function_is_its_own_replica(self) -> None:
        assert replica(torch.flatten) is torch.flatten


@pytest.mark.parametrize(("width", "safe"), [(4, False), (7, False), (8, True), (16, True)])
def test_networks_with_narrow_strided_shortcuts_do_not_train_channels_last_on_a_cpu(width: int, safe: bool) -> None:
    model = load_model(f"resnet:width={width},blocks=1-1", num_classes=3)
    assert trains_channels_last(model, torch.device("cpu")) is safe


@pytest.mark.slow
def test_a_narrow_network_survives_its_training(tmp_path: Path) -> None:
    """In a process of its own, because what is avoided here would end it."""
    changes = ["train.epochs=1", "data.per_class=20", "data.validation=2", "method.steps=1", "validate.attack=pgd-1"]
    settings = [part for change in (*changes, "model.spec=resnet:width=4,blocks=1-1") for part in ("--set", change)]
    train = [sys.executable, "-m", "classwise", "train", "desk/digits/madry", "--out", str(tmp_path / "run")]
    subprocess.run([*train, *settings], check=True, capture_output=True, timeout=300)
    assert (tmp_path / "run" / "best.pt").is_file()
