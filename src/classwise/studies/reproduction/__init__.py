"""The papers' tables and figures by id: which study reproduces each, and the printed numbers next to the measured
ones."""
