# Two commands do everything on a fresh clone with Python 3.11+ and a package registry:
#   make demo    the main job on the embedded default
#   make test    format, lint, types, import contract, tests, doctests
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
STAMP  := $(VENV)/.installed
# No model hub is ever asked: everything loads from folders.
export HF_HUB_OFFLINE = 1
export TOKENIZERS_PARALLELISM = false

.PHONY: demo test bench format clean
.DEFAULT_GOAL := demo

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "boolattn needs Python 3.11 or newer: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c requirements.lock torch
	$(PIP) install --no-deps -r requirements.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	touch $@

demo: $(STAMP)
	$(BIN)/boolattn demo

test: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest

bench: $(STAMP)
	$(BIN)/python -m benchmarks.encoding

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
