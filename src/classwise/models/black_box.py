"""Models that only answer: a function, a scikit-learn estimator, an ONNX file, a server. No weights, no gradient.

    callable:score.py:score        a function that takes a numpy array of images and returns one row of scores for each
    sklearn:fit.py:classifier      an estimator, or a function that makes one
    net.onnx                       see classwise.models.onnx
    https://host/path              see classwise.models.http

Settings follow after commas: ``callable:score.py:score,shape=nhwc,scale=255``. Scores that are probabilities become
log-probabilities, log max(p, 1e-12), so that softmax gives them back and margins mean what they mean of logits.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from classwise.core.errors import UserError, unknown
from classwise.core.spec import Bounds, Count, check_keys, configure, split, validate_fields
from classwise.core.user_files import run_file
from classwise.models.http import GOES_ON, Http
from classwise.models.normalize import Normalization, Normalize, constants
from classwise.models.onnx import Onnx

Batch: TypeAlias = NDArray[np.float32]
Scores: TypeAlias = Literal["probs", "logits"]
Shape: TypeAlias = Literal["nchw", "nhwc", "flat"]
T = TypeVar("T", bound=nn.Module)

_FLOOR = 1e-12  # of probabilities, before the logarithm
_SPEC = re.compile(r"(https?://|callable:|sklearn:).*|[^,]+\.onnx(,.*)?", re.IGNORECASE)
_NAMED = re.compile(r"(?P<path>.+\.py):(?P<name>\w+)")
_OUT_OF_MEMORY = (MemoryError, torch.cuda.OutOfMemoryError)  # the engine's to deal with: it halves the batch


@dataclass(frozen=True)
class Query:
    """Whom to ask: a function of a batch, its name, a hash of what it knows, and what is known of how it works."""

    ask: Callable[[Batch], Any]
    name: str
    digest: str = ""
    scores: Scores | None = None
    shape: Shape = "nchw"


@dataclass(frozen=True)
class Settings:
    """How a black box is asked.

    scores: what its answers are, "probs" or "logits"; by default told by the first answer, once and for all.
    shape: the images it wants: "nchw", "nhwc", or "flat", one row of numbers each.
    scale: what white is to it: 1, 255, or 16 for scikit-learn's digits.
    budget: at most this many images are asked about.
    """

    scores: Scores | None = None
    shape: Shape | None = None
    scale: Annotated[float, Bounds(above=0, note="It is the value of a white pixel.")] = 1.0
    budget: Count | None = None

    def __post_init__(self) -> None:
        validate_fields(self)


class BlackBox(nn.Module):
    """A function or estimator as a module from images in [0,1] to logits; see `Settings` for what can be said of it.

    The same images must get the same answer, whatever else is in the batch. `asked` counts the images so far.
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
        self.query = model if isinstance(model, Query) else _query(model)
        self.shape: Shape = self.settings.shape or self.query.shape
        self.scores: Scores | None = self.settings.scores or self.query.scores
        chosen = constants(normalize)
        self.normalize = nn.Identity() if chosen is None else Normalize(*chosen)
        self.classes: int | None = None
        self.asked = 0
        self.eval()

    @property
    def identity(self) -> str:
        """What a run folder remembers of the model, in place of weights; budget and patience may change."""
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
        if budget is not None and self.asked + count > budget:
            raise UserError(
                f"the budget of {budget} images is spent: {self.asked} were asked about, and {count} more are wanted. "
                f"{GOES_ON}, with a fresh budget."
            )
        self.asked += count

    def _images(self, x: Tensor) -> Batch:
        """A copy of the batch as the model wants it: what it does to it stays its own business."""
        images = self.normalize(x.detach()).cpu() * self.settings.scale
        if self.shape == "nhwc":
            images = images.permute(0, 2, 3, 1)
        elif self.shape == "flat":
            images = images.flatten(1)
        return np.array(images.numpy(), np.float32, order="C")

    def _ask(self, images: Batch) -> Tensor:
        try:
            answer = self.query.ask(images)
            answer = answer.detach().cpu() if isinstance(answer, Tensor) else torch.from_numpy(_numbers(answer))
        except (UserError, *_OUT_OF_MEMORY):
            raise
        except Exception as error:
            raise UserError(
                f"{self.query.name} failed on a batch of {'×'.join(map(str, images.shape))}: "
                f"{type(error).__name__}: {error}. {GOES_ON}."
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
        return answer.double()

    def _logits(self, scores: Tensor) -> Tensor:
        alike = bool((scores >= 0).all()) and bool(((scores.sum(1) - 1).abs() < 1e-3).all())
        if self.scores is None:
            self.scores = "probs" if alike else "logits"
        elif self.scores == "probs" and not alike and self.settings.scores is None:
            raise UserError(
                f"{self.query.name} answered with probabilities at first and now with a row that is none (from "
                f"{scores.min():.3g} to {scores.max():.3g}). Say what its scores are: scores=probs or scores=logits."
            )
        return scores.clamp_min(_FLOOR).log() if self.scores == "probs" else scores


def _numbers(answer: Any) -> NDArray[np.float64]:
    return np.ascontiguousarray(answer, dtype=np.float64)


# ---- what can be asked --------------------------------------------------------------------------------------


def _query(model: Any) -> Query:
    """The query of a Python object: an estimator or a function."""
    if isinstance(model, type):
        raise UserError(f"{model.__name__} is a class; give an instance of it.")
    if _is_estimator(model):
        return _estimator(model)
    if callable(model):
        return Query(model, _name(model))
    raise UserError(
        f"a {type(model).__name__} is no model. Expected a torch.nn.Module, a spec, a function from images to scores, "
        "or a fitted estimator with predict_proba or decision_function."
    )


def _name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    owner = function if hasattr(function, "__qualname__") else type(function)
    return f"{owner.__module__}.{owner.__qualname__}"


def _is_estimator(model: Any) -> bool:
    return not isinstance(model, type) and (hasattr(model, "predict_proba") or hasattr(model, "decision_function"))


def _estimator(model: Any) -> Query:
    classes = getattr(model, "classes_", None)
    if classes is not None and not np.array_equal(classes, np.arange(len(classes))):
        raise UserError(
            f"the estimator's classes are {', '.join(map(str, classes[:8]))}{' …' if len(classes) > 8 else ''}; "
            f"expected the class numbers 0…{len(classes) - 1}. Fit it on the data's labels."
        )
    name, digest = _name(model), _fitted(model)
    if hasattr(model, "predict_proba"):
        return Query(model.predict_proba, name, digest, "probs", "flat")
    return Query(functools.partial(_decide, model), name, digest, "logits", "flat")


def _fitted(model: Any) -> str:
    """A hash of all an estimator has learnt; of its parameters alone where it holds what cannot be written down."""
    import joblib  # type: ignore[import-untyped]  # comes with scikit-learn, and takes as long to import

    try:
        return str(joblib.hash(model))
    except Exception:  # pickling runs the objects' own code, which may raise anything
        shown = re.sub(r" at 0x[0-9a-f]+", "", repr(model), flags=re.IGNORECASE)  # where it is, not what it is
        return hashlib.sha256(shown.encode()).hexdigest()[:32]


def _decide(model: Any, images: Batch) -> NDArray[np.float64]:
    """An estimator's decision function; of two classes it gives one number d, the logits (0, d)."""
    decision = _numbers(model.decision_function(images))
    return np.stack([np.zeros_like(decision), decision], 1) if decision.ndim == 1 else decision


# ---- specs --------------------------------------------------------------------------------------------------


def names_black_box(spec: str) -> bool:
    """Whether a spec names something to be asked, not a network."""
    return _SPEC.fullmatch(spec) is not None


def load_black_box(spec: Any, normalize: Normalization = None) -> BlackBox:
    """The black box of a spec, a function or an estimator."""
    if not isinstance(spec, str):
        return BlackBox(spec, normalize=normalize)
    what, _, settings = spec.partition(",")
    _, options = split(f"{what.partition(':')[0]}:{settings}")
    kind, own = next((kind, own) for start, kind, own in _KINDS if re.match(start, what, re.IGNORECASE))
    keys = [field.name for field in fields(own)][1:] if own else []  # the first is the file or address itself
    check_keys(options, dict.fromkeys([*(field.name for field in fields(Settings)), *keys]), what)
    query = kind(what, {key: options.pop(key) for key in keys if key in options})
    given = asdict(configure(Settings, options, "black box"))
    return BlackBox(query, normalize=normalize, **given)


def _http(what: str, options: dict[str, str]) -> Query:
    return Query(configure(Http, {"url": what, **options}, "http"), what)


def _onnx(what: str, options: dict[str, str]) -> Query:
    program = configure(Onnx, {"path": what, **options}, "onnx")
    return Query(program, Path(what).name, program.digest)


def _callable(what: str, options: dict[str, str]) -> Query:
    path, name, found = _take(what)
    if not callable(found):
        raise UserError(f"{path}:{name} is a {type(found).__name__}, expected a function from images to scores.")
    return Query(found, f"{path.name}:{name}", hashlib.sha256(path.read_bytes()).hexdigest()[:32])


def _sklearn(what: str, options: dict[str, str]) -> Query:
    path, name, found = _take(what)
    if not _is_estimator(found) and callable(found):
        try:
            found = found()
        except Exception as error:
            raise UserError(f"{path}:{name} failed: {type(error).__name__}: {error}") from error
    if not _is_estimator(found):
        raise UserError(
            f"{path}:{name} is a {type(found).__name__}, expected an estimator with predict_proba or "
            "decision_function, or a function that makes one."
        )
    return _estimator(found)


def _take(what: str) -> tuple[Path, str, Any]:
    """The object that ``kind:file.py:name`` means."""
    kind, _, place = what.partition(":")
    match = _NAMED.fullmatch(place)
    if match is None:
        raise UserError(
            f"{what!r} is not of the form {kind}:file.py:NAME. Other files hold code that loading would run: write a "
            "Python file that loads yours, if you trust it, and name the result."
        )
    path, name = Path(match["path"]), match["name"]
    module = run_file(path, repr(name))
    if not hasattr(module, name):
        raise unknown(f"name in {path.name}", name, [key for key in vars(module) if not key.startswith("_")])
    return path, name, getattr(module, name)


_KINDS: tuple[tuple[str, Callable[[str, dict[str, str]], Query], type[Any] | None], ...] = (
    ("https?://", _http, Http),
    ("callable:", _callable, None),
    ("sklearn:", _sklearn, None),
    (".*", _onnx, Onnx),
)
