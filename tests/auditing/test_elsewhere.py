"""Run folders given by a URL: what is finished is there, and resumes on a machine that has nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from torch import nn

import classwise as cw
from classwise.core import mirror
from classwise.core.errors import Unfinished, UserError
from classwise.data.images import Images
from classwise.engine import run
from classwise.results.audit_result import Audit
from classwise.results.merging import merge

pytestmark = pytest.mark.slow
Run = Callable[..., Audit]


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield "memory://bucket/run" if request.param == "memory" else f"file://{tmp_path / 'bucket' / 'run'}"
    memory = fsspec.filesystem("memory")
    if memory.exists("/bucket"):
        memory.rm("/bucket", recursive=True)


@pytest.fixture
def audit(net: nn.Module, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    def call(out: str | Path | None, machine: str = "one", **changes: Any) -> Audit:
        monkeypatch.setenv("CLASSWISE_CACHE", str(tmp_path / machine))
        settings = {"attacks": "pgd-3", "eps": 0.02, "batch_size": 8, "workers": 1, **changes}
        return cw.audit(net, images, **settings, **({} if out is None else {"out": out}))

    return call


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("s3://bucket/run/", "s3://bucket/run"),
        (Path("s3://bucket/run"), "s3://bucket/run"),
        ("file:///data/run", "file:///data/run"),
        (Path("file:///data/run"), "file:///data/run"),
        ("runs/a", None),
        ("/runs/a:b", None),
        ("C:/runs", None),
        (None, None),
    ],
)
def test_what_a_url_is(given: Any, expected: str | None) -> None:
    assert mirror.url_of(given) == expected


def test_all_files_are_there(audit: Run, url: str) -> None:
    made = audit(url)
    fs, root = fsspec.core.url_to_fs(url)
    names = {name[len(root) :].lstrip("/") for name in fs.find(root)}
    assert {"config.toml", "checks.json", "summary.json", "records/00-clean-00000.parquet"} <= names
    assert not any(name.rpartition("/")[2].startswith(".") for name in names)
    assert str(Audit.load(url)) == str(made) == str(audit(None))


def test_another_machine_resumes(audit: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    audit(url)
    monkeypatch.setattr(run, "_attack_part", lambda task: pytest.fail("computed again"))
    assert str(audit(url, "two")) == str(Audit.load(url))


def test_shards_of_two_machines(audit: Run, url: str) -> None:
    with pytest.raises(Unfinished, match="1 of 2 parts"):
        audit(url, "one", shard="1/2")
    assert str(audit(url, "two", shard="2/2")) == str(audit(None))
    assert str(merge(url)) == str(audit(None))


def test_the_config_of_the_first_counts(audit: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two machines that begin at once, of which neither sees the config of the other beforehand."""
    with pytest.raises(Unfinished):
        audit(url, "one", shard="1/3")
    with monkeypatch.context() as at_once:
        at_once.setattr(mirror.Mirror, "pull", lambda self: None)
        with pytest.raises(Unfinished):
            audit(url, "two", shard="2/4")
    with pytest.raises(Unfinished, match="2 of 3 parts"):
        audit(url, "one", shard="2/3")


def test_what_could_not_be_copied_is_copied_later(audit: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as offline:
        offline.setattr(mirror.Mirror, "push", lambda self: None)
        audit(url)
    fs, root = fsspec.core.url_to_fs(url)
    assert [name.rpartition("/")[2] for name in fs.find(root)] == ["config.toml"]
    monkeypatch.setattr(run, "_attack_part", lambda task: pytest.fail("computed again"))
    audit(url)
    assert any(name.endswith("summary.json") for name in fs.find(root))


def test_a_folder_removed_there_begins_from_scratch(audit: Run, url: str) -> None:
    audit(url)
    fs, root = fsspec.core.url_to_fs(url)
    fs.rm(root, recursive=True)
    audit(url, attacks="fgsm")
    assert not any("pgd" in name for name in fs.find(root))


def test_what_cannot_be_used(audit: Run) -> None:
    with pytest.raises(UserError, match="cannot use nowhere://bucket/run as a run folder"):
        audit("nowhere://bucket/run")
    with pytest.raises(UserError, match="which those of --engine ray do not reach"):
        audit("memory://bucket/other", engine="ray")
