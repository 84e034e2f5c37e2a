"""A small model, a batch and records, made by hand for the tests of the fairness methods."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from classwise.core.meta import AttackInfo, Meta
from classwise.core.records import Records
from classwise.methods import Batch, Loss, Method, State

NAMES = ("cat", "dog", "emu")


def model(seed: int = 0) -> nn.Module:
    """Five pixels, three classes, curved."""
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, len(NAMES)))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return net


def batch(net: nn.Module, labels: tuple[int, ...] = (0, 1, 2, 0, 1, 0), **rest: Any) -> Batch:
    """Images of the given classes, and other ones in the place of their adversarial ones."""
    generator = torch.Generator().manual_seed(1)
    count = len(labels)
    x, noise = (torch.rand(count, 1, 1, 5, generator=generator) for _ in range(2))
    made = Batch(
        x=x,
        y=torch.tensor(labels),
        key=torch.arange(count),
        eps=torch.full((count,), 0.1),
        fast=net,
        x_adv=(x + 0.2 * (noise - 0.5)).clamp(0, 1),
    )
    return dataclasses.replace(made, **rest)


def attacked(method: Method, net: nn.Module, given: Batch, state: State) -> Tensor:
    return method.attack(net, dataclasses.replace(given, x_adv=None), state)


def terms(net: nn.Module, given: Batch) -> tuple[Tensor, Tensor]:
    """CE(z(x), y) and KL(p(x) ‖ p(x')) of each example, written out from the probabilities."""
    p = torch.softmax(net(given.x).double(), 1)
    q = torch.softmax(net(given.adversarial).double(), 1)
    return -p[range(len(p)), given.y].log(), (p * (p / q).log()).sum(1)


def gradients(net: nn.Module, loss: Tensor) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)])


def assert_same_loss(found: Loss, expected: Tensor, net: nn.Module) -> None:
    """Equal batch averages, and equal gradients of them."""
    torch.testing.assert_close(found.value.mean().double(), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(gradients(net, found.value.mean()), gradients(net, expected), atol=1e-5, rtol=1e-4)


def records(**attacks: Any) -> Records:
    """records(clean=(labels, probs), pgd=(labels, probs)): predictions, losses and the rest follow."""
    frames, probs = [], []
    for name, (labels, p) in attacks.items():
        label, p = np.asarray(labels, np.int32), np.asarray(p, np.float32)
        true = p[np.arange(len(label)), label]
        frames.append(
            pd.DataFrame(
                {
                    "index": np.arange(len(label)),
                    "label": label,
                    "attack": name,
                    "eps": 0.1,
                    "prediction": p.argmax(1).astype(np.int32),
                    "confidence": p.max(1),
                    "true_prob": true,
                    "loss": -np.log(np.maximum(true, 1e-30)),
                    "distance": 0.1,
                    "minimal": np.inf,
                    "step": 1,
                    "queries": 1,
                }
            )
        )
        probs.append(p)
    meta = Meta(class_names=NAMES, attacks={name: AttackInfo(protocol="final") for name in attacks})
    return Records(pd.concat(frames, ignore_index=True), meta, np.concatenate(probs))


def answers(correct: tuple[int, ...], support: tuple[int, ...]) -> tuple[Any, Any]:
    """Labels and probabilities with so many of each class right; the others are called the next class."""
    label = np.repeat(np.arange(len(support)), support)
    rank = np.concatenate([np.arange(n) for n in support])
    said = np.where(rank < np.asarray(correct)[label], label, (label + 1) % len(support))
    return label, 0.7 * np.eye(len(support))[said] + 0.1


def double(net: nn.Module, labels: tuple[int, ...] = (0, 1, 2, 0, 1, 0), **rest: Any) -> Batch:
    """`batch` in double precision, for a network in double precision."""
    made = batch(net, labels)
    doubled = {
        "x": made.x.double(),
        "x_adv": made.adversarial.double(),
        "eps": torch.full((len(labels),), 0.1, dtype=torch.float64),
    }
    return dataclasses.replace(made, **{**doubled, **rest})


def exact(method: Method, labels: tuple[int, ...] = (0, 1, 2, 0, 1, 0)) -> tuple[nn.Module, Batch, State]:
    """The model, a batch and the method's first state, all in double precision."""
    net = model().double()
    return net, double(net, labels), {name: value.double() for name, value in method.init(NAMES).items()}


def assert_equal_loss(found: Loss, expected: Tensor, net: nn.Module) -> None:
    """Batch averages and gradients that are equal in double precision."""
    torch.testing.assert_close(found.value.mean(), expected, atol=1e-8, rtol=0)
    torch.testing.assert_close(gradients(net, found.value.mean()), gradients(net, expected), atol=1e-8, rtol=0)


def in_two_processes(given: Batch, at: int, run: Callable[[Batch], Any]) -> list[Any]:
    """What `run` makes of the first `at` examples and of the others, in two threads that share their sums as two
    processes do."""
    meet, sums, count = threading.Barrier(2, timeout=60), [torch.zeros(())] * 2, len(given.y)

    def process(rank: int) -> Any:
        own = slice(at) if rank == 0 else slice(at, None)

        def total(value: Tensor) -> Tensor:
            sums[rank] = value.detach()
            meet.wait()
            result = sums[0] + sums[1]
            meet.wait()
            return result

        part = {name: getattr(given, name)[own] for name in ("x", "y", "key", "eps", "x_adv")}
        mine = len(part["y"])
        return run(dataclasses.replace(given, **part, total=total, average=lambda mean: total(mean * mine) / count))

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(process, range(2)))
