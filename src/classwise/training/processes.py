"""Several processes that train one model, started by torchrun; with a single process all of this does nothing.

Every process makes the same batches and takes its share of each; gradients are averaged by one all-reduce after the
backward pass. (Attacks take ten passes for every one that needs communication, so overlapping the two, as
DistributedDataParallel does, would gain little, and it does not allow several passes before a backward.)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

_CONNECT_TIMEOUT = timedelta(minutes=2)  # after which torchrun may try again
_WORK_TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True)
class Processes:
    """This process's number among `world`."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and shows progress."""
        return self.rank == 0

    def average(self, value: Tensor) -> Tensor:
        """The mean of a tensor over the processes."""
        return value if self.world == 1 else self.total(value) / self.world

    def total(self, value: Tensor) -> Tensor:
        """The sum of a tensor over the processes."""
        if self.world == 1:
            return value
        whole = value.detach().clone()
        dist.all_reduce(whole)
        return whole

    @torch.no_grad()
    def average_gradients(self, model: nn.Module) -> None:
        """Every gradient replaced by its mean over the processes."""
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        if self.world == 1 or not gradients:
            return
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        flat /= self.world
        for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    @torch.no_grad()
    def same_buffers(self, model: nn.Module) -> None:
        """The first process's buffers (batch-norm's running statistics) everywhere, which are what it saves."""
        if self.world > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, 0)

    def gather(self, mine: Any) -> list[Any]:
        """What each process has, in the order of the processes, everywhere."""
        if self.world == 1:
            return [mine]
        everyone: list[Any] = [None] * self.world
        dist.all_gather_object(everyone, mine)
        return everyone

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """Run the block in the first process before the others."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()

    def any(self, mine: bool, device: torch.device) -> bool:
        """Whether the value is true in at least one process."""
        return mine if self.world == 1 else bool(self.average(torch.tensor(float(mine), device=device)) > 0)

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.world > 1:
            dist.barrier()


@contextmanager
def process_group(device: torch.device) -> Iterator[Processes]:
    """The processes torchrun started, connected by nccl on GPUs and gloo elsewhere."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Processes()
        return
    store, rank, world = next(rendezvous("env://", timeout=_CONNECT_TIMEOUT))
    # torchrun keeps one store over its restarts. Under a name of its own no process finds the address of a dead one.
    own = dist.distributed_c10d.PrefixStore(f"restart-{_restarts()}", store)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=own, rank=rank, world_size=world, timeout=_CONNECT_TIMEOUT)
    dist.distributed_c10d._set_pg_timeout(_WORK_TIMEOUT)
    try:
        yield Processes(dist.get_rank(), world)
    finally:
        dist.destroy_process_group()


def restarted() -> bool:
    """Whether torchrun has started these processes again because one of the first had died."""
    return _restarts() > 0


def _restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def local_device(device: torch.device) -> torch.device:
    """Each process's own GPU."""
    if device.type != "cuda" or "LOCAL_RANK" not in os.environ:
        return device
    own = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(own)
    return own
