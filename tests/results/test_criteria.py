"""Files of requirements: classes, groups, a baseline; and what options add to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from classwise.core.errors import UserError
from classwise.results import criteria
from classwise.results.audit_result import Audit
from classwise.results.criteria import Criteria

Make = Callable[..., Audit]
FILE = """
require = ["worst>=0.1", "clean.accuracy>=90%"]

[classes]
"*" = 0.15
dog = "60%"
owl = 0.3

[groups.birds]
classes = ["owl", "wren"]
require = ["worst>=0.25", "clean.average > 95%"]
"""


@pytest.fixture
def audit(audit_of: Make) -> Audit:
    """Under pgd-20: 20%, 50%, 30%, 80%."""
    return audit_of({"pgd-20": [20, 50, 30, 80, 0]}, (100, 100, 100, 100, 0), ("cat", "dog", "owl", "wren", "unseen"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gate.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


def test_every_table_becomes_requirements(audit: Audit, file: Path) -> None:
    checked = criteria.read(file).check(audit)
    assert {one.requirement: one.passed for one in checked.results} == {
        "worst>=0.1": True,
        "clean.accuracy>=90%": True,
        "group[birds].worst>=0.25": True,
        "clean.group[birds].average>95%": True,
        "class[cat]>=0.15": True,
        "class[dog]>=60%": False,
        "class[owl]>=0.3": True,
        "class[wren]>=0.15": True,  # by "*"; the class without images has no requirement
    }
    assert checked.sentence == "1 of 8 requirements failed."
    assert [one.requirement for one in checked.failed] == ["class[dog]>=60%"]


def test_options_add_to_the_file(audit: Audit, file: Path) -> None:
    both = Criteria.of([f"@{file}", "gap<=0.5"], confident=True)
    assert both.require[-1] == "gap<=0.5"
    assert both.confident
    failed = {one.requirement for one in both.check(audit).failed}
    assert {"class[owl]>=0.3", "class[cat]>=0.15", "gap<=0.5"} <= failed  # the lower ends miss them


def test_a_baseline_of_the_file_takes_the_margin_of_the_option(audit: Audit, tmp_path: Path) -> None:
    _stored(audit, tmp_path / "base")
    path = tmp_path / "gate.toml"
    path.write_text(f'[baseline]\nrun = "{(tmp_path / "base").as_posix()}"\nmargin = 0.1\nattacks = "pgd-20"\n')
    made = Criteria.of([f"@{path}"], margin=0.3)
    assert made.baseline is not None
    assert (made.baseline.margin, made.baseline.attacks) == (0.3, ("pgd-20",))
    checked = made.check(audit)
    assert len(checked.results) == 4
    assert checked.sentence == "All 4 requirements hold."


def _stored(audit: Audit, folder: Path) -> None:
    (folder / "records").mkdir(parents=True)
    for place, name in enumerate(audit.names):
        audit.records.of(name).write(folder / "records" / f"{place:02d}-{name}-00000.parquet")
    audit.save(folder)


def test_what_config_toml_keeps_reads_back_the_same(audit: Audit, file: Path, tmp_path: Path) -> None:
    _stored(audit, tmp_path / "base")
    made = Criteria.of([f"@{file}"], True, tmp_path / "base", 0.05)
    again = criteria.from_dict(made.to_dict())
    assert [one.sentence for one in again.check(audit).results] == [one.sentence for one in made.check(audit).results]
    assert not Criteria()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("requir = []", "unknown setting of the requirements 'requir'; did you mean 'require'"),
        ("require = [1]", "require is a list of texts"),
        ('require = ["wrost>=1"]', "unknown quantity 'wrost'"),
        ("classes = 0.2", "classes is a table"),
        ("[classes]\ncat = 20", "the least accuracy of class 'cat' is from 0 to 1, such as 0.2 or 20%; got 20"),
        ('[classes]\ncat = "much"', "expected a number"),
        ("[groups.a]\nworst = 0.2", "unknown setting of the group 'a' 'worst'"),
        ("confident = 1", "confident is true or false"),
        ("[", "cannot read the requirements"),
    ],
)
def test_mistakes_name_the_file(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "gate.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=said) as caught:
        Criteria.of([f"@{path}"])
    assert str(path) in str(caught.value)


def test_a_class_of_the_file_that_the_audit_has_not(audit: Audit) -> None:
    with pytest.raises(UserError, match="unknown class 'hound'"):
        criteria.from_dict({"classes": {"hound": 0.1}}).check(audit)
    with pytest.raises(UserError, match="class 'unseen' has no example"):
        criteria.from_dict({"classes": {"unseen": 0.1}}).check(audit)


def test_a_margin_needs_a_baseline() -> None:
    with pytest.raises(UserError, match="give --baseline RUN too"):
        Criteria.of(margin=0.1)
