"""Damaged files end in a message or are computed again, never in a traceback, a hang or other numbers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fuzz_cases import SEED, fresh_copy, run_command, spoil_bytes

pytestmark = pytest.mark.slow

AUDIT = "audit --model net.py:make --weights m.pt --data digits --per-class 2 --eps 0.1 --no-progress --attack pgd-2"
#: Files that may be damaged, and the commands that read them.
READERS = {
    "run/config.toml": (f"{AUDIT} --attack fgsm --save-adversarial --out run", "show run", "compare run other --attack pgd-2"),
    "run/summary.json": ("show run", "compare run other --attack pgd-2", f"{AUDIT} --attack fgsm --save-adversarial --out run"),
    "run/records/*.parquet": (f"{AUDIT} --attack fgsm --save-adversarial --out run", "show run", "compare run other --attack pgd-2"),
    "run/adversarial/*.npz": (f"{AUDIT} --attack fgsm --save-adversarial --out run", "report run --out page.html"),
    "search/records/*.parquet": (f"{AUDIT.replace('pgd-2', 'pgd-1').replace(' --per-class 2', '')} --find-worst --tolerance 0.5 --out search",),
    "trained/config.toml": ("train recipe.toml --out trained --no-progress", "train trained/config.toml --dry-run"),
    "trained/history.csv": ("train recipe.toml --out trained --no-progress", "figure epochs trained --out e.json"),
    "trained/last.pt": ("train recipe.toml --out trained --no-progress",),
    "trained/best.pt": ("audit --model trained/best.pt --trust --data digits --limit 5 --attack fgsm --eps 0.1 --no-progress",),
    "m.pt": (AUDIT,),
    "arrays.npz": ("audit --model net.py:make --data arrays:file=arrays.npz --attack fgsm --eps 0.1 --no-progress",),
    "photos/test/a/*.png": ("audit --model resnet:width=4,blocks=1-1 --data folder --root photos --attack fgsm --no-progress",),
    "recipe.toml": ("train recipe.toml --dry-run",),
    "net.py": (AUDIT,),
}  # fmt: skip
ROUNDS = 12


def damage(folder: Path, pattern: str, rng: random.Random) -> str:
    """Damage one of the files: its content, or the file itself."""
    path = rng.choice(sorted(folder.glob(pattern)))
    kind = rng.randrange(10)
    content = path.read_bytes()
    path.unlink()
    if kind == 0:
        return f"{path.name} removed"
    if kind == 1:
        path.mkdir()
        return f"{path.name} a folder"
    path.write_bytes(spoil_bytes(content, rng))
    return f"{path.name} spoiled"


@pytest.mark.parametrize("pattern", READERS)
def test_a_damaged_file_ends_with_a_message(
    pattern: str, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(f"{SEED}-{pattern}")
    failed = []
    for number in range(ROUNDS):
        monkeypatch.chdir(fresh_copy(workspace, tmp_path / "here"))
        how = damage(Path(), pattern, rng)
        command = READERS[pattern][number % len(READERS[pattern])]
        if (wrong := run_command(command.split())) is not None:
            failed.append(f"{command} with {how}\n{wrong}")
    out, err = capfd.readouterr()
    assert not failed, "\n".join(failed)
    assert "Traceback" not in out + err
