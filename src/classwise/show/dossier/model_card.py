"""The results of a dossier as `model-index`, the YAML by which model cards of the Hugging Face Hub state them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from classwise.core.records import CLEAN, WORST_CASE


def model_index(dossier: Mapping[str, Any]) -> str:
    """YAML for the head of a model card: for each run clean and robust accuracy, their class averages, and the worst
    class. Values are fractions, as in summary.json."""
    name = dossier["facts"]["system"]["name"] or dossier["identity"]["model"]["spec"] or "model"
    results = [_result(dossier, run) for run in dossier["results"]]
    lines = ["model-index:", f"- name: {_quoted(name)}", "  results:"]
    for result in results:
        lines += _lines(result)
    return "\n".join(lines) + "\n"


def _result(dossier: Mapping[str, Any], run: str) -> dict[str, Any]:
    about, numbers, threat = dossier["identity"]["runs"][run], dossier["results"][run], dossier["threat"][run]
    names = [CLEAN, numbers["headline"]] if numbers["headline"] != CLEAN else [CLEAN]
    metrics = []
    for attack in names:
        if attack not in numbers["attacks"]:
            continue
        own = numbers["attacks"][attack]
        shown = "the worst case" if attack == WORST_CASE else attack
        under = "clean" if attack == CLEAN else f"{shown}, {threat['norm']} {threat['eps_text']}"
        metrics += [
            ("accuracy", f"Accuracy ({under})", own["accuracy"]),
            ("class_average_accuracy", f"Average of the class accuracies ({under})", own["average"]),
            ("worst_class_accuracy", f"Worst class, {own['worst']['class']} ({under})", own["worst"]["accuracy"]),
        ]
    data = about["data"] or "data"
    return {"dataset": data, "split": about["selection"].get("split", "test"), "metrics": metrics}


def _lines(result: Mapping[str, Any]) -> list[str]:
    found = [
        "  - task:",
        "      type: image-classification",
        "    dataset:",
        f"      name: {_quoted(result['dataset'])}",
        f"      type: {_quoted(result['dataset'])}",
        f"      split: {_quoted(result['split'])}",
        "    metrics:",
    ]
    for kind, name, value in result["metrics"]:
        found += [f"    - type: {kind}", f"      name: {_quoted(name)}", f"      value: {json.dumps(value)}"]
    return found


def _quoted(text: Any) -> str:
    """A text of JSON, which is one of YAML too."""
    return json.dumps(str(text), ensure_ascii=False)
