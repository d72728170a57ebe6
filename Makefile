# `make` without a target lists the targets. Every target creates the environments that it needs.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made
JARS := $(VENV)/.jars
# For linters and tests: packages in the same environment, the jars of servers, Azure's emulator.
DEV_STAMP := $(VENV)/.dev
TEST_JARS := $(VENV)/.test-jars
CONNECT := .venv-connect
CONNECT_STAMP := $(CONNECT)/.made
DOCS := .venv-docs
DOCS_STAMP := $(DOCS)/.made
LOWEST := .venv-lowest
LOWEST_STAMP := $(LOWEST)/.made
SUPPORTED := 3.11 3.12 3.13
# The command line and the demos need these; DEV_EXTRAS are for linters and tests.
EXTRAS := local,remote,databricks,fleet,template,cloud,iceberg,scan,sync,demo
DEV_EXTRAS := $(EXTRAS),dev
BENCHMARKS := $(wildcard benchmarks/cli_start.py benchmarks/pipeline_init.py benchmarks/spec_load.py benchmarks/convert.py benchmarks/fleet_queue.py \
    benchmarks/fleet_copy.py benchmarks/fleet_block.py benchmarks/fleet_thousand.py benchmarks/shadow.py benchmarks/cdc.py benchmarks/hand_over.py \
    benchmarks/sync.py)

# With the variable, each process that a test starts compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

# PYTHON=/path/to/python selects the interpreter; the default is the first supported one on PATH.
PYTHON ?=
environment = sh scripts/environment.sh

# $(call fit,3.12) returns a Python of that version, or nothing. A second argument is the only one to try.
is_python = import sys, venv, ensurepip; sys.exit("%d.%d" % sys.version_info[:2] != "$(1)")
pythons = python$(1) $(BIN)/python $(CONNECT)/bin/python \
    $(wildcard $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions/$(1).*/bin/python) \
    $(shell PATH="$(abspath $(BIN)):$$PATH" uv python find $(1) 2>/dev/null)
fit = $(firstword $(foreach python,$(or $(2),$(pythons)),\
    $(shell $(python) -c '$(is_python)' >/dev/null 2>&1 && echo $(python))))

# databricks-connect supports only this version; PYTHON312=/path/to/python3.12 selects an interpreter.
PYTHON312 ?=
FIT312 = $(call fit,3.12,$(PYTHON312))

# A changed PYTHON recreates the environment.
ifneq ($(PYTHON),)
ifneq ($(PYTHON),$(shell cat $(VENV)/.python 2>/dev/null))
.PHONY: $(STAMP)
endif
endif

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: java $(STAMP) $(JARS) ## Create the environment in .venv (PYTHON=/path/to/python chooses the Python)

# These targets wait for the network, so they run in parallel.
.PHONY: setup-tests
setup-tests: java ## Install the packages and servers of linters and tests, too
	@$(MAKE) --silent --jobs=6 $(JARS) $(DEV_STAMP) $(TEST_JARS) azurite setup-connect

.PHONY: demo
demo: setup ## Migrate a table of real data on this machine, step by step
	@$(BIN)/python examples/demo.py

.PHONY: demo-convert
demo-convert: $(STAMP) ## Convert a lake of real Parquet files to Delta, without Java
	@$(BIN)/python examples/demo_convert.py

.PHONY: demo-fleet
demo-fleet: setup ## Migrate eight Hive tables to Iceberg and Delta, with all five modes
	@$(BIN)/python examples/demo_fleet.py

# Each worker starts a separate Java process for its first test with Spark, and keeps it. Files are assigned
# in the order of pyproject.toml's testpaths, the longest first, so that no worker waits at the end.
WORKERS ?= 2
PARALLEL = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
PYTEST = $(BIN)/python -m pytest $(PARALLEL)

# The tests of Azure need the emulator; without npm they are skipped.
AZURITE := $(VENV)/.azurite/node_modules
.PHONY: azurite
azurite: $(if $(shell command -v npm 2>/dev/null),$(AZURITE)) ## Install the emulator of Azure's storage, for the tests

$(AZURITE): | $(STAMP)
	@npm install --loglevel=error --no-audit --no-fund --prefix $(VENV)/.azurite azurite@3.35.0

.PHONY: test
test: setup-tests ## Run the tests that fit into 15 minutes: the main paths of every route
	@$(PYTEST)
	@$(MAKE) connect

.PHONY: test-all
test-all: export TABLEFERRY_TEST_ALL = 1
test-all: test ## Run all tests, each behaviour once: an hour

# Other targets run these tests with Derby in the test process.
.PHONY: metastore
metastore: setup-tests ## Run the fleet's tests on a Hive metastore server (needs PostgreSQL)
	@TABLEFERRY_METASTORE=server $(BIN)/python -m pytest $(wildcard tests/spark/test_fleet_*.py)

# SEED=N repeats a soak. A soak takes hours, so each part runs even if an earlier part failed.
SEED ?= $(shell awk 'BEGIN { srand(); print 1 + int(rand() * 1000000000) }')

.PHONY: soak
soak: SEED := $(SEED)
soak: setup-tests ## Run all tests with all examples, on each Python: hours (prints its seed; SEED=N repeats it)
	@echo "make soak SEED=$(SEED)"; failed=; \
	$(MAKE) unit-pythons || failed="$$failed unit-pythons"; \
	$(MAKE) unit-lowest || failed="$$failed unit-lowest"; \
	TABLEFERRY_SOAK=$(SEED) $(PYTEST) --hypothesis-seed=$(SEED) || failed="$$failed test"; \
	$(MAKE) metastore || failed="$$failed metastore"; \
	TABLEFERRY_SOAK=$(SEED) $(MAKE) connect || failed="$$failed connect"; \
	if [ -n "$$failed" ]; then echo "FAILED, and make soak SEED=$(SEED) repeats it:$$failed" >&2; exit 1; fi; \
	echo "make soak SEED=$(SEED): all passed"

# All workers share one server, which starts after the Java processes of other tests have ended. The tests are few
# and long, so an idle worker takes tests from another worker's list.
.PHONY: connect
connect: setup-tests ## Run the tests of databricks-connect, in .venv-connect
	@[ -z "$(FIT312)" ] || \
	    TABLEFERRY_SERVER_PYTHON=$(abspath $(BIN))/python \
	        $(CONNECT)/bin/python -m pytest -n $(WORKERS) --dist worksteal tests/connect

.PHONY: setup-connect
setup-connect:
	@if [ -n "$(FIT312)" ]; then $(MAKE) --silent $(CONNECT_STAMP) || exit 1; else \
	    case "$${CI:-false}" in false|0) so=SKIPPED;; *) so=FAILED;; esac; \
	    echo "$$so: tests/connect. databricks-connect needs Python 3.12 with its venv module, and" \
	        "$(if $(PYTHON312),$(PYTHON312) isn't that,there is none): install it, or name one with" \
	        "PYTHON312=/path/to/python3.12, and run make connect." >&2; \
	    [ $$so = SKIPPED ]; \
	fi

.PHONY: unit
unit: $(DEV_STAMP) azurite ## Run the tests that need no Java
	@$(PYTEST) tests/unit

# A soak runs these two targets on any machine, so a missing Python is reported and doesn't fail.
.PHONY: unit-pythons
unit-pythons: azurite ## Run the tests that need no Java on each supported Python that is installed
	@ran=; missing=; failed=; \
	$(foreach version,$(SUPPORTED),$(if $(call fit,$(version)),\
	    echo "== Python $(version)"; ran="$$ran $(version)"; \
	    { $(MAKE) --silent .venv-$(version)/.made && \
	        .venv-$(version)/bin/python -m pytest $(PARALLEL) tests/unit; } || failed="$$failed $(version)";,\
	    missing="$$missing $(version)";)) \
	echo "unit-pythons: ran on Python$${ran:- none}$${missing:+; not installed:$$missing}$${failed:+; FAILED on$$failed}"; \
	[ -n "$$ran" ] && [ -z "$$failed" ]

.PHONY: unit-lowest
unit-lowest: $(DEV_STAMP) azurite ## Run the tests that need no Java with the lowest versions that pyproject.toml allows
	@$(if $(call fit,$(firstword $(SUPPORTED))),$(MAKE) --silent $(LOWEST_STAMP) && \
	    $(LOWEST)/bin/python -m pytest $(PARALLEL) tests/unit,\
	    echo "SKIPPED: unit-lowest, because Python $(firstword $(SUPPORTED)) isn't installed" >&2)

.PHONY: lint
lint: $(DEV_STAMP) ## Check style, types, imports between modules, and wording
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m scripts.wording

.PHONY: bench
bench: setup $(DEV_STAMP) ## Run the benchmarks
	@for benchmark in $(BENCHMARKS); do echo "== $$benchmark"; $(BIN)/python $$benchmark || exit 1; done

.PHONY: render
render: $(DEV_STAMP) ## Render the root bundle and the native template from template/
	@$(BIN)/python -m scripts.render

# A broken link or anchor, or a page that loads from another host, fails the build.
.PHONY: docs
docs: $(DOCS_STAMP) ## Build the site of docs/ into site/
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --clean
	@echo "Built: open site/index.html, or serve it with its search: $(DOCS)/bin/python -m http.server -d site"

.PHONY: pictures
pictures: setup $(DEV_STAMP) ## Retake the pictures of README.md and docs/ from real runs (needs Chromium)
	@$(BIN)/python -m scripts.pictures

.PHONY: clean
clean: ## Remove all environments and caches; tables under .tableferry stay
	@rm -rf $(VENV) $(CONNECT) $(DOCS) $(LOWEST) $(SUPPORTED:%=.venv-%)
	@rm -rf build dist site .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# As Spark's launcher does, this prefers JAVA_HOME's Java to the one on PATH.
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

$(STAMP): pyproject.toml constraints.txt scripts/environment.sh
	@$(environment) $(VENV) '$(PYTHON)' --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@echo '$(PYTHON)' > $(VENV)/.python
	@touch $@

$(DEV_STAMP): $(STAMP)
	@$(environment) $(VENV) '$(PYTHON)' --constraint constraints.txt --editable '.[$(DEV_EXTRAS)]'
	@touch $@

# uv may be reinstalling the package at the same time, so Python imports it from src.
fetch_jars = PYTHONPATH=src $(BIN)/python -m scripts.fetch_jars
no_jars = { echo "The jars couldn't be fetched: read the reason above, and run make again with network access," \
    "or name your mirror's spark.jars.ivySettings in spark-defaults.conf." >&2; exit 1; }

$(JARS): $(STAMP) scripts/fetch_jars.py src/tableferry/spark/local_settings.py | java
	@$(fetch_jars) spark || $(no_jars)
	@touch $@

$(TEST_JARS): $(STAMP) scripts/fetch_jars.py src/tableferry/spark/local_settings.py | java
	@$(fetch_jars) kafka broker metastore rest-catalog s3 || $(no_jars)
	@touch $@

$(CONNECT_STAMP): pyproject.toml constraints-connect.txt scripts/environment.sh
	@$(environment) $(CONNECT) '$(FIT312)' --constraint constraints-connect.txt \
	    --editable '.[connect,databricks,fleet,iceberg,test]'
	@touch $@

# The site needs no Spark, so it has a separate environment.
$(DOCS_STAMP): pyproject.toml constraints-docs.txt scripts/environment.sh
	@$(environment) $(DOCS) '$(PYTHON)' --constraint constraints-docs.txt --editable '.[docs]'
	@touch $@

# Always recreated: a package that is no longer listed would stay, and hide that a test still imports it.
$(SUPPORTED:%=.venv-%/.made): .venv-%/.made: pyproject.toml constraints.txt scripts/environment.sh
	@rm -rf .venv-$*
	@$(environment) .venv-$* '$(call fit,$*)' --constraint constraints.txt --editable '.[$(DEV_EXTRAS)]'
	@touch $@

# Recreated too, because uv keeps an installed newer version.
$(LOWEST_STAMP): pyproject.toml scripts/environment.sh
	@rm -rf $(LOWEST)
	@$(environment) $(LOWEST) '$(call fit,$(firstword $(SUPPORTED)))' --resolution lowest-direct \
	    --editable '.[$(DEV_EXTRAS)]'
	@touch $@
