# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from channel_tools.system.errors import (
    ChannelToolsError,
    DiskFullError,
    FileAccessError,
    Terminated,
    error_from_os,
    nearest_names_hint,
    signals_raised,
    signals_raised_afterwards,
)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, DiskFullError), (errno.EDQUOT, DiskFullError), (errno.EACCES, FileAccessError)],
    ids=["full", "quota", "denied"],
)
def test_an_error_of_the_system_is_one_of_ours_with_a_place_and_a_hint(
    number: int, kind: type[ChannelToolsError]
) -> None:
    error = error_from_os(OSError(number, os.strerror(number)), where=Path("/there"))
    assert isinstance(error, kind)
    assert "/there" in error.message
    assert error.hint


def test_a_name_that_is_nearly_right_is_suggested() -> None:
    assert nearest_names_hint("switchmll", ["switchml", "rdma"], noun="stack").startswith("did you mean")
    assert "rdma" in nearest_names_hint("zzz", ["switchml", "rdma"], noun="stack")


def test_a_signal_in_a_step_that_must_be_whole_is_raised_after_it() -> None:
    done = []

    def step() -> None:
        with signals_raised_afterwards():
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("whole")
        done.append("not reached")

    with signals_raised(), pytest.raises(Terminated):
        step()
    assert done == ["whole"]
