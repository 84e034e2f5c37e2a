"""What the fuzz tests start from and how they spoil it: valid commands, valid files, and values nobody should give."""

from __future__ import annotations

import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np
import torch
from PIL import Image

import classwise as cw
from classwise.cli.main import main

SEED = 2026
_SECONDS = 60  # a case takes a fraction of a second; this only tells a slow machine from a hang

NET = """
from torch import nn

def make(num_classes, in_channels=1):
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * in_channels, num_classes))

def boolean(num_classes, in_channels=1):
    return True

Bool = bool
"""

RECIPE = """
[data]
name = "digits"
per_class = 8
validation = 2

[model]
spec = "net.py:make"

[threat]
eps = 0.1

[method]
name = "trades"
beta = 6.0
steps = 2

[train]
epochs = 1
batch = 32
optimizer = "sgd:lr=0.1,momentum=0.9"
schedule = "cyclic"

[validate]
attack = ["pgd-2"]
"""

#: Text that somebody may give where a number, a name, a spec or a path is expected. No absolute path: tests run as root.
BAD_TEXT = (
    "", " ", "-", "--", "-1", "0", "1", "2.5", "nan", "inf", "-inf", "1e999", "1e-320", "99999999999999999999",
    "0x10", "1/0", "8/0", "0/0", "1//2", "true", "none", "null", "[]", "{}", "[1,2", "a=b", "=", ",", ",,", ":", "::", "..",
    ".", "missing/file", "net.py", "net.py:", "net.py:Bool", "net.py:boolean", "m.pt", "run", "run/config.toml", "é", "\u202e",
    "\x01", "\udcff", "a" * 5000, "%s%n", "$(id)", "--help", "cat", "*", "0,1", "1,2,3", "pgd-0", "pgd-", "pgd:steps=0",
    "pgd:steps=1e9", "pgd-99999999999999999999", "square:queries=-1", "cw:iterations=0", "transfer", "digits:x=1",
    "folder:resize=0", "folder:resize=1000000", "corruption:of=digits", "coloured:of=coloured", "worst>=", "worst>=x",
    "smallcnn:width=-1", "resnet:width=0", "resnet:blocks=1-", "vgg-3", "cuda:99", "meta", "method.steps", "method.steps=",
    "train.epochs=-1", "train.clip=-1", "train.batch=0", "data.exclude=[0,0]", "method.beta={dog=1}", "x.y=1", "threat.eps=-1",
)  # fmt: skip


class Hang(BaseException):
    """A case took so long that it counts as a hang."""


@contextmanager
def time_limit() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def failure(action: Callable[[], object], *allowed: type[BaseException]) -> str | None:
    """None if the action ends well or with an allowed exception; else how it ended."""
    try:
        with time_limit():
            action()
    except allowed:
        return None
    except Hang:
        return "hang: " + "".join(traceback.format_exc().splitlines(keepends=True)[-6:])
    except BaseException:
        return traceback.format_exc()
    return None


def run_command(arguments: Sequence[str]) -> str | None:
    """Run `classwise …`; None if it ends with 0, a failed requirement or a message, else the traceback."""

    def run() -> None:
        try:
            main()
        except SystemExit as stopped:
            if stopped.code not in (None, 0, 1, 2):
                raise RuntimeError(f"exit code {stopped.code}") from stopped

    before, sys.argv = sys.argv, ["classwise", *arguments]
    try:
        return failure(run)
    finally:
        sys.argv = before


def spoiled(text: str, rng: random.Random) -> str:
    """The text with one bad value in its place or inside it, or with a few characters lost, doubled or swapped."""
    kind = rng.randrange(6)
    if kind < 3:
        return rng.choice(BAD_TEXT)
    if kind < 5 and any(sign in text for sign in "=:,-/"):
        at = rng.choice([place for place, sign in enumerate(text) if sign in "=:,-/"])
        return text[: at + 1] + rng.choice(BAD_TEXT)
    letters = list(text)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(letters) + 1)
        letters[at : at + rng.randint(0, 2)] = rng.choice(("", "", ":", "=", "0", "-", letters[at : at + 1]))
    return "".join(letters)


def spoil_bytes(content: bytes, rng: random.Random) -> bytes:
    """The content with bits flipped, cut short, emptied, or with a stretch removed, zeroed or doubled."""
    data = bytearray(content)
    at = rng.randrange(len(data) or 1)
    length = rng.randint(1, max(1, len(data) // 8))
    kind = rng.randrange(6)
    if kind == 0 and data:
        for _ in range(rng.choice((1, 1, 8))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        del data[at : at + length]
    elif kind == 3:
        data[at : at + length] = bytes(len(data[at : at + length]))
    elif kind == 4:
        data[at:at] = data[at : at + length]
    else:
        data.clear()
    return bytes(data)


def fill(folder: Path) -> Path:
    """A folder with a model, images, finished audits, a search for the worst class, and a training."""
    (folder / "net.py").write_text(NET)
    (folder / "recipe.toml").write_text(RECIPE)
    train = cw.load_data("digits", split="train")
    x, y = train.batch(np.arange(len(train)))
    means = torch.stack([x[y == k].mean(0).flatten() for k in range(train.num_classes)])
    torch.save({"1.weight": 4 * means, "1.bias": -2 * (means**2).sum(1)}, folder / "m.pt")
    for number in range(8):
        (folder / "photos" / "test" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        pixels = (x[number, 0].numpy() * 255).astype(np.uint8)
        Image.fromarray(pixels).convert("RGB").save(folder / "photos" / "test" / "ab"[number % 2] / f"{number}.png")
    names = np.array([*"0123456789"])
    np.savez(folder / "arrays.npz", images=x[:20].numpy(), labels=y[:20].numpy(), class_names=names, split="test")
    for command in (
        "audit --model net.py:make --weights m.pt --data digits --per-class 2 --attack pgd-2 --attack fgsm --eps 0.1 "
        "--save-adversarial --out run",
        "audit --model net.py:make --weights m.pt --data digits --per-class 2 --attack pgd-2 --eps 0.05 --out other",
        "audit --model net.py:make --weights m.pt --data digits --attack pgd-1 --eps 0.1 --find-worst --tolerance 0.5 "
        "--out search",
        "train recipe.toml --out trained",
    ):
        assert run_command([*command.split(), "--no-progress"]) is None
    return folder


def fresh_copy(source: Path, target: Path) -> Path:
    """The workspace again, untouched."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))
