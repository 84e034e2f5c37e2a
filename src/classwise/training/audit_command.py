"""The command that audits a trained model, on the test split of its data and under the threat of its training."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from classwise.core.spec import exact
from classwise.models.loading import names_code


def audit_data(config: Mapping[str, Any]) -> str:
    """The spec of a training's data, without the excluded classes."""
    data = config["data"]
    name, excluded = str(data["name"]), "|".join(data.get("exclude", ()))
    return f"{name}{',' if ':' in name else ':'}exclude={excluded}" if excluded else name


def audit_command(config: Mapping[str, Any], checkpoint: Path, root: str | Path | None = None) -> str:
    """The command that audits a checkpoint of a run folder with these settings, into a run folder beside it; Python
    code, where images or model were given in Python and no command can name them."""
    threat, given = config["threat"], config.get("run", {}).get("given", ())
    eps, norm = exact(threat["eps"]), str(threat["norm"])
    if "model" in given:
        return f"cw.audit(cw.load_model(model, {str(checkpoint)!r}), TEST_DATA, eps={eps!r}, norm={norm!r})"
    trust = names_code(str(config["model"]["spec"]))
    if "data" in given:
        more = ", trust=True" if trust else ""
        return f"cw.audit({str(checkpoint)!r}, TEST_DATA, eps={eps!r}, norm={norm!r}{more})"
    parts = ["classwise", "audit", "--model", str(checkpoint), "--data", audit_data(config), "--eps", eps]
    parts += ["--norm", norm, *(["--root", str(root)] if root is not None else []), *(["--trust"] if trust else [])]
    parts += ["--out", f"{checkpoint.parent}-audit"]
    return shlex.join(parts)
