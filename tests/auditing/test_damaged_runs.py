"""A run folder damaged in any way: shown, reported, compared or resumed, it gives a sentence and never a traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import classwise as cw
from classwise.cli.main import app
from classwise.core.errors import UserError
from classwise.results.audit_result import Audit
from small_net import make_images, make_net

Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path | None], Path]:
    net = make_net()
    images = make_images(net).take(np.arange(24))
    first = tmp_path_factory.mktemp("first") / "run"

    def audit(out: Path | None = None) -> Path:
        options: Any = {"eps": 0.02, "save_adversarial": True, "workers": 1, "batch_size": 8}
        cw.audit(net, images, ["pgd-2", "fgsm"], out=out or first, **options)
        return out or first

    audit()
    return lambda out: audit(out) if out else first


def rewritten(name: str, change: Callable[[Any], Any]) -> Damage:
    """summary.json as another program might leave it."""

    def damage(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return damage


def content(pattern: str, new: Callable[[bytes], bytes]) -> Damage:
    def damage(folder: Path) -> None:
        path = sorted(folder.glob(pattern))[0]
        path.write_bytes(new(path.read_bytes()))

    return damage


def line(old: str, new: str) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / "config.toml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))

    return damage


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]


DAMAGES: dict[str, Damage] = {
    "part flipped": content("records/01-*.parquet", flipped),
    "part cut": content("records/01-*.parquet", lambda data: data[:-9]),
    "part empty": content("records/00-*.parquet", lambda data: b""),
    "part of zeros": content("records/02-*.parquet", lambda data: bytes(len(data))),
    "part is text": content("records/02-*.parquet", lambda data: b"hello"),
    "part gone": lambda folder: sorted(folder.glob("records/01-*"))[0].unlink(),
    "all parts gone": lambda folder: shutil.rmtree(folder / "records"),
    "part is a folder": lambda folder: (folder / "records" / "03-x-00000.parquet").mkdir(),
    "images flipped": content("adversarial/01-*.npz", flipped),
    "images cut": content("adversarial/01-*.npz", lambda data: data[:200]),
    "images empty": content("adversarial/02-*.npz", lambda data: b""),
    "images are an npy": content("adversarial/01-*.npz", lambda data: b"\x93NUMPY\x01\x00" + data[:100]),
    "images gone": lambda folder: sorted(folder.glob("adversarial/01-*"))[0].unlink(),
    "summary empty": content("summary.json", lambda data: b""),
    "summary cut": content("summary.json", lambda data: data[: len(data) // 2]),
    "summary no text": content("summary.json", lambda data: b"\xff\xfe\x00"),
    "summary a list": rewritten("summary.json", lambda summary: [summary]),
    "summary null": rewritten("summary.json", lambda summary: None),
    "summary deep": content("summary.json", lambda data: b"[" * 100_000),
    "no findings": rewritten("summary.json", lambda summary: {**summary, "findings": 5}),
    "odd finding": rewritten("summary.json", lambda summary: {**summary, "findings": [{"code": "x"}]}),
    "finding of numbers": rewritten(
        "summary.json",
        lambda summary: {**summary, "findings": [{"code": 1, "level": "note", "what": 2, "remedy": None}]},
    ),
    "finding of another level": rewritten(
        "summary.json",
        lambda summary: {**summary, "findings": [{"code": "x", "level": "dire", "what": "x", "remedy": "x"}]},
    ),
    "timing a number": rewritten("summary.json", lambda summary: {**summary, "timing": 5}),
    "timing of texts": rewritten("summary.json", lambda summary: {**summary, "timing": {"wall_seconds": "x"}}),
    "timing of lists": rewritten("summary.json", lambda summary: {**summary, "timing": {"attacks": [1]}}),
    "confidence text": rewritten("summary.json", lambda summary: {**summary, "confidence": "high"}),
    "confidence 2": rewritten("summary.json", lambda summary: {**summary, "confidence": 2}),
    "config no text": content("config.toml", lambda data: b"\xff\xfe\x00"),
    "config cut": content("config.toml", lambda data: data[:60]),
    "config deep": content("config.toml", lambda data: b"x = " + b"[" * 5000),
    "config of numbers": content("config.toml", lambda data: b"audit = 1\nmodel = 2\ndata = 3\nattacks = 4\n"),
    "config of lists": content("config.toml", lambda data: b"audit = []\nattacks = [1]\ncommand = []\n"),
    "part = -5": line("part = 24", "part = -5"),
    "part = 0": line("part = 24", "part = 0"),
    "part a text": line("part = 24", 'part = "x"'),
    "eps a text": line("eps = 0.02", 'eps = "x"'),
    "examples a text": line("examples = 24", 'examples = "x"'),
    "command of numbers": line("only_in_python = [", "limit = [[1, 2], {a = 3}]\nonly_in_python = [5, "),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGES)
def test_it_is_told_in_a_sentence_and_repaired_or_refused_by_the_same_command(
    run: Callable[[Path | None], Path], kind: str, tmp_path: Path
) -> None:
    whole, folder = run(None), tmp_path / "run"
    shutil.copytree(whole, folder)
    DAMAGES[kind](folder)
    told = []
    for words in (["show", str(folder)], ["compare", str(whole), str(folder)]):
        done = CliRunner().invoke(app, words)
        assert done.exception is None or isinstance(done.exception, (UserError, SystemExit)), kind
        told.append(done.exception)
    refused = ("part ", "all", "summary", "no ", "odd", "finding", "timing", "confidence", "config")
    if kind.startswith(refused) and "=" not in kind and kind != "part a text":
        assert all(isinstance(error, UserError) for error in told), kind
    if kind.startswith("images"):
        with pytest.raises(UserError, match="adversarial images"):
            [Audit.load(folder).adversarial(name) for name in ("pgd-2", "fgsm")]
    try:
        run(folder)
    except UserError as error:
        assert kind.startswith(("config", "part =", "part a text", "eps", "examples", "part is a folder")), error  # noqa: PT017
    else:
        again, first = Audit.load(folder) if kind != "part is a folder" else Audit.load(whole), Audit.load(whole)
        assert again.records.frame.equals(first.records.frame)
        for name in first.attacks:
            assert again.adversarial(name)["index"].tolist() == first.adversarial(name)["index"].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["images flipped", "command of numbers", "eps a text", "part = -5"])
def test_the_report_is_made_or_refused_in_a_sentence(
    run: Callable[[Path | None], Path], kind: str, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run(None), folder)
    DAMAGES[kind](folder)
    done = CliRunner().invoke(app, ["report", str(folder), "--out", str(tmp_path / "page.html")])
    assert done.exception is None or isinstance(done.exception, (UserError, SystemExit))


@pytest.mark.parametrize("folder", [5, None, b"runs", 1.5, ["runs"], {"a": 1}])
def test_what_is_no_path_is_told_so(folder: Any) -> None:
    with pytest.raises(UserError, match="must be text or a path, got"):
        Audit.load(folder)


@pytest.mark.parametrize("folder", ["", "no/where", "a\0b", "x" * 5000])
def test_paths_that_lead_nowhere(folder: str) -> None:
    with pytest.raises(UserError):
        Audit.load(folder)
