"""The active set: an attack on many examples with batches that stay full.

An example leaves the batch the step it breaks, and the next one takes its place. What leaves is judged by the
untouched model in float32: inside the ball, inside [0,1], truly misclassified. Only then does it count; if the
accelerated model was wrong about it, the example goes back and its attack continues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from classwise.attacks.attack import Attack, Model, Rows, final_point, finished, initial_rows, join, select
from classwise.core import rng
from classwise.core.errors import UserError
from classwise.core.meta import Protocol
from classwise.core.records import COLUMNS, Array
from classwise.core.threat import Ball, choose
from classwise.data.images import Images, IntArray
from classwise.engine.attack_copy import channels_last


@dataclass(frozen=True)
class Verifier:
    """The untouched model's word on a point, and a check of the point itself. Softmax is averaged over `eot` calls."""

    model: Model
    ball: Ball
    eot: int = 1

    @torch.inference_mode()
    def __call__(self, tried: Tensor, x: Tensor, y: Tensor, eps: Tensor) -> dict[str, Tensor]:
        """Per-example columns of the records for the points `tried`; one that is not allowed is replaced by `x`."""
        distance = self.ball.norm(tried - x)
        outside = (distance > eps * (1 + 1e-5) + 1e-6) | (tried.flatten(1).amin(1) < 0) | (tried.flatten(1).amax(1) > 1)
        outside |= ~torch.isfinite(distance)
        # The clean image is always allowed, even where the data itself leaves [0,1]: that is a finding, not a break.
        outside &= distance != 0
        allowed = choose(outside, x, tried) if outside.any() else tried
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
            "point": allowed,
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


@dataclass(kw_only=True)
class AttackResult:
    """What came of an attack on a part: one entry per example of the part, filled as examples finish."""

    columns: dict[str, Array]
    probs: Array
    done: Array
    passes: int = 0  # gradient (or query) passes of single examples
    rejected: int = 0  # claimed broken by the accelerated model, refused by the untouched one
    outside: int = 0  # points outside the ball or the pixel range, refused
    points: Array | None = None  # the points themselves, where they are to be kept

    @classmethod
    def empty(cls, part: Images, num_classes: int, keep_points: bool = False) -> AttackResult:
        count = len(part)
        columns = {name: np.zeros(count) for name in COLUMNS if name not in ("index", "label", "attack", "eps")}
        columns["minimal"] += np.inf
        points = part.batch(np.arange(count))[0].numpy() if keep_points else None
        probs, done = np.zeros((count, num_classes), np.float32), np.zeros(count, bool)
        return cls(columns=columns, probs=probs, done=done, points=points)

    def copy(self) -> AttackResult:
        """The same with arrays of its own."""
        points = None if self.points is None else self.points.copy()
        columns = {name: column.copy() for name, column in self.columns.items()}
        return replace(self, columns=columns, probs=self.probs.copy(), done=self.done.copy(), points=points)

    def spend(self, places: Tensor, queries: Tensor) -> None:
        """Model evaluations of a restart, added to those before."""
        np.add.at(self.columns["queries"], places.cpu().numpy(), queries.cpu().numpy())

    def put(self, places: Tensor, verdict: dict[str, Tensor], steps: Tensor) -> None:
        at = places.cpu().numpy()
        for name in ("prediction", "confidence", "true_prob", "loss", "distance", "minimal"):
            self.columns[name][at] = verdict[name].cpu().numpy()
        self.columns["step"][at] = steps.cpu().numpy()
        self.probs[at] = verdict["probs"].cpu().numpy()
        if self.points is not None:
            self.points[at] = verdict["point"].cpu().numpy()
        self.done[at] = True


@dataclass(kw_only=True)
class ActiveSet:
    """One attack on one part of the data. `attack_copy` proposes, `verifier` decides; see the module's docstring."""

    attack: Attack
    attack_copy: Model
    verifier: Verifier
    part: Images
    eps: Array  # one radius per example of the part
    outcome: AttackResult
    protocol: Protocol
    batch: int
    seed: int
    device: torch.device
    report: Callable[[int], None] = lambda finished: None  # may raise, to stop
    waiting: deque[tuple[int, int]] = field(default_factory=deque, init=False)  # (place in the part, restart)
    pending: list[Rows] = field(default_factory=list, init=False)  # left the batch, not judged yet
    returning: list[Rows] = field(default_factory=list, init=False)  # wrongly claimed broken: their attack continues

    def run(self, places: IntArray) -> AttackResult:
        """Attack the examples at `places` until every one is judged."""
        self.waiting.extend((int(place), 0) for place in places)
        active: Rows = {}
        while True:
            active = self._refill(active)
            if not active:
                self._judge_pending()
                if not (self.waiting or self.returning or self.pending):
                    return self.outcome
                continue
            if self.attack.steps == 0:
                self.pending.append(self._ended(active))
                active = {}
            else:
                active = self._advance(active)
            while _count(*self.pending) >= self.batch:
                self._judge_pending()

    def _refill(self, active: Rows) -> Rows:
        """Let those that came back, then new examples, take the free places of the batch."""
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
        key = rng.keys(self.seed, index, 0) + rng.keys(self.seed, torch.from_numpy(restart), 1)
        eps = torch.from_numpy(self.eps[place]).to(x.dtype).to(self.device)
        number = torch.from_numpy(restart).to(self.device)
        rows = self.attack.begin(
            self.attack_copy, initial_rows(x, y, eps, key.to(self.device), number), self.verifier.ball
        )
        return {**rows, "place": torch.from_numpy(place).to(self.device)}

    def _advance(self, active: Rows) -> Rows:
        moved = self.attack.advance(self.attack_copy, active, self.verifier.ball)
        self.outcome.passes += int(_spent(moved).sum() - _spent(active).sum())
        require_finite(moved["logits"])
        if "best" in moved:
            broken, point = (moved["best"] <= moved["eps"]) & (not self.attack.seeks_distance), moved["x_best"]
        else:  # the model spoke of the point it was given: a broken example is kept there, not where it would go next
            broken, point = moved["logits"].argmax(1) != moved["y"], active["x_adv"]
        claimed = broken & (self.protocol == "any")
        leaving = claimed | finished(moved, self.attack.steps)
        if not leaving.any():
            return moved
        at_end = final_point(moved, self.attack.seeks_distance)
        tried = choose(claimed, point, at_end)
        self.pending.append(select({**moved, "tried": tried, "claimed": claimed}, leaving))
        return select(moved, ~leaving) if not leaving.all() else {}

    def _judge_pending(self) -> None:
        """Judge a batch of what has left: record it, send it back, or give it its next restart."""
        if not self.pending:
            return
        now, self.pending = _cut(self.pending, self.batch)
        rows = join(now)
        verdict = self._verdict(rows)
        self.outcome.outside += int(verdict["outside"].sum())
        survives = verdict["prediction"] == rows["y"]
        refused = survives & rows["claimed"]
        again = (survives | self.attack.seeks_distance) & ~refused & (rows["restart"] + 1 < self.attack.restarts)
        self._send_back(select(rows, refused))
        for place, restart in zip(rows["place"][again].tolist(), rows["restart"][again].tolist(), strict=True):
            self.waiting.append((place, restart + 1))
        self.outcome.spend(rows["place"][~refused], _spent(rows)[~refused])
        final = ~refused & ~again
        spent = rows["restart"] * self.attack.steps + rows["t"] - rows["claimed"].long()
        keep = self._nearer(rows["place"], verdict["minimal"], final) if self.attack.seeks_distance else final
        self.outcome.put(rows["place"][keep], {name: column[keep] for name, column in verdict.items()}, spent[keep])
        self.report(int(final.sum()))

    def _nearer(self, places: Tensor, minimal: Tensor, final: Tensor) -> Tensor:
        """Which restarts came nearer than those before, or are the last of an example that has no row yet."""
        at = places.cpu().numpy()
        before, missing = (torch.from_numpy(a[at]) for a in (self.outcome.columns["minimal"], ~self.outcome.done))
        return (minimal < before.to(minimal)) | (final & missing.to(final.device))

    @torch.inference_mode()
    def _verdict(self, rows: Rows) -> dict[str, Tensor]:
        """The verifier's columns, and `minimal`: the distance at which the point is known to break the example.

        Where the nearest adversarial point is sought it may lie outside the ball: its distance is kept, and the
        example itself is judged at the clean image.
        """
        x, y, eps = rows["x"], rows["y"], rows["eps"]
        verdict = self.verifier(
            rows["tried"], x, y, torch.full_like(eps, torch.inf) if self.attack.seeks_distance else eps
        )
        never = torch.full_like(verdict["distance"], torch.inf)
        verdict["minimal"] = torch.where(verdict["prediction"] != y, verdict["distance"], never)
        far = verdict["distance"] > eps * (1 + 1e-5) + 1e-6
        if far.any():
            for name, column in self.verifier(x[far], x[far], y[far], eps[far]).items():
                verdict[name][far] = column
        return verdict

    def _send_back(self, rows: Rows) -> None:
        """Examples the attack copy was wrong about: their attack continues, or their last iterate is verified."""
        self.outcome.rejected += len(rows["y"])
        state = {name: column for name, column in rows.items() if name not in ("tried", "claimed")}
        if "best" in state:  # that point is none: look for another
            state["best"] = torch.full_like(state["best"], torch.inf)
        ended = finished(state, self.attack.steps)
        if ended.any():
            self.pending.append(self._ended(select(state, ended)))
        if not ended.all():
            self.returning.append(select(state, ~ended))

    def _ended(self, rows: Rows) -> Rows:
        """Rows whose attack is over without a claim: the point it ends with is verified."""
        nobody = torch.zeros_like(rows["y"], dtype=torch.bool)
        return {**rows, "tried": final_point(rows, self.attack.seeks_distance), "claimed": nobody}


def _spent(rows: Rows) -> Tensor:
    """Model evaluations of the running restart."""
    return rows.get("queries", rows["t"])


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
