# Two commands do everything on a fresh clone with Python 3.11+ and a package registry:
#   make demo    the shipped model beside the plain encoder: searches, an evaluation, the page's line
#   make test    format, lint, security lint, types, import contract, tests, doctests
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Byte code is made of what is imported, when it is; compiling everything takes a minute more.
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check install --no-compile
LOCKED := $(PIP) --no-deps --require-hashes
LOCKS  := requirements-pip.lock requirements-search.lock requirements-demo.lock requirements.lock
# By its version alone: some machines have builds of their own, with other hashes.
TORCH  := torch==2.13.0
AUDIT  := pip-audit==2.10.1 pip-licenses==5.5.5 cyclonedx-bom==7.5.0
ALL    := $(VENV)/.installed
SEARCH := $(VENV)/.search
# Installers and checks run two at a time, as tests do.
TWO    := $(MAKE) --no-print-directory -j 2
# No model hub is ever asked: everything loads from folders.
export HF_HUB_OFFLINE = 1
export TOKENIZERS_PARALLELISM = false
# Nothing is sent to the makers of libraries.
export ORT_DISABLE_TELEMETRY = 1
export RAY_USAGE_STATS_ENABLED = 0
# Some machines forbid Python to keep byte code; without it every start takes fifteen seconds more.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test types tests test-slow bench lock sbom audit format clean
.DEFAULT_GOAL := demo

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "boolattn needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

# A pip that reads the registry's lists of files in half the time of the one in Python 3.11.
$(VENV)/.pip: requirements-pip.lock | $(BIN)/python
	$(LOCKED) -r requirements-pip.lock
	touch $@

# What the demo runs: no PyTorch.
$(SEARCH): $(LOCKS) pyproject.toml setup.py $(wildcard src/boolattn/models/*/*.xz) | $(VENV)/.pip
	@echo 'installing into $(VENV)'
	$(LOCKED) -r requirements-demo.lock
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@

# What only tests and training need.
$(VENV)/.others: $(LOCKS) | $(VENV)/.pip
	sed '/^-r /d' requirements.lock > $(VENV)/others.lock
	$(LOCKED) -r $(VENV)/others.lock
	touch $@

$(VENV)/.torch: Makefile | $(VENV)/.pip
	$(PIP) --no-deps $(TORCH)
	touch $@

# PyTorch again at the end: of what it needs, only the libraries of its build on this machine can lack.
$(ALL): $(LOCKS) Makefile pyproject.toml | $(VENV)/.pip
	@echo 'installing everything into $(VENV): a minute or two'
	$(TWO) $(VENV)/.others $(SEARCH) $(VENV)/.torch
	$(PIP) $(TORCH)
	touch $@

demo: $(SEARCH)
	$(BIN)/python -m examples.demo

test: $(ALL)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(TWO) types tests

types:
	$(BIN)/mypy
	$(BIN)/bandit -q -r src -c pyproject.toml

tests:
	$(BIN)/pytest -n 2 --dist worksteal

test-slow: $(ALL)
	$(BIN)/pytest -n 2 --dist worksteal -m slow

bench: $(ALL)
	$(BIN)/python -m benchmarks.without_torch

# Hashes of the versions that the lock files name, from the registry.
lock:
	$(PYTHON) -m tools.lock $(LOCKS)

# What the wheel installs with its service, from installed metadata: licences, and an SBOM (CycloneDX).
sbom:
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip --quiet install --no-deps --require-hashes -r requirements-search.lock
	$(VENV)-wheel/bin/python -m pip --quiet install --no-deps .
	$(VENV)-wheel/bin/python -m pip check
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python -m pip --quiet --disable-pip-version-check install $(AUDIT)
	mkdir -p audit
	$(VENV)-audit/bin/cyclonedx-py environment --output-reproducible -o audit/sbom.cdx.json $(VENV)-wheel/bin/python
	$(VENV)-audit/bin/pip-licenses --python $(VENV)-wheel/bin/python --from=mixed --with-urls --format=markdown \
		--ignore-packages pip setuptools wheel --output-file audit/licences.md
	cat audit/licences.md

# Besides, known vulnerabilities of the locked versions, from pypi.org's JSON API; fails where it cannot ask.
audit: sbom
	echo '$(TORCH)' | $(VENV)-audit/bin/pip-audit --strict --disable-pip --no-deps -r requirements.lock -r /dev/stdin

format: $(ALL)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(VENV)-audit $(VENV)-wheel audit .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
