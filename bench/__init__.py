"""Benchmarks, one file each. `python -m bench.run` (or `make bench`) runs them and writes docs/benchmarks.md.

A benchmark is a module with a `TITLE` and a `run(setting) -> str`, the Markdown of its section; `bench.run` lists
them. What they share: `setting` (model, data, batch, rounds), `machine`, `markdown`, and `standin` with `fitting` for
machines without CIFAR-10 or weights.
"""
