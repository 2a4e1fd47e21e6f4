# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from channel_tools.errors import ChannelError
from channel_tools.locks import exclusive_lock

HOLDER = """
import sys, pathlib
from channel_tools.locks import exclusive_lock
with exclusive_lock(pathlib.Path(sys.argv[1]), what="x"):
    print("held", flush=True)
    sys.stdin.read()
"""


def _holder(lock: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_second_writer_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    holder = _holder(lock)
    with holder:
        with (
            pytest.raises(ChannelError, match=f"the channel is in use by process {holder.pid}"),
            exclusive_lock(lock, what="the channel"),
        ):
            pytest.fail("two writers")
        holder.kill()


def test_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with _holder(lock) as holder:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    with exclusive_lock(lock, what="the channel"):
        assert lock.with_name("lock.owner").read_text() == f"{os.getpid()}\n"
