# `make help` lists the targets. Each target installs what it needs.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory
# Many Python processes are started, so compile each file once.
unexport PYTHONDONTWRITEBYTECODE

# Python 3.11 if there is one, otherwise a python3 that is new enough.
ifndef PYTHON
PYTHON := $(shell for python in python3.11 python3; do \
    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
    && echo "$$python" && break; done)
endif

BIN := .venv/bin
LOCK_BIN := .venv-lock/bin
AUDIT_BIN := .venv-audit/bin
DATA_DIR ?= .restow

# Arguments for restow up: make up UP_ARGS='--servers 1'
UP_ARGS ?=

# Arguments for pytest: make test PYTEST_ARGS='-k watch -x'
PYTEST_ARGS ?=
# Tests in parallel. Most of them wait for processes, so use one more than there are cores.
WORKERS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$((cores < 7 ? cores + 1 : 8)))
PYTEST = $(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile $(PYTEST_ARGS)

# $(call step,name,command): runs a command and prints its duration.
step = @echo "==> $(1)"; TIMEFORMAT="    $(1): %1R s"; time $(2)

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' \
	  | while IFS=$$'\t' read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

.PHONY: up
up: environment-run ## Run a cluster of three servers on the embedded store, until Ctrl-C
	@exec $(BIN)/restow up --data-dir $(DATA_DIR) $(UP_ARGS)

.PHONY: test
test: setup checks ## Run all checks: lint, types, imports, tests
	@echo "==> tests"
	@exec $(PYTEST)

.PHONY: test-long
test-long: setup checks ## Run the same checks and tests at full size
	@echo "==> tests, full size"
	@RESTOW_TEST_SIZE=long exec $(PYTEST)

# Seconds of fuzzing for each parser: make fuzz FUZZ_SECONDS=3600
FUZZ_SECONDS ?= 120

.PHONY: fuzz
fuzz: environment ## Fuzz all parsers, and send generated requests to every operation
	@$(BIN)/python -m tests.fuzz.engine --list | while read -r target; do \
	  echo "==> $$target"; \
	  $(BIN)/python -m tests.fuzz.engine --target "$$target" --seconds $(FUZZ_SECONDS) || exit 1; done
	@RESTOW_TEST_SIZE=long exec $(BIN)/pytest -p no:xdist tests/fuzz $(PYTEST_ARGS)

# Arguments of the campaign: make prove PROVE_ARGS='worlds mutants --worlds 10000'
PROVE_ARGS ?=
SOAK_SECONDS ?= 3600

.PHONY: prove
prove: setup ## Run the verification campaign, and write proof/report.md
	@exec $(BIN)/python -m tools.prove $(PROVE_ARGS)

.PHONY: soak
soak: setup ## Run an hour of load on three servers: memory, files and tasks must stay constant
	@exec $(BIN)/python -m tests.support.fire.soak --seconds $(SOAK_SECONDS)

.PHONY: bench
bench: environment ## Run the benchmarks, and print the tables
	@$(PYTHON) -m tools.system_packages --for bench
	@$(BIN)/python -m benchmarks.storage
	@$(BIN)/python -m benchmarks.api
	@$(BIN)/python -m benchmarks.coordination
	@$(BIN)/python -m benchmarks.migration
	@$(BIN)/python -m benchmarks.custom
	@$(BIN)/python -m benchmarks.encryption
	@$(BIN)/python -m benchmarks.security
	@$(BIN)/python -m benchmarks.managers
	@$(BIN)/python -m benchmarks.steps
	@$(BIN)/python -m benchmarks.scan
	@$(BIN)/python -m benchmarks.connections
	@exec $(BIN)/python -m benchmarks.hostile

.PHONY: bench-long
bench-long: environment ## Migrate a million objects, and measure rate and memory
	@exec $(BIN)/python -m benchmarks.migration.long

.PHONY: setup
setup: environment ## Install .venv, and the programs that tests and benchmarks need
	@$(PYTHON) -m tools.system_packages
	@$(BIN)/python -m tools.node_packages

# Only the Python part of setup; with -run, only what running restow needs.
.PHONY: environment environment-run
environment: LEVEL := test
environment-run: LEVEL := run
environment environment-run:
	@if [ -z "$(PYTHON)" ]; then \
	  echo "restow needs Python 3.11 or newer, and found none on PATH." >&2; \
	  echo "Set one: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; fi
	@$(PYTHON) -m tools.python_environment $(LEVEL)

.PHONY: lint
lint: environment checks ## Check format, lint, types, imports and dependencies only

.PHONY: checks
checks:
	$(call step,format,$(BIN)/ruff format --check --quiet)
	$(call step,lint,$(BIN)/ruff check --quiet)
	$(call step,types,$(BIN)/mypy --no-error-summary)
	$(call step,imports,$(BIN)/lint-imports --no-logo)
	$(call step,dependencies,$(BIN)/python -m tools.dependency_audit)

.PHONY: format
format: environment ## Format the code with ruff
	@$(BIN)/ruff check --quiet --fix-only
	@$(BIN)/ruff format

.PHONY: reference
reference: environment ## Regenerate the pages of docs/reference, and docs/kep-map.md
	@$(BIN)/python -m tools.build_reference
	@$(BIN)/python -m tools.kep_map

.PHONY: wheel
wheel: environment-run ## Build the wheel and the source archive into dist/
	@rm -rf dist
	@$(BIN)/python -m hatchling build -t sdist -t wheel

# uv is used for this only. UPGRADE=1 takes the newest versions.
COMPILE = $(LOCK_BIN)/uv pip compile --quiet --no-config \
  --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --no-annotate --no-strip-extras \
  --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)

.PHONY: lock
lock: environment ## Compile the lock files from pyproject.toml (UPGRADE=1: newest versions)
	@$(PYTHON) -m venv --clear .venv-lock
	@$(LOCK_BIN)/python -m pip install -qq --require-hashes -r requirements-lock-tool.lock
	@$(COMPILE) pyproject.toml --all-extras --group build --group test --group lint -o requirements.lock
	@$(COMPILE) pyproject.toml --extra server --extra etcd --group build \
	  --constraints requirements.lock -o requirements-run.lock
	@$(COMPILE) --group lock -o requirements-lock-tool.lock
	@$(COMPILE) --group audit -o requirements-audit-tool.lock
	@rm -rf .venv-lock
	@$(BIN)/python -m tools.node_packages --lock

.PHONY: audit
audit: ## Check locked dependencies for known vulnerabilities (needs the network; not part of test)
	@$(PYTHON) -m venv --clear .venv-audit
	@$(AUDIT_BIN)/python -m pip install -qq --require-hashes -r requirements-audit-tool.lock
	@for lock in requirements*.lock; do \
	  echo "==> $$lock"; $(AUDIT_BIN)/pip-audit --strict --disable-pip --require-hashes -r "$$lock"; done
	@rm -rf .venv-audit

.PHONY: clean
clean: ## Remove the files that set-up, runs and tests have written
	@rm -rf .venv .venv-audit .venv-lock .restow build dist .hypothesis .import_linter_cache \
	  .mypy_cache .pytest_cache .ruff_cache tests/e2e/clients/node/node_modules
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
