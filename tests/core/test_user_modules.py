"""Files of the user's: what they import stays or is forgotten, depending on where it was found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from classwise.core.user_files import take


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an environment of its own inside, as `python -m venv .venv` makes one."""
    packages = tmp_path / ".venv" / "lib" / "site-packages"
    (packages / "installed_thing").mkdir(parents=True)
    (packages / "installed_thing" / "__init__.py").write_text("class Base: pass\n")
    (packages / "installed_thing" / "part.py").write_text("from installed_thing import Base\n")
    (tmp_path / "neighbour.py").write_text("VALUE = 7\n")
    (tmp_path / "folder_of_code").mkdir()
    (tmp_path / "folder_of_code" / "__init__.py").write_text("")
    (tmp_path / "folder_of_code" / "inner.py").write_text("VALUE = 8\n")
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def test_installed_packages_below_the_folder_stay_the_same_and_neighbours_are_forgotten(project: Path) -> None:
    (project / "mine.py").write_text(
        "import neighbour\nfrom folder_of_code import inner\nfrom installed_thing.part import Base\n"
        "class Mine(Base):\n    value = neighbour.VALUE + inner.VALUE\n"
    )
    mine, module = take(str(project / "mine.py"), "Mine", "thing")
    assert mine.value == 15
    assert not {"neighbour", "folder_of_code", "folder_of_code.inner"} & set(sys.modules)
    assert {"installed_thing", "installed_thing.part", module.__name__} <= set(sys.modules)
    import installed_thing  # type: ignore[import-not-found]

    assert issubclass(mine, installed_thing.Base)
