"""``python -m classwise``."""

from classwise.cli import main

main()
