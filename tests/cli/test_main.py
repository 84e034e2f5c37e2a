"""The command line: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import ANY
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import torch

import classwise
from classwise import attacks, data, metrics, models
from classwise.cli.main import main
from classwise.core.run_folder import AuditFolder
from classwise.data import load as load_data
from classwise.results.audit_result import Audit

FACTORY = """
from torch import nn

def make(num_classes, in_channels=1):
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * in_channels, num_classes))
"""
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with net.py and m.pt: the linear classifier of the nearest class mean, right on nine digits of ten."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "net.py").write_text(FACTORY)
    train = load_data("digits", split="train")
    x, y = train.batch(np.arange(len(train)))
    means = torch.stack([x[y == k].mean(0).flatten() for k in range(train.num_classes)])
    torch.save({"1.weight": 4 * means, "1.bias": -2 * (means**2).sum(1)}, folder / "m.pt")
    return folder


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], here: Path) -> Command:
    """Runs `classwise …` as the shell would, from the folder with the model; gives exit code, output and errors."""
    monkeypatch.chdir(here)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["classwise", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        code = stopped.value.code
        return (0 if code is None else int(code)), out, err

    return run


def audit(*more: str) -> list[str]:
    return ["audit", "--model", "net.py:make", "--weights", "m.pt", "--data", "digits", "--per-class", "12", *more]


@pytest.fixture(scope="module")
def finished(here: Path) -> Path:
    """The run folder of a finished audit under two attacks."""
    out = here / "run"
    model = models.load_model(f"{here}/net.py:make", weights=here / "m.pt", num_classes=10)
    classwise.audit(model, "digits", ["fgsm", "pgd-3"], 0.1, out=out, per_class=12)
    return out


class TestAudit:
    def test_shows_the_class_table(self, command: Command) -> None:
        code, out, err = command(*audit("--attack", "pgd-3", "--eps", "0.1"))
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert lines[0].strip() == "Robustness by class under pgd-3"
        assert sorted(line.split()[0] for line in lines[2:12]) == list("0123456789")
        assert "Under pgd-3, " in out
        assert "(95% CI of the worst class " in " ".join(out.split())
        assert "judged on any point tried" in out

    def test_json_is_json_and_nothing_else(self, command: Command) -> None:
        code, out, err = command(*audit("-a", "fgsm", "-a", "pgd-3", "-e", "8/255", "--json"))
        summary = json.loads(out)
        assert (code, err) == (0, "")
        assert list(summary["attacks"]) == ["clean", "fgsm", "pgd-3"]
        assert summary["threat"] == {"norm": "linf", "eps": 8 / 255}
        assert summary["attacks"]["clean"]["accuracy"] > 0.8
        assert [row["n"] for row in summary["attacks"]["pgd-3"]["by_class"]] == [12] * 10

    def test_selection_and_radii(self, command: Command) -> None:
        _, out, _ = command(*audit("-a", "fgsm", "--classes", "3, 8", "--class-eps", "3=0.01", "-e", "0.1", "--json"))
        rows = {row["class"]: row for row in json.loads(out)["attacks"]["fgsm"]["by_class"]}
        assert {name for name, row in rows.items() if row["n"]} == {"3", "8"}
        assert rows["3"]["accuracy"] > rows["8"]["accuracy"] + 0.3  # its radius is a tenth

    def test_final_and_standing(self, command: Command) -> None:
        arguments = audit("-a", "fgsm", "-a", "pgd-3", "--protocol", "final", "--coverage", "survivors", "--json")
        entry = json.loads(command(*arguments)[1])["attacks"]["pgd-3"]
        assert (entry["protocol"], entry["coverage"]) == ("final", "survivors")

    @pytest.mark.slow
    def test_several_radii_make_a_curve(self, command: Command, tmp_path: Path) -> None:
        out = str(tmp_path / "run")
        code, printed, _ = command(*audit("-a", "fgsm", "--eps", "0.1,0.02", "--out", out))
        assert code == 0
        start = printed.index("Robustness along eps under fgsm")
        header, *rows = printed[start:].splitlines()[1:12]
        assert header.split() == ["class", "clean", "0.02", "0.1", "area", "median"]
        assert sorted(row.split()[0] for row in rows) == list("0123456789")
        areas = [float(row.split()[4].rstrip("%")) for row in rows]
        assert areas == sorted(areas)
        curve = pd.read_csv(tmp_path / "run" / "tables" / "curve.csv")
        assert sorted(curve["eps"].unique()) == [0, 0.02, 0.1]
        falling = curve.pivot_table(index="class", columns="eps", values="accuracy").to_numpy()
        assert (np.diff(falling, axis=1) <= 0).all()
        _, printed, _ = command("show", out, "--json")
        assert len(json.loads(printed)["areas"]) == 10

    def test_a_grid_of_radii(self, command: Command) -> None:
        _, out, _ = command(*audit("-a", "fgsm", "--eps", "0.1", "--eps-grid", "2", "--json"))
        assert list(json.loads(out)["attacks"]) == ["clean", "fgsm@0.05", "fgsm@0.1"]

    def test_adversarial_images_and_a_slice_of_the_loss(self, command: Command, tmp_path: Path) -> None:
        folder = tmp_path / "run"
        _, out, _ = command(
            *audit("-a", "fgsm", "-e", "0.1", "--save-adversarial", "--landscape", "2", "-o", str(folder))
        )
        assert "survive rounding to 8 bits" in out
        assert len(list((folder / "adversarial").glob("*.npz"))) == 1
        slices = pd.read_csv(folder / "tables" / "landscape.csv")
        assert slices["image"].nunique() == 2
        assert {"a", "b", "loss", "prediction", "class"} <= set(slices.columns)

    def test_an_attack_in_a_file_is_judged_like_any_other(self, command: Command, here: Path) -> None:
        (here / "mine.py").write_text("def too_far(model, x, y):\n    return 1 - x\n")
        code, out, _ = command(*audit("-a", "mine.py:too_far", "-e", "0.1", "--json"))
        summary = json.loads(out)
        assert code == 0
        assert summary["attacks"]["mine.py:too_far"]["accuracy"] == summary["attacks"]["clean"]["accuracy"]
        assert any(finding["code"] == "outside_ball" for finding in summary["findings"])

    def test_transfer_crafts_on_the_model_it_names(self, command: Command) -> None:
        spec = "transfer:model=net.py:make,weights=m.pt,attack=pgd-3"
        _, out, _ = command(*audit("-a", "pgd-3", "-a", spec, "-e", "0.1", "--json"))
        attacks = json.loads(out)["attacks"]
        assert attacks["transfer"]["accuracy"] == pytest.approx(attacks["pgd-3"]["accuracy"], abs=0.1)

    @pytest.mark.slow
    def test_autoattack_says_who_broke_what_first(self, command: Command) -> None:
        _, out, _ = command(*audit("-a", "autoattack", "-e", "0.1", "--limit", "20", "--json"))
        summary = json.loads(out)
        assert list(summary["attacks"]) == ["clean", "apgd_ce-100", "apgd_t-100", "fab_t-100", "square-5000"]
        assert summary["attacks"]["square-5000"]["coverage"] == "survivors"
        assert sum(summary["first_broken_by"].values()) == 20 - round(20 * summary["worst_case"]["accuracy"])

    @pytest.mark.slow
    def test_minimal_distances(self, command: Command, tmp_path: Path) -> None:
        command(*audit("-a", "fab_t-20", "-e", "0.1", "--distances", "-o", str(tmp_path)))
        finished = Audit.load(tmp_path)
        near, far = (finished.at(eps)["accuracy"] for eps in (0.02, "0.2"))
        assert (near >= far).all()
        assert near.mean() > far.mean() + 0.2

    def test_only_the_worst_class(self, command: Command, tmp_path: Path) -> None:
        arguments = audit("-a", "pgd-3", "-e", "0.05", "--find-worst", "--tolerance", "0.05", "-o", str(tmp_path))
        code, out, _ = command(*arguments)
        assert code == 0
        assert "Worst class: " in out
        header, first, *_ = out.splitlines()[1:]
        assert header.split() == ["class", "n", "correct", "attacked", "robust", "estimate", "bounds", "worst"]
        assert first.split()[-1] in ("yes", "maybe")
        found = json.loads((tmp_path / "worst.json").read_text())
        assert json.loads(command(*arguments, "--json")[1])["worst"] == found["worst"]
        assert command("show", str(tmp_path))[:2] == (0, out)
        assert json.loads(command("show", str(tmp_path), "--json")[1]) == found | {"seconds": ANY}

    @pytest.mark.parametrize("more", [("--protocol", "final"), ("--require", "worst>=0.1"), ("--save-adversarial",)])
    def test_what_needs_all_images_does_not_go_with_find_worst(self, command: Command, more: tuple[str, ...]) -> None:
        code, _, err = command(*audit("--find-worst", *more))
        assert code == 2
        assert f"{more[0]} does not go with --find-worst" in err

    def test_csv(self, command: Command, tmp_path: Path) -> None:
        command(*audit("-a", "fgsm", "--csv", str(tmp_path / "t" / "classes.csv")))
        table = pd.read_csv(tmp_path / "t" / "classes.csv")
        assert table["n"].tolist() == [12] * 10
        assert {"class", "correct", "accuracy", "low", "high", "p_worst"} <= set(table.columns)

    @pytest.mark.slow
    def test_out_is_a_run_folder_that_goes_on(self, command: Command, tmp_path: Path) -> None:
        arguments = audit("-a", "fgsm", "--out", str(tmp_path / "run"))
        code, first, _ = command(*arguments)
        again, second, _ = command(*arguments)
        assert (code, again) == (0, 0)
        assert first.splitlines()[:13] == second.splitlines()[:13]
        code, _, err = command(*arguments, "--seed", "1")
        assert code == 2
        assert "audit.seed: 0 there, 1 now" in err
        assert command(*arguments, "--seed", "1", "--overwrite")[0] == 0


class TestGate:
    def test_all_hold(self, command: Command) -> None:
        code, _, err = command(*audit("-a", "fgsm", "-e", "0.01", "--require", "clean.accuracy>=80%"))
        assert code == 0
        assert "clean.accuracy>=80%: holds (accuracy under clean is 9" in err

    def test_one_fails(self, command: Command, tmp_path: Path) -> None:
        junit = tmp_path / "junit.xml"
        requirements = ["--require", "worst>=0.999", "--require", "gap<=1"]
        code, out, err = command(*audit("-a", "fgsm", "-e", "0.1", *requirements, "--junit", str(junit), "--json"))
        assert code == 1
        assert json.loads(out)["headline"] == "fgsm"  # still nothing but JSON
        assert "worst>=0.999: FAILED (worst under fgsm is" in err
        suite = ElementTree.parse(junit).getroot()
        assert (suite.get("tests"), suite.get("failures")) == ("2", "1")

    def test_confident(self, command: Command) -> None:
        arguments = audit("-a", "fgsm", "-e", "0.001", "--require", "clean.class[0]>=0.9")
        assert command(*arguments)[0] == 0
        code, _, err = command(*arguments, "--confident")
        assert code == 1  # twelve images cannot show it
        assert "lower bound" in err

    @pytest.mark.slow
    def test_a_baseline_and_a_file(self, command: Command, tmp_path: Path) -> None:
        base, gate_file, text = tmp_path / "base", tmp_path / "gate.toml", tmp_path / "out" / "summary.md"
        assert command(*audit("-a", "fgsm", "-e", "0.01", "--out", str(base)))[0] == 0
        gate_file.write_text('[classes]\n"*" = 0.0\n3 = "200/201"\n', encoding="utf-8")
        asked = ["--require", f"@{gate_file}", "--baseline", str(base), "--summary", str(text)]
        code, _, err = command(*audit("-a", "fgsm", "-e", "0.01", *asked))
        assert (code, "requirements hold" in err) == (0, True)
        assert "Robustness by class: all 30 requirements hold" in text.read_text(encoding="utf-8")
        code, _, err = command(*audit("-a", "fgsm", "-e", "0.02", *asked))
        assert code == 2  # another radius is another attack
        assert "with different settings" in err

    @pytest.mark.slow
    def test_requirements_are_kept_from_the_beginning(self, command: Command, tmp_path: Path) -> None:
        out = ["-a", "fgsm", "-e", "0.01", "--out", str(tmp_path / "run")]
        assert command(*audit(*out, "--require", "worst>=0.01"))[0] == 0
        assert command(*audit(*out, "--require", "worst>=0.02"))[0] == 0
        kept = AuditFolder(tmp_path / "run").config()["criteria"]
        assert kept == {"require": ["worst>=0.01"], "confident": False}

    def test_a_typing_error_costs_no_audit(self, command: Command) -> None:
        code, out, err = command("audit", "-m", "nowhere.pt", "-d", "nothing", "--require", "wrost>=0.2")
        assert (code, out) == (2, "")
        assert "unknown quantity 'wrost'; did you mean 'worst'?" in err


class TestMistakes:
    """Each ends with exit code 2 and a sentence on stderr."""

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["-a", "pdg-20"], "unknown attack 'pdg'; did you mean 'pgd'?"),
            (["-a", "pgd:restrats=3"], "did you mean 'restarts'?"),
            (["-e", "8"], "Did you mean 8/255?"),
            (["-e", "eight"], "expected a number such as 8/255 or 0.031, got 'eight'"),
            (["--class-eps", "11=0.1"], "unknown class of digits '11'"),
            (["--classes", "eleven"], "unknown class of digits 'eleven'"),
            (["--protocol", "last"], "unknown protocol 'last'"),
            (["--norm", "l7"], "unknown norm 'l7'"),
            (["--limit", "-1"], "limit must be at least 1, got -1"),
            (["--seed", "-1"], "seed must be at least 0, got -1"),
            (["--num-classes", "0"], "num_classes must be at least 1, got 0"),
            (["--eot", "0"], "eot must be at least 1, got 0"),
            (["-a", "pgd-99999999999999999999"], "steps must be at least 1 and at most 10000000, got 1000"),
            (["--batch-size", "-3"], "batch_size must be at least 1, got -3"),
            (["--confidence", "95"], "confidence must be positive and below 1, got 95"),
            (["--split", "tset"], "did you mean 'test'?"),
            (["--amp", "float16"], "amp=float16 is for GPUs"),
            (["--device", "gpu"], "cannot use the device 'gpu'"),
            (["--normalize", "cifar1"], "did you mean 'cifar10"),
            (["--require", "class[ten]>=0.1"], "unknown class 'ten'"),
            (["--out", "net.py"], "net.py is a file; --out must be a folder"),
        ],
    )
    def test_settings(self, command: Command, arguments: list[str], sentence: str) -> None:
        code, _, err = command(*audit("-a", "fgsm", *arguments) if "-a" not in arguments else audit(*arguments))
        assert code == 2
        assert err.startswith("error: ")
        assert sentence in err

    def test_corrupted_weights(self, command: Command, here: Path, tmp_path: Path) -> None:
        for content in (b"", b"junk", (here / "m.pt").read_bytes()[:900]):
            (tmp_path / "bad.pt").write_bytes(content)
            code, _, err = command(*audit("-w", str(tmp_path / "bad.pt")))
            assert code == 2
            assert "bad.pt" in err

    def test_weights_of_another_model(self, command: Command, tmp_path: Path) -> None:
        torch.save({"1.weight": torch.zeros(3, 64), "other": torch.zeros(3)}, tmp_path / "other.pt")
        code, _, err = command(*audit("-w", str(tmp_path / "other.pt")))
        assert code == 2
        assert "1.weight" in err

    def test_missing_data(self, command: Command, tmp_path: Path) -> None:
        code, _, err = command("audit", "-m", "resnet:width=2,blocks=1-1", "-d", "cifar10", "--root", str(tmp_path))
        assert code == 2
        assert "--download" in err

    def test_unknown_names(self, command: Command) -> None:
        assert "did you mean 'cifar10'?" in command("audit", "-m", "lenet", "-d", "cfar10")[2]
        code, _, err = command("audit", "-m", "resnte", "-d", "digits")
        assert code == 2
        assert "did you mean 'resnet'?" in err

    @pytest.mark.parametrize("words", [("--out", ""), ("--out=",), ("--csv", "")])
    def test_an_empty_value(self, command: Command, finished: Path, words: tuple[str, ...]) -> None:
        code, _, err = command("report", str(finished), *words)
        assert code == 2
        assert f"{words[0].rstrip('=')} has an empty value" in err

    def test_a_missing_option(self, command: Command) -> None:
        code, _, err = command("audit", "--data", "digits")
        assert code == 2
        assert "--model" in err


class TestShow:
    def test_the_whole_audit_again(self, command: Command, finished: Path) -> None:
        code, out, err = command("show", str(finished))
        assert (code, err) == (0, "")
        assert out.splitlines()[0].strip() == "Robustness by class under worst_case"

    def test_one_attack(self, command: Command, finished: Path, tmp_path: Path) -> None:
        code, out, _ = command("show", str(finished), "--attack", "fgsm", "--csv", str(tmp_path / "fgsm.csv"))
        assert code == 0
        assert out.splitlines()[0].strip() == "Robustness by class under fgsm"
        expected = Audit.load(finished).by_class("fgsm")["correct"].tolist()
        assert pd.read_csv(tmp_path / "fgsm.csv")["correct"].tolist() == expected

    def test_json(self, command: Command, finished: Path) -> None:
        assert json.loads(command("show", str(finished), "--json")[1]) == Audit.load(finished).summary()

    def test_requirements(self, command: Command, finished: Path) -> None:
        assert command("show", str(finished), "--require", "pgd-3.worst>=0")[0] == 0
        assert command("show", str(finished), "--require", "pgd-3.worst>1")[0] == 1

    def test_mistakes(self, command: Command, finished: Path, tmp_path: Path) -> None:
        code, _, err = command("show", str(tmp_path))
        assert code == 2
        assert "holds no finished audit" in err
        code, _, err = command("show", str(finished), "--attack", "fsgm")
        assert code == 2
        assert "did you mean 'fgsm'?" in err


class TestList:
    @pytest.mark.parametrize("kind", ["attacks", "models", "datasets", "metrics"])
    def test_everything_with_a_sentence(self, command: Command, kind: str) -> None:
        module = {"attacks": attacks, "models": models, "datasets": data, "metrics": metrics}[kind]
        code, out, _ = command("list", kind)
        assert code == 0
        assert all(any(line.startswith(name) for line in out.splitlines()) for name in module.names())
        described = json.loads(command("list", kind, "--json")[1])
        assert list(described) == list(module.names())
        assert all(about["what"] == module.describe(name) != "" for name, about in described.items())

    def test_unknown(self, command: Command) -> None:
        code, _, err = command("list", "atacks")
        assert code == 2
        assert "did you mean 'attacks'?" in err


def test_serve_passes_its_arguments_on(command: Command) -> None:
    code, out, _ = command("serve", "--help")
    assert code == 0
    assert "--max-body" in out


def test_version_and_help(command: Command) -> None:
    assert command("--version") == (0, f"classwise {classwise.__version__}\n", "")
    code, out, _ = command("audit", "-h")
    assert code == 0
    assert all(option in out for option in ("--model", "--require", "--protocol"))


@pytest.mark.slow
class TestProcess:
    """The same through a real process and a pipe."""

    def test_audit(self, here: Path) -> None:
        arguments = [sys.executable, "-m", "classwise", *audit("-a", "pdg-20", "--json")]
        done = subprocess.run(arguments, cwd=here, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.startswith("error: unknown attack 'pdg'; did you mean 'pgd'?")
        assert done.stderr.count("\n") == 1

    def test_show_needs_no_torch(self, finished: Path) -> None:
        code = (
            "import sys\n"
            "class NoTorch:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            "        if name.partition('.')[0] == 'torch':\n"
            "            raise ModuleNotFoundError(name)\n"
            "sys.meta_path.insert(0, NoTorch())\n"
            "from classwise.cli.main import main\n"
            f"sys.argv = ['classwise', 'show', {str(finished)!r}, '--json', '--require', 'worst>=0']\n"
            "main()"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == Audit.load(finished).summary()

    @pytest.mark.parametrize(
        ("given", "expected"),
        [({}, "10000"), ({"GOMP_SPINCOUNT": "5"}, "5"), ({"OMP_WAIT_POLICY": "active"}, "None")],
    )
    def test_waiting_threads_let_others_work_unless_told_otherwise(self, given: dict[str, str], expected: str) -> None:
        code = (
            "import atexit, os, sys\n"
            "from classwise.cli.main import main\n"
            "assert 'torch' not in sys.modules  # which reads it\n"
            "atexit.register(lambda: print(os.environ.get('GOMP_SPINCOUNT')))\n"
            "sys.argv = ['classwise', '--version']\n"
            "main()"
        )
        plain = {key: value for key, value in os.environ.items() if key not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**plain, **given}
        )
        assert done.stdout.split()[-1] == expected, done.stderr
