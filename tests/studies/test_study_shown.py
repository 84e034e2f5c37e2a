"""What a notebook shows of a study."""

from __future__ import annotations

import altair as alt
import pandas as pd

from classwise.studies.runner.result import Claim, StudyResult
from classwise.studies.shared.verdicts import Ruling


def test_claims_tables_figures_and_notes_all_escaped() -> None:
    table = pd.DataFrame({"class": ["<cat>", "dog"], "robust": [12.345, 50.0]})
    chart = alt.Chart(pd.DataFrame({"a": [1], "b": [2]})).mark_point().encode(x="a:Q", y="b:Q")
    claim = Claim("tian2021:table1", "Cats are weak.", Ruling("held", "exact test"), "12 < 50")
    shown = StudyResult({"by_class": table}, figures={"scatter": chart}, claims=[claim], notes=["A & B."])._repr_html_()
    assert "<caption>Claims</caption>" in shown
    assert "Cats are weak." in shown
    assert "<caption>By class</caption>" in shown
    assert "&lt;cat&gt;" in shown
    assert ">12.3<" in shown
    assert '<img alt="Scatter" src="data:image/svg+xml;base64,' in shown
    assert "<p>A &amp; B.</p>" in shown
