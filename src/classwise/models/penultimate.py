"""The penultimate vector of any network: the input of its last linear layer."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from classwise.core.errors import UserError


def penultimate(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The function from images to penultimate vectors, (B, D), with gradients where they are on.

    The last linear layer is the network's `head`, or else the linear layer defined last in it.
    """
    head = _head(model)

    def features(x: Tensor) -> Tensor:
        caught: list[Tensor] = []
        hook = head.register_forward_pre_hook(lambda module, inputs: caught.append(inputs[0]))
        try:
            model(x)
        finally:
            hook.remove()
        if not caught:
            raise UserError(f"{type(model).__name__} does not call its last linear layer; its features are unknown.")
        return caught[-1].flatten(1)

    return features


def _head(model: nn.Module) -> nn.Linear:
    named = getattr(model, "head", None)
    layers = [named] if isinstance(named, nn.Linear) else [m for m in model.modules() if isinstance(m, nn.Linear)]
    if not layers:
        raise UserError(f"{type(model).__name__} has no linear layer, so it has no penultimate vector.")
    return layers[-1]
