# `make` alone lists the targets. Every target that needs the environment makes it first.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made
JARS := $(VENV)/.jars
CONNECT := .venv-connect
CONNECT_STAMP := $(CONNECT)/.made
DOCS := .venv-docs
DOCS_STAMP := $(DOCS)/.made
LOWEST := .venv-lowest
LOWEST_STAMP := $(LOWEST)/.made
SUPPORTED := 3.11 3.12 3.13
EXTRAS := local,remote,databricks,demo,dev
BENCHMARKS := $(wildcard benchmarks/pipeline_init.py benchmarks/spec_load.py benchmarks/convert.py benchmarks/fleet_queue.py \
    benchmarks/fleet_copy.py benchmarks/fleet_block.py benchmarks/fleet_thousand.py benchmarks/shadow.py benchmarks/cdc.py benchmarks/hand_over.py)

# PYTHON=/path/to/python chooses one; otherwise the first on PATH that is fit.
PYTHON ?=
PYTHONS := $(if $(PYTHON),$(PYTHON),python3 python3.13 python3.12 python3.11)
PYTHON_IS_FIT := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
KEEPABLE := { $(BIN)/python -c '$(PYTHON_IS_FIT)' && $(BIN)/python -m pip --version; } >/dev/null 2>&1
comma := ,

# $(call fit,3.12): a Python of that version, or nothing. A second argument names the only one to try.
is_python = import sys, venv, ensurepip; sys.exit("%d.%d" % sys.version_info[:2] != "$(1)")
pythons = python$(1) $(BIN)/python $(CONNECT)/bin/python \
    $(wildcard $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions/$(1).*/bin/python) \
    $(shell PATH="$(abspath $(BIN)):$$PATH" uv python find $(1) 2>/dev/null)
fit = $(firstword $(foreach python,$(or $(2),$(pythons)),\
    $(shell $(python) -c '$(is_python)' >/dev/null 2>&1 && echo $(python))))

# databricks-connect takes this version alone; PYTHON312=/path/to/python3.12 names one.
PYTHON312 ?=
FIT312 = $(call fit,3.12,$(PYTHON312))

# Another PYTHON than last time makes the environment anew.
ifneq ($(PYTHON),)
ifneq ($(PYTHON),$(shell cat $(VENV)/.python 2>/dev/null))
.PHONY: $(STAMP)
endif
endif

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: java $(STAMP) $(JARS) ## Make the environment in .venv (PYTHON=/path/to/python chooses the Python)

.PHONY: demo
demo: setup ## Migrate a real table on this machine, step by step
	@$(BIN)/python examples/demo.py

.PHONY: demo-convert
demo-convert: $(STAMP) ## Turn a lake of real Parquet files into Delta, without Java
	@$(BIN)/python examples/demo_convert.py

.PHONY: demo-fleet
demo-fleet: setup ## Migrate a warehouse of eight Hive tables to Iceberg and Delta, by all five modes
	@$(BIN)/python examples/demo_fleet.py

# Each worker has a Java process of its own when it gets a test that needs Spark, and keeps it. Files are given
# out in the order of pyproject.toml's testpaths: those that take minutes first, so that no worker waits in the end.
WORKERS ?= 2
PARALLEL = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
PYTEST = $(BIN)/python -m pytest $(PARALLEL)

# The tests of Azure need it; without npm they are skipped.
AZURITE := $(VENV)/.azurite/node_modules
.PHONY: azurite
azurite: $(if $(shell command -v npm 2>/dev/null),$(AZURITE)) ## Install the emulator of Azure's storage, for the tests

$(AZURITE): | $(STAMP)
	@npm install --silent --no-audit --no-fund --prefix $(VENV)/.azurite azurite@3.35.0

.PHONY: test
test: setup azurite ## Run the tests that fit into a quarter of an hour: every route's main ways
	@$(PYTEST)
	@$(MAKE) connect

.PHONY: test-all
test-all: export TABLEFERRY_TEST_ALL = 1
test-all: test ## Run all tests, each behaviour once: an hour

# They use Derby in their own process otherwise.
.PHONY: metastore
metastore: setup ## Run the fleet's tests on a Hive metastore that is a server (needs PostgreSQL's programs)
	@TABLEFERRY_METASTORE=server $(BIN)/python -m pytest $(wildcard tests/spark/test_fleet_*.py)

# SEED=N repeats a soak. Each part runs even if one before it failed, for a soak takes hours.
SEED ?= $(shell awk 'BEGIN { srand(); print 1 + int(rand() * 1000000000) }')

.PHONY: soak
soak: SEED := $(SEED)
soak: setup azurite ## Run all tests with all examples, of a seed that is printed, and on each Python: hours (SEED=N repeats)
	@echo "make soak SEED=$(SEED)"; failed=; \
	$(MAKE) unit-pythons || failed="$$failed unit-pythons"; \
	$(MAKE) unit-lowest || failed="$$failed unit-lowest"; \
	TABLEFERRY_SOAK=$(SEED) $(PYTEST) --hypothesis-seed=$(SEED) || failed="$$failed test"; \
	$(MAKE) metastore || failed="$$failed metastore"; \
	TABLEFERRY_SOAK=$(SEED) $(MAKE) connect || failed="$$failed connect"; \
	if [ -n "$$failed" ]; then echo "FAILED, and make soak SEED=$(SEED) repeats it:$$failed" >&2; exit 1; fi; \
	echo "make soak SEED=$(SEED): all passed"

# One server for all workers, which begins when the other tests' Java processes have ended. Its tests are few
# and long, so a worker that has nothing left takes over what another one hasn't begun.
.PHONY: connect
connect: setup setup-connect ## Run the tests of databricks-connect, in .venv-connect
	@[ -z "$(FIT312)" ] || \
	    TABLEFERRY_SERVER_PYTHON=$(abspath $(BIN))/python \
	        $(CONNECT)/bin/python -m pytest -n $(WORKERS) --dist worksteal tests/connect

.PHONY: setup-connect
setup-connect:
	@if [ -n "$(FIT312)" ]; then $(MAKE) --silent $(CONNECT_STAMP) || exit 1; else \
	    case "$${CI:-false}" in false|0) so=SKIPPED;; *) so=FAILED;; esac; \
	    echo "$$so: tests/connect, for databricks-connect needs Python 3.12 with its venv module, and" \
	        "$(if $(PYTHON312),$(PYTHON312) isn't that,there is none): install it, or name one with" \
	        "PYTHON312=/path/to/python3.12, and run make connect." >&2; \
	    [ $$so = SKIPPED ]; \
	fi

.PHONY: unit
unit: $(STAMP) azurite ## Run the tests that need no Java
	@$(PYTEST) tests/unit

# A soak runs these two wherever it is, so a Python that isn't there is only said.
.PHONY: unit-pythons
unit-pythons: azurite ## Run the tests that need no Java on each supported Python that is there
	@ran=; missing=; failed=; \
	$(foreach version,$(SUPPORTED),$(if $(call fit,$(version)),\
	    echo "== Python $(version)"; ran="$$ran $(version)"; \
	    { $(MAKE) --silent .venv-$(version)/.made && \
	        .venv-$(version)/bin/python -m pytest $(PARALLEL) tests/unit; } || failed="$$failed $(version)";,\
	    missing="$$missing $(version)";)) \
	echo "unit-pythons: ran on Python$${ran:- none}$${missing:+; not there:$$missing}$${failed:+; FAILED on$$failed}"; \
	[ -n "$$ran" ] && [ -z "$$failed" ]

.PHONY: unit-lowest
unit-lowest: $(STAMP) azurite ## Run the tests that need no Java with the lowest versions that pyproject.toml allows
	@$(if $(call fit,$(firstword $(SUPPORTED))),$(MAKE) --silent $(LOWEST_STAMP) && \
	    $(LOWEST)/bin/python -m pytest $(PARALLEL) tests/unit,\
	    echo "SKIPPED: unit-lowest, for Python $(firstword $(SUPPORTED)) isn't there" >&2)

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

# A broken link or anchor, or a page that loads from another host, fails.
.PHONY: docs
docs: $(DOCS_STAMP) ## Build the site of docs/ into site/
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --clean
	@echo "Built: open site/index.html, or serve it with its search: $(DOCS)/bin/python -m http.server -d site"

.PHONY: pictures
pictures: setup ## Take the pictures of README.md and docs/ anew, of real runs (needs Chromium)
	@$(BIN)/python -m scripts.pictures

.PHONY: clean
clean: ## Remove .venv, .venv-connect and the like, and the caches; tables under .tableferry stay
	@rm -rf $(VENV) $(CONNECT) $(DOCS) $(LOWEST) $(SUPPORTED:%=.venv-%)
	@rm -rf build dist site .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
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
	    --constraint constraints.txt --editable '.[$(EXTRAS)]' \
	    || { echo "The packages couldn't be installed: read pip's reason above, and run make again." >&2; exit 1; }
	@echo '$(PYTHON)' > $(VENV)/.python
	@touch $@

$(JARS): $(STAMP) scripts/fetch_jars.py | java
	@$(BIN)/python -m scripts.fetch_jars || { echo "Spark's jars couldn't be fetched: read the reason above, and run" \
	    "make again with network access, or name your mirror's spark.jars.ivySettings in spark-defaults.conf." >&2; exit 1; }
	@touch $@

$(CONNECT_STAMP): pyproject.toml constraints-connect.txt
	@if ! { $(CONNECT)/bin/python -c '$(call is_python,3.12)' && $(CONNECT)/bin/python -m pip --version; } >/dev/null 2>&1; then \
	    $(FIT312) -m venv --clear $(CONNECT) || exit 1; \
	fi; \
	echo "Setting up $(CONNECT) with $$($(CONNECT)/bin/python --version); the first time, this takes a minute."; \
	$(CONNECT)/bin/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints-connect.txt --editable '.[connect,databricks,fleet,iceberg,test]' \
	    || { echo "The packages couldn't be installed: read pip's reason above, and run make again." >&2; exit 1; }
	@touch $@

# An environment of its own: the main one needs nothing of it.
$(DOCS_STAMP): pyproject.toml constraints-docs.txt | $(STAMP)
	@if ! { $(DOCS)/bin/python -c '$(PYTHON_IS_FIT)' && $(DOCS)/bin/python -m pip --version; } >/dev/null 2>&1; then \
	    $(BIN)/python -m venv --clear $(DOCS) || exit 1; \
	fi; \
	echo "Setting up $(DOCS) with $$($(DOCS)/bin/python --version); the first time, this takes a minute."; \
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints-docs.txt --editable '.[docs]' \
	    || { echo "The packages couldn't be installed: read pip's reason above, and run make again." >&2; exit 1; }
	@touch $@

# Always from nothing: a package that is no longer asked for would stay, and hide that something still needs it.
$(SUPPORTED:%=.venv-%/.made): .venv-%/.made: pyproject.toml constraints.txt
	@$(call fit,$*) -m venv --clear .venv-$* || exit 1; \
	echo "Setting up .venv-$* with $$(.venv-$*/bin/python --version); this takes a minute or two."; \
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable '.[$(EXTRAS)]' \
	    || { echo "The packages couldn't be installed: read pip's reason above, and run make again." >&2; exit 1; }
	@touch $@

# From nothing too, for uv keeps a newer version that is installed. pip knows no lowest versions.
$(LOWEST_STAMP): pyproject.toml | $(STAMP)
	@$(call fit,$(firstword $(SUPPORTED))) -m venv --clear $(LOWEST) || exit 1; \
	echo "Setting up $(LOWEST) with $$($(LOWEST)/bin/python --version); the first time, this takes a minute."; \
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
	    --editable '.[$(EXTRAS)]' \
	    || { echo "The packages couldn't be installed: read uv's reason above, and run make again." >&2; exit 1; }
	@touch $@
