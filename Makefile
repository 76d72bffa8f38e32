# Spillway. `make help` lists what there is; `make run` is the place to start.
SHELL := /bin/sh
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
READY := $(VENV)/.ready

# One environment for everything: the project's own Python at both ends of Spark, and a Java it runs on.
export PATH := $(BIN):$(PATH)
export SPILLWAY_HOME ?= $(CURDIR)
export PYSPARK_PYTHON ?= $(BIN)/python
export PYSPARK_DRIVER_PYTHON ?= $(BIN)/python
export PYTHONUNBUFFERED := 1
# Airflow and Spark start dozens of processes of thousands of modules: compiled once, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=
with_java = JAVA_HOME="$$(cat $(VENV)/.java_home)"

.PHONY: help
help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | awk -F'|' '{printf "  make %-11s %s\n", $$1, $$2}'

$(READY): infra/bootstrap.py infra/requirements.txt infra/jars.sha256 infra/ivy.xml pyproject.toml
	@$(PYTHON) infra/bootstrap.py
	@touch $@

.PHONY: setup
setup: $(READY) ## Make the environment, find Java, fetch the Delta jars (all other commands do it first)

.PHONY: run
run: $(READY) ## Shed, recover and validate the demo streams through Airflow's DAGs (KEEP=1 keeps the lake, VERBOSE=1 all messages)
	@$(with_java) python -m demo.run

.PHONY: ui
ui: $(READY) ## Start Airflow on 127.0.0.1 (PORT=8080) and print its address and log-in
	@$(with_java) python -m demo.ui

.PHONY: check
check: $(READY) ## Style, format, types and layers
	@ruff check .
	@ruff format --check .
	@mypy
	@lint-imports --no-logo

.PHONY: test
test: check ## Everything CI runs: check, then the whole test suite
	@$(with_java) python -m pytest -n 3 --max-worker-restart 0

.PHONY: test-unit
test-unit: $(READY) ## The short tests: neither Spark nor Airflow nor a lake with trained streams
	@python -m pytest -m unit -n 2 --max-worker-restart 0

.PHONY: test-long
test-long: $(READY) ## The tests that take minutes: run them before a release or before an issue is closed
	@$(with_java) python -m pytest -m long

.PHONY: same
same: $(READY) ## Make a small lake with this code, and compare its rows and texts with the committed reference
	@python -m tests.frozen same

.PHONY: frozen-lake
frozen-lake: $(READY) ## Write that reference; commit it with what changed in the stored rows
	@python -m tests.frozen reference

.PHONY: house
house: $(READY) ## Count modules, lines and parameters by package; leaves build/house.json (REV=... also counts a revision)
	@python -m tests.house $(REV)

DOCS := $(VENV)/docs

$(DOCS)/.ready: infra/docs-requirements.txt $(READY)
	@$(BIN)/python -m venv $(DOCS) && $(DOCS)/bin/python -m pip install --quiet --require-hashes -r infra/docs-requirements.txt
	@touch $@

.PHONY: docs
docs: $(DOCS)/.ready ## Build the documentation site: build/site/index.html, readable without a server
	@python infra/reference_pages.py
	@$(DOCS)/bin/zensical build --strict --clean

.PHONY: bench
bench: $(READY) ## Measure against floors and peers; leaves build/bench.json
	@$(with_java) python -m evidence.bench

.PHONY: evidence
evidence: $(READY) ## Rebuild each paper's tables and figures beside ours; leaves build/evidence.json
	@$(with_java) python -m evidence

.PHONY: torture
torture: $(READY) ## Kill it, race it, feed it nonsense; tables are judged without it; leaves build/torture.json
	@$(with_java) python -m evidence.torture $(if $(SEED),--seed $(SEED))

.PHONY: doctor
doctor: $(READY) ## Say what is wrong with this machine and how to mend it
	@$(with_java) spillway doctor

.PHONY: pins
pins: $(READY) ## Pin infra/requirements.txt anew from infra/requirements.in, versions and hashes
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-annotate --custom-compile-command "make pins" -o infra/requirements.txt infra/requirements.in
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-annotate --custom-compile-command "make pins" -o infra/docs-requirements.txt infra/docs-requirements.in

.PHONY: clean
clean: ## Remove what runs leave behind; keeps the environment, the jars, and what the demo did not make
	@rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .grimp_cache metastore_db derby.log
	@$(PYTHON) -I lib/demo/ownership.py
	@find lib tests jobs dags plugins infra -name __pycache__ -type d -prune -exec rm -rf {} +
