"""The built-in networks, one file per family."""
