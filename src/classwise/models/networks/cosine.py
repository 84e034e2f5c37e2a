"""The head of hypersphere embedding (Pang et al., NeurIPS 2020): the cosine between the features and each class.

    z_k = w_kᵀ f / (‖w_k‖ ‖f‖)                    in [−1, 1], without bias; the scale s belongs to the training loss

In train mode the weight is overwritten by its unit rows at every call, as the official code does: the rows are put back
on the sphere after each step of the optimiser, whose weight decay and momentum act on unit vectors, and no gradient
passes through their normalisation. In eval mode the answer is the same and the stored weight stays as it is.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn


class CosineHead(nn.Linear):
    """A linear layer of unit features and unit rows."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        weight: Tensor = self.weight
        if self.training:
            weight.data.copy_(F.normalize(weight.data))  # in place: whatever shares the tensor sees it too
        else:
            weight = F.normalize(weight)
        return F.linear(F.normalize(features), weight)


def with_cosine_head(network: nn.Module) -> nn.Module:
    """`network` with its last layer, `network.head`, replaced by a fresh cosine head of the same size and name."""
    head: Any = network.head
    path = next(name for name, module in network.named_modules() if module is head)
    parent, _, name = path.rpartition(".")
    setattr(network.get_submodule(parent), name, CosineHead(head.in_features, head.out_features))
    return network
