"""How a black box is queried; each kind of black box (http, onnx, python_objects) makes a `Query`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Batch: TypeAlias = NDArray[np.float32]
Scores: TypeAlias = Literal["probs", "logits"]
Shape: TypeAlias = Literal["nchw", "nhwc", "flat"]

#: Ends the message of an error in the middle of an audit.
HOW_TO_RESUME = "Finished parts are kept in the run folder, if any (--out): the same command resumes from there"


@dataclass(frozen=True, kw_only=True)
class Query:
    """A function from a batch of images to scores, its name, a hash of what it knows, and what is known of how it
    works."""

    ask: Callable[[Batch], Any]
    name: str
    digest: str = ""
    scores: Scores | None = None
    shape: Shape = "nchw"


class Kind(Protocol):
    """A kind of black box: a frozen dataclass whose first field is the file or address that a spec names, and whose
    other fields are settings of its own."""

    pattern: ClassVar[str]  # of the specs that name one, up to the first comma; upper and lower case are the same

    def query(self) -> Query:
        """How to ask it."""
