PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint bench clean

demo: $(STAMP)  ## compare four methods on the offline default data, with a table, plots and an HTML report
	$(BIN)/cfcl compare digits

test: lint  ## format check, lint, types, import rules, then the test suite
	$(BIN)/pytest

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)  ## measure, as ratios of things run side by side
	$(BIN)/python benchmarks/step.py
	$(BIN)/python -m pip install --quiet --constraint constraints.txt kornia && $(BIN)/python benchmarks/augment.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# torch first and pinned: later packages then find it there and pull no other build.
$(STAMP): constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch $(STAMP)
