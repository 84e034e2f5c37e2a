"""Run folders → one self-contained page that opens from disk, offline, in any browser. Nothing here needs torch.

report.build([Path("runs/madry"), Path("runs/trades")], Path("report.html"))
"""

from __future__ import annotations

from classwise.show.page.page import build

__all__ = ["build"]
