"""The active set: an attack on many examples with batches that stay full.

An example leaves the batch the step it breaks, and the next one takes its place. What leaves is judged by the
untouched model in float32: inside the ball, inside [0,1], truly misclassified. Only then does it count; if the
accelerated model was wrong about it, the example goes back and its attack continues.

A GPU works through what it is given while the host goes on, until the host reads a value. So there who has left is
looked up every fourth step, the verdicts of the last batch in the same transfer; until then whoever has left is frozen
on the device, and nothing else in a step waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from classwise.attacks.attack import (
    PROMPT,
    Attack,
    Model,
    Rows,
    final_point,
    finished,
    initial_rows,
    join,
    possibly,
    take,
)
from classwise.core import rng
from classwise.core.meta import Protocol
from classwise.core.records import Array
from classwise.core.threat import choose
from classwise.data.images import Images, IntArray
from classwise.engine.attack_copy import channels_last
from classwise.engine.attack_result import AttackResult
from classwise.engine.decoded import Decoded
from classwise.engine.verifier import Verifier, precise, require_finite, tf32

_LOOK = 4  # steps between two looks on a GPU
_CLAIM = ("tried", "claimed")  # columns of rows that leave
_ROWS = ("y", "place", "restart", "t", "claimed")
_VERDICT = ("prediction", "confidence", "true_prob", "loss", "distance", "minimal", "outside", "finite")


class Judged(NamedTuple):
    """Examples that the verifier has spoken about: their rows, and a table on the device with a column for each name,
    then the probabilities where they are kept."""

    rows: Rows
    names: tuple[str, ...]
    verdict: Tensor
    point: Tensor


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
    look: int = 0  # steps between two looks at who has left; 0: each on a CPU, every fourth elsewhere
    waiting: deque[tuple[int, int]] = field(default_factory=deque, init=False)  # (place in the part, restart)
    pending: list[Rows] = field(default_factory=list, init=False)  # left the batch, not judged yet
    judged: list[Judged] = field(default_factory=list, init=False)  # by the device, not read yet
    returning: list[Rows] = field(default_factory=list, init=False)  # wrongly claimed broken: their attack continues

    def __post_init__(self) -> None:
        self.look = self.look or (1 if self.device.type in PROMPT else _LOOK)

    def run(self, places: IntArray) -> AttackResult:
        """Attack the examples at `places` until every one is judged."""
        self.waiting.extend((int(place), 0) for place in places)
        with tf32(True):
            active: Rows = {}
            while True:
                active = self._refill(active)
                if not active:
                    self._judge_pending()
                    self._read()
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
                if self.look == 1 or len(self.judged) > 1:
                    self._read()

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
        positions, pixels = self.part.positions[place], self.part.pixels
        x = pixels.on(positions, self.device) if isinstance(pixels, Decoded) else pixels.read(positions)
        x = channels_last(x.to(self.device, non_blocking=True))
        y = torch.from_numpy(self.part.labels[place]).to(self.device, non_blocking=True)
        index = torch.from_numpy(positions)
        key = rng.keys(self.seed, index, 0) + rng.keys(self.seed, torch.from_numpy(restart), 1)
        eps = torch.from_numpy(self.eps[place]).to(x.dtype).to(self.device)
        number = torch.from_numpy(restart).to(self.device)
        rows = self.attack.begin(
            self.attack_copy, initial_rows(x, y, eps, key.to(self.device), number), self.verifier.ball
        )
        return {**rows, "place": torch.from_numpy(place).to(self.device)}

    def _advance(self, active: Rows) -> Rows:
        """Steps up to the next look, then whoever has left is taken out. In between, those that have are frozen on the
        device: the rows come out the same, however many steps there are between two looks."""
        rows, gone, finite = active, None, None
        for _ in range(min(self.look, self.attack.steps)):
            moved, leaving, well = self._step(rows)
            if gone is None or finite is None:
                rows, gone, finite = moved, leaving, well
            else:
                rows = {name: choose(gone, rows[name], column) for name, column in moved.items()}
                gone, finite = gone | leaving, finite & (well | gone)
        assert gone is not None
        assert finite is not None
        spent = _spent(rows).sum() - _spent(active).sum()
        left, well_seen, passes = self._read(gone, finite, spent)
        require_finite(well_seen > 0)
        self.outcome.passes += int(passes[0])
        if not left.any():
            return {name: column for name, column in rows.items() if name not in _CLAIM}
        out, stay = (np.flatnonzero(part) for part in (left, left == 0))
        self.pending.append(self._at(rows, out))
        own = {name: column for name, column in rows.items() if name not in _CLAIM}
        return self._at(own, stay) if stay.size else {}

    def _step(self, active: Rows) -> tuple[Rows, Tensor, Tensor]:
        """The rows after a step with what is `tried` of each and whether it is `claimed` to be broken there, who
        leaves, and whose answer was a number."""
        moved = self.attack.advance(self.attack_copy, active, self.verifier.ball)
        if "best" in moved:
            broken, point = (moved["best"] <= moved["eps"]) & (not self.attack.seeks_distance), moved["x_best"]
        else:  # the model spoke of the point it was given: a broken example is kept there, not where it would go next
            broken, point = moved["logits"].argmax(1) != moved["y"], active["x_adv"]
        claimed = broken & (self.protocol == "any")
        leaving = claimed | finished(moved, self.attack.steps)
        tried = moved["x_adv"]
        if possibly(leaving):
            tried = choose(claimed, point, final_point(moved, self.attack.seeks_distance))
        return {**moved, "tried": tried, "claimed": claimed}, leaving, torch.isfinite(moved["logits"]).all(1)

    def _at(self, rows: Rows, places: IntArray) -> Rows:
        return take(rows, torch.from_numpy(places).to(self.device, non_blocking=True))

    def _read(self, *tensors: Tensor) -> list[Array]:
        """The values of the tensors, and of all verdicts so far, which are recorded: in one transfer to the host."""
        judged, self.judged = self.judged, []
        wanted = [*tensors, *(one.verdict for one in judged)]
        if not wanted:
            return []
        flat = torch.cat([tensor.detach().reshape(-1).to(precise(self.device)) for tensor in wanted]).cpu().numpy()
        values = np.split(flat, np.cumsum([tensor.numel() for tensor in wanted])[:-1])
        for one, found in zip(judged, values[len(tensors) :], strict=True):
            self._record(one, found.reshape(one.verdict.shape))
        return values[: len(tensors)]

    def _judge_pending(self) -> None:
        """Judge a batch of what has left."""
        if not self.pending:
            return
        now, self.pending = _cut(self.pending, self.batch)
        rows = join(now)
        found = self._verdict(rows)
        table = {name: found[name] for name in _VERDICT} | {name: rows[name] for name in _ROWS}
        table |= {"spent": _spent(rows), "ended": finished(rows, self.attack.steps)}
        columns = [column.to(precise(self.device)) for column in table.values()]
        verdict = torch.stack(columns, 1)
        if self.outcome.probs is not None:
            verdict = torch.cat([verdict, found["probs"].to(verdict)], 1)
        self.judged.append(Judged(rows, tuple(table), verdict, found["point"]))

    def _record(self, judged: Judged, values: Array) -> None:
        """What became of judged examples: record it, send them back, or give them their next restart."""
        table = dict(zip(judged.names, values.T, strict=False))
        require_finite(table["finite"] > 0)
        self.outcome.outside += int(table["outside"].sum())
        place, restart = (table[name].astype(np.int64) for name in ("place", "restart"))
        survives, claimed = table["prediction"] == table["y"], table["claimed"] > 0
        refused = survives & claimed
        again = (survives | self.attack.seeks_distance) & ~refused & (restart + 1 < self.attack.restarts)
        if refused.any():
            self._send_back(judged.rows, np.flatnonzero(refused), table["ended"] > 0)
        self.waiting.extend(zip(place[again].tolist(), (restart[again] + 1).tolist(), strict=True))
        np.add.at(self.outcome.columns["queries"], place[~refused], table["spent"][~refused])
        final = ~refused & ~again
        keep = final
        if self.attack.seeks_distance:  # what came nearer than before, or is the last of an example without a row
            before, missing = self.outcome.columns["minimal"][place], ~self.outcome.done[place]
            keep = (table["minimal"] < before) | (final & missing)
        table["step"] = restart * self.attack.steps + table["t"] - claimed
        table["probs"] = values[:, len(judged.names) :]
        self.outcome.put(place[keep], {name: column[keep] for name, column in table.items()})
        if self.outcome.points is not None:
            at = torch.from_numpy(np.flatnonzero(keep)).to(self.device)
            self.outcome.points[place[keep]] = judged.point.index_select(0, at).cpu().numpy()
        self.report(int(final.sum()))

    @torch.inference_mode()
    def _verdict(self, rows: Rows) -> dict[str, Tensor]:
        """The verifier's columns, and `minimal`: the distance at which the point is known to break the example.

        Where the nearest adversarial point is sought it may lie outside the ball: its distance is kept, and the
        example itself is judged at the clean image.
        """
        x, y, eps = rows["x"], rows["y"], rows["eps"]
        seeking = self.attack.seeks_distance
        verdict = self.verifier.columns(rows["tried"], x, y, torch.full_like(eps, torch.inf) if seeking else eps)
        never = torch.full_like(verdict["distance"], torch.inf)
        verdict["minimal"] = torch.where(verdict["prediction"] != y, verdict["distance"], never)
        far = verdict["distance"] > eps * (1 + 1e-5) + 1e-6
        if seeking and possibly(far):
            for name, column in self.verifier.columns(x, x, y, eps).items():
                verdict[name] = choose(far, column, verdict[name])
        return verdict

    def _send_back(self, rows: Rows, places: IntArray, ended: Array) -> None:
        """Examples the attack copy was wrong about: their attack continues, or their last iterate is verified."""
        self.outcome.rejected += len(places)
        state = {name: column for name, column in rows.items() if name not in _CLAIM}
        if "best" in state:  # that point is none: look for another
            state["best"] = torch.full_like(state["best"], torch.inf)
        over, on = (places[part] for part in (ended[places], ~ended[places]))
        if over.size:
            self.pending.append(self._ended(self._at(state, over)))
        if on.size:
            self.returning.append(self._at(state, on))

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
