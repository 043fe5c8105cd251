# Everything a newcomer needs: `make web` and `make test`. Each makes .venv and installs into it the first time.

SUITS := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
# The interpreter that makes .venv: python3, or where that is older or newer, another one that suits.
PYTHON ?= $(or $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
    "$$name" -c '$(SUITS)' 2>/dev/null && echo "$$name" && break; done),python3)
# Which build of torch to fetch. Empty is pip's own choice: on Linux the CUDA build of several GB.
# TORCH=cpu takes the CPU build (200 MB), TORCH=cu130 and the like another CUDA.
TORCH ?=
# How many processes run the tests.
WORKERS ?= 2
# More options for pytest: make test ARGS="-k cache -x".
ARGS ?=

# What `make coverage` runs: stories with exact values, without the random histories of the state machine.
COVERING := $(addprefix tests/engine/,cache test_scheduler.py test_preemption.py test_sequence.py test_speculation.py \
    test_beam_search.py test_step_faults.py test_step_faults_in_detail.py) --deselect tests/engine/cache/test_state_machine.py

# Where an environment forbids it, every start of the program would compile its modules anew: 0.7 s.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
PACKAGES := kernels engine app tui
INSTALLED := $(VENV)/.installed
TESTABLE := $(VENV)/.testable
LINKED := $(VENV)/src/.linked
# What was installed in a folder that was moved since looks for the old one.
MOVED := $(shell test ! -e $(INSTALLED) || test "$$(cat $(INSTALLED))" = "$(CURDIR)" || echo moved)
AGAIN := $(strip make $(MAKECMDGOALS) $(if $(TORCH),TORCH=$(TORCH)))
TORCH_INDEX := $(if $(TORCH),--extra-index-url https://download.pytorch.org/whl/$(TORCH))

.PHONY: help web tui test coverage install lint format clean moved
.DEFAULT_GOAL := help

help: ## Show what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

web: $(INSTALLED) ## Open the chat page: http://127.0.0.1:7860
	@$(BIN)/paged-chat web

tui: $(INSTALLED) ## Chat in this terminal
	@$(BIN)/paged-chat tui

test: $(TESTABLE) ## Run the tests
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS)

coverage: $(TESTABLE) ## Measure which branches of the cache and the scheduler their own tests reach
	$(BIN)/coverage run -m pytest -q $(COVERING)
	$(BIN)/coverage report

install: $(TESTABLE) ## Make .venv and install into it, with all that tests need

lint: $(TESTABLE) $(LINKED) ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p paged_chat
	$(BIN)/mypy tests

format: $(TESTABLE) ## Format the code and mend what ruff can
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

clean: ## Remove .venv and every cache (models and chats stay)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(PACKAGES) tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Unfinished once, it goes on with what is there: pip keeps what it has fetched. What is no environment (made without
# pip, cut short, by a Python that is gone, or for another folder) is made anew.
define install
	@"$(PYTHON)" -c '$(SUITS)' 2>/dev/null || { echo "paged-chat needs Python 3.11 to 3.14, and $(PYTHON) isn't one." \
	    "Install one (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python)," \
	    "or name yours: $(AGAIN) PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(BIN)/pip --version 2>/dev/null | grep -qF "$(CURDIR)/$(VENV)/" || "$(PYTHON)" -m venv --clear $(VENV) || \
	    { echo "No environment could be made in $(VENV). Debian, Ubuntu: apt install python3-venv;" \
	    "then again: $(AGAIN)" >&2; exit 1; }
	@$(BIN)/python -m pip install $(TORCH_INDEX) --editable '$(1)' || \
	    { echo "The installation isn't finished; the reason stands above. It needs a network (a proxy is named by" \
	    "https_proxy) and 5 GB of disk, or 1.6 GB with TORCH=cpu. To go on from here: $(AGAIN)" >&2; exit 1; }
endef

$(INSTALLED): pyproject.toml $(MOVED)
	$(call install,.)
	@echo "$(CURDIR)" > $@

$(TESTABLE): pyproject.toml $(MOVED)
	$(call install,.[test])
	@echo "$(CURDIR)" | tee $(INSTALLED) > $@

# mypy doesn't see through setuptools' editable finder; these links lay the packages out as they are imported.
$(LINKED): Makefile $(TESTABLE)
	mkdir -p $(VENV)/src/paged_chat
	for package in $(PACKAGES); do ln -sfn ../../../$$package $(VENV)/src/paged_chat/$$package; done
	@touch $@
