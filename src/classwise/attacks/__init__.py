"""Attacks, one file each; the file's name is the attack's name.

attacks.parse(["pgd-20", "temperature_pgd:inv_temperature=[2, 5, 50]"])   # {short name: attack}
attacks.craft(Pgd(steps=10), model, x, y, Threat("linf", 8 / 255))        # one batch, the plain call
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from classwise.attacks import foreign
from classwise.attacks.attack import Attack, Model, OneShot, Rows, Suite, craft
from classwise.core import spec
from classwise.core.errors import UserError
from classwise.core.registry import Registry, name_of
from classwise.core.user_files import IN_FILE, take

__all__ = [
    "Attack", "Model", "OneShot", "Rows", "Suite", "craft", "describe", "name_of", "names", "papers", "parse",
    "settings", "usage", "written",
]  # fmt: skip


def _is_class(item: Any) -> bool:
    """Whether it is a class of attacks or of suites, not a function."""
    return isinstance(item, type) and issubclass(item, (Attack, Suite))


_REGISTRY = Registry(
    kind="attack",
    plural="attacks",
    package=__name__,
    accepts=_is_class,
    expected="a frozen dataclass that is an Attack or a Suite (classwise.attacks)",
)
describe, papers, usage = _REGISTRY.describe, _REGISTRY.papers, _REGISTRY.usage


def names() -> list[str]:
    """Every attack there is, without the suites."""
    return [name for name in _REGISTRY.names() if not issubclass(attack_class(name), Suite)]


def attack_class(name: str) -> Any:
    """The dataclass of the attack called `name`: margin_pgd's is MarginPgd."""
    return _REGISTRY.find(name).object


def has_suite(attacks: str | Attack | Sequence[str | Attack]) -> bool:
    """Whether one of the specs names a suite of attacks, such as autoattack."""
    named = (_class_in(item) if isinstance(item, str) else type(item) for item in listed(attacks))
    return any(cls is not None and issubclass(cls, Suite) for cls in named)


def _class_in(text: str) -> Any:
    """The class that a spec names; None for a function of a file and an attack of another library."""
    name, _ = spec.leading(spec.split(text)[0])
    in_file = IN_FILE.fullmatch(name)
    if foreign.is_foreign(text) and not (in_file and _is_class(take(in_file["path"], in_file["name"], "attack")[0])):
        return None
    return attack_class(name)


def listed(attacks: Any) -> list[Any]:
    """One attack or several, as a list."""
    return list(attacks) if isinstance(attacks, Sequence) and not isinstance(attacks, str) else [attacks]


def _members(item: Any) -> list[Any]:
    """The attacks of a suite; an attack as it is."""
    return list(item.members()) if isinstance(item, Suite) else [item]


def settings(attack: Attack) -> dict[str, Any]:
    """The attack's fields with their values."""
    return {f.name: getattr(attack, f.name) for f in dataclasses.fields(attack)}  # type: ignore[arg-type]


def parse(attacks: str | Attack | Sequence[str | Attack], **overrides: Any) -> dict[str, Attack]:
    """Attacks by short name, from specs or objects, in order.

    ``"pgd-20"`` sets the number of steps; ``"pgd:steps=20,step=0.003,restarts=5"`` any field; several values,
    ``"pgd:steps=[10, 20]"``, make one attack each. `overrides` set a field on every attack that has it. Attacks whose
    short names collide are distinguished by the fields in which they differ from each other and from the defaults.
    """
    made: list[Attack] = []
    for item in listed(attacks):
        for attack in _from_spec(item) if isinstance(item, str) else _members(item):
            if not _is_attack(attack):
                raise UserError(f"{attack!r} is not an attack: give a spec such as 'pgd-20' or an attack object.")
            known = {k: v for k, v in overrides.items() if v is not None and k in settings(attack)}
            made.append(dataclasses.replace(attack, **known) if known else attack)  # type: ignore[type-var]
    if not made:
        raise UserError("no attack given; try 'pgd-20'. Known: " + ", ".join(names()) + ".")
    return _named(made)


def _is_attack(item: object) -> bool:
    """Whether it is an attack object, not a class of attacks that nobody has made an object of."""
    return not isinstance(item, type) and isinstance(item, Attack) and dataclasses.is_dataclass(item)


def _from_spec(text: str) -> list[Attack]:
    if (cls := _class_in(text)) is None:
        return [foreign.load(text)]
    written, options = spec.split(text)
    name, first = spec.leading(written)
    if first is not None:
        fields = dataclasses.fields(cls)
        if not fields:
            raise UserError(f"{name} takes no argument, got {text!r}.")
        if fields[0].name in options:
            raise UserError(f"{text!r} gives {fields[0].name} twice; leave one of them out.")
        options = {fields[0].name: first, **options}
    choices = [[(key, value) for value in _choices(cls, key, raw)] for key, raw in options.items()]
    made = (spec.configure(cls, dict(pick), name) for pick in itertools.product(*choices))
    return [member for item in made for member in _members(item)]


def _choices(cls: type[Any], key: str, text: str) -> list[str]:
    """The values to try of a field, one attack each; a list is one value of a field that takes lists."""
    return [text] if spec.takes_list(cls, key) else spec.items(text, older=r"\|")


def written(attack: Any) -> str | None:
    """The spec from which `parse` makes the attack; None where there is none, as for one that holds a model."""
    if isinstance(attack, Attack) and attack.spec is not None:
        return attack.spec
    try:
        usual = {f.name: f.default for f in dataclasses.fields(attack)}
        changed = {key: value for key, value in settings(attack).items() if value != usual[key]}
        options = ",".join(f"{key}={spec.written(value)}" for key, value in changed.items())
        text = f"{name_of(attack)}:{options}" if options else name_of(attack)
        return text if list(parse(text).values()) == list(parse(attack).values()) else None
    except (UserError, TypeError):
        return None


def short_name(attack: Attack) -> str:
    """``pgd-20``: the attack's name and its leading field, where that is a number; or its `short_name`."""
    if attack.short_name is not None:
        return attack.short_name
    name = Path(name_of(attack)).name
    values = list(settings(attack).values())
    return f"{name}-{values[0]}" if values and isinstance(values[0], int) and values[0] != 1 else name


def _named(made: list[Attack]) -> dict[str, Attack]:
    shorts = [short_name(attack) for attack in made]
    named: dict[str, Attack] = {}
    for attack, short in zip(made, shorts, strict=True):
        twins = [settings(other) for other, name in zip(made, shorts, strict=True) if name == short]
        own = settings(attack)
        usual = {f.name: f.default for f in dataclasses.fields(attack)}  # type: ignore[arg-type]
        differing = [key for key in own if own[key] != usual[key] and any(twin.get(key) != own[key] for twin in twins)]
        name = f"{short}:" + ",".join(f"{key}={_text(own[key])}" for key in differing) if differing else short
        if named.get(name, attack) != attack:
            raise UserError(f"two different attacks are both called {name}; give one of them other settings.")
        named[name] = attack
    return named


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower()
