# Every target sets up what it needs first; `make help` lists them.

SHELL := /bin/sh
.DEFAULT_GOAL := help

# A person's pip may be told to install elsewhere or to build differently; here it must not.
# Mirrors, certificates and proxies (PIP_INDEX_URL, PIP_CERT, ...) stay in force.
unexport PIP_TARGET PIP_PREFIX PIP_ROOT PIP_PYTHON PIP_CONSTRAINT PIP_REQUIREMENT PIP_EDITABLE \
	PIP_DRY_RUN PIP_NO_BINARY PIP_REQUIRE_VIRTUALENV PYTHONHOME PYTHONPATH
export PIP_USER := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
INSTALLED := $(VENV)/.installed

# Test workers: one more than cores, as many tests wait for something most of the time. Each keeps
# servers of its own, so not without bound.
CORES = $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
WORKERS ?= $(shell expr $(CORES) + 1)
PARALLEL := --numprocesses $(WORKERS) --maxprocesses 8 --dist loadscope --no-loadscope-reorder
PYTEST := $(PY) -m pytest $(if $(JUNIT),--junitxml=$(JUNIT)) $(ARGS)

# Files outside of tests/faults that have long forms too.
LONG = $(shell grep -rl --include='test_*.py' 'mark\.long' tests/integration)

# Only `make lock` needs it, so it is not part of the environment.
LOCK_TOOL := uv==0.13.9
LOCK_HOME := build/lock-tool
LOCK_ANY := env -u UV_FIND_LINKS -u UV_EXTRA_INDEX_URL -u UV_INDEX $(LOCK_HOME)/bin/uv --no-config \
	pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
	--custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)
LOCK := $(LOCK_ANY) pyproject.toml --extra embedded
# What the image is built with, and does not contain.
LOCK_BUILD := $(LOCK_ANY) --group build

.PHONY: help setup demo test lint format types unit integration faults soak e2e e2e-container e2e-compose e2e-ssh \
	e2e-firecracker firecracker-rootfs bench guards docs \
	lock changelog clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(INSTALLED): requirements-dev.lock scripts/setup.sh
	@PYTHON='$(PYTHON)' scripts/setup.sh $(VENV) requirements-dev.lock
	@touch $@

$(READY): $(INSTALLED) pyproject.toml
	@$(PY) -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(READY) ## make .venv from the lock (PYTHON=... picks the interpreter)
	@:

demo: setup ## run twenty real jobs through the whole system (KEEP=1 leaves it running)
	@$(PY) -m examples.demo $(if $(KEEP),--keep)

test: setup lint types ## every check and every test of an ordinary change (JUNIT=file, ARGS=...)
	@$(PYTEST) $(PARALLEL)

lint: setup ## style, and formatting without changing anything
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/ruff format --quiet --check .

format: setup ## put every file into the house's format
	@$(VENV)/bin/ruff check --quiet --fix .
	@$(VENV)/bin/ruff format .

types: setup ## strict type checking
	@$(VENV)/bin/mypy

unit: setup ## the tests that need no server
	@$(PYTEST) tests/unit

integration: setup ## the tests on real servers and worker processes
	@$(PYTEST) $(PARALLEL) tests/integration tests/conformance

faults: setup ## the long, seeded fault runs, and their report (ARGS="-k name" picks)
	@KICI_FAULT_REPORT=$(or $(REPORT),docs/fault-report.md) $(PYTEST) -m "long or not long" \
		tests/faults $(LONG)

soak: setup ## an hour of jobs and faults, seeded, and the report (SECONDS=3600, SEED=7)
	@KICI_FAULT_REPORT=$(or $(REPORT),docs/fault-report.md) KICI_SOAK_SECONDS=$(or $(SECONDS),3600) \
		KICI_FAULT_SEED=$(or $(SEED),7) $(PYTEST) --capture=no tests/faults/test_soak.py

e2e: setup ## the whole system, one job after another
	@$(PYTEST) tests/e2e

e2e-container: setup ## the container backend on a Docker and a Podman of its own (SHORT=1, ARGS="-k name")
	@scripts/e2e_container.sh $(PY) $(if $(SHORT),,-m "long or not long") \
		$(if $(JUNIT),--junitxml=$(JUNIT)) $(ARGS)

e2e-ssh: setup ## machines reached by SSH, in network namespaces (ARGS="-k name")
	@scripts/e2e_ssh.sh $(PY) $(if $(JUNIT),--junitxml=$(JUNIT)) $(ARGS)

e2e-firecracker: setup ## the firecracker backend on real microVMs, or a recorder that plays them (SHORT=1)
	@scripts/e2e_firecracker.sh $(PY) $(if $(SHORT),,-m "long or not long") \
		$(if $(JUNIT),--junitxml=$(JUNIT)) $(ARGS)

firecracker-rootfs: setup ## a root file system for microVMs, from Debian packages (OUT=file, SUITE=bookworm)
	@scripts/firecracker_rootfs.sh $(PY) $(or $(OUT),build/firecracker/rootfs.ext4)

e2e-compose: setup ## the compose file on a Docker of its own, with images made on the spot
	@scripts/e2e_compose.sh $(PY) $(ARGS)

bench: setup ## figures and their floors, in one run
	@$(PY) -m bench $(ARGS)

guards: setup ## take away one guard after another and see a test fail for each
	@$(PY) -m tests.guards $(ARGS)

docs: setup ## write the reference pages anew from the code
	@$(PY) -m scripts.reference
	@$(PY) -m scripts.dashboard

lock: setup ## pin the packages anew (UPGRADE=1 takes newer releases)
	@$(PY) -m pip install --quiet --upgrade --target $(LOCK_HOME) $(LOCK_TOOL)
	@$(LOCK) --output-file requirements.lock
	@$(LOCK) --group dev --constraint requirements.lock --output-file requirements-dev.lock
	@$(LOCK_BUILD) --constraint requirements-dev.lock --output-file requirements-build.lock

changelog: setup ## fold changelog.d into CHANGELOG.md (VERSION=x.y.z)
	@$(VENV)/bin/towncrier build --yes --version "$(VERSION)"

clean: ## remove caches and builds (the environment stays; rm -r .venv removes it)
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
