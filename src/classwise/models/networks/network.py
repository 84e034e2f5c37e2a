"""What the built-in networks share: logits from a penultimate vector, and a body of stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from torch import Tensor, nn

from classwise.core.errors import UserError

Blocks = tuple[int, ...]


class Network(nn.Module):
    """`features(x)` is the penultimate vector, (B, D), and `head` the last linear layer, whose name is `last`."""

    last = "linear"
    features: Callable[[Tensor], Tensor]

    @property
    def head(self) -> nn.Linear:
        return cast(nn.Linear, self.get_submodule(self.last))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits

    def start_convolutions(self) -> None:
        """Draw them from N(0, 2/(size²·out_channels)), instead of as PyTorch does."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


class Staged(Network):
    """A network with a body of named stages, one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.stages: list[str] = []

    def add_stage(self, name: str, stage: nn.Module) -> None:
        self.add_module(name, stage)
        self.stages.append(name)

    def add_residual_stages(self, block: Any, width: int, blocks: Blocks) -> int:
        """layer1, layer2, …, each twice as wide and, but for the first, half as large; returns the last channels."""
        channels = width
        for stage, count in enumerate(blocks):
            layers: list[nn.Module] = []
            for place in range(count):
                layers.append(block(channels, width * 2**stage, 2 if stage and place == 0 else 1))
                channels = block.expansion * width * 2**stage
            self.add_stage(f"layer{stage + 1}", nn.Sequential(*layers))
        return channels

    def through_stages(self, x: Tensor) -> Tensor:
        for name in self.stages:
            x = self.get_submodule(name)(x)
        return x


def choose(owner: str, depths: Mapping[int, Blocks], depth: int | None, blocks: Blocks | None) -> Blocks:
    """Blocks per stage, of a published depth or any others; of the first depth of the table when neither is given."""
    if depth is not None and blocks is not None:
        raise UserError(f"{owner} takes either depth or blocks, not both; got depth={depth} and blocks={blocks}.")
    if blocks is None:
        depth = next(iter(depths)) if depth is None else depth
        if depth not in depths:
            raise UserError(
                f"{owner} has depth {', '.join(map(str, depths))}; got {depth}. "
                f"Other networks are written by their stages, such as {owner}:blocks=[3, 3, 3]."
            )
        return depths[depth]
    if not blocks or min(blocks) < 1:
        raise UserError(f"each stage of {owner} needs at least one block; got blocks={blocks}.")
    return blocks
