"""Black boxes in Python: functions and scikit-learn estimators, as they are or named in a file.

callable:score.py:score        a function that takes a numpy array of images and returns one row of scores for each
sklearn:fit.py:classifier      an estimator, or a function that makes one
"""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from classwise.core.errors import UserError, unknown
from classwise.core.user_files import IN_FILE, run_file
from classwise.models.query import Batch, Query


@dataclass(frozen=True)
class Function:
    """A function named in a file."""

    spec: str

    pattern: ClassVar[str] = "callable:.*"

    def query(self) -> Query:
        path, name, found = _take(self.spec)
        if not callable(found):
            raise UserError(f"{path}:{name} is a {type(found).__name__}, expected a function from images to scores.")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:32]
        return Query(ask=found, name=f"{path.name}:{name}", digest=digest)


@dataclass(frozen=True)
class Estimator:
    """A scikit-learn estimator named in a file, or a function that makes one."""

    spec: str

    pattern: ClassVar[str] = "sklearn:.*"

    def query(self) -> Query:
        path, name, found = _take(self.spec)
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
        return query_of(found)


def query_of(model: Any) -> Query:
    """The query of a Python object: an estimator or a function."""
    if isinstance(model, type):
        raise UserError(f"{model.__name__} is a class; give an instance of it.")
    if _is_estimator(model):
        return _estimator(model)
    if callable(model):
        return Query(ask=model, name=_name(model))
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
    probabilities = hasattr(model, "predict_proba")
    return Query(
        ask=model.predict_proba if probabilities else functools.partial(_decide, model),
        name=_name(model),
        digest=_digest(model),
        scores="probs" if probabilities else "logits",
        shape="flat",
    )


def _digest(model: Any) -> str:
    """A hash of all an estimator has learnt; of its parameters alone where it holds what cannot be pickled."""
    import joblib  # type: ignore[import-untyped]  # comes with scikit-learn, and takes as long to import

    try:
        return str(joblib.hash(model))
    except Exception:  # pickling runs the objects' own code, which may raise anything
        shown = re.sub(r" at 0x[0-9a-f]+", "", repr(model), flags=re.IGNORECASE)  # an address differs in every process
        return hashlib.sha256(shown.encode()).hexdigest()[:32]


def _decide(model: Any, images: Batch) -> NDArray[np.float64]:
    """An estimator's decision function; of two classes it gives one number d, the logits (0, d)."""
    decision = np.ascontiguousarray(model.decision_function(images), dtype=np.float64)
    return np.stack([np.zeros_like(decision), decision], 1) if decision.ndim == 1 else decision


def _take(spec: str) -> tuple[Path, str, Any]:
    """The object that ``kind:file.py:name`` names."""
    kind, _, place = spec.partition(":")
    match = IN_FILE.fullmatch(place)
    if match is None:
        raise UserError(
            f"{spec!r} is not of the form {kind}:file.py:NAME. Other files hold code that loading would run: write a "
            "Python file that loads yours, if you trust it, and name the result."
        )
    path, name = Path(match["path"]), match["name"]
    module = run_file(path, repr(name))
    if not hasattr(module, name):
        raise unknown(f"name in {path.name}", name, [key for key in vars(module) if not key.startswith("_")])
    return path, name, getattr(module, name)
