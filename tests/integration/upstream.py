# SPDX-License-Identifier: BSD-3-Clause
"""Packages built from upstream's sources, for tests: from the source store, by the command that users give.

Nothing is fetched: where the store lacks a source the tests skip and name it, with how to get it. What builds for
minutes is built only where ``CHANNEL_TOOLS_TEST_HEAVY`` is set.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from channel_tools.settings import Settings
from tests.integration.conftest import OUT_OF_REACH, ROOT

HEAVY_VARIABLE = "CHANNEL_TOOLS_TEST_HEAVY"
_BUILD_LIMIT_S = 3600


def build_from_upstream(settings: Settings, stack: str, package: str, *, heavy: bool) -> Path:
    """The channel folder with ``package`` of ``stack`` in it, built or built before; skips where that cannot be."""
    if heavy and not os.environ.get(HEAVY_VARIABLE):
        pytest.skip(f"{package} builds for minutes: set {HEAVY_VARIABLE}=1 to build and test it")
    if missing := [source for source in _sources(stack, package) if not source["present"]]:
        addresses = ", ".join(str(source["urls"][0]) for source in missing)
        pytest.skip(f"the source store lacks {addresses}: `channel_tools sources fetch --variant {stack}`")
    result = _run("build", "--variant", stack, "--package", package)
    if result.returncode in OUT_OF_REACH:
        pytest.skip(f"{OUT_OF_REACH[result.returncode]}: {result.stderr.splitlines()[-2:]}")
    assert result.returncode == 0, result.stderr
    return settings.channel


def packages_of(channel: Path, name: str) -> Iterator[Path]:
    """The package files of this name, whatever their version and build."""
    for path in sorted(channel.glob(f"*/{name}-*.conda")):
        if path.name.rsplit("-", 2)[0] == name:
            yield path


def _sources(stack: str, package: str) -> list[dict[str, Any]]:
    result = _run("sources", "list", "--variant", stack, "--package", package, "--json")
    assert result.returncode == 0, result.stderr
    sources: list[dict[str, Any]] = json.loads(result.stdout)["sources"]
    return sources


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "channel_tools", *words, "--root", str(ROOT)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_BUILD_LIMIT_S)
