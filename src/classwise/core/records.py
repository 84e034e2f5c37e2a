"""The table everything else reads: one row per (example, attack).

Attacks and training write `Records`; every metric, table, figure and report is a pure function of them.
"Clean" is the identity attack, so clean and robust accuracy are the same function of different rows.
Nothing here needs torch.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from classwise.core import sealed
from classwise.core.arguments import argument, checked
from classwise.core.errors import UserError, unknown
from classwise.core.meta import AttackInfo, Meta
from classwise.core.record_parts import RecordParts

Array = npt.NDArray[Any]

CLEAN = "clean"
WORST_CASE = "worst_case"
MOST_PROBS = 100  # classes up to which all probabilities are kept by default

#: Every column of the table with its stored type. `probs` is optional and kept apart, as a matrix.
COLUMNS: dict[str, pa.DataType] = {
    "index": pa.int64(),  # position of the example in its data set
    "label": pa.int32(),
    "attack": pa.string(),
    "eps": pa.float64(),  # the radius this example was attacked with
    "prediction": pa.int32(),  # of the untouched model, at the recorded point
    "confidence": pa.float32(),  # probability of the prediction
    "true_prob": pa.float32(),  # probability of the label
    "loss": pa.float32(),  # cross entropy of the label
    "distance": pa.float32(),  # of the recorded point from the clean one, in the threat's norm
    "minimal": pa.float32(),  # smallest distance at which the attack is known to break the example; else infinite
    "step": pa.int32(),  # steps of the attack spent on this example
    "queries": pa.int64(),  # model evaluations the attack spent on it
}


@dataclass(frozen=True)
class Records:
    """One row per (example, attack), with the metadata that gives the rows their meaning."""

    frame: pd.DataFrame
    meta: Meta
    probs: Array | None = None

    def __post_init__(self) -> None:
        missing = [name for name in COLUMNS if name not in self.frame.columns]
        if missing:
            raise UserError(f"records lack the column(s) {', '.join(missing)}; expected {', '.join(COLUMNS)}.")
        if self.probs is not None and self.probs.shape != (len(self.frame), self.num_classes):
            raise UserError(f"probs has shape {self.probs.shape}, expected ({len(self.frame)}, {self.num_classes}).")

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.meta.class_names

    @property
    def num_classes(self) -> int:
        return len(self.meta.class_names)

    @property
    def attacks(self) -> tuple[str, ...]:
        """Attack names in the order they ran."""
        present: list[str] = self.frame["attack"].unique().tolist()
        known = [name for name in self.meta.attacks if name in present]
        return tuple(known + [name for name in present if name not in known])

    @property
    def index(self) -> Array:
        return self.frame["index"].to_numpy()

    @property
    def label(self) -> Array:
        return self.frame["label"].to_numpy()

    @property
    def prediction(self) -> Array:
        return self.frame["prediction"].to_numpy()

    @property
    def correct(self) -> Array:
        return np.asarray(self.label == self.prediction)

    def of(self, attack: str) -> Records:
        """The rows of one attack, ordered by example; "worst_case" joins all attacks."""
        if attack == WORST_CASE and WORST_CASE not in self.attacks:
            return self.worst_case()
        if attack not in self.attacks:
            raise unknown("attack in these records", attack, [*self.attacks, WORST_CASE])
        rows = np.flatnonzero((self.frame["attack"] == attack).to_numpy())
        return self.take(rows[np.argsort(self.index[rows], kind="stable")])

    def take(self, rows: Array) -> Records:
        """The given row numbers, in the given order."""
        frame = self.frame.iloc[rows].reset_index(drop=True)
        return Records(frame, self.meta, None if self.probs is None else self.probs[rows])

    def single(self) -> Records:
        """These records if they hold one attack that saw every example; otherwise an error that says why not."""
        attacks = self.attacks
        if len(attacks) != 1:
            raise UserError(
                f"a metric needs the rows of one attack; these hold {', '.join(attacks) or 'none'}. "
                "Choose with records.of(name), or records.worst_case()."
            )
        info = self.meta.attacks.get(attacks[0])
        if info is not None and info.coverage == "survivors":
            raise UserError(
                f"{attacks[0]} saw only the examples that survived the attacks before it, so its rows alone say "
                "nothing about a class. Use records.worst_case(), or audit again with coverage 'all'."
            )
        if self.frame["index"].duplicated().any():
            raise UserError(f"records of {attacks[0]} hold an example twice; each example must have one row.")
        return self

    def worst_case(self, attacks: Sequence[str] | None = None) -> Records:
        """Each example's row under the first attack that broke it; if none did, its row of highest loss."""
        order = {name: place for place, name in enumerate(attacks or self.attacks)}
        frame = self.frame[["index", "loss"]].copy()
        frame["correct"] = self.correct
        frame["place"] = self.frame["attack"].map(order)
        frame["row"] = np.arange(len(frame))
        frame["tie"] = np.where(frame["correct"], -frame["loss"], frame["place"])
        frame = frame.dropna(subset=["place"]).sort_values(["index", "correct", "tie", "place"], kind="stable")
        picked = self.take(frame.drop_duplicates("index")["row"].to_numpy())
        protocols = {self.meta.attacks[name].protocol for name in order if name in self.meta.attacks}
        info = AttackInfo(
            settings={"attacks": list(order)}, protocol="final" if protocols == {"final"} else "any", coverage="all"
        )
        meta = dataclasses.replace(self.meta, attacks={WORST_CASE: info})
        broken_by = picked.frame["attack"].where(~pd.Series(picked.correct), "")
        return Records(picked.frame.assign(attack=WORST_CASE, broken_by=broken_by), meta, picked.probs)

    @classmethod
    def concat(cls, parts: Sequence[Records]) -> Records:
        """The parts of one run as one table; what they cost is added up."""
        probs = [part.probs for part in parts]
        whole = None if any(p is None for p in probs) else np.concatenate([p for p in probs if p is not None])
        meta = dataclasses.replace(parts[0].meta, stats=_total(part.meta.stats for part in parts), part=None)
        return cls(pd.concat([part.frame for part in parts], ignore_index=True), meta, whole)

    def write(self, path: Path) -> None:
        """Store as one Parquet file, whole or not at all, with a digest of its content."""
        columns: dict[str, pa.Array] = {name: pa.array(self.frame[name], type=kind) for name, kind in COLUMNS.items()}
        if self.probs is not None:
            flat = pa.array(np.ascontiguousarray(self.probs, dtype=np.float32).reshape(-1))
            columns["probs"] = pa.FixedSizeListArray.from_arrays(flat, self.num_classes)
        sealed.write(path, columns, self.meta.to_json())

    @classmethod
    @checked
    def read(cls, paths: str | Path | Iterable[str | Path]) -> Records:
        """Records from one Parquet file, several, or a folder of parts (or a run folder that has one).

        A file whose content is not what was written is an error; so is a folder whose parts do not hold every example
        of every attack exactly once.
        """
        if isinstance(paths, (str, Path)) and Path(paths).is_dir():
            return cls._of_folder(Path(paths))
        each = [paths] if isinstance(paths, (str, Path)) else paths
        files = [Path(argument(path, str | Path, "a file of records")) for path in each]
        if not files:
            raise UserError("no file of records given; name at least one.")
        return _joined(files, [_stored(path)[0] for path in files])

    @classmethod
    def _of_folder(cls, folder: Path) -> Records:
        found = RecordParts.of(folder)
        stored = [_stored(path) for path in found.parts]
        whole = _joined(found.parts, [records for records, _ in stored])
        infos = whole.meta.attacks
        if not all(ordered for _, ordered in stored):
            infos = {name: infos[name] for name in found.order(list(infos))}
            whole = dataclasses.replace(whole, meta=dataclasses.replace(whole.meta, attacks=infos))
        found.check_covered(whole.frame, infos)
        return whole


def digest(values: Array) -> str:
    """SHA-256 of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def _stored(path: Path) -> tuple[Records, bool]:
    """The records of one file, and whether its metadata keep the order of the attacks."""
    table, text, sealed_ = sealed.read(path)
    try:
        probs = None
        if "probs" in table.column_names:
            width = table.schema.field("probs").type.list_size
            probs = table.column("probs").combine_chunks().flatten().to_numpy().reshape(-1, width)
            table = table.drop_columns(["probs"])
        return Records(table.to_pandas(), Meta.from_json(text), probs), sealed_
    except Exception as error:  # files that were not sealed may hold anything
        raise sealed.unreadable(path, error) from error


def _joined(paths: Sequence[Path], parts: Sequence[Records]) -> Records:
    """The records of several files, which must be of one run, as one table."""
    for path, part in zip(paths, parts, strict=True):
        if part.class_names != parts[0].class_names:
            raise UserError(f"{path} is of another run than {paths[0]}: its classes differ. Remove one of them.")
    return parts[0] if len(parts) == 1 else Records.concat(parts)


def _total(stats: Iterable[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Counts and seconds of many parts, added up per attack."""
    total: dict[str, dict[str, float]] = {}
    for part in stats:
        for attack, values in part.items():
            mine = total.setdefault(attack, {})
            mine |= {key: mine.get(key, 0) + value for key, value in values.items()}
    return total
