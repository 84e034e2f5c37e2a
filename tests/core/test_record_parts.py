"""Reading a run folder: whether its parts hold every example once, and what is said where they do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo
from classwise.core.records import CLEAN, Records
from classwise.core.run_folder import AuditFolder
from classwise.results.audit_result import Audit

Make = Callable[..., Audit]
NAMES = (CLEAN, "pgd-20", "fgsm")
PART = 5  # of 20 examples


def stored(audit_of: Make, folder: Path, coverage: str = "all", **changes: dict[str, object]) -> Records:
    """Ten examples of two classes each: 10 and 9 right when clean, 6 and 4 under pgd, 8 and 3 under fgsm."""
    infos = {name: AttackInfo(settings={**changes}, coverage=coverage) for name in NAMES[1:]}  # type: ignore[arg-type]
    counts = {CLEAN: [10, 9], "pgd-20": [6, 4], "fgsm": [8, 3]}
    records = audit_of(counts, (10, 10), ("cat", "dog"), {CLEAN: AttackInfo(), **infos}).records
    left = np.ones(20, bool)
    for place, name in enumerate(NAMES):
        rows = records.of(name)
        for number in range(4):
            mine = np.arange(PART * number, PART * (number + 1))
            shown = mine[left[mine]] if coverage == "survivors" and name != CLEAN else mine
            rows.take(shown).write(AuditFolder(folder).part(place, name, number))
        left &= rows.correct
    (folder / "config.toml").write_text("[data]\nexamples = 20\n[plan]\nbatch = 5\npart = 5\nworkers = 1\n")
    return records


def message(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        Records.read(folder)
    return str(caught.value)


@pytest.mark.parametrize("coverage", ["all", "survivors"])
def test_what_is_complete_is_read(audit_of: Make, tmp_path: Path, coverage: str) -> None:
    stored(audit_of, tmp_path, coverage)
    read = Records.read(tmp_path)
    assert read.attacks == NAMES
    assert [len(read.of(name)) for name in NAMES] == ([20, 20, 20] if coverage == "all" else [20, 19, 10])
    assert len(Records.read(tmp_path / "records")) == len(read)


@pytest.mark.slow
@pytest.mark.parametrize("coverage", ["all", "survivors"])
@pytest.mark.parametrize(("place", "name"), list(enumerate(NAMES)))
def test_a_part_that_is_gone_is_named(audit_of: Make, tmp_path: Path, coverage: str, place: int, name: str) -> None:
    stored(audit_of, tmp_path, coverage)
    gone = AuditFolder(tmp_path).part(place, name, 2)
    gone.unlink()
    said = message(tmp_path)
    assert "do not hold each example once" in said
    assert f"Not there: {gone.name}" in said
    assert "Repeat the audit's command" in said
    assert (f"{name} has 15 of 20 examples" if name == CLEAN else f"{name} lacks") in said


@pytest.mark.parametrize("coverage", ["all", "survivors"])
def test_a_part_of_fewer_examples_is_no_longer_one(audit_of: Make, tmp_path: Path, coverage: str) -> None:
    """The first two survivors of ten: the others must not count as robust."""
    stored(audit_of, tmp_path, coverage)
    path = AuditFolder(tmp_path).part(2, "fgsm", 0)
    part = Records.read(path)
    part.take(np.arange(2)).write(path)
    assert f"fgsm lacks 3 of {20 if coverage == 'all' else 10} examples: 2, 3, 4" in message(tmp_path)


def test_examples_that_are_there_twice_are_named(audit_of: Make, tmp_path: Path) -> None:
    stored(audit_of, tmp_path)
    path = AuditFolder(tmp_path).part(1, "pgd-20", 1)
    path.with_name("copy of it.parquet").write_bytes(path.read_bytes())
    assert "pgd-20 has examples twice: 5, 6, 7, 8, 9" in message(tmp_path)


def test_examples_that_an_attack_was_not_shown_are_named(audit_of: Make, tmp_path: Path) -> None:
    whole = stored(audit_of, tmp_path, "survivors")
    path = AuditFolder(tmp_path).part(2, "fgsm", 1)
    whole.of("fgsm").take(np.arange(5, 10)).write(path)  # pgd had broken 6 to 9 before
    assert "fgsm has 4 examples that it was not shown: 6, 7, 8, 9" in message(tmp_path)


def test_a_search_may_have_attacked_only_some(audit_of: Make, tmp_path: Path) -> None:
    """But what its first attack left must have been shown to the next."""
    whole = stored(audit_of, tmp_path, "survivors", find_worst={})
    for path in (tmp_path / "records").glob("0[12]-*.parquet"):
        path.unlink()
    infos = {n: dataclasses.replace(i, settings={"find_worst": True}) for n, i in whole.meta.attacks.items()}
    whole = dataclasses.replace(whole, meta=dataclasses.replace(whole.meta, attacks=infos))
    clean = Records.read(sorted((tmp_path / "records").glob("00-*"))).index
    assert len(clean) == 20
    first, then = whole.of("pgd-20").take(np.arange(3, 8)), whole.of("fgsm").take(np.arange(3, 6))
    Records.concat([first, then]).write(tmp_path / "records" / "worst-00000.parquet")
    for path in (tmp_path / "records").glob("00-*"):
        part = Records.read(path)
        dataclasses.replace(part, meta=dataclasses.replace(part.meta, attacks=infos)).write(path)
    assert len(Records.read(tmp_path)) == 28
    Records.concat([first, then.take(np.arange(2))]).write(tmp_path / "records" / "worst-00000.parquet")
    assert "fgsm lacks 1 of 3 examples: 5" in message(tmp_path)


def test_files_of_two_runs_are_not_mixed(audit_of: Make, tmp_path: Path) -> None:
    stored(audit_of, tmp_path)
    other = audit_of({}, (5, 5), ("ant", "bee")).records
    other.write(tmp_path / "records" / "00-clean-00009.parquet")
    assert "is of another run than" in message(tmp_path)
