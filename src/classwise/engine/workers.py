"""The examples of a part, dealt out to threads that each drive a batch of their own."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

from classwise.attacks.attack import Attack
from classwise.core.errors import UserError
from classwise.core.records import Array
from classwise.data.images import Images, IntArray
from classwise.engine.active_set import ActiveSet, AttackResult, Verifier
from classwise.engine.attack_copy import halved, replica, unsettled
from classwise.engine.batch_size import out_of_memory
from classwise.engine.evaluation import FEWEST, Evaluation


def attack_places(
    evaluation: Evaluation,
    attack: Attack,
    part: Images,
    *,
    eps: Array,
    outcome: AttackResult,
    places: IntArray,
    name: str,
) -> AttackResult:
    """Attack the given places; when memory runs out, again with half as many images at once."""
    batch, copy = evaluation.plan.batch, evaluation.attack_copy
    while True:
        attempt = dataclasses.replace(
            outcome,
            columns={key: column.copy() for key, column in outcome.columns.items()},
            probs=outcome.probs.copy(),
            done=outcome.done.copy(),
            points=None if outcome.points is None else outcome.points.copy(),
        )
        reported = 0

        def report(attack: str, finished: int) -> None:
            nonlocal reported
            reported += finished
            evaluation.report(attack, finished)

        try:
            trial = dataclasses.replace(evaluation, attack_copy=copy, report=report)
            _share_out(trial, attack, part, eps=eps, outcome=attempt, places=places, name=name, batch=batch)
            return attempt
        except Exception as error:
            if not out_of_memory(error):
                raise
            if batch == 1 and halved(copy) == copy:
                raise UserError("out of memory with a batch of 1; use a smaller model or another device.") from error
            batch, copy = max(batch // 2, 1), halved(copy)
            evaluation.report(name, -reported)
        if evaluation.device.type == "cuda":  # here, where no exception holds on to the tensors of its frames
            torch.cuda.empty_cache()


def _share_out(
    evaluation: Evaluation,
    attack: Attack,
    part: Images,
    *,
    eps: Array,
    outcome: AttackResult,
    places: IntArray,
    name: str,
    batch: int,
) -> None:
    """Deal the places out to the workers, each with an active set of its own."""
    stop, lock = threading.Event(), threading.Lock()

    def report(finished: int) -> None:
        if stop.is_set():
            raise InterruptedError("another worker failed")
        with lock:
            evaluation.report(name, finished)

    def work(mine: IntArray, own: AttackResult) -> None:
        verifier = Verifier(
            replica(evaluation.model) if workers > 1 else evaluation.model, evaluation.threat.ball, evaluation.eot
        )
        copy = replica(evaluation.attack_copy) if workers > 1 else unsettled(evaluation.attack_copy)
        try:
            ActiveSet(
                attack=attack,
                attack_copy=copy,
                verifier=verifier,
                part=part,
                eps=eps,
                outcome=own,
                protocol=evaluation.protocol,
                batch=batch,
                seed=evaluation.meta.seed,
                device=evaluation.device,
                report=report,
            ).run(mine)
        except BaseException:
            stop.set()
            raise

    workers = min(evaluation.plan.workers, max(len(places) // FEWEST, 1))
    shares = [dataclasses.replace(outcome) for _ in range(workers)]  # the same arrays, counters of their own
    if workers == 1:
        work(places, shares[0])
    else:
        with (
            _threads_each(workers) as each,
            ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(each,)) as pool,
        ):
            futures = [pool.submit(work, places[number::workers], share) for number, share in enumerate(shares)]
            try:
                for future in futures:
                    if (error := future.exception()) and not isinstance(error, InterruptedError):
                        raise error
            except BaseException:
                stop.set()
                raise
    for share in shares:
        outcome.passes += share.passes
        outcome.rejected += share.rejected
        outcome.outside += share.outside


@contextmanager
def _threads_each(workers: int) -> Iterator[int]:
    """Each worker's share of torch's threads; the process-wide setting is put back at the end."""
    threads = torch.get_num_threads()
    try:
        yield max(threads // workers, 1)
    finally:
        torch.set_num_threads(threads)
