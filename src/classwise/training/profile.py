"""Where the time of an epoch goes: data, attack, outer pass, state, survey, validation.

    profile = Profile(device);  with profile.part("attack"): …;  profile.take()  →  {"attack": 12.3, …}

On a GPU the parts wait for the kernels they started, which costs some speed; so nothing is timed unless asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, TypeAlias, TypeVar

import torch

from classwise.core.format import percent

Part: TypeAlias = Literal["data", "attack", "outer pass", "state", "survey", "validation"]
T = TypeVar("T")

_PREFIX = "seconds:"  # of the columns in history.csv


class Profile:
    """Seconds of each part since the last `take`."""

    def __init__(self, device: torch.device, on: bool = True) -> None:
        self.device, self.on = device, on
        self._seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: Part) -> Iterator[None]:
        """Count the time of the block as `name`'s, also where it raises."""
        begin = self._now()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + self._now() - begin

    def each(self, name: Part, items: Iterator[T]) -> Iterator[T]:
        """The items, the time they take to come counted as `name`'s."""
        end = object()
        while True:
            with self.part(name):
                item = next(items, end)
            if item is end:
                return
            yield item  # type: ignore[misc]

    def take(self) -> dict[str, float]:
        """The seconds of each part so far, as columns of a history; counting begins again. Empty where it is off."""
        found = {f"{_PREFIX}{name}": round(seconds, 3) for name, seconds in self._seconds.items()}
        self._seconds = {}
        return found if self.on else {}

    def _now(self) -> float:
        if self.on and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def sentence(row: Mapping[str, object]) -> str:
    """The time of each part of an epoch with its share, the longest first; empty where none was taken."""
    parts = {key.removeprefix(_PREFIX): float(str(row[key])) for key in row if key.startswith(_PREFIX)}
    total = float(str(row["seconds"]))
    if not parts or total <= 0:
        return ""
    parts["other"] = max(total - sum(parts.values()), 0.0)
    shown = sorted(parts.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {seconds:.1f} s ({percent(seconds / total)})" for name, seconds in shown)
