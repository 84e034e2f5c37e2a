"""ONNX files, run by onnxruntime: ``net.onnx``, or ``net.onnx,output=probabilities,shape=nhwc``.

The model is queried, not differentiated. Its input is a batch of floats, cut into pieces where the file fixes the batch
size. Of several outputs the first that holds floats is taken, or the one named by `output`.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from classwise.core.errors import UserError, check_known
from classwise.models.query import Query

_FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
_PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")  # those that need no compilation


@dataclass(frozen=True)
class Onnx:
    """A function from a batch of images to scores.

    output: the name of the output to take, where it is not the first.
    """

    path: str
    output: str | None = None

    pattern: ClassVar[str] = r".+\.onnx"

    def __post_init__(self) -> None:
        if not Path(self.path).is_file():
            raise UserError(f"no ONNX file {self.path!r}. Check the path.")
        _ = self._session, self._input, self._output  # whatever is wrong with the file is an error now

    def query(self) -> Query:
        return Query(ask=self, name=Path(self.path).name, digest=self._digest())

    def _digest(self) -> str:
        """A hash of the file and of those beside it that hold large weights: their names begin with its name."""
        path, whole = Path(self.path), hashlib.sha256()
        for part in sorted(part for part in path.parent.iterdir() if part.name.startswith(path.name)):
            whole.update(part.read_bytes())
        return whole.hexdigest()[:32]

    def __call__(self, images: NDArray[np.float32]) -> NDArray[Any]:
        fixed = self._input.shape[0]
        size = fixed if isinstance(fixed, int) else len(images)
        return np.concatenate([self._run(images[begin : begin + size], size) for begin in range(0, len(images), size)])

    def _run(self, images: NDArray[np.float32], size: int) -> NDArray[Any]:
        filled = np.concatenate([images, np.repeat(images[-1:], size - len(images), axis=0)])
        feed = {self._input.name: filled.astype(_FLOATS[self._input.type])}
        return np.asarray(self._session.run([self._output], feed)[0])[: len(images)]

    @functools.cached_property
    def _session(self) -> Any:
        runtime = _runtime()
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # errors only
        usable = [name for name in _PROVIDERS if name in runtime.get_available_providers()]
        try:
            return runtime.InferenceSession(self.path, options, providers=usable)
        except Exception as error:  # onnxruntime's own kinds of exception
            raise UserError(f"cannot load the ONNX file {self.path}: {str(error).splitlines()[0]}") from error

    @functools.cached_property
    def _input(self) -> Any:
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in _FLOATS or not inputs[0].shape:
            raise UserError(f"{self.path} takes {_listing(inputs)}; expected one batch of float images.")
        return inputs[0]

    @functools.cached_property
    def _output(self) -> str:
        outputs = {output.name: output for output in self._session.get_outputs()}
        if self.output is not None:
            check_known(f"output of {self.path}", outputs, self.output)
            return self.output
        name: str = next((name for name, output in outputs.items() if output.type in _FLOATS), "")
        if not name:
            raise UserError(
                f"{self.path} gives {_listing(outputs.values())}; expected an array of float scores. A scikit-learn "
                "model is exported with the option zipmap=False."
            )
        return name


def _runtime() -> Any:
    try:
        return importlib.import_module("onnxruntime")
    except ModuleNotFoundError:
        raise UserError("ONNX files need the package onnxruntime: pip install classwise[onnx]") from None


def _listing(ends: Any) -> str:
    return ", ".join(f"{end.name} ({end.type})" for end in ends)
