"""The examples of a part, dealt out to threads that each drive a batch of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import torch

from classwise.attacks.attack import PROMPT
from classwise.core.errors import UserError
from classwise.data.images import IntArray
from classwise.engine.active_set import ActiveSet
from classwise.engine.attack_copy import halved, in_few_sizes, is_compiled, replica, unsettled
from classwise.engine.attack_result import AttackResult
from classwise.engine.batch_size import out_of_memory
from classwise.engine.evaluation import FEWEST


def attack_places(active: ActiveSet, places: IntArray, workers: int) -> AttackResult:
    """Attack the given places; when memory runs out, again with half as many images at once."""
    while True:
        reported = 0

        def report(finished: int, full: ActiveSet = active) -> None:
            nonlocal reported
            reported += finished
            full.report(finished)

        attempt = replace(active, outcome=active.outcome.copy(), report=report)
        try:
            _share_out(attempt, places, min(workers, max(len(places) // FEWEST, 1)))
            return attempt.outcome
        except Exception as error:
            if not out_of_memory(error):
                raise
            batch, copy = max(active.batch // 2, 1), halved(active.attack_copy)
            if active.batch == 1 and copy == active.attack_copy:
                raise UserError("out of memory with a batch of 1; use a smaller model or another device.") from error
            active.report(-reported)
            active = replace(active, batch=batch, attack_copy=copy)
        if active.device.type == "cuda":  # here, where no exception holds on to the tensors of its frames
            torch.cuda.empty_cache()


def _share_out(active: ActiveSet, places: IntArray, workers: int) -> None:
    """Deal the places out to the workers, each with an active set of its own."""
    stop, lock = threading.Event(), threading.Lock()

    def report(finished: int) -> None:
        if stop.is_set():
            raise InterruptedError("another worker failed")
        with lock:
            active.report(finished)

    def work(mine: IntArray, outcome: AttackResult) -> None:
        verifier, copy = active.verifier, unsettled(active.attack_copy)
        if active.device.type not in PROMPT or is_compiled(copy):
            copy = in_few_sizes(copy, active.batch)
        if workers > 1:
            verifier, copy = replace(verifier, model=replica(verifier.model)), replica(copy)
        try:
            replace(active, verifier=verifier, attack_copy=copy, outcome=outcome, report=report).run(mine)
        except BaseException:
            stop.set()
            raise

    outcome = active.outcome
    shares = [replace(outcome) for _ in range(workers)]  # the same arrays, counters of their own
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
