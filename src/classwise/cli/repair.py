"""The command repair: wiring only."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from classwise.cli.audit import present, resumable, typed
from classwise.cli.options import with_options
from classwise.core.errors import UserError
from classwise.core.settings import settings_of
from classwise.repairing.config import RepairConfig


@with_options(one for one in settings_of(RepairConfig).values() if one.mode is None)
def repair(**given: Any) -> None:
    """Raise the worst class of a trained model under attack by changing its last layer, without training it."""
    config = RepairConfig.of(**typed(given))
    if config.folder is None:
        raise UserError("give --out FOLDER: the repaired model is written there, and the same command resumes there.")
    from classwise.repairing.repair import repair_by
    from classwise.show import repair as shown

    notes = Console(stderr=True)
    try:
        result = repair_by(config, say=lambda text: notes.print(Text(text, "dim"), soft_wrap=True))
    except KeyboardInterrupt as stop:
        raise resumable(stop, config.folder, "repair") from None
    present(result, lambda: shown.show(result), config.output.as_json, config.output.csv)
