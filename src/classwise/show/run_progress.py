"""Progress of a run folder that several processes write, whoever and wherever they are: by the parts that are there."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from classwise.core.errors import UserError
from classwise.core.record_parts import RecordParts
from classwise.core.run_config import as_table
from classwise.core.run_folder import AuditFolder
from classwise.show.progress import progress_bar

_EVERY = 1.0  # seconds between two looks


@contextmanager
def watching(run: AuditFolder, costs: Mapping[str, float], show: bool | None = None) -> Iterator[None]:
    """Show how far all processes together are, with their throughput and one time left, as long as the block runs.

    costs: about how much work an example is for each attack. What was there at the beginning does not count.
    """
    stop = threading.Event()
    thread = threading.Thread(target=_watch, args=(run, costs, show, stop), daemon=True)
    if show is not False:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if show is not False:
            thread.join()


def _watch(run: AuditFolder, costs: Mapping[str, float], show: bool | None, stop: threading.Event) -> None:
    before: dict[str, int] | None = None
    while before is None:  # whoever comes first makes the folder
        if stop.wait(_EVERY):
            return
        before = finished(run)
    totals = {name: examples_of(run) - count for name, count in before.items()}
    per_example = {name: costs.get(name, costs.get(name.partition("@")[0], 1.0)) for name in totals}
    with progress_bar(totals, per_example, show) as report:
        while not stop.wait(_EVERY):
            now = finished(run) or before
            for name, count in now.items():
                if count > before[name]:
                    report(name, count - before[name])
            before = now


def finished(run: AuditFolder) -> dict[str, int] | None:
    """How many examples of each attack are in parts that are there; None where the run has not begun."""
    try:
        parts = RecordParts(run, run.records, (), run.config())
    except UserError:
        return None
    names, numbers = [*as_table(parts.config.get("attacks"))], parts.numbers()
    if not names or not numbers:
        return None
    there = {path.name for path in run.records.glob("*.parquet")} if run.records.is_dir() else set()
    size, more = divmod(examples_of(run), len(numbers))
    return {
        name: sum(size + (n < more) for n in numbers if run.part(place, name, n).name in there)
        for place, name in enumerate(names)
    }


def examples_of(run: AuditFolder) -> int:
    return int(as_table(run.config().get("data")).get("examples", 0))
