"""All that must hold of an audit: requirements, thresholds of classes and groups, a baseline; also from a TOML file.

require = ["worst>=0.1", "clean.accuracy>=90%"]
confident = true                    # ask the unfavourable end of the intervals

[classes]                           # least accuracy under the headline attack; "*": of each class not named
"*" = 0.1
cat = "20%"

[groups.animals]
classes = ["cat", "dog"]            # left out: the superclass of the data that has this name
require = ["worst>=0.15", "average>=30%"]

[baseline]
run = "runs/main"                   # no class may fall behind this audit; see results.baseline
margin = 0.02
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from classwise.core.errors import UserError, check_known
from classwise.core.spec import check_keys
from classwise.core.toml import tomllib
from classwise.results import gate
from classwise.results.audit_result import Audit
from classwise.results.baseline import Baseline, share
from classwise.results.gate import RequirementResult

_KEYS = ("require", "confident", "classes", "groups", "baseline")
_OTHERS = "*"


@dataclass(frozen=True)
class CriteriaResult:
    """The result of each requirement, and notes on what they can tell."""

    results: tuple[RequirementResult, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return all(result.passed for result in self.results)

    @property
    def failed(self) -> list[RequirementResult]:
        return [result for result in self.results if not result.passed]

    @property
    def sentence(self) -> str:
        """How many hold."""
        count = len(self.results)
        if not self.failed:
            return f"{'The requirement holds' if count == 1 else f'All {count:,} requirements hold'}."
        return f"{len(self.failed):,} of {count:,} requirement{'s' if count > 1 else ''} failed."


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """What must hold. classes: the least accuracy of each, as it was written; "*" is any class not named."""

    require: tuple[str, ...] = ()
    confident: bool = False
    classes: Mapping[str, float | str] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    baseline: Baseline | None = None

    @classmethod
    def of(
        cls,
        require: Sequence[str] = (),
        confident: bool = False,
        baseline: str | Path | None = None,
        margin: float | str | None = None,
    ) -> Criteria:
        """Requirements as options have them, ``@gate.toml`` among them. A mistake is an error here, before an audit."""
        made = cls()
        for text in require:
            made = made._with(read(Path(text[1:])) if text.startswith("@") else cls(require=(text,)))
        for text in made.require:
            gate.parse(text)
        if margin is not None and baseline is None and made.baseline is None:
            raise UserError(f"a margin ({margin}) is the fall allowed behind a baseline: give --baseline RUN too.")
        given = made.baseline
        if baseline is not None:
            given = Baseline.of(baseline, margin, () if given is None else given.attacks)
        elif margin is not None and given is not None:
            given = Baseline(audit=given.audit, margin=share(margin), attacks=given.attacks)
        return made._with(cls(confident=confident, baseline=given))

    def __bool__(self) -> bool:
        return bool(self.require or self.classes or self.baseline)

    def _with(self, other: Criteria) -> Criteria:
        """These and further ones; where both say something of a class, a group or the baseline, the further ones."""
        return Criteria(
            require=(*self.require, *other.require),
            confident=self.confident or other.confident,
            classes={**self.classes, **other.classes},
            groups={**self.groups, **other.groups},
            baseline=other.baseline or self.baseline,
        )

    def own_metrics(self) -> list[str]:
        """The metrics of Python files that are named, to be shown besides the usual ones."""
        return gate.own_metrics(self.require)

    def texts(self, audit: Audit) -> list[str]:
        """Every requirement but the baseline's, those of the classes written out."""
        names = audit.records.class_names
        check_known("class", names, *(name for name in self.classes if name != _OTHERS))
        seen = {names[number] for number in np.unique(audit.rows().label)}
        least = {name: self.classes.get(name, self.classes.get(_OTHERS)) for name in names}
        each = [
            f"class[{name}]>={value}"
            for name, value in least.items()
            if value is not None and (name in seen or name in self.classes)
        ]
        return [*self.require, *each]

    def check(self, audit: Audit) -> CriteriaResult:
        """Whether they hold of an audit."""
        results = gate.check(audit, self.texts(audit), self.confident, self.groups)
        if self.baseline is None:
            return CriteriaResult(tuple(results))
        compared, notes = self.baseline.check(audit, self.confident)
        return CriteriaResult((*results, *compared), tuple(notes))

    def to_dict(self) -> dict[str, Any]:
        """The same as a table of TOML, for config.toml."""
        found: dict[str, Any] = {"require": list(self.require), "confident": self.confident}
        if self.classes:
            found["classes"] = dict(self.classes)
        if self.groups:
            found["groups"] = {name: {"classes": list(own)} for name, own in self.groups.items()}
        if self.baseline is not None:
            found["baseline"] = {
                "run": self.baseline.name,
                "margin": self.baseline.margin,
                "attacks": list(self.baseline.attacks),
            }
        return found


def recorded(audit: Audit) -> Criteria | None:
    """The requirements that an audit wrote into its settings before the first attack; None if it was asked for none."""
    table = audit.config.get("criteria")
    return from_dict(table) if table else None


def read(path: Path) -> Criteria:
    """The requirements of a TOML file."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the requirements in {path}: {error}") from error
    try:
        return from_dict(table)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def from_dict(table: Mapping[str, Any]) -> Criteria:
    """The requirements of a table of TOML."""
    check_keys(table, dict.fromkeys(_KEYS), "the requirements")
    groups, classes = _table(table, "groups"), _table(table, "classes")
    for name, value in classes.items():
        if not 0 <= share(value) <= 1:
            raise UserError(f"the least accuracy of class {name!r} is from 0 to 1, such as 0.2 or 20%; got {value!r}.")
    if not isinstance(confident := table.get("confident", False), bool):
        raise UserError(f"confident is true or false; got {confident!r}.")
    require = list(_texts(table.get("require", ()), "require"))
    members: dict[str, tuple[str, ...]] = {}
    for name in groups:
        own = _table(groups, name)
        check_keys(own, {"classes": None, "require": None}, f"the group {name!r}")
        require += [_inside(name, text) for text in _texts(own.get("require", ()), f"groups.{name}.require")]
        if "classes" in own:
            members[name] = tuple(_texts(own["classes"], f"groups.{name}.classes"))
    for text in require:
        gate.parse(text)
    baseline = _table(table, "baseline")
    return Criteria(
        require=tuple(require),
        confident=confident,
        classes=dict(classes),
        groups=members,
        baseline=Baseline.read(baseline) if baseline else None,
    )


def _inside(group: str, text: str) -> str:
    """A requirement of a group's table, as it would be written outside of it: ``clean.group[animals].worst>=0.5``."""
    name, sign, _ = gate.parse(text)
    attack, quantity = gate.divide(name)
    prefix = "" if attack is None else f"{attack}."
    return f"{prefix}group[{group}].{quantity}{sign}{text.rpartition(sign)[2].strip()}"


def _table(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = of.get(name, {})
    if not isinstance(found, Mapping):
        raise UserError(f"{name} is a table, [{name}] and its settings below; got {found!r}.")
    return found


def _texts(given: Any, name: str) -> list[str]:
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, (list, tuple)) or not all(isinstance(text, str) for text in listed):
        raise UserError(f"{name} is a list of texts; got {given!r}.")
    return list(listed)
