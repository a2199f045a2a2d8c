# Every target is one line of documentation: `make help`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
REPORTS ?= reports
STAMP := $(VENV)/.installed
BASE_STAMP := $(VENV)/.installed-base
GPU_STAMP := $(VENV)/.installed-gpu
SITE_STAMP := $(VENV)/.installed-docs
# The tests run with the versions they were written against; `make lock` brings newer ones.
PIP := --quiet --disable-pip-version-check --constraint requirements-dev.lock
SIZES ?=
# OFFLINE=1 uses $(PYTHON) as it is, where the packages are installed already and no index can be reached (a bare GPU machine, say).
OFFLINE ?=
ifeq ($(OFFLINE),)
RUN := $(BIN)/python
else
RUN := PYTHONPATH=$(CURDIR):$(PYTHONPATH) $(PYTHON)
STAMP :=
BASE_STAMP :=
GPU_STAMP :=
SITE_STAMP :=
endif
# Reports for the mutation test: all that are named, else the first launches of the recording.
MUTATED ?=
MUTATIONS ?= 6000
# Seconds that bench-cost may take.
BUDGET ?= 300
# What `record` records, under which GPU's name, where, and with which options.
LADDERS ?= $(patsubst ncu_toolkit/kernel/ladder/problems/%.py,%,$(filter-out %/base.py %/__init__.py,$(wildcard ncu_toolkit/kernel/ladder/problems/[a-z]*.py)))
GPU ?= gpu
RECORDINGS ?= recordings
OPTIONS ?=
# Where the field benchmark is recorded, and how many pairs at once: three for each GPU fill it.
FIELD ?= field
JOBS ?= 3
# Where the programs are recorded, and git directories of public repositories, from which public ones come.
PROGRAMS ?= programs
MIRROR ?=

# Fails where Python is too old, or a package is missing that the base of pyproject.toml needs.
NEEDED := import tomllib, backports.zstd, click, jinja2, msgspec, ncu_report, numpy, pandas, plotly, rich

.DEFAULT_GOAL := help
.PHONY: help setup report test test-all test-oldest check lock benchmark benchmark-heavy mutation-test bench-toolkit bench-cost bench-loop field field-score programs programs-score record test-gpu sanitize docs site clean

help:  ## Show what can be made.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

ifeq ($(OFFLINE),)
$(BASE_STAMP): pyproject.toml requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed; set PYTHON=python3.12, say"; exit 3; }
	@test -x $(BIN)/python || $(PYTHON) -m venv --system-site-packages $(VENV)
	$(BIN)/python -m pip install $(PIP) --editable .
	$(BIN)/python -m compileall -q ncu_toolkit
	@touch $@

$(STAMP): $(BASE_STAMP)
	$(BIN)/python -m pip install $(PIP) --editable '.[dev,toolchain]'
	@touch $@

$(SITE_STAMP): $(BASE_STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

$(GPU_STAMP): $(STAMP)
	# CuPy comes with the machine where it is importable already; otherwise the extra brings it
	$(BIN)/python -c 'import cupy, cuda.bindings' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check '.[gpu]'
	@touch $@
endif

setup: $(STAMP)  ## Make the virtual environment with everything but CuPy.

# The environment there is does where it has what the package needs; else one is made.
report:  ## Write reports/index.html from the recordings in the package; needs no GPU.
	@at=$(PYTHON); $$at -c '$(NEEDED)' 2>/dev/null || { test -n '$(OFFLINE)' || { $(MAKE) --no-print-directory $(BASE_STAMP) && at=$(BIN)/python; }; } && \
	PYTHONPATH=$(CURDIR):$$PYTHONPATH $$at -m ncu_toolkit report --output $(REPORTS)

test: $(STAMP)  ## Run the quick tests that need no GPU.
	$(RUN) -m pytest -m 'not gpu and not slow' -n auto --dist worksteal

test-all: test  ## Run all tests that need no GPU: the quick ones, then the slow ones.
	$(RUN) -m pytest -m 'slow and not gpu' -n auto --dist worksteal

test-oldest: $(STAMP)  ## Run the same tests with the oldest versions that pyproject.toml allows, in an environment of its own.
	$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python $(VENV)-oldest
	$(BIN)/uv pip install --quiet --python $(VENV)-oldest/bin/python --resolution lowest-direct --editable '.[dev,toolchain]'
	PYTHONPATH=$(CURDIR) $(VENV)-oldest/bin/python -m pytest -m 'not gpu' -n auto --dist worksteal

check: $(STAMP)  ## Lint, types, import layers, and numbers that only fall.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(RUN) tests/ratchet.py

benchmark: $(GPU_STAMP)  ## Verify and time the whole FP32 ladder on this machine's GPU.
	$(RUN) -m ncu_toolkit bench --family gemm_fp32 --output $(REPORTS) $(if $(SIZES),--size $(SIZES))

benchmark-heavy: $(GPU_STAMP)  ## Profile the whole FP32 ladder on this machine's GPU, then open reports/index.html.
	$(RUN) -m ncu_toolkit profile --family gemm_fp32 --output $(REPORTS) $(if $(SIZES),--size $(SIZES))

mutation-test: $(STAMP)  ## Damage reports thousands of times, without and with a checksum beside them, and count what goes unseen.
	$(RUN) tests/mutation.py --count $(MUTATIONS) --seed 500000 $(MUTATED)
	$(RUN) tests/mutation.py --count $(MUTATIONS) --seed 600000 --checksum $(MUTATED)

bench-toolkit: $(STAMP)  ## Launches per second and memory a launch for reports of 500, 2000 and 10000 launches, beside ncu where it is installed.
	$(RUN) benchmarks/scale.py 500 2000 10000 --pages

bench-cost: $(GPU_STAMP)  ## Measure passes, time and report size of our set beside ncu's own, and reading beside ncu --import; needs a GPU and ncu.
	$(RUN) benchmarks/cost.py --output docs/data/cost.json --budget $(BUDGET)

bench-loop: $(GPU_STAMP)  ## Measure what compare calls a regression (200 planted slowdowns, 200 of the same kernel) and the rounds of watch; needs a GPU and ncu.
	$(RUN) benchmarks/loop.py --output docs/data/loop.json

field: $(GPU_STAMP)  ## Check, time and profile every pair of the field benchmark into FIELD; what is there already is kept.
	$(RUN) -m benchmarks.field record --out $(FIELD) --jobs $(JOBS)

field-score: $(STAMP)  ## Score the recorded field benchmark into docs/lab/field.md, a table a group; needs no GPU.
	$(RUN) -m benchmarks.field score --cases --out docs/lab/field.md

programs: $(GPU_STAMP)  ## Build, record, time and profile the whole programs into PROGRAMS, public ones from MIRROR; what is there already is kept.
	$(if $(MIRROR),$(RUN) benchmarks/programs/public.py $(MIRROR) $(PROGRAMS)/public)
	$(RUN) benchmarks/programs/record.py $(PROGRAMS) --jobs $(JOBS) --rounds 3 --profile 1 --rules $(if $(MIRROR),--public $(PROGRAMS)/public)

programs-score: $(STAMP)  ## Score the recorded development half of the programs into docs/lab/programs.md and program.md; needs no GPU.
	$(RUN) -m benchmarks.programs.cases --write
	$(RUN) -m benchmarks.programs.score --cases --out docs/lab/programs.md
	$(RUN) -m benchmarks.programs.savings docs/program.md

record: $(GPU_STAMP)  ## Record LADDERS (all) on this machine's GPU into RECORDINGS, a folder each; a folder that exists is kept.
	@for ladder in $(LADDERS); do at=$(RECORDINGS)/$(GPU)-$$(echo $$ladder | tr _ -); test -e $$at/profiles.msgpack.xz || NCU_TOOLKIT_SOURCE_ROOT=/src $(RUN) -m benchmarks.record --family $$ladder --output $$at $(OPTIONS) || exit $$?; done

test-gpu: $(GPU_STAMP)  ## Verify every rung on this machine's GPU at round and odd sizes.
	$(RUN) -m pytest -m gpu tests/gpu

sanitize: $(GPU_STAMP)  ## Run compute-sanitizer (memcheck, racecheck, initcheck) over every rung.
	$(RUN) tests/gpu/sanitize.py

docs: $(STAMP)  ## Rewrite the generated documents, section files, the notebook's outputs and the README's picture.
	$(RUN) docs/section_files.py
	$(RUN) docs/generate.py
	$(RUN) docs/execute.py

site: $(SITE_STAMP)  ## Write the documentation site with the recorded report to build/site.
	$(RUN) -m ncu_toolkit report --output build/report
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet --strict

lock: $(STAMP)  ## Rewrite requirements-dev.lock: one version of each package for development.
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --extra dev --extra docs --extra toolchain --no-emit-index-url --output-file requirements-dev.lock pyproject.toml

clean:  ## Remove the environment, caches and build products; reports/ and what lies in it stay.
	rm -rf $(VENV) $(VENV)-oldest build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf "$${XDG_CACHE_HOME:-$$HOME/.cache}/ncu-toolkit-tests"
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
