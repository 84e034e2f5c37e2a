"""Spoiled commands end with a message and an exit code, never with a traceback and never in a hang."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from fuzz_cases import SEED, fresh_copy, run_command, spoiled

pytestmark = pytest.mark.slow

AUDIT = "audit --model net.py:make --weights m.pt --data digits --per-class 2 --eps 0.1 --no-progress"
COMMANDS = (
    f"{AUDIT} --attack pgd-2 --limit 20 --seed 1 --num-classes 10 --batch-size 8 --workers 1 --eot 1 --confidence 0.9",
    f"{AUDIT} --attack pgd:steps=2,step=0.05,restarts=2,start=uniform --norm l2 --protocol final --class-eps 3=0.05",
    f"{AUDIT} --attack square:queries=3 --attack noise:draws=2 --coverage all --classes 1,2,3 --out new",
    f"{AUDIT} --attack apgd_ce:iterations=2 --attack fab:iterations=2 --coverage survivors --distances --device cpu",
    f"{AUDIT} --attack cw:iterations=2,binary_steps=1 --attack nattack:rounds=1,population=2 --eps-grid 2 --landscape 1 --out new",
    f"{AUDIT} --attack transfer:model=net.py:make,weights=m.pt --require worst>=0.2 --require average>=0.1 --junit j.xml --csv t.csv",
    f"{AUDIT} --attack pgd-1 --find-worst --tolerance 0.4 --json",
    f"{AUDIT} --attack pgd-2 --attack fgsm --save-adversarial --out run",
    "audit --model resnet:width=4,blocks=1-1 --data folder:resize=8,crop=8 --root photos --attack pgd-1 --eps 1/255 --normalize cifar10",
    "audit --model net.py:make --data arrays:file=arrays.npz --attack temperature_pgd:steps=2,inv_temperature=5 --eps 0.1",
    "audit --model trained/best.pt --trust --data corruption:of=digits,kind=fog,severity=1 --limit 5 --attack pgd-1 --eps 0.1",
    "show run --attack pgd-2 --csv t.csv --require worst>=0.5 --confident --junit j.xml",
    "show run --json",
    "compare run other --attack pgd-2 --base run --confidence 0.9 --format csv --by-class --out c.csv",
    "compare other run --attack clean --format latex",
    "train recipe.toml --out fresh --set train.epochs=1 --set method.steps=1 --seed 3 --device cpu --no-progress",
    "train recipe.toml --out trained --no-progress",
    "train recipe.toml --dry-run --set method.beta=2 --set train.schedule=step:milestones=1,factor=0.1 --set data.augment=[]",
    "train desk/digits/wat --dry-run --set train.optimizer=adam:lr=0.001 --set method.eta=0.1 --set validate.select=worst",
    "train --method trades:steps=1 --model net.py:make --weights m.pt --data digits --per-class 6 --eps 0.1 --epochs 1 --lr 0.01 --batch 20 --out fresh --no-progress",
    "train --method wat --model net.py:make --data digits --per-class 6 --split train --norm l2 --set data.validation=2 --dry-run",
    "pseudo-label --model net.py:make --weights m.pt --data digits --out p.npz --threshold 0.5 --limit 20 --split train",
    "list attacks --json",
    "list recipes",
)  # fmt: skip
#: Refused as they are: what a study is given is read before it does anything.
REFUSED = (
    "study homing --recipe desk/digits/madry --class-name 3 --per-class 2 --dry-run --jobs 0",
    "reproduce tian2021:table1 --scale paper --cpus 1 --gpus 0 --jobs 0",
)  # fmt: skip

CASES = int(os.environ.get("CLASSWISE_FUZZ", "16"))  # of each command


def spoiled_command(command: str, rng: random.Random) -> list[str]:
    """The command with one or two words changed, lost, doubled or exchanged. No word becomes an absolute path."""
    words = command.split()
    for _ in range(rng.choice((1, 1, 2))):
        values = [at for at in range(1, len(words)) if not words[at].startswith("--")]
        at = rng.choice(values) if values and rng.random() < 0.9 else rng.randrange(1, len(words))
        kind = rng.randrange(12)
        if kind == 0:
            del words[at]
        elif kind == 1:
            words.insert(at, words[at])
        elif kind == 2:
            other = rng.randrange(1, len(words))
            words[at], words[other] = words[other], words[at]
        elif not (new := spoiled(words[at], rng)).startswith("/"):
            words[at] = new
        if len(words) < 2:
            break
    return words


@pytest.mark.parametrize("number", range(len(COMMANDS + REFUSED)))
def test_a_spoiled_command_ends_with_a_message(
    number: int, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(f"{SEED}-{number}")
    monkeypatch.chdir(fresh_copy(workspace, tmp_path / "here"))
    failed = []
    for _ in range(CASES):
        words = spoiled_command((COMMANDS + REFUSED)[number], rng)
        if (how := run_command(words)) is not None:
            failed.append(f"{words}\n{how}")
            monkeypatch.chdir(fresh_copy(workspace, tmp_path / "here"))
    out, err = capfd.readouterr()
    assert not failed, "\n".join(failed)
    assert "Traceback" not in out + err


@pytest.mark.parametrize("command", COMMANDS)
def test_the_unspoiled_command_works(
    command: str, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Else the fuzzing would only meet the first error."""
    monkeypatch.chdir(fresh_copy(workspace, tmp_path / "here"))
    assert run_command(command.split()) is None
    assert "error:" not in capfd.readouterr().err
