"""Gradient passes as a share of what the machine can multiply.

A gradient pass is one forward and one backward to the input. Its useful work is that of the convolutions and linear
layers: 2 floating point operations per multiply-add forward, and as many again backward. The peak is the fastest
float32 matrix product of torch on the same cores, whether one product uses all threads or each worker has its own.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

import classwise as cw
from bench.markdown import paragraph, percent, table
from bench.setting import SPEC, Setting
from classwise.attacks.attack import Model, value_and_gradient
from classwise.engine.attack_copy import accelerate, channels_last
from classwise.engine.batch_size import at_most, choose_batch, choose_workers

TITLE = "Gradient passes as a share of the matrix-product peak"

_SIDE = 2048  # of the matrices multiplied for the peak
_SECONDS = 1.0  # of every measurement, at least
_LARGE = "resnet-18"


@dataclass
class MeasuredModel:
    """A model in one form, and the images per second of each round."""

    name: str
    form: str
    model: Model
    x: Tensor
    flops: float  # per image
    rates: list[float] = field(default_factory=list)

    def gradient_pass(self) -> None:
        value_and_gradient(self.model, self.x, torch.Tensor.sum)

    def measure(self, workers: int) -> float:
        """Images per second, all workers together."""
        return calls_per_second(self.gradient_pass, workers) * len(self.x)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


@dataclass(frozen=True)
class Floor:
    """What passes of a model cost any program that makes them: their operations, at the speeds of this machine."""

    flops: float
    peak: float  # per second, of matrix products
    passes: float  # per second, of the gradient passes that classwise makes

    @classmethod
    def measure(cls, model: nn.Module, x: Tensor, forward: float) -> Floor:
        """Of so many forward passes of an image; one to the gradient counts twice."""
        workers = choose_workers(torch.device("cpu"))
        _, folded = measured_models(SPEC, model, x, workers)
        peak = max(peak_flops(1), peak_flops(workers))
        return cls(forward * folded.flops / 2, peak, folded.measure(workers) * folded.flops)

    def note(self, seconds: float, who: str) -> str:
        """seconds: what `who` took."""
        speeds = {"the fastest matrix product": self.peak, "classwise's gradient passes": self.passes}
        bounds = (
            f"{self.flops / speed:.1f} s at the speed of {what} ({speed / 1e9:.0f} GFLOP/s), "
            f"{seconds * speed / self.flops:.1f} times less than {who} took"
            for what, speed in speeds.items()
        )
        return f"{self.flops / 1e12:.2f} TFLOP here: {'; '.join(bounds)}."


def run(setting: Setting) -> str:
    workers = choose_workers(torch.device("cpu"))
    images = setting.images(1000)
    x, _ = images.batch(np.arange(len(images)))
    models = [
        *measured_models(SPEC, setting.model(), x, workers),
        *measured_models(_LARGE, cw.load_model(_LARGE, num_classes=images.num_classes), x, workers),
    ]
    peaks: list[float] = []
    for number in range(setting.rounds + 1):
        peaks += [peak_flops(1), peak_flops(workers)]
        for each in models:
            rate = each.measure(workers)
            print(f"  {each.name}, {each.form}: {rate:.0f} images per second", file=sys.stderr)
            if number:  # the first round warms up
                each.rates.append(rate)
    return _section(setting, models, max(peaks), workers)


def measured_models(name: str, model: nn.Module, x: Tensor, workers: int) -> list[MeasuredModel]:
    """`model` as it is and as the engine runs it, both with the batch the engine chooses."""
    example = x[:8]
    batch = x[: at_most(choose_batch(model, example, workers), len(x))].contiguous()
    flops = flops_per_image(model, example)
    folded = accelerate(model, example)
    return [
        MeasuredModel(name, "plain", model, batch, flops),
        MeasuredModel(name, "folded", folded, channels_last(batch), flops),
    ]


def flops_per_image(model: nn.Module, example: Tensor) -> float:
    """Floating point operations of a gradient pass: 4 for each multiply-add of the convolutions and linear layers."""
    multiply_adds: list[int] = []

    def note(module: nn.Module, args: object, output: Tensor) -> None:
        assert isinstance(module.weight, Tensor)
        multiply_adds.append(output.numel() * module.weight[0].numel())

    layers = [module for module in model.modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    handles = [layer.register_forward_hook(note) for layer in layers]
    with torch.no_grad():
        model(example)
    for handle in handles:
        handle.remove()
    return 4 * sum(multiply_adds) / len(example)


def peak_flops(workers: int) -> float:
    """Floating point operations per second of float32 matrix products, one in each worker."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(_SIDE, _SIDE, generator=generator) for _ in range(2))
    return calls_per_second(lambda: torch.mm(left, right), workers) * 2 * _SIDE**3


def calls_per_second(call: Callable[[], object], workers: int) -> float:
    """Of all workers together, each a thread with its share of torch's threads, as in the engine."""

    def work() -> float:
        call()  # a thread's first call pays for its set-up
        calls, begin = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - begin) < _SECONDS:
            call()
            calls += 1
        return calls / elapsed

    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(
            workers, initializer=torch.set_num_threads, initargs=(max(threads // workers, 1),)
        ) as pool:
            return sum(future.result() for future in [pool.submit(work) for _ in range(workers)])
    finally:
        torch.set_num_threads(threads)


def _section(setting: Setting, models: list[MeasuredModel], peak: float, workers: int) -> str:
    header = ["model", "form", "MFLOP per image", "batch", "images per second", "GFLOP/s", "share of peak"]
    rows = [
        [
            f"`{each.name}`",
            each.form,
            f"{each.flops / 1e6:.1f}",
            str(len(each.x)),
            f"{each.rate:,.0f}",
            f"{each.rate * each.flops / 1e9:.1f}",
            percent(each.rate * each.flops / peak, 0),
        ]
        for each in models
    ]
    threads = torch.get_num_threads()
    return "\n\n".join(
        [
            paragraph(
                f"Peak: {peak / 1e9:.1f} GFLOP/s, the fastest `torch.mm` of {_SIDE}×{_SIDE} float32 matrices,",
                "whether one product used all threads or every worker had its own. Passes: forward and backward to the",
                f"input in {workers} workers, each with a batch of its own and {max(threads // workers, 1)} of the",
                f"{threads} threads, as the engine runs them; median of {setting.rounds} rounds in turns.",
                "MFLOP counts convolutions and linear layers. Folded is the copy attacks run on: batch-norm inside the",
                "convolutions, channels-last, no parameter gradients. Plain is the model as it is.",
            ),
            table(header, rows, text_columns=2),
        ]
    )
