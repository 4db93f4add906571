# `make train` and `make test` set everything up by themselves; they need Python 3.11 to 3.13 and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
TRAINS := $(VENV)/.trains
READY := $(VENV)/.ready

.PHONY: train test check docs faults mutants bench clean

$(BIN)/python:
	$(PYTHON) -c "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13) and 'ludus needs Python 3.11 to 3.13, this is %d.%d; try: make PYTHON=python3.12' % sys.version_info[:2])"
	$(PYTHON) -m venv $(VENV)

$(TRAINS): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) '.[rl]'
	touch $@

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) '.[dev]'
	touch $(TRAINS) $@

train: $(TRAINS)  ## Train the main job, with a live display.
	$(BIN)/ludus train configs/ppo.yaml --run cartpole-$$(date +%Y%m%d-%H%M%S)

check: $(READY)  ## Lint and types.
	$(BIN)/ruff check ludus tests benchmarks examples website
	$(BIN)/ruff format --check ludus tests benchmarks examples website
	$(BIN)/mypy

test: check  ## Everything that CI runs.
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

docs: $(READY)  ## The site of the documentation, in site/; a warning is an error.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file website/mkdocs.yml

faults: $(READY)  ## The long campaigns: kills at random instants, in chains, with negative controls, for the kinds that `make test` leaves out.
	$(BIN)/python -m pytest -m slow -n 0 -s

mutants: $(READY)  ## Break lines on purpose and see a test fail for each.
	$(INSTALL) '.[mutation]'
	$(BIN)/python -m tests.mutation breaks
	$(BIN)/python -m tests.mutation mutants

bench: $(READY)  ## The benchmarks beside their peers.
	$(INSTALL) '.[bench]'
	for name in supervised real checkpoint startup rl replay learning active active_learning transfer games games_learning loading arena arena_proof arena_learning engines sweep population report text text_learning; do $(BIN)/python -m benchmarks $$name --json bench-$$name.json || exit 1; done

clean:  ## Remove what the build made; runs are kept.
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis
