"""A share of a run: the parts that one of several processes computes, by ``--shard k/n`` or as its launcher says.

torchrun numbers its processes by RANK and WORLD_SIZE; a SLURM array by SLURM_ARRAY_TASK_ID among SLURM_ARRAY_TASK_COUNT
tasks, from SLURM_ARRAY_TASK_MIN in steps of SLURM_ARRAY_TASK_STEP.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from classwise.core.errors import UserError


@dataclass(frozen=True)
class Shard:
    """Number `number` (from 1) of `count` shares."""

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise UserError(f"shard {self} does not exist: of {self.count} there are 1/{self.count} to {self.whole}.")

    @classmethod
    def parse(cls, text: str) -> Shard:
        """``2/4``: the second of four."""
        match = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text)
        if match is None:
            raise UserError(f"a shard is k/n, such as 2/4 for the second of four; got {text!r}.")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Shard | None:
        """The share of this process among those that torchrun or a SLURM array has started; None if it is alone."""
        if int(environment.get("WORLD_SIZE", "1")) > 1:
            return cls(int(environment["RANK"]) + 1, int(environment["WORLD_SIZE"]))
        count = int(environment.get("SLURM_ARRAY_TASK_COUNT", "1"))
        if count == 1:
            return None
        task, first, step = (int(environment.get(f"SLURM_ARRAY_TASK_{name}", usual)) for name, usual in _ARRAY.items())
        place, rest = divmod(task - first, step)
        if rest or not 0 <= place < count:
            raise UserError(
                f"task {task} of this SLURM array is not one of {count} evenly spaced numbers from {first}: use "
                f"--array=1-{count}, or say --shard k/n."
            )
        return cls(place + 1, count)

    @property
    def whole(self) -> str:
        return f"{self.count}/{self.count}"

    def has(self, part: int) -> bool:
        """Whether the part of that number, from 0, is of this share."""
        return part % self.count == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


_ARRAY = {"ID": "0", "MIN": "0", "STEP": "1"}


def local_rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """The number of this process on its host, which chooses its GPU; None where no launcher says it."""
    text = environment.get("LOCAL_RANK", environment.get("SLURM_LOCALID"))
    return None if text is None else int(text)
