"""The images of a part, read and decoded once for all attacks and restarts, ahead of when they are needed.

AutoAttack comes back to an image that survives twenty times. They are kept in uint8 where that is exact, and a thread
reads the next ones meanwhile; batches go to a GPU from pinned memory and become float there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from classwise.data.images import ArrayPixels, Images, IntArray, Pixels

_CHUNK = 32  # images decoded by one thread at a time
_AHEAD = 4  # chunks
_MOST_BYTES = 2**30  # of images in float32 to keep


@dataclass
class Decoded:
    """Some images of `pixels`, by their positions there."""

    pixels: Pixels
    positions: IntArray  # in the order in which they will be wanted first
    _chunks: dict[int, Future[Tensor]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._order = np.argsort(self.positions, kind="stable")
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="decode")

    def __len__(self) -> int:
        return len(self.pixels)

    def read(self, rows: IntArray) -> Tensor:
        """The images at these positions, as any `Pixels` gives them."""
        return self.on(rows, torch.device("cpu"))

    def on(self, rows: IntArray, device: torch.device) -> Tensor:
        """The same on a device; what is stored in uint8 becomes float there."""
        place = self._order[np.searchsorted(self.positions, rows, sorter=self._order)]
        chunk, offset = np.divmod(place, _CHUNK)
        parts = {int(number): self._chunk(int(number)) for number in np.unique(chunk)}
        first = next(iter(parts.values()))
        batch = torch.empty((len(rows), *first.shape[1:]), dtype=first.dtype, pin_memory=device.type == "cuda")
        if any(part.dtype != first.dtype for part in parts.values()):
            batch, parts = batch.float(), {number: _float(part) for number, part in parts.items()}
        for number, part in parts.items():
            mine = np.flatnonzero(chunk == number)
            batch[torch.from_numpy(mine)] = part[torch.from_numpy(offset[mine])]
        return _float(batch.to(device, non_blocking=True))

    def close(self) -> None:
        """Stop reading ahead."""
        self._pool.shutdown(cancel_futures=True)

    def _chunk(self, number: int) -> Tensor:
        with self._lock:
            last = min(number + _AHEAD, (len(self.positions) - 1) // _CHUNK)
            for wanted in range(number, last + 1):
                if wanted not in self._chunks:
                    self._chunks[wanted] = self._pool.submit(self._decode, wanted)
        found = self._chunks[number].result()
        if found.dtype != torch.uint8 and found[0].nbytes * len(self.positions) > _MOST_BYTES:
            self._chunks.pop(number, None)  # too much to keep: read again when it is wanted again
        return found

    def _decode(self, number: int) -> Tensor:
        x = self.pixels.read(self.positions[number * _CHUNK : (number + 1) * _CHUNK])
        levels = x.mul(255).round_().clamp_(0, 255).to(torch.uint8)
        return levels if torch.equal(_float(levels), x) else x


@contextmanager
def decoded(part: Images) -> Iterator[Images]:
    """The part with its images decoded once; as it is where they are in memory already."""
    if isinstance(part.pixels, ArrayPixels):
        yield part
        return
    pixels = Decoded(part.pixels, part.positions)
    try:
        yield replace(part, pixels=pixels)
    finally:
        pixels.close()


def _float(x: Tensor) -> Tensor:
    return x.float().div_(255) if x.dtype == torch.uint8 else x
