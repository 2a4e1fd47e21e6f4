# SPDX-License-Identifier: BSD-3-Clause
"""What holds for every test: the programs that it finds, which hear an interrupt and keep what Python compiles."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Sequence
from typing import Any

import hypothesis
import pytest

from channel_tools.system.counting import counted
from tests.support.command_line import start_server
from tests.support.programs import restricted_path

_ALLOCATIONS_PER_COLLECTION = 20_000
_EXAMPLES = 25
"""Of every property, per run, and other ones in each; hypothesis' own 100 are most of the time of such tests."""
_FAST = "not slow"
"""What ``make test`` gives to ``-m``."""
_LEFT_OUT = pytest.StashKey[int]()
"""How many tests a worker or, of all of them, the run did not choose."""


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
    # no deadline: what an example takes says how busy the machine is; `make test-all` chooses the second profile
    hypothesis.settings.register_profile("any machine", deadline=None, max_examples=_EXAMPLES)
    hypothesis.settings.register_profile("all", deadline=None)
    hypothesis.settings.load_profile(config.getoption("--hypothesis-profile") or "any machine")
    config.stash[_LEFT_OUT] = 0
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """What ``-n auto`` means: a worker for each core, and some more, as tests wait for a part of the time.

    The tests of `make test` wait for two thirds of it. Slow ones compile and start ranks: with four more workers, those
    with limits on time met each other on two cores.
    """
    return len(os.sched_getaffinity(0)) + (4 if config.option.markexpr == _FAST else 1)


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
    """Integration tests first: a worker that begins one of their files at the end would be waited for."""
    items.sort(key=lambda item: item.get_closest_marker("integration") is None)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count them; each worker leaves out the same."""
    if items:
        items[0].config.stash[_LEFT_OUT] += len(items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 - xdist's, which has no types
    """Take over the count of a worker that has ended."""
    output = getattr(node, "workeroutput", {})
    node.config.stash[_LEFT_OUT] = max(node.config.stash[_LEFT_OUT], output.get("left out", 0))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand over a worker's count."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["left out"] = session.config.stash[_LEFT_OUT]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what did not run and why, in a line for each reason."""
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"left out: {counted(count, 'test')}: {reason}")
    if config.option.markexpr == _FAST and (count := config.stash[_LEFT_OUT]):
        terminalreporter.write_line(f"left out: {counted(count, 'test')}: slow (`make test-all`)")


def _reason(report: pytest.TestReport) -> str:
    """Why a test was skipped; pytest has the file and line before it."""
    words = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return " ".join(words.removeprefix("Skipped: ").split())
