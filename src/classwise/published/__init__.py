"""The papers' published results: every table and figure by id, their numbers, and what follows from them.

    items(), item("tian2021:table1")         every table and figure: what it shows, the study that reproduces it
    names(), table(id), source(id)           the tables, and a line on where their numbers are from
    statements(id)                           numbers printed in the text about a table or a figure
    settings(id)                             how the paper states it was made: attacks, trainings, images
    worst_classes()                          the worst class of every printed model and attack
    fair_methods(), printed_gains()          what later papers print of fairer methods, and what these gain
    item(id).misprints, recomputed()         CV, MCD, ρ and more, recomputed from the accuracies beside them

Papers: `tian2021` (KDD), `tian2020` (its submission to ICLR), `li2023` (WAT), `benz2020` (a pre-registration: plans
and two figures, no numbers). Nothing here needs torch.
"""

from __future__ import annotations

from classwise.published.fair_methods import fair_methods
from classwise.published.gains import printed_gains
from classwise.published.index import Item, Misprint, item, items
from classwise.published.numbers import names, source, statements, table
from classwise.published.paper_settings import Settings, settings
from classwise.published.printed_worst import worst_classes
from classwise.published.recompute import recomputed

__all__ = [
    "Item",
    "Misprint",
    "Settings",
    "fair_methods",
    "item",
    "items",
    "names",
    "printed_gains",
    "recomputed",
    "settings",
    "source",
    "statements",
    "table",
    "worst_classes",
]
