# SPDX-License-Identifier: BSD-3-Clause
# make channel   set-up, foundation, build of the default stack, environment, allreduce, report
# make test      set-up, lint, format, types and all tests
# make bench     what the commands take, beside other programs where they are at hand

PYTHON ?= python3
VENV   ?= .venv
RANKS  ?= 4
STACK  ?= udp
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: channel test test-unit lint bench clean setup help

channel: setup
	$(BIN)/channel_tools build --variant $(STACK)
	$(BIN)/channel_tools validate --variant $(STACK) --ranks $(RANKS)

test: lint
	$(BIN)/python -m pytest -n auto tests/unit
	$(BIN)/python -m pytest tests/integration

test-unit: setup
	$(BIN)/python -m pytest -n auto tests/unit

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	cd recipes/torch-switchml/src && $(abspath $(BIN))/mypy

bench: channel
	$(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.index
	$(BIN)/python -m benchmarks.serve --channel output/channel
	$(BIN)/python -m benchmarks.mirror output/channel

setup: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; name one with PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) output .pytest_cache .mypy_cache .ruff_cache .hypothesis

help:
	@sed -n 's/^# make /make /p' Makefile
