# Everything needs only Python (3.10 to 3.13) and make; environments are made here.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo quick test lint types unit browser bench docs examples test-adapters clean

demo: .venv/.run            ## the main job on embedded data, in about two minutes
	$(BIN)/classwise demo

quick: .venv/.dev           ## the tests that neither train nor start processes or browsers, in under a minute
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not adapters and not slow" --durations=10 --durations-min=0.5

test: lint types unit       ## ruff, mypy, pytest

lint: .venv/.dev
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench

types: .venv/.dev           # not with Python 3.10, whose last numpy and pandas type less of what they return
	$(BIN)/python -c "import sys; sys.exit(sys.version_info < (3, 11))" || exit 0; $(BIN)/mypy

unit: .venv/.dev browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m "not adapters"  # two workers of one thread each

browser:                    # the pages' tests drive a real Chromium; without one, and without root to install it, they are skipped
	command -v chromium chromium-browser google-chrome >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y chromium chromium-driver fonts-liberation >/dev/null; } \
		|| echo "no Chromium here: tests of the report page in a browser are skipped"

.venv/.run: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e .
	touch $@

.venv/.dev: .venv/.run
	$(PIP) -e ".[dev]"
	touch $@

# BENCH_ROOT: a folder with CIFAR-10; BENCH_WEIGHTS: weights of the small ResNet. Without them: embedded data, a stand-in.
bench: .venv-bench/.done    ## speed beside other libraries, written to docs/benchmarks.md
	.venv-bench/bin/python -m bench.run $(if $(BENCH_ROOT),--root "$(BENCH_ROOT)") \
		$(if $(BENCH_WEIGHTS),--weights "$(BENCH_WEIGHTS)") $(if $(BENCH_ABOUT),--about "$(BENCH_ABOUT)") $(BENCH_ARGS)

.venv-bench/.done: pyproject.toml constraints.txt bench/requirements.txt
	test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r bench/requirements.txt
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-deps torchattacks==3.5.1
	touch $@

docs: .venv-docs/.done      ## the documentation site, built into site/; opens from disk
	NO_MKDOCS_2_WARNING=true .venv-docs/bin/mkdocs build --strict

.venv-docs/.done: pyproject.toml constraints.txt docs/requirements.txt
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . -r docs/requirements.txt
	touch $@

examples: .venv-adapters/.done  ## run the notebooks of examples/ and store their outputs
	OMP_NUM_THREADS=1 .venv-adapters/bin/python examples/execute.py

test-adapters: .venv-adapters/.done  ## the optional extras, with the newest torch and torchvision (several GB)
	.venv-adapters/bin/python -m pytest -q -m adapters tests/adapters tests/auditing tests/studies tests/training

.venv-adapters/.done: pyproject.toml
	test -x .venv-adapters/bin/python || $(PYTHON) -m venv .venv-adapters
	.venv-adapters/bin/python -m pip install --quiet --disable-pip-version-check pytest wheel "setuptools<81"
	.venv-adapters/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation visdom  # for adv_lib; it imports pkg_resources to be built
	.venv-adapters/bin/python -m pip install --quiet --disable-pip-version-check \
		-e ".[torchvision,timm,transformers,robustbench,foolbox,art,adv-lib,secmlt,notebooks,ray,slurm,tensorboard,mlflow,wandb]"
	.venv-adapters/bin/python -m pip install --quiet --disable-pip-version-check --no-deps torchattacks==3.5.1  # it asks for a requests of 2020
	touch $@

clean:
	rm -rf .venv .venv-bench .venv-docs .venv-adapters site .mypy_cache .pytest_cache .ruff_cache
