"""Things are found by the name of a shipped module, in a Python file, or by the entry point of an installed package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from classwise import attacks, data, methods, metrics, studies
from classwise.core.errors import UserError
from classwise.core.registry import KINDS, Registry
from classwise.models import registry as models
from classwise.show import figures
from classwise.training import recipe

METRIC = '''"""About the file."""
from __future__ import annotations
from classwise.core.records import Records

UNIT = "half"

def half(records: Records, of: float = 0.5, times: int = 2) -> float:
    """Always a half."""
    return of

def helper():
    return 1

half.unit = "of its own"
NUMBER = 3
'''

METHOD = '''from __future__ import annotations
from dataclasses import dataclass
from typing import Literal
from classwise.methods.trades import Trades

@dataclass(frozen=True)
class Hard(Trades):
    """Trades, harder."""
    how: Literal["very", "less"] = "very"
'''


@pytest.fixture
def numbers() -> Registry:
    return Registry(
        kind="metric", plural="metrics", package="classwise.metrics", functions=("compute",), given=("records",)
    )


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(METRIC)
    (tmp_path / "hard.py").write_text(METHOD)
    return tmp_path / "mine.py"


class TestShipped:
    def test_a_module_that_has_the_function(self, numbers: Registry) -> None:
        found = numbers.find("cv")
        assert found.object is importlib.import_module("classwise.metrics.cv").compute
        assert (found.name, numbers.describe("cv")) == ("cv", "Class-wise variance of the accuracy, in percent².")

    def test_the_class_that_the_name_spells(self) -> None:
        assert attacks.attack_class("margin-pgd").__name__ == "MarginPgd"
        assert "weight-norm" in studies.names()
        assert studies.study_class("weight-norm") is studies.study_class("weight_norm")

    @pytest.mark.parametrize(
        ("kind", "helpers"),
        [
            (attacks, ["attack", "foreign", "hyperplane"]),
            (methods, ["method"]),
            (data, ["images", "masks", "files"]),
            (figures, ["style", "lines"]),
            (models, ["stages", "cosine"]),
        ],
    )
    def test_a_helper_is_not_a_thing(self, kind, helpers: list[str]) -> None:
        assert not {*helpers} & {*kind.names()}
        for name in helpers:
            with pytest.raises(UserError, match=f"unknown .* '{name}'"):
                kind.describe(name)

    def test_every_kind_is_listed_and_described(self) -> None:
        for home in KINDS.values():
            module = importlib.import_module(home)
            assert all(module.describe(name) for name in module.names())

    def test_a_near_miss(self, numbers: Registry) -> None:
        with pytest.raises(UserError, match="unknown metric 'cvv'; did you mean 'cv'"):
            numbers.find("cvv")


class TestInAFile:
    def test_a_function_and_what_it_says_of_itself(self, numbers: Registry, mine: Path) -> None:
        found = numbers.find(f"{mine}:half")
        assert found.object(None) == 0.5
        assert (found.get("unit"), found.get("UNIT"), found.get("none", 1)) == ("of its own", "half", 1)
        assert numbers.describe(f"{mine}:half") == "Always a half."
        assert numbers.describe(f"{mine}:helper") == "About the file."
        assert numbers.usage(f"{mine}:half") == "of=0.5, times=2"

    def test_arguments_are_converted(self, numbers: Registry, mine: Path) -> None:
        function = numbers.find(f"{mine}:half").object
        assert numbers.arguments(function, {"of": "1/4", "times": "3"}, "half") == {"of": 0.25, "times": 3}
        with pytest.raises(UserError, match="unknown setting of half 'off'; did you mean 'of'"):
            numbers.arguments(function, {"off": "1"}, "half")
        assert numbers.arguments(lambda records, count=3: count, {"count": "4"}, "it") == {"count": 4}

    def test_the_same_class_each_time_until_the_file_changes(self, mine: Path) -> None:
        name = f"{mine.with_name('hard.py')}:Hard"
        hard = methods.parse(name, {"how": "less", "beta": 3})
        assert hard == methods.parse(name, {"how": "less", "beta": 3})
        assert methods.name_of(hard) == name
        mine.with_name("hard.py").write_text(METHOD + "\n# changed\n")
        assert methods.method_class(name) is not type(hard)

    def test_a_wrong_value_and_a_wrong_name(self, mine: Path) -> None:
        name = f"{mine.with_name('hard.py')}:Hard"
        with pytest.raises(UserError, match=r"unknown value of .*hard.py:Hard.how 'quite'"):
            methods.parse(name, {"how": "quite"})
        with pytest.raises(UserError, match=r"unknown method in hard.py 'Hart'; did you mean 'Hard'"):
            methods.parse(f"{mine.with_name('hard.py')}:Hart", {})
        with pytest.raises(UserError, match=r"no Python file 'nowhere.py' to take the method 'Hard' from"):
            methods.parse("nowhere.py:Hard", {})

    def test_something_of_another_kind(self, mine: Path, numbers: Registry) -> None:
        with pytest.raises(UserError, match=r"mine.py:half is no method: expected a frozen dataclass derived from"):
            methods.parse(f"{mine}:half", {})
        with pytest.raises(UserError, match=r"mine.py:NUMBER is no metric: expected a function or class, got int"):
            numbers.find(f"{mine}:NUMBER")
        with pytest.raises(UserError, match=r"mine.py:half is no figure: .* first argument is audits"):
            figures.sources(f"{mine}:half")

    def test_a_file_may_import_its_neighbours(self, mine: Path, numbers: Registry) -> None:
        mine.with_name("other.py").write_text("from hard import Hard\ndef name(records): return Hard.__name__\n")
        assert numbers.find(f"{mine.with_name('other.py')}:name").object(None) == "Hard"
        assert "hard" not in sys.modules


class TestInstalled:
    @pytest.fixture(autouse=True)
    def package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """A distribution as an installer leaves it: a module, and the names it goes by."""
        about = tmp_path / "theirs-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(
            "[classwise.metrics]\nhalf = theirs_metrics:half\nwhole = theirs_whole\nbroken = theirs_nowhere:x\n"
            "[classwise.methods]\nhard = theirs_method:Hard\n"
            "[classwise.recipes]\ntheirs/quick = theirs_whole:RECIPE\n"
        )
        (tmp_path / "theirs_metrics.py").write_text(METRIC)
        (tmp_path / "theirs_method.py").write_text(METHOD)
        (tmp_path / "theirs_whole.py").write_text(
            '"""A whole."""\n\nRECIPE = {"method": {"name": "hard"}, "validate": {"select": "last"}}\n'
            "def compute(records): return 1.0\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        yield
        for name in [name for name in sys.modules if name.startswith("theirs_")]:
            del sys.modules[name]

    def test_a_function_and_a_module(self) -> None:
        assert {"half", "whole", "cv"} <= {*metrics.names()}
        assert (metrics.describe("half"), metrics.describe("whole")) == ("Always a half.", "A whole.")

    def test_one_installed_later_is_found(self, tmp_path: Path) -> None:
        assert "late" not in metrics.names()
        about = tmp_path / "later-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: later\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text("[classwise.metrics]\nlate = theirs_metrics:half\n")
        assert "late" in metrics.names()

    def test_a_class_is_named_by_its_entry_point(self) -> None:
        assert methods.knows("hard")
        assert methods.name_of(methods.parse("hard", {"beta": 3})) == "hard"

    def test_a_recipe(self) -> None:
        assert "theirs/quick" in recipe.names()
        assert recipe.describe("theirs/quick") == "A whole."
        assert methods.name_of(recipe.load("theirs/quick", ["train.epochs=3"]).method) == "hard"

    def test_one_that_cannot_be_imported(self) -> None:
        with pytest.raises(UserError, match=r"the metric 'broken' of an installed package cannot be loaded from"):
            metrics.describe("broken")
