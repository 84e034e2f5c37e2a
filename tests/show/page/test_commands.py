"""The command that the page shows reproduces the run: it is run, on its own folder and on a new one."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import classwise as cw
from classwise.attacks import written
from classwise.attacks.apgd_ce import ApgdCe
from classwise.attacks.autoattack import Autoattack
from classwise.attacks.margin_pgd import MarginPgd
from classwise.attacks.pgd import Pgd
from classwise.attacks.transfer import Transfer
from classwise.auditing.inputs import attacks_of
from classwise.cli import main
from classwise.models import load_model
from classwise.results.audit_result import Audit
from classwise.show.page import commands, page

NET = "resnet:width=4,blocks=1-1"
FILES = """
import torch
from torch import nn

def make(num_classes=10, in_channels=1):
    torch.default_generator.manual_seed(5)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))

def attack(model, x, y, eps, alpha=0.5, sign="up"):
    return (x + (alpha if sign == "up" else -alpha) * eps).clamp(0, 1)
"""

#: Ways of asking, beside model, data and --out.
KINDS = {
    "subset, weights, normalisation, a radius for each class": (
        f"--model {NET} --weights 'w 1.pt' --normalize mean=0.3125,std=0.1 --data digits --split train --limit 31 "
        "--classes 1,7,9 --attack pgd:steps=3,step=0.0123456789 --eps 0.0333333333333 --class-eps 7=1/30 "
        "--class-eps 9=0.05 --seed 4 --confidence 0.9 --batch-size 8 --workers 1"
    ),
    "foreign and transfer attacks on survivors, with images": (
        "--model files.py:make --data digits:exclude=0 --per-class 4 --attack files.py:attack,alpha=0.25,sign=down "
        f"--attack 'transfer:model={NET.replace(',', ';')},weights=w 1.pt,attack=pgd:steps=2;step=0.01' "
        "--attack fgsm --coverage survivors --eps 0.2 --num-classes 9 --save-adversarial --no-fold --no-probs"
    ),
    "a curve in L2 with minimal distances, by the last iterate": (
        f"--model {NET} --weights 'w 1.pt' --data digits --limit 8 --attack 'pgd:steps=1|2' --attack fab-2 "
        "--eps 1/8,0.3000000000000001 --norm l2 --protocol final --distances --eot 2"
    ),
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("desk")
    (folder / "files.py").write_text(FILES)
    network = load_model(NET, num_classes=10, in_channels=1, seed=3)
    torch.save(network.state_dict(), folder / "w 1.pt")
    torch.save(load_model(NET, num_classes=9, in_channels=1, seed=3).state_dict(), folder / "w 9.pt")
    return folder


def call(words: list[str], workspace: str) -> None:
    """The command line with these words."""
    before = Path.cwd()
    os.chdir(workspace)
    try:
        with mock.patch.object(sys, "argv", words), pytest.raises(SystemExit) as left:
            main.main()
    finally:
        os.chdir(before)
    assert left.value.code in (0, None), shlex.join(words)


def on_the_page(folder: Path, tmp_path: Path) -> str:
    text = page.build([folder], tmp_path / "page.html").read_text(encoding="utf-8")
    found = re.search(r'aria-label="Command of the audit"><code>(.*?)</code>', text, re.DOTALL)
    assert found is not None
    return html.unescape(found[1])


def same_numbers(one: Audit, other: Audit) -> None:
    assert one.names == other.names
    assert one.records.frame.equals(other.records.frame)
    np.testing.assert_array_equal(one.records.probs, other.records.probs)
    texts = [json.dumps({**audit.summary(), "timing": None, "findings": None}) for audit in (one, other)]
    assert texts[0] == texts[1]


def check(folder: Path, workspace: Path, tmp_path: Path, run: Callable[[list[str]], None]) -> None:
    """Run what is shown on the same folder, where nothing may be computed again, and on a new one."""
    first = Audit.load(folder)
    stamps = {path: path.stat().st_mtime_ns for path in folder.glob("records/*.parquet")}
    words = shlex.split(commands.of_audit(first) or "")
    assert words[-2:] == ["--out", str(folder)]
    assert not {"MODEL", "DATA", "ATTACK", "EPS", "WEIGHTS", "DIR"} & set(words)
    call(words, str(workspace))
    assert {path: path.stat().st_mtime_ns for path in folder.glob("records/*.parquet")} == stamps
    same_numbers(Audit.load(folder), first)
    run([*words[:-1], str(tmp_path / "new")])
    again = Audit.load(tmp_path / "new")
    same_numbers(again, first)
    assert shlex.split(commands.of_audit(again) or "")[:-1] == words[:-1]
    if first.config["audit"]["save_adversarial"]:
        for name in first.attacks:
            np.testing.assert_array_equal(again.adversarial(name)["exact"], first.adversarial(name)["exact"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_command_reproduces_the_run(kind: str, workspace: Path, tmp_path: Path) -> None:
    words = KINDS[kind]
    if "num-classes 9" in words:  # the surrogate must know as many classes
        words = words.replace("w 1.pt", "w 9.pt")
    call(["classwise", "audit", *shlex.split(words), "--out", str(tmp_path / "run")], str(workspace))
    check(tmp_path / "run", workspace, tmp_path, lambda words: call(words, str(workspace)))


@pytest.mark.slow
def test_so_does_that_of_a_run_asked_for_in_python(workspace: Path, tmp_path: Path) -> None:
    """Attack objects, numbers that are no short decimals, pairs and paths; and the very text of the page."""
    attacks: Any = [MarginPgd(steps=2, step=1 / 300), Pgd(steps=2, restarts=2, start="gaussian"), Transfer(NET)]
    made = cw.audit(
        NET,
        "digits",
        attacks,
        {"3": 1 / 30, "*": 1 / 7},
        weights=workspace / "w 1.pt",
        normalize=((1 / 3,), (1 / 9,)),
        limit=9,
        out=tmp_path / "run",
        workers=1,
    )
    assert made.config["model"]["weights_sha256"]
    assert {len(made.config[part]["fingerprint"]) for part in ("model", "data")} == {64}

    def run(words: list[str]) -> None:
        program = [sys.executable, "-m", *words]
        done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=workspace)
        assert done.returncode == 0, done.stderr

    check(tmp_path / "run", workspace, tmp_path, run)
    assert on_the_page(tmp_path / "run", tmp_path) == commands.of_audit(made)


@pytest.mark.parametrize(
    "attack",
    [
        Pgd(),
        Pgd(steps=7, step=2 / 255 + 1e-12, start="none", clamp=False),
        ApgdCe(),
        Autoattack(version="plus"),
        Transfer("resnet-18+vgg-16", "a.pt+b.pt", attack=Pgd(steps=3, step=0.1)),
        Transfer("resnet:width=4,blocks=1-1", store="points.sqlite"),
        "fgsm",
    ],
)
def test_an_attack_is_written_as_a_spec_that_parses_to_it(attack: Any) -> None:
    text = attack if isinstance(attack, str) else written(attack)
    assert text is not None
    assert list(attacks_of(text).values()) == list(attacks_of([attack]).values())


def test_an_attack_that_holds_a_model_has_no_spec() -> None:
    assert written(Transfer(surrogates=[torch.nn.Linear(1, 1)])) is None
    assert written(object()) is None


def test_python_objects_are_left_to_the_reader(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
    data = (torch.rand(6, 1, 2, 2), torch.tensor([0, 1] * 3))
    attack: Any = Transfer(surrogates=[net.eval()])
    made = cw.audit(net, data, [attack], torch.full((6,), 0.1), out=tmp_path / "run")
    assert commands.of_audit(made) == (
        "classwise audit --model MODEL --data DATA --attack ATTACK --eps EPS --coverage all "
        f"--out {shlex.quote(str(tmp_path / 'run'))}"
    )
    named = cw.audit(net, data, "fgsm", class_names=["a", "b"], out=tmp_path / "named")
    assert commands.of_audit(named) is None  # no option names classes


def test_of_older_folders_floats_foreign_and_transfer_attacks_parse_again(tmp_path: Path) -> None:
    """Their config.toml has only the settings of the attacks."""
    settings = {
        "clean": {},
        "pgd-3": {"name": "pgd", "steps": 3, "step": 2 / 255 + 1e-12},
        "mine.py:attack": {"name": "foreign_attacks", "source": "mine.py", "attack": "attack", "options": "alpha=0.5"},
        "transfer": {"name": "transfer", "model": "vgg-16", "attack": "pgd:steps=3,step=0.1", "surrogates": ["vgg 1a"]},
    }
    config = {"audit": {"eps": 8 / 255 + 1e-9}, "attacks": settings, "model": {"spec": "a.pt"}, "data": {"name": "c"}}
    audit = cw.audit(torch.nn.Flatten(), (torch.rand(4, 1, 1, 2), torch.tensor([0, 1, 0, 1])), "fgsm")
    text = commands.of_audit(Audit(audit.records, config=config))
    assert text is not None
    words = shlex.split(text)
    assert [words[at + 1] for at, word in enumerate(words) if word == "--attack"] == [
        f"pgd:steps=3,step={2 / 255 + 1e-12!r}",
        "mine.py:attack,alpha=0.5",
        "transfer:model=vgg-16,attack=(pgd:steps=3,step=0.1)",
    ]
    assert words[words.index("--eps") + 1] == repr(8 / 255 + 1e-9)


# ---- refused, and why ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("--normalize mean=0.25,std=0.1", 'normalize: "mean=0.5,std=0.1" there, "mean=0.25,std=0.1" now'),
        ("--normalize none", 'normalize: "mean=0.5,std=0.1" there, "none" now'),
        ("--weights other.pt", 'weights: "w.pt" there, "other.pt" now'),
        ("--limit 7", "limit: 8 there, 7 now"),
        ("--split train", 'split: absent there, "train" now'),
        ("--classes 1,2,3", 'classes: absent there, "1,2,3" now'),
        ("--per-class 1", "per_class: absent there, 1 now"),
    ],
)
def test_a_refusal_names_the_setting_and_no_fingerprint(
    change: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, seed in (("w.pt", 0), ("other.pt", 1)):
        torch.save(load_model(NET, num_classes=10, in_channels=1, seed=seed).state_dict(), name)
    usual = {"--normalize": "mean=0.5,std=0.1", "--weights": "w.pt", "--limit": "8"}
    words = ["audit", "--model", NET, "--data", "digits", "--attack", "fgsm", "--out", "run"]
    CliRunner().invoke(main.app, words + [w for pair in usual.items() for w in pair], catch_exceptions=False)
    option, value = change.split()
    changed = {**usual, option: value}
    with pytest.raises(cw.UserError) as caught:
        CliRunner().invoke(
            main.app,
            words + [w for pair in changed.items() for w in pair],
            catch_exceptions=False,
            standalone_mode=False,
        )
    assert line in str(caught.value)
    assert "fingerprint" not in str(caught.value)


@pytest.mark.slow
def test_the_same_weights_in_another_file_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(load_model(NET, num_classes=10, in_channels=1).state_dict(), "w.pt")
    Path("copy.pt").write_bytes(Path("w.pt").read_bytes())
    for weights in ("w.pt", "copy.pt"):
        cw.audit(NET, "digits", "fgsm", weights=weights, limit=6, out="run")


@pytest.mark.slow
def test_a_folder_with_short_fingerprints_is_resumed(tmp_path: Path) -> None:
    """Those of earlier versions are the first 16 digits, and such folders say nothing of the command."""
    options: Any = {"limit": 6, "out": tmp_path / "run", "eps": {"3": 0.01, "*": 0.02}}
    cw.audit(NET, "digits", "fgsm", **options)
    path = tmp_path / "run" / "config.toml"
    text = re.sub(r'= "([0-9a-f]{16})[0-9a-f]{48}"', r'= "\1"', path.read_text())
    text = re.sub(r"\[command\]\n(.+\n)*", "", text)
    assert text.count('fingerprint = "') == 2
    path.write_text(text)
    again = cw.audit(NET, "digits", "fgsm", **options)
    assert "command" not in again.config
    with pytest.raises(cw.UserError, match=r"data\.fingerprint: \"[0-9a-f]{16}\" there"):
        cw.audit(NET, "digits", "fgsm", **{**options, "classes": [1, 2]})
