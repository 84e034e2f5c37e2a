"""How many images at once: a batch that fits the caches of a CPU or the memory of a GPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from classwise.engine.operations import watch_layers


def choose_workers(device: torch.device) -> int:
    """How many threads each drive a batch of their own: on a CPU that wastes less time waiting for each other than
    splitting every operation over all cores. Results do not depend on it beyond rounding."""
    return min(torch.get_num_threads(), 8) if device.type == "cpu" else 1


def choose_batch(model: nn.Module, example: Tensor, workers: int = 1) -> int:
    """A batch size for `model` on `example`'s device: a power of two, by rule and not by timing, so that it is the
    same every time. `at_most` makes it small enough for few images.

    CPU: the largest activation of all workers' batches stays within 8 MiB, where caches still help. Otherwise: two
    copies of all activations in 40% of the memory.
    """
    sizes: list[int] = []

    def note(layer: nn.Module, output: Tensor) -> None:
        if not list(layer.children()):
            sizes.append(output.numel() * output.element_size() // len(example))

    watch_layers(model, example, note)
    sizes = sizes or [example[0].numel() * example.element_size()]
    if example.device.type == "cuda":
        # What is free just now would differ from run to run; where it is too little, the batch is halved.
        memory = torch.cuda.get_device_properties(example.device).total_memory
        fits = int(0.4 * memory / (2 * sum(sizes)))
    elif example.device.type == "cpu":
        fits = 8 * 2**20 // (workers * max(sizes))
    else:
        fits = 2**31 // (2 * sum(sizes))
    return at_most(max(fits, 16), 1024 if example.device.type == "cpu" else 4096)


def at_most(batch: int, count: int) -> int:
    """The largest power of two that is neither above `batch` nor, but for 1, above `count`."""
    return 1 << (min(batch, max(count, 1)).bit_length() - 1)


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that a smaller batch might do."""
    return isinstance(error, (torch.cuda.OutOfMemoryError, MemoryError)) or (
        isinstance(error, RuntimeError) and any(t in str(error) for t in ("out of memory", "can't allocate memory"))
    )
