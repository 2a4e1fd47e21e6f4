# SPDX-License-Identifier: BSD-3-Clause
"""What holds for every test: the programs that it finds, which hear an interrupt and keep what Python compiles."""

from __future__ import annotations

import gc
import os
import signal

import hypothesis
import pytest

from tests.support.command_line import start_server
from tests.support.programs import HEAVY_VARIABLE, restricted_path

_LONGEST_FIRST = (
    # those that need the stack
    *("recipes/test_torch_switchml_sources.py", "validate/test_on_a_cluster.py"),
    *("recipes/test_switchml_sources.py", "recipes/test_nccl_ofi.py"),
    *("workflow/test_whole_path.py", "recipes/test_torchvision.py"),
    *("environments/test_stack_clients.py", "recipes/test_sanitizers.py", "workflow/test_main_job.py"),
    *("audit/test_audit.py", "validate/test_switchml.py", "recipes/test_torch_mpi.py"),
    *("recipes/test_switchml_patched.py", "recipes/test_mpi_cuda_awareness.py"),
    # those that run while it is built
    *("build/test_cluster.py", "mirror/test_mirror.py", "publish/test_s3_safety.py", "publish/test_s3.py"),
    *("foundation/test_conda_forge_foundation.py", "cli/test_sweep.py", "publish/test_publish.py"),
    *("build/test_build.py", "serve/test_damaged.py", "serve/test_overload.py", "serve/test_attacks.py"),
    *("serve/test_kills.py", "serve/test_publish.py", "cli/test_command_line.py", "conda/test_archive_fuzz.py"),
    *("sources/test_sources.py", "foundation/test_autotools.py"),
)
"""Files of integration tests that take a processor for eight seconds or more, most of it first.

A worker is given its next file when it has two tests left, so a long file of one or two tests has a short one after it:
without, the last worker took two minutes longer than all others.
"""

_LONG_UNIT_TESTS = frozenset(
    {
        *("publish/test_damaged.py", "foundation/test_build.py", "environments/test_hostile.py"),
        *("mirror/test_damaged.py", "cli/test_entry.py", "ranks/test_run.py", "channel/test_adopt.py"),
        *("data/test_bootstrap.py", "pins/test_pixi.py", "conda/test_one_reading.py", "server/test_target.py"),
        *("plan/test_lock.py", "environments/test_transaction.py", "serve/test_swapped_links.py"),
        *("uploads/test_damaged.py", "unit/test_contributing.py"),
    }
)
"""Files of unit tests that take three seconds or more: begun last, they would be waited for."""
_HALF_OF_UNIT_TESTS = "test_i"
"""Files with names before this take about half of the time of all unit tests."""
_BUILDING = ("build_into_output", "build_from_upstream")
"""Functions that write to the clone's own channel."""
_ALLOCATIONS_PER_COLLECTION = 20_000
_EXAMPLES = 100 if os.environ.get(HEAVY_VARIABLE) else 25
"""Of every property, per run, and other ones in each; hypothesis' own 100 are most of the time of such tests."""


def pytest_configure(config: pytest.Config) -> None:
    """Leave only those programs on the PATH that every machine has, serve commands, and undo an ignored SIGINT.

    Shells start background jobs with SIGINT ignored, and the programs that tests start would inherit it. Ranks import
    PyTorch hundreds of times; where its modules are compiled anew each time, half of the run goes there.
    """
    if not hasattr(config, "workerinput"):  # a worker has its PATH from the process that started it
        os.environ["PATH"] = restricted_path()
        os.environ["CHANNEL_TOOLS_USER_SETTINGS"] = "no"  # those of whoever runs the tests
        os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # as commands do (cli/entry.py)
        start_server()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # no deadline: what an example takes says how busy the machine is
    hypothesis.settings.register_profile("any machine", deadline=None, max_examples=_EXAMPLES)
    hypothesis.settings.load_profile("any machine")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers() -> int:
    """What ``-n auto`` means: a worker for each core, and four more, as tests wait for two thirds of the time.

    On two idle cores four workers took 17 minutes of processor time in 12, so that a third of both was left.
    """
    return len(os.sched_getaffinity(0)) + 4


def pytest_sessionstart() -> None:
    """Look for no cycles in what collecting makes: all of it stays until the end."""
    gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Leave what was collected out of every later search for cycles; each would go through 200,000 objects.

    Searches are rarer, too, as in commands (cli/entry.py): as often as by default they are a twentieth of unit tests.
    """
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files in the order in which workers take them.

    First the integration tests that can run while the stack is built (tests/integration/conftest.py begins with that),
    then those that need it, each with the files first that take long; the longest of all begins before the unit tests
    that fill the time until the stack is ready, half of them. The others are at the end.
    """
    first = {name: place for place, name in enumerate(_LONGEST_FIRST)}
    after_the_stack = {item.path for item in items if _waits_for_the_stack(item)}

    def place(item: pytest.Item) -> tuple[int, int]:
        if item.get_closest_marker("integration") is not None:
            length = first.get(_name(item), len(first))
            return 0 if item.path not in after_the_stack else 1 if length == 0 else 3, length
        is_long = _name(item) in _LONG_UNIT_TESTS
        return 2 if item.path.name < _HALF_OF_UNIT_TESTS else 4, 0 if is_long else 1

    items.sort(key=place)


def _name(item: pytest.Item) -> str:
    """The test's file, with the folder that it is in."""
    return "/".join(item.path.parts[-2:])


def _waits_for_the_stack(item: pytest.Item) -> bool:
    """Or writes to the clone's own channel in turn with whoever builds it."""
    names = item.fixturenames if isinstance(item, pytest.Function) else ()
    module = getattr(item, "module", None)
    return "stack_channel" in names or any(hasattr(module, name) for name in _BUILDING)
