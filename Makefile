# Every target sets itself up: it needs Python 3.11 or newer and make, nothing else.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' \
	2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help setup demo up down doctor test lint bench clean

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1	/' | \
		while IFS='	' read -r name text; do printf '  make %-8s %s\n' "$$name" "$$text"; done
	@echo "  Options go in ARGS, for example: make demo ARGS='--rows 200'"

setup: $(STAMP) ## Make the virtual environment (every other target does it by itself)

demo: $(STAMP) ## Render a campaign of 24 videos from examples/sneaker_cities.csv
	@$(BIN)/adloom demo $(ARGS)

up: $(STAMP) ## Start Adloom with its dashboard; Ctrl-C stops it
	@$(BIN)/adloom up $(ARGS)

down: $(STAMP) ## Stop what still runs
	@$(BIN)/adloom down $(ARGS)

doctor: $(STAMP) ## Say what is up and what is wrong
	@$(BIN)/adloom doctor $(ARGS)

test: $(DEV_STAMP) ## Run the tests
	@$(BIN)/python -m pytest $(ARGS)

lint: $(DEV_STAMP) ## Check style, types and the import rules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/mypy

bench: $(DEV_STAMP) ## Measure against the figures that we publish
	@$(BIN)/python -m bench $(ARGS)

clean: ## Remove the virtual environment and caches; your data in .adloom stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Wheels alone: nothing is compiled, so no compiler is needed.
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	--only-binary :all: --constraint constraints.txt --editable

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Adloom needs Python 3.11 or newer (with venv). Install it, or" \
		"name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	@echo "Setting up $(VENV) with $(PYTHON) (once; most of it is downloading torch) …"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) .
	@touch $@

$(DEV_STAMP): $(STAMP)
	@echo "Adding the tools for tests and checks (once) …"
	@$(PIP_INSTALL) '.[dev]'
	@touch $@
