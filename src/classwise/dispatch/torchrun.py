"""torchrun on this machine: as many ranks as there are calls, which it starts and stops together.

    torchrun     one rank for each of --jobs

On several machines start torchrun there yourself; each process takes its share by its rank (docs/many_machines.md).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

from classwise.core.errors import UserError
from classwise.core.storage import atomic_write_text
from classwise.dispatch import Call, Resources, Submit
from classwise.dispatch.local import last_error

_TO_STOP = 30.0  # seconds that ranks have to stop


@contextlib.contextmanager
def opened(spec: str, folder: Path, resources: Resources, most: int) -> Iterator[Submit]:
    """Collect the calls, which must be of one function, and start them together when the last has been submitted."""
    if spec != "torchrun":
        raise UserError(f"--engine {spec!r}: torchrun takes nothing after a colon; give --jobs.")
    calls: list[tuple[Call, Future[str | None]]] = []

    def submit(call: Call) -> Future[str | None]:
        calls.append((call, Future()))
        if len(calls) == most:
            wrong = _together([call for call, _ in calls], resources)
            for _, future in calls:
                future.set_result(wrong)
        return calls[-1][1]

    yield submit


def _together(calls: Sequence[Call], resources: Resources) -> str | None:
    """Run all calls; the error that one of them ended with, or None."""
    log = calls[0].log
    arguments = log.with_name("torchrun.json")
    atomic_write_text(arguments, json.dumps([call.arguments for call in calls]))
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={len(calls)}"]
    work = ["-m", "classwise.dispatch.call", "torchrun", calls[0].function, str(arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(resources.threads)}
    with log.open("ab") as sink:
        child = subprocess.Popen(
            [sys.executable, *launcher, *work], stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT,
            env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            status = child.wait()
        except BaseException:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_TO_STOP)
            child.kill()
            raise
        finally:
            arguments.unlink(missing_ok=True)
    return None if status == 0 else last_error(log)
