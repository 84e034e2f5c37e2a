"""Weights of any origin, matched to a model by name and shape.

`load_weights` finds which wrapper's prefix separates the file's names from the model's (``module.``, ``_orig_mod.``,
``model.``, ``1.`` after a normalising layer …), maps the few names on which code bases differ, and loads strictly:
names left unmatched on either side are an error that lists them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from classwise.core.errors import UserError
from classwise.models.normalize import Normalized, agree, normalization_of
from classwise.models.reading import State, read_state

Shape = tuple[int, ...]

HEADS = ("linear", "fc", "classifier", "head", "last_linear", "logits")
UNUSED = ("sub_block1.", "AuxLogits.")  # in published files, but never in the network's forward
MEANS, STDS = ("mean", "mu"), ("std", "sigma")


@dataclass
class Match:
    """The file's tensors under the model's names, and what did not fit."""

    state: State
    missing: list[str]
    unexpected: State

    def shapes(self, expected: State) -> list[tuple[str, Shape, Shape]]:
        """(name, shape in the file, shape in the model) wherever they differ."""
        pairs = ((name, tuple(value.shape), tuple(expected[name].shape)) for name, value in self.state.items())
        return [pair for pair in pairs if pair[1] != pair[2]]


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Load a file's weights into `model`, all of them or none."""
    load_state(model, read_state(path), str(path))


def load_state(model: nn.Module, state: State, source: str = "the state dict") -> None:
    """Load weights by name into `model`, through the wrappers and names on which code bases differ."""
    network = model.body if isinstance(model, Normalized) else model
    expected = network.state_dict()
    match = _match(expected, state)
    _check_normalisation(model, match, source)
    buffers = {name for name, _ in network.named_buffers()}
    match.missing = [name for name in match.missing if not (name in buffers and _is_constant(name))]
    match.unexpected = {k: v for k, v in match.unexpected.items() if not any(part in k for part in UNUSED)}
    shapes = match.shapes(expected)
    if match.missing or match.unexpected or shapes:
        raise UserError(_mismatch(source, match, shapes))
    network.load_state_dict(match.state, strict=False)


def _match(expected: State, state: State) -> Match:
    if not any(".downsample." in name for name in expected):  # torchvision's name for the shortcut
        state = {name.replace(".downsample.", ".shortcut."): value for name, value in state.items()}
    file_prefix, model_prefix = _prefixes(expected, state)
    named = {model_prefix + name.removeprefix(file_prefix): name for name in state if name.startswith(file_prefix)}
    head = _head(expected, {name: state[full] for name, full in named.items()})
    if head:
        named = {_renamed(name, *head): full for name, full in named.items()}
    found = {name: state[full] for name, full in named.items() if name in expected}
    used = {named[name] for name in found}
    return Match(found, [n for n in expected if n not in found], {n: v for n, v in state.items() if n not in used})


def _prefixes(expected: State, state: State) -> tuple[str, str]:
    """The wrapper prefixes, of the file's names and of the model's, without which most names agree."""
    by_rest: dict[str, list[str]] = {}
    for name in expected:
        for prefix, rest in _cuts(name):
            by_rest.setdefault(rest, []).append(prefix)
    votes = Counter((theirs, ours) for name in state for theirs, rest in _cuts(name) for ours in by_rest.get(rest, ()))
    best = max(votes, key=lambda pair: (votes[pair], -len(pair[0]) - len(pair[1])), default=("", ""))
    # Of two unrelated networks some pair of blocks agrees by chance; a wrapper holds most of the names.
    return best if votes[best] > min(len(expected), len(state)) / 2 else ("", "")


def _cuts(name: str, deepest: int = 3) -> Iterable[tuple[str, str]]:
    """A name cut after each of its first parts: ``a.b.weight`` as ("", "a.b.weight"), ("a.", "b.weight") …"""
    parts = name.split(".")
    last = max(0, min(len(parts) - 2, deepest))  # "weight" alone would agree with everything
    return ((".".join([*parts[:cut], ""]), ".".join(parts[cut:])) for cut in range(last + 1))


def _head(expected: State, named: State) -> tuple[str, str] | None:
    """(name in the file, name in the model) of a last layer that only has another name."""
    ours = {name.removesuffix(".weight") for name in expected.keys() - named.keys() if name.endswith(".weight")}
    theirs = {name.removesuffix(".weight") for name in named.keys() - expected.keys() if name.endswith(".weight")}
    pairs = [
        (their, our)
        for our in ours
        for their in theirs
        if our.split(".")[-1] in HEADS
        and their.split(".")[-1] in HEADS
        and expected[f"{our}.weight"].shape[1:] == named[f"{their}.weight"].shape[1:]
    ]
    return pairs[0] if len(pairs) == 1 else None


def _renamed(name: str, their: str, our: str) -> str:
    return our + name.removeprefix(their) if name.startswith(their + ".") else name


def _is_constant(name: str) -> bool:
    return name.split(".")[-1] in ("num_batches_tracked", *MEANS, *STDS)


# ---- normalisation stored in a file --------------------------------------------------------------------------


def _check_normalisation(model: nn.Module, match: Match, source: str) -> None:
    """Take a normalising layer's constants out of the unmatched names; they must be those of the model."""
    mean_name, std_name = _constant(match.unexpected, MEANS), _constant(match.unexpected, STDS)
    if mean_name is None or std_name is None:
        return
    mean, std = (tuple(match.unexpected.pop(name).flatten().tolist()) for name in (mean_name, std_name))
    own, wanted = normalization_of(model), f"mean={_format(mean)},std={_format(std)}"
    if own is None:
        raise UserError(
            f"{source} was saved with a layer that normalises the input, and the model has none: its predictions would "
            f"be wrong. Load the model with normalize={wanted!r}."
        )
    if not agree(own, (mean, std)):
        raise UserError(f"{source} normalises with {wanted}, the model does not: load it with normalize={wanted!r}.")


def _format(values: tuple[float, ...]) -> str:
    return f"[{', '.join(f'{value:g}' for value in values)}]"


def _constant(unmatched: State, names: tuple[str, ...]) -> str | None:
    fits = (key for key, value in unmatched.items() if key.split(".")[-1] in names and 1 <= value.numel() <= 4)
    return next(fits, None)  # at most one value for each channel: no running statistics of a layer


# ---- messages ------------------------------------------------------------------------------------------------


def _mismatch(source: str, match: Match, shapes: list[tuple[str, Shape, Shape]]) -> str:
    if not match.missing and not match.unexpected and (hint := _other_classes(shapes)):
        return f"the head of {source} {hint}"
    lines = [f"the weights in {source} do not fit this model; check its name and arguments."]
    lines += _listing("missing from the file", match.missing)
    lines += _listing("unexpected in the file", list(match.unexpected))
    lines += _listing("of another shape", [f"{name} (file {theirs}, model {ours})" for name, theirs, ours in shapes])
    if hint := _other_classes([shape for shape in shapes if shape[0].split(".")[-2:][0] in HEADS]):
        lines.append(f"  The head of the file {hint}")
    return "\n".join(lines)


def _listing(title: str, names: list[str], limit: int = 8) -> list[str]:
    if not names:
        return []
    more = f", … and {len(names) - limit} more" if len(names) > limit else ""
    return [f"  {len(names)} {title}: {', '.join(names[:limit])}{more}"]


def _other_classes(shapes: list[tuple[str, Shape, Shape]]) -> str | None:
    """A sentence if the only difference is the number of rows of one layer: the number of classes."""
    layers = {name.rpartition(".")[0] for name, _, _ in shapes}
    rows = {(theirs[0], ours[0]) for _, theirs, ours in shapes if theirs[1:] == ours[1:] and theirs and ours}
    if len(layers) != 1 or len(rows) != 1 or any(theirs[1:] != ours[1:] for _, theirs, ours in shapes):
        return None
    theirs, ours = rows.pop()
    return f"has {theirs} classes and the model {ours}: pass num_classes={theirs}."
