# One environment, .venv, serves every target; it is made when missing and renewed when the requirements change.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
INSTALLED := .venv/.installed
TYPING := .venv/typing/llama_workbench

# Some containers set it; every measuring process would then compile torch's Python code afresh.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help bench bench-all test versus site dashboard dashboard-speed speedscope lint lines format clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile
	@echo '  Pass options with ARGS, for example: make bench ARGS="--claims rope-3x-5x --budget 120"'

bench: $(INSTALLED) ## measure the claims and print the verdicts
	$(BIN)/pytest --benchmark $(ARGS)

bench-all: $(INSTALLED) ## the same for the full claim suite, with the slow claims (about two hours)
	$(BIN)/pytest --benchmark --all $(ARGS)

# In the order in which they are collected, where long ones come first: by default files with few tests come last. Three
# processes for two cores: some tests wait, but each process imports for twenty seconds what the tests do.
test: $(INSTALLED) ## run the tests; those of whole systems where what they cover has changed (in CI: all)
	$(BIN)/pytest --numprocesses=3 --dist=loadfile --no-loadscope-reorder $(if $(CI),,--skip-unchanged) $(ARGS)

versus: $(INSTALLED) ## how often other tools, and this one, are wrong (ARGS: how many trials; continues where it stopped)
	$(BIN)/python -m studies.versus_trials $(ARGS)

site: $(INSTALLED) ## build the documents as a site in build/site; a dead link fails
	rm -rf build/pages build/site && mkdir -p build/pages/results
	cp -r README.md AGENTS.md CHANGELOG.md CONTRIBUTING.md LICENSE CITATION.cff action.yml docs build/pages
	cp results/README.md results/versus.svg build/pages/results
	$(BIN)/zensical build --strict --clean

dashboard: $(INSTALLED) ## show the results in a browser
	$(BIN)/streamlit run --server.address=localhost --server.showEmailPrompt=false dashboard/app.py -- $(ARGS)

dashboard-speed: $(INSTALLED) ## time the dashboard's pages on two hundred runs
	$(BIN)/python -m studies.dashboard_speed $(ARGS)

speedscope: $(INSTALLED) ## install what the dashboard opens raw profiles with (by npm, its hash checked)
	$(BIN)/workbench speedscope

lint: $(INSTALLED) $(TYPING) ## check format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --num-workers=2 -p llama_workbench -p tests -p studies -m conftest -m hatch_build | sed 's|^$(TYPING)/||'

lines: ## count the lines of Python by folder, and the change against origin's main (or ARGS=REVISION)
	@$(PYTHON) -m tests.lines $(ARGS)

format: $(INSTALLED) ## rewrite the code in the house format
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

clean: ## remove the environment and the caches, but no results
	rm -rf .venv build dist .benchmarks .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --no-compile halves the time of the installation: of all the modules, only those imported are ever compiled. Those that
# nearly every process imports are imported here: several that begin at once would each compile them for itself.
BESIDE_TORCH := scipy.stats, streamlit.testing.v1, plotly.graph_objects, pyarrow.parquet
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt pip # a Python's own may know no groups
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --group dev \
	  --editable '.[models,dashboard,profile,export,remote]'
	$(BIN)/python -c 'import torch' & $(BIN)/python -c 'import $(BESIDE_TORCH)'; wait
	touch $@

# The layout of the wheel, for the type checker, which does not follow a package whose folders lie beside it.
$(TYPING): $(INSTALLED)
	mkdir -p $@
	ln -sfn $(CURDIR)/llama_workbench/__init__.py $(CURDIR)/llama_workbench/commands $(CURDIR)/variants $(CURDIR)/datasets $(CURDIR)/harness $(CURDIR)/dashboard $@
	touch $@
