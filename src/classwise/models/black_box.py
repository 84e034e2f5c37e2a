"""Models that only answer: a function, a scikit-learn estimator, an ONNX file, a server. No weights, no gradient.

    callable:score.py:score, sklearn:fit.py:classifier     see classwise.models.python_objects
    net.onnx                                               see classwise.models.onnx
    https://host/path                                      see classwise.models.http

Settings follow after commas: ``callable:score.py:score,shape=nhwc,scale=255``. Scores that are probabilities become
log-probabilities, log max(p, 1e-12), so that softmax gives them back and margins mean what they mean for logits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from classwise.core.errors import UserError
from classwise.core.spec import Bounds, Count, check_keys, configure, split, validate_fields
from classwise.models.http import Http
from classwise.models.normalize import Normalization, Normalize, constants
from classwise.models.onnx import Onnx
from classwise.models.python_objects import Estimator, Function, query_of
from classwise.models.query import HOW_TO_RESUME, Batch, Kind, Query, Scores, Shape

#: Every kind that a spec can name; the first whose pattern fits is taken.
KINDS: tuple[type[Kind], ...] = (Http, Function, Estimator, Onnx)

T = TypeVar("T", bound=nn.Module)

_FLOOR = 1e-12  # of probabilities, before the logarithm
_OUT_OF_MEMORY = (MemoryError, torch.cuda.OutOfMemoryError)  # the engine handles it: it halves the batch


@dataclass(frozen=True)
class Settings:
    """How a black box is queried.

    scores: what its answers are, "probs" or "logits"; by default the first answer decides, once and for all.
    shape: of the images it expects: "nchw", "nhwc", or "flat", one row of numbers each.
    scale: the value of a white pixel: 1, 255, or 16 for scikit-learn's digits.
    budget: the largest number of images that may be queried.
    """

    scores: Scores | None = None
    shape: Shape | None = None
    scale: Annotated[float, Bounds(above=0, note="It is the value of a white pixel.")] = 1.0
    budget: Count | None = None

    def __post_init__(self) -> None:
        validate_fields(self)


class BlackBox(nn.Module):
    """A function or estimator as a module from images in [0,1] to logits; see `Settings`.

    The same images must get the same answer, whatever else is in the batch. `queried` counts the images so far.
    """

    black_box = True

    def __init__(
        self,
        model: Any,
        *,
        scores: Scores | None = None,
        shape: Shape | None = None,
        scale: float = 1.0,
        budget: int | None = None,
        normalize: Normalization = None,
    ) -> None:
        super().__init__()
        given = {"scores": scores, "shape": shape, "scale": scale, "budget": budget}
        self.settings = configure(Settings, given, "black box")
        self.query = model if isinstance(model, Query) else query_of(model)
        self.shape: Shape = self.settings.shape or self.query.shape
        self.scores: Scores | None = self.settings.scores or self.query.scores
        chosen = constants(normalize)
        self.normalize = nn.Identity() if chosen is None else Normalize(*chosen)
        self.classes: int | None = None
        self.queried = 0
        self.eval()

    @property
    def identity(self) -> str:
        """What a run folder stores of the model, in place of weights; its budget and timeouts may change."""
        settings = (f"shape={self.shape}", f"scale={self.settings.scale:g}", f"scores={self.settings.scores or 'auto'}")
        return " ".join(filter(None, (self.query.name, self.query.digest, *settings)))

    def train(self: T, mode: bool = True) -> T:
        """A black box has one mode."""
        return super().train(False)

    def forward(self, x: Tensor) -> Tensor:
        if self.classes is not None and not len(x):
            return x.new_zeros(0, self.classes)
        self._spend(len(x))
        scores = self._ask(self._images(x))
        return self._logits(scores).to(x.device, torch.float32)

    def _spend(self, count: int) -> None:
        budget = self.settings.budget
        if budget is not None and self.queried + count > budget:
            raise UserError(
                f"the budget of {budget} images is spent: {self.queried} were queried, and {count} more are needed. "
                f"{HOW_TO_RESUME}, with a new budget."
            )
        self.queried += count

    def _images(self, x: Tensor) -> Batch:
        """A copy of the batch as the model expects it, so that it may change it in place."""
        images = self.normalize(x.detach()).cpu() * self.settings.scale
        if self.shape == "nhwc":
            images = images.permute(0, 2, 3, 1)
        elif self.shape == "flat":
            images = images.flatten(1)
        return np.array(images.numpy(), np.float32, order="C")

    def _ask(self, images: Batch) -> Tensor:
        try:
            answer = self.query.ask(images)
            if not isinstance(answer, Tensor):
                answer = torch.from_numpy(np.ascontiguousarray(answer, np.float64))
        except (UserError, *_OUT_OF_MEMORY):
            raise
        except Exception as error:
            raise UserError(
                f"{self.query.name} failed on a batch of {'×'.join(map(str, images.shape))}: "
                f"{type(error).__name__}: {error}. {HOW_TO_RESUME}."
            ) from error
        classes = self.classes or "classes"
        if answer.ndim != 2 or len(answer) != len(images) or answer.shape[1] != (self.classes or answer.shape[1]):
            raise UserError(
                f"for {len(images)} images {self.query.name} returned scores of shape {tuple(answer.shape)}, "
                f"expected ({len(images)}, {classes}): one row for each image, one column for each class."
            )
        if answer.shape[1] < 2:
            raise UserError(f"{self.query.name} returned one score for each image; return one for each class.")
        self.classes = answer.shape[1]
        return answer.detach().cpu().double()

    def _logits(self, scores: Tensor) -> Tensor:
        is_distribution = bool((scores >= 0).all()) and bool(((scores.sum(1) - 1).abs() < 1e-3).all())
        if self.scores is None:
            self.scores = "probs" if is_distribution else "logits"
        elif self.scores == "probs" and not is_distribution and self.settings.scores is None:
            raise UserError(
                f"{self.query.name} returned probabilities at first and now a row that is none (values from "
                f"{scores.min():.3g} to {scores.max():.3g}). Say what its scores are: scores=probs or scores=logits."
            )
        return scores.clamp_min(_FLOOR).log() if self.scores == "probs" else scores


def kind_of(spec: str) -> type[Kind] | None:
    """The kind of black box that a spec names; None where it names a network."""
    source = spec.partition(",")[0]
    return next((kind for kind in KINDS if re.fullmatch(kind.pattern, source, re.IGNORECASE)), None)


def load_black_box(spec: Any, normalize: Normalization = None) -> BlackBox:
    """The black box of a spec, a function or an estimator."""
    kind = kind_of(spec) if isinstance(spec, str) else None
    if kind is None:
        return BlackBox(spec, normalize=normalize)
    source, _, settings = spec.partition(",")
    options: dict[str, Any] = split(f"{source.partition(':')[0]}:{settings}")[1]
    first, *own = (field.name for field in fields(kind))  # type: ignore[arg-type]
    check_keys(options, dict.fromkeys([*(field.name for field in fields(Settings)), *own]), source)
    given = {first: source, **{key: options.pop(key) for key in own if key in options}}
    return BlackBox(configure(kind, given, kind.__name__.lower()).query(), normalize=normalize, **options)
