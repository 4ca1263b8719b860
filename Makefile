# Every target makes its own environment in .venv; nothing else is needed than Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV := $(VENV)/.dev
PIP := $(BIN)/pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test check bench golden tables clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(DEV): $(READY)
	$(PIP) --editable '.[dev]'
	touch $@

demo: $(READY) ## train a federated recommender on the built-in data and ask it for recommendations
	$(BIN)/coterie demo

test: $(DEV) ## run all tests
	$(BIN)/python -m pytest -n 2

check: $(DEV) ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY) ## measure speed and memory; MovieLens is needed for most of it
	$(BIN)/python benchmarks/bench.py $(if $(ONLY),--only "$(ONLY)")

golden: $(DEV) ## recompute the stored results that a test compares with
	$(BIN)/python benchmarks/golden.py

tables: $(READY) ## make the tables in the pages anew from results/
	$(BIN)/python -m coterie.experiment.pages README.md docs/papers/*.md

clean: ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache
