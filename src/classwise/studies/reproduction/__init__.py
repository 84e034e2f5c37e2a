"""The papers' tables and figures by id: which study makes each, and the printed numbers beside its own."""
