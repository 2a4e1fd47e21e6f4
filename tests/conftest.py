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
    *("test_torch_switchml_sources.py", "test_switchml_patched.py", "test_whole_path.py", "test_stack_clients.py"),
    *("test_switchml_sources.py", "test_sanitizers.py", "test_main_job.py", "test_audit.py"),
    *(
        "test_torch_mpi.py",
        "test_validate_switchml.py",
        "test_mpi_cuda_awareness.py",
        "test_mirror.py",
        "test_serve_kills.py",
        "test_cluster.py",
    ),
    *("test_s3_safety.py", "test_sources.py", "test_s3.py", "test_publish.py"),
    *("test_autotools.py", "test_conda_forge_foundation.py", "test_build.py", "test_archive_fuzz.py"),
)
"""Files of integration tests that take tens of seconds.

A worker is given its next file when it has two tests left, so a long file of one or two tests has a short one after it.
"""

_LONG_UNIT_TESTS = frozenset(
    {
        *("launch/test_launch.py", "workflow/test_pins.py", "cli/test_entry.py", "environments/test_create.py"),
        *("foundation/test_build.py", "mirror/test_bootstrap.py", "mirror/test_importing.py", "publish/test_server.py"),
    }
)
"""Files of unit tests that take three seconds or more, most of it waiting: begun last, they would be waited for."""
_HALF_OF_UNIT_TESTS = "test_i"
"""Files with names before this take about half of the time of all unit tests."""
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
    """What ``-n auto`` means: a worker for each core, and two more, as tests wait half of the time."""
    return len(os.sched_getaffinity(0)) + 2


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
    then those that need it, each with the files first that take long. Unit tests fill the gaps: half of them while the
    stack is not ready yet, the others at the end.
    """
    first = {name: place for place, name in enumerate(_LONGEST_FIRST)}
    after_the_stack = {item.path for item in items if _waits_for_the_stack(item)}

    def place(item: pytest.Item) -> tuple[int, int]:
        if item.get_closest_marker("integration") is not None:
            return 2 if item.path in after_the_stack else 0, first.get(item.path.name, len(first))
        is_long = "/".join(item.path.parts[-2:]) in _LONG_UNIT_TESTS
        return 1 if item.path.name < _HALF_OF_UNIT_TESTS else 3, 0 if is_long else 1

    items.sort(key=place)


def _waits_for_the_stack(item: pytest.Item) -> bool:
    """Or writes to the clone's own channel in turn with whoever builds it."""
    names = item.fixturenames if isinstance(item, pytest.Function) else ()
    return "stack_channel" in names or hasattr(getattr(item, "module", None), "build_into_output")
