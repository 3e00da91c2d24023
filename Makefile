# Everything runs in a virtual environment of its own, made on first use and again when the project's needs change.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help demo test test-long check format docs clean

help:
	@echo "make demo       cluster a small embedded federation, let a newcomer in, train in four ways, and make a report"
	@echo "make test       format check, lint, types and tests"
	@echo "make test-long  searches of the tests, at random and longer; what they find becomes a test"
	@echo "make format     rewrite the code in the project's format"
	@echo "make docs       the site, in build/site: every link and every reference is checked"
	@echo "make clean      remove the virtual environment and everything that was built"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/pacfl demo pacfl-demo
	$(BIN)/pacfl run experiments/demo.toml --runs pacfl-demo/runs
	$(BIN)/pacfl report pacfl-demo/runs -o pacfl-demo/report.html
	@echo "the report: file://$(CURDIR)/pacfl-demo/report.html"

test check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile  # a core for each: small matrices

test-long: $(READY)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 HYPOTHESIS_PROFILE=random $(BIN)/pytest tests/fuzz tests/subspace tests/signatures tests/data

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis pacfl-demo
