# SPDX-License-Identifier: BSD-3-Clause
# make channel      set-up, foundation, build of the default stack, environment, allreduce, report; PyTorch for the CPU from what pip finds, else from its own index; BASE=NAME: the Debian release that it is made from, the newest that runs here unless named
# make test         set-up, lint, and the tests that each change runs, five minutes on two cores; make channel before it, for those of the stack
# make test-all     set-up, lint, the default stack, and all tests; ONLY=serve: the tests of channel_tools/serve alone
# make test-unit    set-up and the unit tests
# make coverage     the unit tests, with the lines and branches that they reach: tracing them takes as long as running them
# make test-lowest  the unit tests with the lowest versions of dependencies that pyproject.toml allows
# make test-clients the tests that want conda, conda-build, conda-smithy and micromamba: CLIENTS, a folder of these programs, or CONDA=, CONDA_BUILD= ...
# make sweep        every command with hostile values for every option (ten minutes), or the third of ten parts with SHARE=3/10
# make lint         ruff, mypy, import-linter, shellcheck, clang-format
# make lint-cpp     clang-tidy, with the C++ headers of this machine's compiler
# make fuzz         fuzzing of what reads bytes of others, MINUTES (10) for each kind of them
# make sanitize     SwitchML's C++ under the sanitizers, its gRPC parts too, which compile for minutes
# make simulate     SwitchML's client and switch in virtual time, SCHEDULES (1000000) of faults; says the seed of one that breaks a promise
# make docs         the documentation as a site in output/docs, its links checked
# make screenshots  the pictures of pages and terminals in docs/how-to/images, by the tests that look at them
# make bench        what the commands take, beside other programs where they are at hand
# make bench-allreduce  SwitchML's allreduce beside gloo's, over sizes, ranks, hosts and loss, torch-mpi's beside mpi4py's, oneCCL's and ACCL's; output/bench/
# make pytorch      PyTorch from source with MPI, for hours, then what its users do with it; repeated, it takes from a compiler cache what was compiled (CACHE=sccache)
# make changelog    CHANGELOG.md's section for VERSION from the files in changes/
# make release      sets VERSION, and builds and checks what is released, into output/release; RELEASING.md has all steps

PYTHON ?= python3
VENV   ?= .venv
RANKS  ?= 4
STACK  ?= udp
SHARE  ?= all
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: changelog release release-python release-conda screenshots simulate sanitize fuzz sweep channel test fast-tests test-all all-tests test-unit coverage test-lowest test-clients lint lint-cpp docs bench bench-allreduce pytorch clean setup help

channel: setup
	$(BIN)/channel_tools build --variant $(STACK) $(if $(BASE),--base $(BASE))
	$(BIN)/channel_tools validate --variant $(STACK) --ranks $(RANKS)

# makes that tests run are no part of these jobs
PYTEST := env -u MAKEFLAGS -u MFLAGS $(BIN)/python -m pytest -n auto
FAST   := -m "not slow"

# side by side: tests often wait for others, and mypy uses one core
test: setup
	@$(MAKE) --jobs=2 --no-print-directory lint fast-tests

fast-tests:
	$(PYTEST) $(FAST) tests

ONLY ?=
ALL  := --hypothesis-profile=all --timeout=3600
ifeq ($(ONLY),)
# tests of the stack skip where it cannot be built
test-all: setup
	-$(BIN)/channel_tools build --variant $(STACK)
	@$(MAKE) --jobs=2 --no-print-directory lint all-tests
else
test-all: setup
	$(PYTEST) $(ALL) $(or $(wildcard tests/unit/$(ONLY) tests/integration/$(ONLY)),$(error tests/unit/$(ONLY) and tests/integration/$(ONLY): no such folder))
endif

all-tests:
	$(PYTEST) $(ALL) tests

test-unit: setup
	$(PYTEST) $(FAST) tests/unit

coverage: setup
	$(PYTEST) $(FAST) tests/unit --cov

test-lowest: setup
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)-lowest
	UV_NATIVE_TLS=1 $(BIN)/uv pip install --quiet --python $(VENV)-lowest --resolution lowest-direct --editable '.[dev]'
	$(VENV)-lowest/bin/python -m pytest -n auto $(FAST) tests/unit

# what is named is tested with; CLIENTS names the folder of all that are not named
CLIENT_NAMES := conda conda-build conda-render conda-smithy micromamba
variable_of = $(subst -,_,$(shell echo $(1) | tr a-z A-Z))
path_of = $(or $($(call variable_of,$(1))),$(if $(CLIENTS),$(CLIENTS)/$(1)))
test-clients: setup
	env $(foreach name,$(CLIENT_NAMES),$(if $(call path_of,$(name)),CHANNEL_TOOLS_TEST_$(call variable_of,$(name))=$(call path_of,$(name)))) \
	  $(BIN)/python -m tests.clients $(TESTS)

sweep: setup
	CHANNEL_TOOLS_TEST_SWEEP=$(SHARE) $(BIN)/python -m pytest tests/integration/cli/test_sweep.py

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
	cd recipes/torch-switchml/src && $(abspath $(BIN))/mypy --cache-dir $(abspath .mypy_cache)/torch-switchml
	cd recipes/torch-mpi/src && $(abspath $(BIN))/mypy --cache-dir $(abspath .mypy_cache)/torch-mpi
	@if [ -x $(BIN)/shellcheck ]; then $(BIN)/shellcheck .ci/run .ci/release .ci/release-conda $$(git ls-files '*.sh'); \
	  else echo "shellcheck is left out: there is none for this machine"; fi
	$(BIN)/clang-format --dry-run -Werror $$(git ls-files '*.c' '*.cc' '*.cpp' '*.h' '*.hpp')

# what needs nothing but the standard library and the system's headers
SWITCHML := recipes/libswitchml/src
SWITCH   := recipes/switchml-switch/src
NEEDS_GRPC := $(SWITCHML)/src/controller_access.cpp $(SWITCHML)/src/controller_client.cpp $(SWITCHML)/src/controller_failures.cpp \
  $(SWITCHML)/src/udp/lease.cpp $(SWITCHML)/src/udp/session.cpp \
  $(SWITCH)/src/access.cpp $(SWITCH)/src/controller.cpp $(SWITCH)/src/main.cpp $(SWITCH)/src/session_request.cpp
lint-cpp: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[tidy]'
	$(BIN)/clang-tidy --quiet $(filter-out $(NEEDS_GRPC), $(wildcard $(SWITCHML)/src/*.cpp $(SWITCHML)/src/udp/*.cpp \
	  $(SWITCHML)/wire/*.cpp $(SWITCH)/src/*.cpp)) -- -std=c++17 -DSWITCHML_VERSION='"1"' \
	  -I$(SWITCHML)/include -I$(SWITCHML)/src -I$(SWITCHML)/wire -I$(SWITCHML)
	$(BIN)/clang-tidy --quiet $(wildcard recipes/mpich/src/*.c) -- -std=gnu11 -D_GNU_SOURCE \
	  -DWANTED_SONAME='"libmpi.so.12"' -DPACKAGE_VERSION='"1"' -DMPI_STANDARD=3

MINUTES ?= 10
fuzz: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	for target in packages records bundles requests documents unpacked; do \
	  $(BIN)/python -m tests.fuzz $$target --minutes $(MINUTES) || exit 1; done
	$(BIN)/channel_tools build --variant udp
	$(BIN)/python -m tests.fuzz.switchml --minutes $(MINUTES)

sanitize: setup
	$(BIN)/python -m pytest tests/integration/recipes/test_sanitizers.py

SCHEDULES ?= 1000000
simulate: setup
	$(BIN)/channel_tools build --variant udp
	$(BIN)/python -m tests.simulate --schedules $(SCHEDULES)

docs: setup
	$(BIN)/mkdocs build --strict --quiet

screenshots: setup
	CHANNEL_TOOLS_TEST_SCREENSHOTS=docs/how-to/images $(BIN)/python -m pytest tests/integration/page tests/integration/cli/test_terminal.py -k 'screenshots or alike'

# a missed limit fails it, after all has been measured
bench: channel
	@failed=0; for part in run "serve --channel output/channel"; do \
	  $(BIN)/python -m benchmarks.$$part || failed=1; done; exit $$failed

bench-allreduce: setup
	$(BIN)/channel_tools build --variant udp
	$(BIN)/channel_tools build --variant cray-mpich
	$(BIN)/python -m benchmarks.allreduce
	$(BIN)/python -m benchmarks.allreduce_mpi
	$(BIN)/channel_tools build --variant oneccl
	$(BIN)/channel_tools build --variant accl
	$(BIN)/python -m benchmarks.allreduce_stacks

# the one that the registry foundation has the dependencies of; after a stop or a failure, compiled files are in the cache
PATCHED := --variant cray-mpich-patched --python 3.11 --pytorch 2.6.0
CACHE   ?= sccache
pytorch: setup
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/channel_tools build $(PATCHED) --package pytorch-cray-mpich-patched $(if $(CACHE),--compiler-cache $(CACHE))
	$(BIN)/channel_tools build --variant mpich-external
	$(BIN)/channel_tools validate $(PATCHED) --ranks $(RANKS)
	CHANNEL_TOOLS_TEST_PYTORCH_CHANNEL=output/channel $(BIN)/python -m pytest -n 0 \
	  tests/integration/recipes/test_pytorch_whole.py tests/integration/recipes/test_pytorch_patches.py

changelog: setup
	$(BIN)/towncrier build --yes --version "$(VERSION)"

release: release-python release-conda

release-python: setup
	VENV="$(VENV)" .ci/release "$(VERSION)"

release-conda: release-python
	VENV="$(VENV)" .ci/release-conda "$(VERSION)"

setup: $(STAMP)

# most modules of the packages are never imported: compiling all of them takes as long as the rest of the installation
# what is installed says the version that channel_tools/__init__.py has
# uv installs in a sixth of pip's processor time; pip does where uv reaches no index, as where only pip's settings name one
$(STAMP): pyproject.toml channel_tools/__init__.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; name one with PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check uv
	UV_NATIVE_TLS=1 $(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[dev]' || \
	  $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-lowest output .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis

help:
	@sed -n 's/^# make /make /p' Makefile
