"""The pipelines of docs/gate.md, run as their servers would: on a fresh clone, step after step, in a shell.

The model is a small linear classifier of the digits. The gate passes; once a class is broken on purpose it fails, by
exit code, in JUnit and in the summary.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
import yaml

import classwise as cw
from doc_blocks import ROOT, blocks, shell_lines
from stand_ins import linear

pytestmark = pytest.mark.slow

GATE = {block.title: block for block in blocks(ROOT / "docs" / "gate.md") if block.title}
GITHUB, GITLAB = ".github/workflows/robustness.yml", ".gitlab-ci.yml"
NET = """
from torch import nn

def make(num_classes, in_channels):
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * in_channels, num_classes))
"""
BROKEN = 3


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a model, its baseline, the gate's file and both pipelines, as the page describes it."""
    home = tmp_path_factory.mktemp("ci") / "repository"
    home.mkdir()
    (home / "net.py").write_text(NET, encoding="utf-8")
    torch.save(linear(1e-2, 0.0, 0).state_dict(), home / "net.pt")
    for name in ("gate.toml", GITHUB, GITLAB):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(GATE[name].text, encoding="utf-8")
    model = cw.load_model(f"{home / 'net.py'}:make", num_classes=10, in_channels=1, weights=home / "net.pt")
    cw.audit(model, "digits", "pgd-20", 0.1, out=home / "robustness" / "baseline", progress=False)
    git(home, "init", "--quiet")
    git(home, "add", "--all")
    git(home, "commit", "--quiet", "-m", "A model and its baseline.")
    return home


def git(folder: Path, *words: str) -> None:
    settings = ("user.name=ci", "user.email=ci@example.org", "init.defaultBranch=main")
    given = [word for setting in settings for word in ("-c", setting)]
    subprocess.run(["git", *given, *words], cwd=folder, check=True)


def run(script: str, clone: Path, **more: str) -> int:
    """One step, as GitHub's runner starts it."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    program = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(program, cwd=clone, env={**os.environ, "PATH": path, **more}, check=False).returncode


def github(clone: Path) -> tuple[bool, str]:
    """Whether the workflow passes, and the summary of its steps: after a failure only those with always()."""
    summary, passed = clone.parent / "step_summary.md", True
    (job,) = yaml.safe_load((clone / GITHUB).read_text(encoding="utf-8"))["jobs"].values()
    for step in job["steps"]:
        if "run" in step and (passed or step.get("if") == "always()"):
            passed = run(step["run"], clone, GITHUB_STEP_SUMMARY=str(summary)) == 0 and passed
    return passed, summary.read_text(encoding="utf-8")


def gitlab(clone: Path) -> tuple[bool, str]:
    """Whether the job passes, and the Markdown among its artifacts."""
    passed = all(run(line, clone) == 0 for line in shell_lines((clone / GITLAB).read_text(encoding="utf-8")))
    return passed, (clone / "robustness" / "summary.md").read_text(encoding="utf-8")


def fresh_clone(repository: Path, folder: Path) -> Path:
    git(folder, "clone", "--quiet", str(repository), "clone")
    return folder / "clone"


def break_a_class(clone: Path) -> None:
    """The model never answers with that class again."""
    weights = torch.load(clone / "net.pt")
    weights["1.bias"][BROKEN] -= 100
    torch.save(weights, clone / "net.pt")
    git(clone, "commit", "--quiet", "-am", "A worse model.")


@pytest.mark.parametrize("pipeline", [github, gitlab])
def test_it_passes_on_a_fresh_clone_and_fails_once_a_class_is_broken(
    pipeline: Callable[[Path], tuple[bool, str]], repository: Path, tmp_path: Path
) -> None:
    passed, text = pipeline(fresh_clone(repository, tmp_path))
    assert passed
    assert text.startswith("### ✅")
    (tmp_path / "second").mkdir()
    clone = fresh_clone(repository, tmp_path / "second")
    break_a_class(clone)
    passed, text = pipeline(clone)
    assert not passed
    assert "### ❌" in text
    assert f"| ❌ failed | `` clean.class[{BROKEN}]>=baseline ``" in text
    suite = ElementTree.parse(clone / "robustness" / "junit.xml").getroot()
    failed = [case.get("name", "") for case in suite.findall("testcase") if case.find("failure") is not None]
    assert f"class[{BROKEN}]>=10%" in failed
    assert f"clean.class[{BROKEN}]>=baseline" in failed
    others = [name for name in failed if name.endswith("baseline") and f"class[{BROKEN}]" not in name]
    assert not others, "no other class fell"
