"""Batch-norm in eval mode is an affine map per channel, so conv → batch-norm is one convolution (Jacob et al. 2018):

w' = w · γ/√(σ²+ε)        b' = (b − μ) · γ/√(σ²+ε) + β
"""

from __future__ import annotations

import operator
from typing import TypeAlias

import torch
import torch.fx
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

#: Names of each layer and of the norm folded into it.
Pairs: TypeAlias = tuple[tuple[str, str], ...]

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_RELUS = (torch.relu, nn.functional.relu, "relu")
_SUMS = (operator.add, torch.add)


def _fuse(layer: nn.Module, norm: nn.Module) -> nn.Module | None:
    """`layer` with `norm` inside it, or None where the two are not a pair that folds."""
    if not isinstance(norm, NORMS) or norm.running_mean is None:
        return None
    if isinstance(layer, _CONVS):
        return fuse_conv_bn_eval(layer, norm)
    if isinstance(layer, nn.Linear) and isinstance(norm, nn.BatchNorm1d):
        return fuse_linear_bn_eval(layer, norm)
    return None


class _Tracer(torch.fx.Tracer):
    """Looks only into modules that hold something to fold: what else they do may not be traceable."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        inside = any(isinstance(module, (*_CONVS, *NORMS)) for module in m.modules())
        return not inside or super().is_leaf_module(m, module_qualified_name)


def fold_traced(model: nn.Module) -> tuple[nn.Module, Pairs]:
    """Fold wherever a traced graph shows a batch-norm to be the only reader of a convolution or linear layer."""
    graph = torch.fx.GraphModule(model, _Tracer().trace(model))
    modules = dict(graph.named_modules())
    calls = [node for node in graph.graph.nodes if node.op == "call_module"]
    uses = {node.target: sum(other.target == node.target for other in calls) for node in calls}
    folded: list[tuple[str, str]] = []
    for node in calls:
        before = node.args[0] if node.args else None
        if not (isinstance(before, torch.fx.Node) and before.op == "call_module" and len(before.users) == 1):
            continue
        once = uses[node.target] == uses[before.target] == 1  # shared modules mean different things at each use
        if not once or (fused := _fuse(modules[before.target], modules[node.target])) is None:
            continue
        parent, _, name = str(before.target).rpartition(".")
        setattr(graph.get_submodule(parent), name, fused)
        modules[before.target] = fused
        node.replace_all_uses_with(before)
        graph.graph.erase_node(node)
        folded.append((str(before.target), str(node.target)))
    _overwrite(graph)
    graph.delete_all_unused_submodules()
    graph.recompile()
    return graph, tuple(folded)


def _add_into(a: Tensor, b: Tensor) -> Tensor:
    """a + b, written over a where it fits there."""
    return a.add_(b) if a.shape == b.shape and a.dtype == b.dtype else a + b


def _overwrite(graph: torch.fx.GraphModule) -> None:
    """Let sums and ReLUs write over what they read, where nobody else reads it: less memory to touch.

    Safe for gradients, because the backward pass of a convolution, a linear layer or a sum does not look at its output.
    """
    modules = dict(graph.named_modules())

    def spare(node: object) -> bool:
        """Whether the node's output is its own, read once, and not looked at by its backward pass."""
        if not isinstance(node, torch.fx.Node) or len(node.users) != 1:
            return False
        if node.op == "call_module":
            return isinstance(modules[node.target], (*_CONVS, nn.Linear))
        return node.op == "call_function" and node.target in (*_SUMS, _add_into)

    for node in list(graph.graph.nodes):
        if node.target is operator.add and spare(node.args[0]) and isinstance(node.args[1], torch.fx.Node):
            node.target = _add_into
        relu = node.target in _RELUS or (node.op == "call_module" and type(modules[node.target]) is nn.ReLU)
        if relu and node.args and spare(node.args[0]):
            with graph.graph.inserting_before(node):
                node.replace_all_uses_with(graph.graph.call_function(torch.relu_, (node.args[0],)))
            graph.graph.erase_node(node)


def fold_sequential(model: nn.Module) -> tuple[nn.Module, Pairs]:
    """Fold neighbours inside plain `nn.Sequential`s, whose order is known without tracing."""
    seen = [module for parent in model.modules() for module in parent.children()]
    folded: list[tuple[str, str]] = []
    for prefix, parent in list(model.named_modules()):
        if type(parent) is not nn.Sequential:
            continue
        names = [f"{prefix}.{name}".lstrip(".") for name, _ in parent.named_children()]
        for place in range(len(parent) - 1):
            pair = parent[place], parent[place + 1]
            fused = _fuse(*pair) if all(seen.count(module) == 1 for module in pair) else None
            if fused is not None:
                parent[place], parent[place + 1] = fused, nn.Identity()
                folded.append((names[place], names[place + 1]))
    return model, tuple(folded)
