PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test integration lint mutants rubbish bench bench-flower results clean

demo: $(STAMP)  ## compare four methods on the offline default data, with a table, plots and an HTML report
	$(BIN)/cfcl compare digits

test: lint  ## format check, lint, types, import rules, then the test suite
	$(BIN)/pytest --numprocesses auto --dist loadgroup

integration: $(STAMP)  ## what takes minutes, rights or a browser: kills, full disks, torchrun, maps, the tour of docs/use.md
	$(BIN)/python -m pytest integration

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

mutants: $(STAMP)  ## change the source in 300 small ways and see which no test notices; goes on where it was stopped
	$(BIN)/python benchmarks/mutants.py

rubbish: $(STAMP)  ## give 15,000 spoilt inputs to everything that reads, and 500 odd command lines: half an hour
	$(BIN)/python benchmarks/rubbish.py

bench: $(STAMP)  ## measure, as ratios of things run side by side; leave the machine alone for an hour
	$(BIN)/python benchmarks/step.py
	$(BIN)/python -m pip install --quiet --constraint constraints.txt kornia && $(BIN)/python benchmarks/augment.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/peak.py
	$(BIN)/python benchmarks/embed.py
	$(BIN)/python benchmarks/engine.py $(FLOWER)

bench-flower: FLOWER := --flower .venv-flower/bin/python
bench-flower: .venv-flower/.installed bench  ## the same with Flower's simulation beside it

# Flower wants versions of its own, so it gets an environment of its own.
.venv-flower/.installed: constraints.txt
	$(PYTHON) -m venv .venv-flower
	.venv-flower/bin/python -m pip install --quiet --constraint constraints.txt torch
	.venv-flower/bin/python -m pip install --quiet 'flwr[simulation]==1.41.0' torch==2.13.0 scikit-learn safetensors \
		jaxtyping pydantic pillow scipy
	touch $@

results: $(STAMP)  ## draw docs/results again from its records, and docs/images/idea.svg: no byte changes
	$(BIN)/cfcl redraw docs/results/quick
	$(BIN)/cfcl redraw docs/results/full
	$(BIN)/cfcl redraw docs/results/registered --into README.md
	$(BIN)/python docs/images/idea.py

clean:
	rm -rf $(VENV) .venv-flower .mypy_cache .ruff_cache .pytest_cache .hypothesis .mutants .import_linter_cache

# torch first and pinned: later packages then find it there and pull no other build.
$(STAMP): constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch $(STAMP)
