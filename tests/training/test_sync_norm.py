"""Batch-norm over several processes computes what one process does with the whole batch."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import on_ranks
from torch import Tensor, nn

from classwise.training.norms import follows_batch, own_statistics, synced
from classwise.training.processes import process_group

pytestmark = pytest.mark.slow

SHARES = (slice(0, 5), slice(5, 7))  # of different sizes


def networks() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 4))
    return {
        "of convolutions": body,
        "of vectors": nn.Sequential(nn.Flatten(), nn.Linear(72, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4)),
        "without weights": nn.Sequential(nn.BatchNorm2d(2, affine=False), nn.Flatten(), nn.Linear(72, 4)),
        "plain means": nn.Sequential(nn.BatchNorm2d(2, momentum=None), nn.Flatten(), nn.Linear(72, 4)),
        "no statistics": nn.Sequential(nn.BatchNorm2d(2, track_running_stats=False), nn.Flatten(), nn.Linear(72, 4)),
        "of torch, synced": nn.Sequential(nn.SyncBatchNorm(2), nn.Flatten(), nn.Linear(72, 4)),
    }  # fmt: skip


def batch(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    scale = torch.linspace(0.5, 3, 7)[:, None, None, None]  # the shares have different means and variances
    x = (torch.randn(7, 2, 6, 6, generator=generator) * scale + scale).to(dtype)
    return x.contiguous(memory_format=torch.channels_last), torch.arange(7) % 4


def computed(net: nn.Module, share: slice) -> dict[str, Tensor]:
    """After two passes, the second of which is differentiated: outputs, gradients, running statistics."""
    x, y = (part[share] for part in batch())
    x = x.clone().requires_grad_()
    net(x)
    z = net(x)
    nn.functional.cross_entropy(z, y, reduction="sum").backward()
    assert x.grad is not None
    gradients = {f"d {name}": p.grad for name, p in net.named_parameters() if p.grad is not None}
    return {"z": z.detach(), "dx": x.grad, **gradients, **{f"b {name}": value for name, value in net.named_buffers()}}


def _together(rank: int, folder: Path) -> dict[str, dict[str, Tensor]]:
    with process_group(torch.device("cpu")) as processes:
        found = {}
        for name, net in networks().items():
            net.double().train()
            with synced(net, 2) as shared:
                found[name] = computed(net, SHARES[rank])
            assert float(shared.astray) == 0
            assert not any("forward" in vars(module) for module in net.modules())
            copy.deepcopy(net)  # nothing of it is left
            for key in [key for key in found[name] if key.startswith("d ")]:
                found[name][key] = processes.total(found[name][key])
        return found


def test_outputs_gradients_and_statistics_are_those_of_one_process(tmp_path: Path) -> None:
    one, two = on_ranks(_together, tmp_path)
    for name, net in networks().items():
        plain = nn.Sequential(nn.BatchNorm2d(2), *list(net)[1:]) if "synced" in name else net  # type: ignore[call-overload]
        expected = computed(plain.double().train(), slice(None))
        assert one[name].keys() == expected.keys()
        for key, value in expected.items():
            if key in ("z", "dx"):
                found = torch.cat([one[name][key], two[name][key]])
            else:
                found = one[name][key]
                assert torch.equal(found, two[name][key]), (name, key)
            torch.testing.assert_close(found, value, rtol=1e-10, atol=1e-10, msg=f"{name}: {key}")


def _astray(rank: int, folder: Path) -> float:
    norms = nn.ModuleList(nn.BatchNorm2d(2) for _ in range(2))
    with process_group(torch.device("cpu")), synced(norms, 2) as shared:
        norms[rank](batch(torch.float32)[0])
        return float(shared.astray)


def test_processes_in_different_norms_are_noticed(tmp_path: Path) -> None:
    assert on_ranks(_astray, tmp_path) == [1, 1]


class Own(nn.BatchNorm2d):
    """With a forward pass of its own, which nobody else knows."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_norms_with_a_forward_pass_of_their_own_are_left_alone() -> None:
    own: Any = Own(3)
    plain = nn.BatchNorm2d(3)
    assert [follows_batch(module) for module in (plain, own, nn.GroupNorm(1, 3))] == [True, False, False]
    both = nn.Sequential(plain, own)
    assert [id(value) for value in own_statistics(both, True)] == [id(own.running_mean), id(own.running_var)]
    assert len(own_statistics(both, False)) == 4
