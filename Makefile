# Every target sets up what it needs in .venv, and no more; only Python 3.11 or later is assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
BASE := $(VENV)/.base
DEV := $(VENV)/.dev
DOCS := $(VENV)/.docs

.PHONY: install demo test lint types docs dist matrix bench reproduce clean

install: $(DEV)

$(BASE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c constraints.txt -e .
	@touch $@

# .dev and .docs: what pyproject.toml has under these names
$(VENV)/.%: $(BASE)
	$(PIP) -c constraints.txt -e '.[$*]'
	@touch $@

demo: $(BASE)
	$(BIN)/graphuq demo

test: $(DEV)
	$(BIN)/python -m pytest -n 2

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV)
	$(BIN)/mypy

docs: $(DOCS)
	$(BIN)/python -m sphinx -W --keep-going -n -q -b html -d build/doctrees docs build/site
	@echo "The site: build/site/index.html"

# wheel and sdist, each installed in an empty environment of its own, where it runs the demo
dist: $(DOCS)
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	.ci/try_dist $(PYTHON) dist/*.whl dist/*.tar.gz

# the oldest and the newest versions of what the package needs
matrix:
	.ci/matrix $(PYTHON)

bench: $(DEV)
	$(BIN)/python -m benchmarks

reproduce: $(DEV)
	$(BIN)/graphuq reproduce --all --quick

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
