"""The stages of a network: the published ones of a depth, or any others."""

from __future__ import annotations

from collections.abc import Mapping

from classwise.core.errors import UserError

Blocks = tuple[int, ...]


def choose(owner: str, depths: Mapping[int, Blocks], depth: int | None, blocks: Blocks | None) -> Blocks:
    """Blocks per stage, given either way; the first depth of the table when neither is given."""
    if depth is not None and blocks is not None:
        raise UserError(f"{owner} takes either depth or blocks, not both; got depth={depth} and blocks={blocks}.")
    if blocks is None:
        depth = next(iter(depths)) if depth is None else depth
        if depth not in depths:
            raise UserError(
                f"{owner} has depth {', '.join(map(str, depths))}; got {depth}. "
                f"Other networks are written by their stages, such as {owner}:blocks=[3, 3, 3.]"
            )
        return depths[depth]
    if not blocks or min(blocks) < 1:
        raise UserError(f"each stage of {owner} needs at least one block; got blocks={blocks}.")
    return blocks
