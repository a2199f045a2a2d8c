# Every target is one line of documentation: `make help`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
REPORTS ?= reports
STAMP := $(VENV)/.installed
GPU_STAMP := $(VENV)/.installed-gpu
# CuPy comes with the machine where it is already importable; otherwise the extra brings it.
SIZES ?=
# Reports for the mutation test: all that are named, else the first launches of the recording.
MUTATED ?=
MUTATIONS ?= 6000

.DEFAULT_GOAL := help
.PHONY: help setup report test check benchmark benchmark-heavy mutation-test bench-toolkit test-gpu sanitize docs clean

help:  ## Show what can be made.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed; set PYTHON=python3.12, say"; exit 3; }
	@test -x $(BIN)/python || $(PYTHON) -m venv --system-site-packages $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,toolchain]'
	@touch $@

$(GPU_STAMP): $(STAMP)
	$(BIN)/python -c 'import cupy, cuda.bindings' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check '.[gpu]'
	@touch $@

setup: $(STAMP)  ## Make the virtual environment with everything but CuPy.

report: $(STAMP)  ## Write reports/index.html from the recordings in the package; needs no GPU.
	$(BIN)/ncu-toolkit report --output $(REPORTS)

test: $(STAMP)  ## Run the tests that need no GPU.
	$(BIN)/python -m pytest -m 'not gpu' -n auto --dist worksteal

check: $(STAMP)  ## Lint, types, import layers, generated documents.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

benchmark: $(GPU_STAMP)  ## Verify and time the whole FP32 ladder on this machine's GPU.
	$(BIN)/ncu-toolkit bench --family gemm_fp32 --output $(REPORTS) $(if $(SIZES),--size $(SIZES))

benchmark-heavy: $(GPU_STAMP)  ## Profile the whole FP32 ladder on this machine's GPU, then open reports/index.html.
	$(BIN)/ncu-toolkit profile --family gemm_fp32 --output $(REPORTS) $(if $(SIZES),--size $(SIZES))

mutation-test: $(STAMP)  ## Damage reports thousands of times, without and with a checksum beside them, and count what goes unseen.
	$(BIN)/python tests/mutation.py --count $(MUTATIONS) --seed 500000 $(MUTATED)
	$(BIN)/python tests/mutation.py --count $(MUTATIONS) --seed 600000 --checksum $(MUTATED)

bench-toolkit: $(STAMP)  ## Launches per second and peak memory of reading reports of 500, 2000 and 10000 launches.
	$(BIN)/python tests/scale.py 500 2000 10000

test-gpu: $(GPU_STAMP)  ## Verify every rung on this machine's GPU at round and odd sizes.
	$(BIN)/python -m pytest -m gpu tests/gpu

sanitize: $(GPU_STAMP)  ## Run compute-sanitizer (memcheck, racecheck, initcheck) over every rung.
	$(BIN)/python tests/gpu/sanitize.py

docs: $(STAMP)  ## Rewrite the generated documents: bottleneck reference, kernel table, section files, README figures.
	$(BIN)/python -m ncu_toolkit.sections
	$(BIN)/python docs/generate.py

clean:  ## Remove the environment, caches and build products; reports/ and what lies in it stay.
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
