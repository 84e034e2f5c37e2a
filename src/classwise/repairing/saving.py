"""The repaired model as a file that everything can load: ``best.pt``, or ``best.toml`` for what has no weights.

A network that a spec names is an ordinary checkpoint, of the same architecture where the last layer took the change. A
black box or a program stays where it is: ``best.toml`` names it and holds the bias (`classwise.models.biased_file`). A
module that was given in Python is kept as its weights; a function or estimator is not kept, only its bias.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from classwise.auditing.recorded import options
from classwise.core.repair_folder import RepairFolder
from classwise.core.storage import atomic_write
from classwise.data.images import Images
from classwise.models.biased_file import write_biased
from classwise.models.black_box import kind_of
from classwise.models.checkpoint import save_checkpoint
from classwise.models.loading import PROGRAM, names_code
from classwise.models.logit_bias import bias_of
from classwise.models.programs import kind_of_program
from classwise.repairing.config import RepairConfig
from classwise.show.page.commands import words

#: The options of a repair that an audit of the repaired model on fresh images takes over.
_TAKEN = ("data", "root", "classes", "eps", "class_eps", "norm", "num_classes", "eot", "device")


def save_model(run: RepairFolder, config: RepairConfig, model: nn.Module, images: Images, **about: Any) -> Path | None:
    """Write the repaired model into the run folder; None where it cannot be written, as a function of Python's."""
    spec = config.model.spec
    if (named := stays_where_it_is(spec)) is not None:
        added = bias_of(model)[1] or [0.0] * images.num_classes
        write_biased(run.best_box, named, added, options(config, images, "repair").get("normalize"))
        return run.best_box
    if isinstance(spec, (str, Path)):
        channels = int(images.batch(np.arange(1))[0].shape[1])
        save_checkpoint(run.best, model, str(spec), images.num_classes, channels, repair=about, **_training(model))
        return run.best
    if not isinstance(spec, nn.Module) or getattr(spec, "black_box", False):
        return None
    inner, bias = bias_of(model)
    with atomic_write(run.best) as handle:
        torch.save({"state_dict": inner.state_dict(), **({} if bias is None else {"logit_bias": bias})}, handle)
    return run.best


def stays_where_it_is(spec: Any) -> str | None:
    """The spec of a black box or a program, which has no weights to keep; None for everything else."""
    text = str(spec) if isinstance(spec, (str, Path)) else ""
    if not text:
        return None
    if kind_of(text) is not None or text.startswith(PROGRAM):
        return text
    return f"{PROGRAM}{text}" if kind_of_program(Path(text)) is not None else None


def loads(config: RepairConfig) -> bool:
    """Whether the file of the repaired model can be loaded as it is, without anything that was given in Python."""
    return isinstance(config.model.spec, (str, Path))


def _training(model: nn.Module) -> dict[str, Any]:
    """What the checkpoint of the model said of its training: the threat, which the repaired one says too."""
    threat = getattr(model, "trained_threat", None)
    trained = getattr(model, "adversarially_trained", None)
    if threat is not None:
        return {"training": {"threat": {"norm": threat[0], "eps": float(threat[1])}}}
    return {} if trained is None or trained else {"training": {"threat": {}}}


def audit_command(config: RepairConfig, images: Images, best: Path | None, folded: bool) -> str:
    """The command that audits the repaired model on the test split of its data under the attacks that judged it;
    Python code where model or images were given in Python."""
    attacks = config.judging.judge_attacks or config.attacks.attacks
    known = options(config, images, "repair")
    python = set(known.get("only_in_python", ())) - {"calibrate"}
    if python or best is None:
        model = repr(str(best)) if best is not None and "model" not in python else "REPAIRED_MODEL"
        return f"cw.audit({model}, TEST_DATA, {attacks!r}, eps={config.threat.eps!r})"
    chosen: dict[str, Any] = {"model": str(best)}
    spec = str(config.model.spec)
    if folded and names_code(spec) and not Path(spec).is_file() and stays_where_it_is(spec) is None:
        chosen = {"model": spec, "weights": str(best)}  # named by the user, so nothing needs to be trusted
        chosen |= {key: known[key] for key in ("normalize",) if key in known}
    elif config.model.trust or (names_code(spec) and not Path(spec).is_file()):
        chosen["trust"] = True
    chosen |= {key: known[key] for key in _TAKEN if key in known}
    chosen |= {"attack": known.get("judge_attack", known["attack"]), "out": f"{best.parent}-audit"}
    return shlex.join(["classwise", "audit", *words(chosen)])
