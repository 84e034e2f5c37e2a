"""The active set: an attack on many examples with batches that stay full.

An example leaves the batch the step it breaks, and the next one takes its place. What leaves is judged by the
untouched model in float32: inside the ball, inside [0,1], truly misclassified. Only then does it count; if the
accelerated model was wrong about it, the example goes back and its attack goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from classwise import draws
from classwise.attacks.rows import Attack, Model, Rows, fresh, join, select
from classwise.datasets.images import Images, IntArray
from classwise.errors import UserError
from classwise.evaluation.speed import channels_last
from classwise.records import COLUMNS, Array, Protocol
from classwise.threat import Norm, norms


@dataclass(frozen=True)
class Judge:
    """The untouched model's word on a point, and a check of the point itself. Softmax is averaged over `eot` calls."""

    model: Model
    norm: Norm
    eot: int = 1

    @torch.inference_mode()
    def __call__(self, tried: Tensor, x: Tensor, y: Tensor, eps: Tensor) -> dict[str, Tensor]:
        """Per-example columns of the records for the points `tried`; one that is not allowed is replaced by `x`."""
        distance = norms(tried - x, self.norm)
        outside = (distance > eps * (1 + 1e-5) + 1e-6) | (tried.flatten(1).amin(1) < 0) | (tried.flatten(1).amax(1) > 1)
        outside |= ~torch.isfinite(distance)
        # The clean image is always allowed, even where the data itself leaves [0,1]: that is a finding, not a break.
        outside &= distance != 0
        allowed = torch.where(outside.reshape(-1, *[1] * (x.ndim - 1)), x, tried) if outside.any() else tried
        p = torch.stack([softmax_of(self.model(allowed)) for _ in range(self.eot)]).mean(0)
        confidence, prediction = p.max(1)
        true_prob = p.gather(1, y[:, None])[:, 0]
        return {
            "prediction": prediction,
            "confidence": confidence,
            "true_prob": true_prob,
            "loss": -true_prob.clamp_min(torch.finfo(p.dtype).tiny).log(),
            "distance": torch.where(outside, 0.0, distance),
            "probs": p,
            "outside": outside,
        }


def softmax_of(logits: Tensor) -> Tensor:
    """Probabilities in double precision (where the device has it), or an error where the output is not a number."""
    require_finite(logits)
    return logits.to(torch.float32 if logits.device.type == "mps" else torch.float64).softmax(1)


def require_finite(logits: Tensor) -> None:
    """Stop where the model's output is not a number."""
    if not torch.isfinite(logits).all():
        bad = int((~torch.isfinite(logits)).any(1).sum())
        raise UserError(
            f"the model returned NaN or infinite logits for {bad} of {len(logits)} images. "
            "Check its weights and its normalisation; an audit of such outputs means nothing."
        )


@dataclass
class Outcome:
    """What came of an attack on a part: one entry per example of the part, filled as examples finish."""

    columns: dict[str, Array]
    probs: Array
    done: Array
    passes: int = 0  # gradient (or query) passes of single examples
    rejected: int = 0  # claimed broken by the accelerated model, refused by the untouched one
    outside: int = 0  # points outside the ball or the pixel range, refused

    @classmethod
    def empty(cls, part: Images, num_classes: int) -> Outcome:
        count = len(part)
        columns = {name: np.zeros(count) for name in COLUMNS if name not in ("index", "label", "attack", "eps")}
        return cls(columns, np.zeros((count, num_classes), np.float32), np.zeros(count, bool))

    def put(self, places: Tensor, verdict: dict[str, Tensor], steps: Tensor) -> None:
        at = places.cpu().numpy()
        for name in ("prediction", "confidence", "true_prob", "loss", "distance"):
            self.columns[name][at] = verdict[name].cpu().numpy()
        self.columns["step"][at] = steps.cpu().numpy()
        self.probs[at] = verdict["probs"].cpu().numpy()
        self.done[at] = True


@dataclass
class ActiveSet:
    """One attack on one part of the data. `fast` proposes, `judge` decides; see the module's docstring."""

    attack: Attack
    fast: Model
    judge: Judge
    part: Images
    eps: Array  # one radius per example of the part
    outcome: Outcome
    protocol: Protocol
    batch: int
    seed: int
    device: torch.device
    report: Callable[[int], None] = lambda finished: None  # may raise, to stop
    waiting: deque[tuple[int, int]] = field(default_factory=deque)  # (place in the part, number of the restart)
    pending: list[Rows] = field(default_factory=list)  # left the batch, not judged yet
    returning: list[Rows] = field(default_factory=list)  # wrongly claimed broken: their attack goes on

    def run(self, places: IntArray) -> Outcome:
        """Attack the examples at `places` until every one is judged."""
        self.waiting.extend((int(place), 0) for place in places)
        active: Rows = {}
        while True:
            active = self._refill(active)
            if not active:
                self._settle()
                if not (self.waiting or self.returning or self.pending):
                    return self.outcome
                continue
            if self.attack.steps == 0:
                self.pending.append(_ended(active))
                active = {}
            else:
                active = self._advance(active)
            while _count(*self.pending) >= self.batch:
                self._settle()

    def _refill(self, active: Rows) -> Rows:
        """Let those that came back, then fresh examples, take the free places of the batch."""
        parts = [active] if active else []
        back, self.returning = _cut(self.returning, self.batch - _count(*parts))
        parts += back
        free = min(self.batch - _count(*parts), len(self.waiting))
        if free:
            parts.append(self._admit([self.waiting.popleft() for _ in range(free)]))
        return join(parts) if parts else {}

    def _admit(self, entries: list[tuple[int, int]]) -> Rows:
        place, restart = np.array(entries, dtype=np.int64).T
        x, y = self.part.batch(place)
        x, y = channels_last(x.to(self.device)), y.to(self.device)
        index = torch.from_numpy(self.part.positions[place])
        key = draws.keys(self.seed, index, 0) + draws.keys(self.seed, torch.from_numpy(restart), 1)
        eps = torch.from_numpy(self.eps[place]).to(x.dtype).to(self.device)
        rows = self.attack.begin(self.fast, fresh(x, y, eps, key.to(self.device)), self.judge.norm)
        own = {"place": torch.from_numpy(place), "restart": torch.from_numpy(restart)}
        return {**rows, **{name: column.to(self.device) for name, column in own.items()}}

    def _advance(self, active: Rows) -> Rows:
        moved = self.attack.advance(self.fast, active, self.judge.norm)
        self.outcome.passes += len(active["y"])
        z = moved["logits"]
        require_finite(z)
        claimed = (z.argmax(1) != moved["y"]) & (self.protocol == "any")
        finished = (moved["t"] >= self.attack.steps) & ~claimed
        # The model spoke of the point it was given: a broken example is kept there, not where it would go next.
        tried = torch.where(claimed.reshape(-1, *[1] * (moved["x"].ndim - 1)), active["x_adv"], moved["x_adv"])
        leaving = claimed | finished
        if leaving.any():
            self.pending.append(select({**moved, "tried": tried, "claimed": claimed}, leaving))
            return select(moved, ~leaving) if not leaving.all() else {}
        return moved

    def _settle(self) -> None:
        """Judge a batch of what has left: record it, send it back, or give it its next restart."""
        if not self.pending:
            return
        now, self.pending = _cut(self.pending, self.batch)
        rows = join(now)
        verdict = self.judge(rows["tried"], rows["x"], rows["y"], rows["eps"])
        self.outcome.outside += int(verdict["outside"].sum())
        standing = verdict["prediction"] == rows["y"]
        refused = standing & rows["claimed"]
        again = standing & ~refused & (rows["restart"] + 1 < self.attack.restarts)
        self._send_back(select(rows, refused))
        for place, restart in zip(rows["place"][again].tolist(), rows["restart"][again].tolist(), strict=True):
            self.waiting.append((place, restart + 1))
        final = ~refused & ~again
        spent = rows["restart"] * self.attack.steps + rows["t"] - rows["claimed"].long()
        kept = {name: column[final] for name, column in verdict.items()}
        self.outcome.put(rows["place"][final], kept, spent[final])
        self.report(int(final.sum()))

    def _send_back(self, rows: Rows) -> None:
        """Examples the fast model was wrong about: on with the attack, or to the judge with their last iterate."""
        self.outcome.rejected += len(rows["y"])
        state = {name: column for name, column in rows.items() if name not in ("tried", "claimed")}
        ended = rows["t"] >= self.attack.steps
        if ended.any():
            self.pending.append(_ended(select(state, ended)))
        if not ended.all():
            self.returning.append(select(state, ~ended))


def _count(*parts: Rows) -> int:
    return sum(len(rows["y"]) for rows in parts)


def _cut(parts: list[Rows], most: int) -> tuple[list[Rows], list[Rows]]:
    """The first `most` rows of the parts, and the rest, so that no batch grows beyond its size."""
    if _count(*parts) <= most:
        return parts, []
    if most == 0:
        return [], parts
    rows = join(parts)
    first, rest = ({name: column[part] for name, column in rows.items()} for part in (slice(most), slice(most, None)))
    return [first], [rest]


def _ended(rows: Rows) -> Rows:
    """Rows whose attack is over without a claim: their last iterate goes to the judge."""
    return {**rows, "tried": rows["x_adv"], "claimed": torch.zeros_like(rows["y"], dtype=torch.bool)}
