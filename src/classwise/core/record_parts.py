"""The parts of a run's records on disk: their order, and whether they hold every example once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from classwise.core.errors import UserError
from classwise.core.meta import AttackInfo
from classwise.core.run_config import as_table
from classwise.core.run_folder import AuditFolder, place_and_attack
from classwise.core.storage import safe_name

_NAMED = 5  # examples or files that an error names


@dataclass(frozen=True)
class RecordParts:
    """A folder of parts, and the settings of its run as far as they are there."""

    run: AuditFolder
    folder: Path
    parts: tuple[Path, ...]
    config: Mapping[str, Any]

    @classmethod
    def of(cls, folder: Path) -> RecordParts:
        """Of a run folder, or of the folder of parts in it."""
        run = AuditFolder(folder)
        if not run.records.is_dir() and AuditFolder(folder.parent).records == folder:
            run = AuditFolder(folder.parent)
        records = run.records if run.records.is_dir() else folder
        parts = tuple(sorted(records.glob("*.parquet")))
        if not parts:
            raise UserError(f"no records (*.parquet) in {records}. Is it a run folder of an audit that has begun?")
        return cls(run, records, parts, run.config())

    def order(self, names: Sequence[str]) -> list[str]:
        """The attacks in the order they ran: that of config.toml, else of the numbers in the parts' names."""
        asked = list(as_table(self.config.get("attacks")))
        if set(asked) >= set(names):
            return [name for name in asked if name in names]
        places = {attack: place for place, attack in map(place_and_attack, self.parts) if attack}
        return sorted(names, key=lambda name: (name != "clean", places.get(safe_name(name), len(places))))

    def check_covered(self, frame: pd.DataFrame, infos: Mapping[str, AttackInfo]) -> None:
        """Raise, with what is missing or doubled, unless each attack has one row for each example it was shown."""
        searched = any(info.settings.get("find_worst") for info in infos.values())  # then only some were attacked
        problems = list(self._problems(frame, infos, searched))
        if problems:
            absent = [] if searched else self.absent(list(infos))
            files = f" Not there: {_some(absent)}." if absent else ""
            raise UserError(
                f"the records in {self.folder} do not hold each example once: {'; '.join(problems)}.{files} Repeat the "
                "audit's command, which computes what is missing; remove files that do not belong there."
            )

    def _problems(self, frame: pd.DataFrame, infos: Mapping[str, AttackInfo], searched: bool) -> Iterator[str]:
        rows = {name: frame[(frame["attack"] == name).to_numpy()] for name in infos}
        for name, own in rows.items():
            if (twice := own["index"].duplicated()).any():
                yield f"{name} has examples twice: {_some(own['index'][twice])}"
        if "clean" not in rows:
            return
        everything = rows["clean"]["index"].to_numpy()
        count = as_table(self.config.get("data")).get("examples")
        if count is not None and count != len(set(everything.tolist())):
            yield f"clean has {len(set(everything.tolist()))} of {count} examples"
        left = everything[(rows["clean"]["label"] == rows["clean"]["prediction"]).to_numpy()]
        attacks = [name for name in infos if name != "clean"]
        for name in attacks:
            own, seen = rows[name], rows[name]["index"].to_numpy()
            survivors = infos[name].coverage == "survivors"
            expected = left if survivors else everything
            if searched and name == attacks[0]:
                expected = np.intersect1d(left, seen)
            if (missing := np.setdiff1d(expected, seen)).size:
                yield f"{name} lacks {missing.size} of {len(expected)} examples: {_some(missing)}"
            if (other := np.setdiff1d(seen, expected)).size:
                yield f"{name} has {other.size} examples that it was not shown: {_some(other)}"
            broken = own["index"][own["label"] != own["prediction"]]
            left = np.setdiff1d(expected if survivors else left, broken)

    def numbers(self) -> range:
        """The numbers of the parts that the plan asks for; none where the folder has no plan."""
        plan, data = as_table(self.config.get("plan")), as_table(self.config.get("data"))
        examples, part, parts = data.get("examples"), plan.get("part"), plan.get("parts", 0)
        if not (isinstance(examples, int) and isinstance(part, int) and isinstance(parts, int)) or part < 1:
            return range(0)
        return range(parts or -(-examples // part))

    def absent(self, names: Sequence[str]) -> list[str]:
        """Parts that the plan asks for and the folder lacks."""
        numbers = self.numbers()
        wanted = (self.run.part(at, name, n).name for at, name in enumerate(names) for n in numbers)
        return [name for name in wanted if not (self.folder / name).exists()]


def _some(values: Any) -> str:
    shown = [str(value) for value in values]
    return ", ".join(shown[:_NAMED]) + (f", … ({len(shown)} in all)" if len(shown) > _NAMED else "")
