# `make` alone lists the targets. Every target that needs the environment makes it first.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made
BENCHMARKS := $(wildcard benchmarks/pipeline_init.py benchmarks/spec_load.py)

# PYTHON=/path/to/python chooses one; otherwise the first on PATH that is fit.
PYTHON ?=
PYTHONS := $(if $(PYTHON),$(PYTHON),python3 python3.13 python3.12 python3.11)
PYTHON_IS_FIT := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
KEEPABLE := { $(BIN)/python -c '$(PYTHON_IS_FIT)' && $(BIN)/python -m pip --version; } >/dev/null 2>&1
comma := ,

# Another PYTHON than last time makes the environment anew.
ifneq ($(PYTHON),)
ifneq ($(PYTHON),$(shell cat $(VENV)/.python 2>/dev/null))
.PHONY: $(STAMP)
endif
endif

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: java $(STAMP) ## Make the environment in .venv (PYTHON=/path/to/python chooses the Python)

.PHONY: demo
demo: setup ## Migrate a real table on this machine, step by step
	@$(BIN)/python examples/demo.py

.PHONY: test
test: setup ## Run all tests
	@$(BIN)/python -m pytest

.PHONY: unit
unit: $(STAMP) ## Run the tests that need no Java
	@$(BIN)/python -m pytest tests/unit

.PHONY: lint
lint: $(STAMP) ## Check style, types and which module imports which
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

.PHONY: bench
bench: setup ## Run the benchmarks
	@for benchmark in $(BENCHMARKS); do echo "== $$benchmark"; $(BIN)/python $$benchmark || exit 1; done

.PHONY: render
render: $(STAMP) ## Render what is made from the template: the root bundle, its native twin
	@$(BIN)/python -m scripts.render

.PHONY: clean
clean: ## Remove .venv and the caches; tables under .tableferry stay
	@rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Spark's launcher takes JAVA_HOME's Java before the one on PATH, and so does this.
.PHONY: java
java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'); \
	case "$$version" in \
	17|21) ;; \
	*) echo "Tableferry needs Java 17 or 21$${version:+, and $$java is Java $$version}: install it" \
	    "(Debian/Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)" \
	    "or point JAVA_HOME at it, and run make again." >&2; exit 1;; \
	esac

# A pyenv shim of a version that isn't chosen is on PATH and fails, so each candidate is tried.
$(STAMP): pyproject.toml constraints.txt
	@python=; \
	for candidate in $(PYTHONS); do \
	    if "$$candidate" -c '$(PYTHON_IS_FIT)' >/dev/null 2>&1; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "Tableferry needs Python 3.11, 3.12 or 3.13 with its venv module$(if $(PYTHON),$(comma) and $(PYTHON) isn't that): install it" \
	        "(Debian/Ubuntu: apt-get install python3 python3-venv; macOS: brew install python@3.13)" \
	        "or name one with PYTHON=/path/to/python, and run make again." >&2; exit 1; \
	fi; \
	if ! { $(if $(PYTHON),false,$(KEEPABLE)); }; then \
	    "$$python" -m venv --clear $(VENV) || exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$($(BIN)/python --version); the first time, this takes a few minutes."; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable '.[local,databricks,demo,dev]' \
	    || { echo "The packages couldn't be installed: read pip's reason above, and run make again." >&2; exit 1; }
	@echo '$(PYTHON)' > $(VENV)/.python
	@touch $@
