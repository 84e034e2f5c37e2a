"""The same model, faster: for the gradient passes of an attack only. Nothing found with it counts until the
untouched model has confirmed it.

Batch-norms are folded (`engine.folding`), memory is channels-last, parameters have no gradients and, where asked for,
precision is reduced on a GPU and passes are compiled.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from classwise.attacks.attack import Model
from classwise.core.errors import UserError
from classwise.engine.folding import NORMS, Pairs, fold_sequential, fold_traced

#: Reduced precisions, for gradient passes on a GPU.
AMP = {"float16": torch.float16, "bfloat16": torch.bfloat16}

_MULTIPLE = 8
_SETTLED = 16  # batches of one size in a row, after which a kernel of their own pays


@dataclass(kw_only=True)
class AttackCopy:
    """A model for gradient passes, which batch-norms were folded away, and a note for each thing not done.

    It remembers the size of its last batch; `dataclasses.replace` makes one that remembers nothing.
    """

    model: Model
    notes: tuple[str, ...] = ()
    multiple: int = 1  # batches are filled up to a multiple of this, until their size has settled
    fillable: bool = True  # false where a norm looks at the whole batch, which copies of an image would change
    sizes: tuple[int, ...] = ()  # batches are filled up to the next of these instead, the smallest first
    pairs: Pairs = ()  # names of each layer and of the norm folded into it
    most: int = 0  # images to look at in one pass where no gradient is asked for; 0: any number
    amp: str | None = None  # a reduced precision, for GPUs
    compiled: bool = False  # by torch.compile: a batch of another size is compiled once more
    last_size: int = field(default=0, init=False, compare=False)  # of a batch
    repeats: int = field(default=0, init=False, compare=False)  # how many batches of that size came in a row

    @property
    def folded(self) -> int:
        return len(self.pairs)

    def __call__(self, x: Tensor) -> Tensor:
        if 0 < self.most < len(x) and not (x.requires_grad and torch.is_grad_enabled()):
            pieces = torch.tensor_split(x, -(-len(x) // self.most))
            return torch.cat([self(piece) for piece in pieces])
        self.repeats = self.repeats + 1 if self.last_size == len(x) else 1
        self.last_size = len(x)
        short = -len(x) % self.multiple if len(x) and self.repeats <= _SETTLED else 0
        if self.sizes and len(x):
            short = next((size - len(x) for size in self.sizes if size >= len(x)), 0)
        if not short:
            return self._pass(x)
        return self._pass(torch.cat([x, x[-1:].expand(short, *x.shape[1:])]))[: len(x)]

    def _pass(self, x: Tensor) -> Tensor:
        with nullcontext() if self.amp is None else torch.autocast(x.device.type, dtype=AMP[self.amp]):
            z = self._compiled_pass(x) if self.compiled else self.model(x)
        return z if self.amp is None else z.float()

    def _compiled_pass(self, x: Tensor) -> Tensor:
        try:
            if x.device.type != "cuda":
                return self.model(x)
            # The next pass overwrites what a CUDA graph returns: logits are copied, and the product with 1, outside the
            # graph, gives the gradient memory of its own.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            return self.model(x * 1).clone()
        except RuntimeError as error:
            if type(error).__module__.startswith("torch._dynamo"):  # whose import takes seconds
                cause = getattr(error, "inner_exception", error)
                raise UserError(f"torch.compile failed ({_first_line(cause)}); leave --compile out.") from error
            raise


def compiled(
    attack_copy: AttackCopy, device: torch.device, backend: str | Callable[..., Any] = "inductor"
) -> AttackCopy:
    """The same copy with its passes compiled by torch.compile, for a few batch sizes; on a GPU replayed as CUDA graphs.

    Compiling takes about half a minute for each size on a CPU, so that it pays for many images, or not at all.
    """
    if not isinstance(attack_copy.model, nn.Module) or not attack_copy.fillable:
        raise UserError(
            "this model cannot be compiled: it is no torch module, or a norm looks at the whole batch, which cannot be "
            "filled up to one of a few sizes. Leave --compile out."
        )
    mode = "reduce-overhead" if device.type == "cuda" and backend == "inductor" else None
    network: Any = torch.compile(attack_copy.model, dynamic=False, mode=mode, backend=backend)
    return replace(attack_copy, model=network, compiled=True)


def is_compiled(model: Model) -> bool:
    """Whether its passes are compiled."""
    return isinstance(model, AttackCopy) and model.compiled


def in_few_sizes(model: Model, batch: int) -> Model:
    """The same model, which sees batches of four sizes only, `batch` the largest: on a GPU a kernel is chosen, and a
    graph captured, for each size. What fills them up costs at most the passes of an emptying batch once more."""
    if not isinstance(model, AttackCopy) or not model.fillable:
        return model
    return replace(model, sizes=tuple(sorted({max(-(-batch // part), 1) for part in (1, 2, 4, 8)})))


def _looks_at_images_alone(model: nn.Module) -> bool:
    return not any(isinstance(module, NORMS) and module.running_mean is None for module in model.modules())


def channels_last(x: Tensor) -> Tensor:
    """The same values, laid out as convolutions like them best."""
    fits = x.ndim == 4 and x.device.type != "mps"  # channels-last is not faster there, and some kernels are missing
    return x.contiguous(memory_format=torch.channels_last) if fits else x


def trains_channels_last(model: nn.Module, device: torch.device) -> bool:
    """Whether the model may be trained in channels-last memory. On a CPU torch (2.13) corrupts memory there when it
    computes the weight gradient of a strided 1×1 convolution of fewer than eight channels."""
    narrow = (
        isinstance(module, nn.Conv2d)
        and module.kernel_size == (1, 1)
        and max(module.stride) > 1
        and module.in_channels // module.groups < 8
        for module in model.modules()
    )
    return device.type == "cuda" or (device.type == "cpu" and not any(narrow))


def accelerate(model: nn.Module, example: Tensor, fold: bool = True) -> AttackCopy:
    """A channels-last copy of `model` without parameter gradients, folded; it must agree with it on `example`.

    Falls back, with a note, to folding inside `nn.Sequential`s where the model cannot be traced, and to an unfolded
    copy where folding changes the answer (a trace that froze a decision the model makes for each input).
    """
    try:
        with torch.no_grad():  # else the copied parameters of a TorchScript module are no leaves
            left_over = {id(tensor): tensor.detach() for tensor in _held(model) if not tensor.is_leaf}
            plain = copy.deepcopy(model, left_over).eval()
    except Exception as error:  # deepcopy runs the model's own code, which may raise anything
        note = f"the model cannot be copied ({_first_line(error)}); attacks run on it as it is"
        return AttackCopy(model=model, notes=(note,))
    for parameter in plain.parameters():
        parameter.requires_grad_(False)
    if example.device.type != "mps":
        plain = plain.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    fillable = _looks_at_images_alone(plain)
    # On a CPU kernels are compiled for each batch size: an emptying batch would meet a new one at every step.
    multiple = _MULTIPLE if fillable and example.device.type == "cpu" else 1
    unfolded = AttackCopy(model=plain, multiple=multiple, fillable=fillable)
    if not fold or not any(isinstance(module, NORMS) for module in plain.modules()):
        return unfolded
    notes: list[str] = []
    with torch.no_grad():
        expected = model(example)
    for attempt in (fold_traced, fold_sequential):
        try:
            folded, pairs = attempt(copy.deepcopy(plain))
            with torch.no_grad():
                agrees = _close(folded(channels_last(example)), expected)
        except Exception as error:  # tracing runs the model's own code, which may raise anything
            notes.append(f"{attempt.__name__} failed ({_first_line(error)})")
            continue
        if agrees and pairs:
            return replace(unfolded, model=folded, notes=tuple(notes), pairs=pairs)
        if not agrees:
            notes.append(f"{attempt.__name__} changed the model's answer and was not used")
    return replace(unfolded, notes=(*notes, "batch-norm was not folded; attacks run on an unfolded copy"))


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:120] or type(error).__name__


def _close(found: Tensor, expected: Tensor) -> bool:
    """Equal up to the rounding of float32 through a deep network; randomised models never are, and stay unfolded."""
    scale = expected.abs().amax().clamp_min(1.0)
    return bool(((found - expected).abs().amax() <= 1e-3 * scale).item())


@dataclass(frozen=True)
class SyncedAttackCopy:
    """An attack copy of a model in training; `refresh` brings it up to the current weights."""

    model: nn.Module
    attack_copy: AttackCopy

    @torch.no_grad()
    def refresh(self) -> None:
        copy_of = self.attack_copy.model
        assert isinstance(copy_of, nn.Module)
        theirs = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        mine = {**dict(copy_of.named_parameters()), **dict(copy_of.named_buffers())}
        for layer_name, norm_name in self.attack_copy.pairs:
            layer: Any = self.model.get_submodule(layer_name)
            norm: Any = self.model.get_submodule(norm_name)
            fuse: Any = fuse_linear_bn_weights if isinstance(layer, nn.Linear) else fuse_conv_bn_weights
            weight, bias = fuse(
                layer.weight, layer.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
            )
            mine.pop(f"{layer_name}.weight").copy_(weight)
            mine.pop(f"{layer_name}.bias").copy_(bias)
        for name, tensor in mine.items():
            tensor.copy_(theirs[name])


def follow(model: nn.Module, example: Tensor, fold: bool = True) -> SyncedAttackCopy:
    """A synced copy of `model`, which must be in eval mode here and may train afterwards."""
    attack_copy = accelerate(model, example, fold)
    if attack_copy.model is model:
        raise UserError(
            f'{attack_copy.notes[0]}; training attacks a copy. Attack in train mode (mode = "train") instead.'
        )
    return SyncedAttackCopy(model, attack_copy)


def replica(model: Model) -> Model:
    """The same model for another thread: modules of its own around the very same tensors.

    Research code likes to leave things on ``self`` during a forward pass and read them back; two threads in one module
    would then read each other's. A replica costs no memory.
    """
    if isinstance(model, AttackCopy):
        return replace(model, model=replica(model.model))
    if not isinstance(model, nn.Module):
        return model
    return copy.deepcopy(model, {id(tensor): tensor for tensor in _held(model)})


def unsettled(model: Model) -> Model:
    """The same model with no memory of batches before, so that a part begins as it would in a run that was resumed."""
    return replace(model) if isinstance(model, AttackCopy) else model


def halved(model: Model) -> Model:
    """The same model, looking at half as many images in one pass where no gradient is asked for."""
    return replace(model, most=max(model.most // 2, 1)) if isinstance(model, AttackCopy) and model.most else model


def _held(model: nn.Module) -> Iterator[Tensor]:
    """Every tensor the modules hold: parameters, buffers, and what a forward pass left behind, in containers too.

    The last kind may belong to a graph, and such tensors refuse to be copied.
    """
    holders: list[object] = [vars(module) for module in model.modules()]
    seen: set[int] = set()  # containers may hold each other
    while holders:
        value = holders.pop()
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (dict, list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            holders.extend(value.values() if isinstance(value, dict) else value)
