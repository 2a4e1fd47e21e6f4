# SPDX-License-Identifier: BSD-3-Clause
"""``python -m tests.clients [PYTEST ARGUMENTS]``: the tests that want clients of others, with programs that are named.

``CHANNEL_TOOLS_TEST_CONDA``, ``..._CONDA_BUILD``, ``..._CONDA_RENDER``, ``..._CONDA_SMITHY`` and ``..._MICROMAMBA``
name them; only the tests of what is named run. It prints each version first, and fails where none is named, where one
is missing or does not start, and where a test fails or skips for want of a program, or of the records of conda-forge
that conda-smithy's need.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.conda_forge import VARIABLE as RECORDS_VARIABLE
from tests.support.programs import variable_of

_TESTS = {
    "conda": (
        *("tests/integration/serve/test_clients.py", "tests/integration/publish/test_publish.py"),
        *("tests/integration/environments/test_stack_clients.py", "tests/integration/conda/test_conda_settings.py"),
        "tests/integration/environments/test_conda_goes_on.py",
    ),
    "conda-build": ("tests/integration/workflow/test_main_job.py",),
    "conda-render": ("tests/integration/matrix/test_every_variant.py",),
    "conda-smithy": ("tests/integration/feedstock/test_feedstock.py",),
    "micromamba": ("tests/integration/environments/test_conda_goes_on.py",),
}
"""The files with tests of each program; _CHOICE selects these tests there."""
_CHOICE = "conda or the_stack_is_installed"
_START_S = 60.0


class Skipped:
    """Remembers the tests that were skipped because a named program, or what its tests need, was not found."""

    def __init__(self, names: list[str]) -> None:
        """Look for these programs in the reasons."""
        variables = [*map(variable_of, names), RECORDS_VARIABLE]
        self._variables = tuple(f"set {variable} " for variable in variables)
        self.tests: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Pytest's hook; a skipped report holds file, line and reason."""
        if report.skipped and any(variable in str(report.longrepr) for variable in self._variables):
            self.tests.append(report.nodeid)


def version_of(program: str) -> str:
    """The last line that ``program --version`` prints. Raises SystemExit if it cannot be started or fails."""
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False, timeout=_START_S, env=os.environ
        )
    except OSError as err:
        raise SystemExit(f"{program}: cannot be started: {err}") from None
    said = (done.stdout + done.stderr).strip().splitlines() or [""]
    if done.returncode != 0:
        raise SystemExit(f"{program} --version: exit code {done.returncode}: {said[-1]}")
    return said[-1]


def main(arguments: list[str]) -> int:
    """Run the tests; the exit code."""
    named = {name: path for name in _TESTS if (path := os.environ.get(variable_of(name)))}
    if not named:
        raise SystemExit("no client is named: make test-clients CLIENTS=FOLDER, or CONDA=PATH, CONDA_BUILD=PATH, ...")
    for name, path in named.items():
        sys.stdout.write(f"{name}: {version_of(str(Path(path).absolute()))} ({path})\n")
    sys.stdout.flush()
    skipped = Skipped([*named])
    files = dict.fromkeys(file for name in named for file in _TESTS[name])
    status = pytest.main([*files, "-k", _CHOICE, *arguments], plugins=[skipped])
    if skipped.tests:
        sys.stdout.write(
            "skipped for want of a program that was named, or of what its tests need:\n"
            + "\n".join(skipped.tests)
            + "\n"
        )
    return int(status) or int(bool(skipped.tests))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
