# SPDX-License-Identifier: BSD-3-Clause
"""Causes that a test cannot bring about without a small disk or another user: texts as py-rattler 0.28 gave them."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.conda.solving import solve_error
from channel_tools.environments.install_errors import install_error
from channel_tools.system.errors import ChannelError, ChannelToolsError, DiskFullError, UsageError

FETCH = "failed to fetch a-1.0-0.conda\nCaused by: failed to interact with the package cache layer.\nCaused by: "


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param(
            FETCH + "an io error occurred: failed to unpack `share/big`: No space left on device (os error 28)",
            DiskFullError,
            id="cache-full",
        ),
        pytest.param(
            "failed to link a-1.0-0.conda\nCaused by: failed to link 'share/big'\nCaused by: "
            "failed to copy file from /x to /y: No space left on device (os error 28)",
            DiskFullError,
            id="prefix-full",
        ),
        pytest.param(
            "failed to create the prefix\nCaused by: failed to create directory `/p`: Permission denied (os error 13)",
            UsageError,
            id="not-writable",
        ),
        pytest.param("failed to link a-1.0-0.conda\nCaused by: something new", ChannelError, id="unknown"),
    ],
)
def test_install_error(text: str, kind: type[ChannelToolsError]) -> None:
    error = install_error(RuntimeError(text), prefix=Path("/p"), package_cache=Path("/c"))
    assert type(error) is kind
    assert "\n" not in str(error)
    assert error.hint


def test_repeated_causes_are_said_once() -> None:
    text = FETCH + "an io error occurred: Invalid checksum\nCaused by: Invalid checksum"
    message = str(install_error(RuntimeError(text), prefix=Path("/p"), package_cache=Path("/c")))
    assert message.count("Invalid checksum") == 1


def test_long_explanations_are_cut() -> None:
    text = "Cannot solve the request because of: " + "\n".join(f"line {number}" for number in range(40))
    message = str(solve_error(RuntimeError(text), specs=["a"], channels=["c"]))
    assert message.splitlines()[1] == "line 0"
    assert message.splitlines()[-1] == "(25 more lines)"
