"""Several processes that train one model, started by torchrun; with a single process all of this does nothing.

Every process makes the same batches and takes its share of each; one all-reduce after the backward pass averages the
gradients, and says whether any process has diverged or was asked to stop, so that all of them do so at the same step.
Weights, buffers and class-wise state are the first process's at the start and again after every epoch.

DistributedDataParallel is not used. A method's loss passes the network two or three times before one backward pass, and
its attacks and weight perturbation differentiate it by `torch.autograd.grad`: DDP's hooks expect one forward pass per
backward and see no gradient taken in another way. What DDP gains, communication during the backward pass, is one of
twelve or more passes of a step here.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from classwise.core.errors import UserError
from classwise.training.norms import own_statistics

T = TypeVar("T")

_CONNECT_TIMEOUT = timedelta(minutes=2)  # after which torchrun may try again
_WORK_TIMEOUT = timedelta(minutes=30)
_TRAININGS = itertools.count()  # of this process so far


@dataclass(frozen=True)
class Processes:
    """This process's number among `world`."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and shows progress."""
        return self.rank == 0

    @property
    def share(self) -> slice:
        """Which examples of a batch are this process's."""
        return slice(self.rank, None, self.world)

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
    def average_gradients(self, model: nn.Module, flags: Tensor) -> list[float]:
        """Every gradient replaced by its mean over the processes; returns the sums of the flags, by the same
        all-reduce. One that only some processes have counts as 0 in the others; one that none has stays absent."""
        if self.world == 1:
            return [float(flag) for flag in flags.tolist()]
        trained = [p for p in model.parameters() if p.requires_grad]
        there = torch.tensor([float(p.grad is not None) for p in trained], device=flags.device)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        flat = torch.cat([flags.to(there), there, *(gradient.reshape(-1) for gradient in gradients)])
        dist.all_reduce(flat)
        head = flat[: len(flags) + len(there)].tolist()
        flat /= self.world
        parts = torch.split(flat[len(head) :], [p.numel() for p in trained])
        for parameter, gradient, part, count in zip(trained, gradients, parts, head[len(flags) :], strict=True):
            if count > 0:
                parameter.grad = gradient.copy_(part.view_as(gradient))
        return head[: len(flags)]

    @torch.no_grad()
    def same(self, tensors: Iterable[Tensor]) -> None:
        """The first process's values in every process, in place."""
        if self.world == 1:
            return
        by_kind: dict[torch.dtype, list[Tensor]] = {}
        for tensor in tensors:
            by_kind.setdefault(tensor.dtype, []).append(tensor)
        for kind, group in by_kind.items():
            flat = torch.cat([tensor.reshape(-1) for tensor in group])
            flat = flat.to(torch.uint8) if kind == torch.bool else flat
            dist.broadcast(flat, 0)
            _spread(flat, group)

    def same_state(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The first process's tensors by name."""
        copied = {name: value if self.world == 1 else value.clone() for name, value in state.items()}
        self.same(copied.values())
        return copied

    def same_model(self, model: nn.Module) -> None:
        """The first process's parameters and buffers in every process."""
        self.same([*model.parameters(), *model.buffers()])

    @torch.no_grad()
    def same_buffers(self, model: nn.Module, synced: bool) -> None:
        """Buffers as they are to be after a step: running statistics that each process has of its own share of the
        batch are averaged, all others are the first process's. synced: those of batch-norms are of the whole batch."""
        if self.world == 1:
            return
        own = own_statistics(model, synced)
        if own:
            flat = torch.cat([tensor.reshape(-1) for tensor in own])
            dist.all_reduce(flat)
            _spread(flat / self.world, own)
        averaged = {id(tensor) for tensor in own}
        self.same(buffer for buffer in model.buffers() if id(buffer) not in averaged)

    def of_first(self, mine: T) -> T:
        """The first process's object in every process."""
        if self.world == 1:
            return mine
        held = [mine if self.first else None]
        dist.broadcast_object_list(held, 0)
        return cast(T, held[0])

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
        try:
            yield
        finally:
            if self.first:
                self.wait()

    @contextmanager
    def failing_together(self) -> Iterator[None]:
        """Where the block is an error in one process, it is the same error in all of them."""
        problem = None
        try:
            yield
        except UserError as error:
            problem = error
            if self.world == 1:
                raise
        told = [text for text in self.gather(None if problem is None else str(problem)) if text is not None]
        if problem is not None:
            raise problem
        if told:
            raise UserError(told[0])

    def require_same(self, values: Mapping[str, Any], what: str) -> None:
        """Raise where another process has other values than the first; the first difference is named."""
        first, *others = self.gather(dict(values))
        for rank, theirs in enumerate(others, 1):
            for name in {**first, **theirs}:
                if first.get(name) != theirs.get(name):
                    raise UserError(
                        f"process {rank} of {self.world} has {name} = {theirs.get(name)}, process 0 has "
                        f"{first.get(name)}: processes that train one model need the same {what}."
                    )

    def any(self, mine: bool, device: torch.device) -> bool:
        """Whether the value is true in at least one process."""
        return mine if self.world == 1 else bool(self.average(torch.tensor(float(mine), device=device)) > 0)

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.world > 1:
            dist.barrier()


@contextmanager
def process_group(device: torch.device) -> Iterator[Processes]:
    """The processes torchrun started, connected by nccl on GPUs and gloo elsewhere; a group that there is already is
    used and left as it is."""
    if dist.is_initialized():
        yield Processes(dist.get_rank(), dist.get_world_size())
        return
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Processes()
        return
    store, rank, world = _meeting()
    # torchrun keeps one store over its restarts, and a program may train several times. Under a name of its own no
    # process finds the address of a dead one.
    own = dist.distributed_c10d.PrefixStore(f"restart-{_restarts()}-training-{next(_TRAININGS)}", store)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=own, rank=rank, world_size=world, timeout=_CONNECT_TIMEOUT)
    dist.distributed_c10d._set_pg_timeout(_WORK_TIMEOUT)
    try:
        yield Processes(dist.get_rank(), world)
    finally:
        dist.destroy_process_group()


@functools.cache
def _meeting() -> tuple[Any, int, int]:
    """Where the processes meet, how many this one is, and of how many; the first may hold it open for the others, so
    that it lasts as long as the process."""
    store, rank, world = next(rendezvous("env://", timeout=_CONNECT_TIMEOUT))
    return store, int(rank), int(world)


def _spread(flat: Tensor, tensors: list[Tensor]) -> None:
    """The parts of a long vector into the tensors it is made of."""
    for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))


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
