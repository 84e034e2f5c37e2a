"""The folder that every fuzz test starts from, made once."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_cases import fill


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return fill(folder)
