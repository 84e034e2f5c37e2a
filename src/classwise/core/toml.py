"""Python's own reader of TOML; before Python 3.11 tomli, which became it."""

import sys

if sys.version_info >= (3, 11):
    import tomllib as tomllib
else:
    import tomli as tomllib

__all__ = ["tomllib"]
