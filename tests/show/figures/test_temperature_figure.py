"""The figure of robustness against 1/T: a line per model and variant, and what it says of a bad table."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from classwise.core.errors import UserError
from classwise.show.figures import save, temperature

ROWS = [
    (model, variant, t, 0.5 + 0.01 * place)
    for place, (model, variant, t) in enumerate(
        (model, variant, t) for model in ("madry", "he.1") for variant in ("float32", "sound") for t in (1, 5, 50)
    )
]
TABLE = pd.DataFrame(ROWS, columns=["model", "variant", "inv_temperature", "accuracy"])


def test_every_model_and_variant_has_its_line(tmp_path: Path) -> None:
    chart = temperature.draw(TABLE.assign(low=TABLE["accuracy"] - 0.02, high=TABLE["accuracy"] + 0.02)).to_dict()
    assert len(chart["layer"]) == 3
    line = chart["layer"][0]["encoding"]
    assert line["x"]["scale"] == {"type": "log", "domain": [1, 50], "nice": False}
    assert line["color"]["scale"]["domain"] == ["madry", "he.1"]
    assert line["strokeDash"]["scale"]["domain"] == ["float32", "sound"]
    assert len(json.loads(next(iter(chart["datasets"].values())))) == 12
    svg = save(temperature.draw(TABLE), tmp_path / "t.svg").read_text()
    assert "he.1" in svg


def test_one_variant_needs_no_legend_and_no_interval_is_drawn() -> None:
    chart = temperature.draw(TABLE[TABLE["variant"] == "sound"]).to_dict()
    assert len(chart["layer"]) == 2
    assert chart["layer"][0]["encoding"]["strokeDash"]["legend"] is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (TABLE.drop(columns="variant"), "variant missing"),
        (TABLE[TABLE["inv_temperature"] == 1], "at least two values"),
        (TABLE.assign(inv_temperature=TABLE["inv_temperature"] - 1), "all above 0"),
        (pd.concat([TABLE, TABLE.assign(variant="third")]), "at most 2 variants"),
    ],
)
def test_a_bad_table_is_refused(table: pd.DataFrame, message: str) -> None:
    with pytest.raises(UserError, match=message):
        temperature.draw(table)
