# SPDX-License-Identifier: BSD-3-Clause
"""Interrupting and killing a run: real processes, watched until they are gone.

A worker is held in the middle of its work by a named pipe in place of a .deb; the pipe also tells when it has begun and
when it has ended.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from channel_tools.foundation.model import LockedArtifact
from channel_tools.foundation.plan import plan_packages
from channel_tools.foundation.worker import PackageJob, make_packages
from channel_tools.system.errors import FoundationError, IntegrityError
from tests.support.processes import TEST_TIMEOUT_S
from tests.unit.foundation.archives import make_table, write_deb

if TYPE_CHECKING:
    from pathlib import Path

_SCRIPT = """\
import pickle, sys
from pathlib import Path
from channel_tools.foundation.worker import make_packages

if __name__ == "__main__":
    list(make_packages(pickle.loads(Path(sys.argv[1]).read_bytes()), processes=1))
"""


def make_jobs(root: Path, *sources: Path) -> list[PackageJob]:
    """One job per source, each for a package of its own below ``root``."""
    rows = "".join(f"p{number}: {{debs: [d{number}]}}\n" for number, _ in enumerate(sources))
    taken: dict[tuple[str, str], LockedArtifact] = {
        ("deb", f"d{number}"): LockedArtifact(
            kind="deb",
            name=f"d{number}",
            version="1.0-1",
            file_name=source.name,
            sha256=f"{number:064x}",
            size_bytes=1,
        )
        for number, source in enumerate(sources)
    }
    plans = plan_packages(make_table(root, rows), taken, subdir="linux-64", code_of=lambda _: "code")
    return [
        PackageJob(
            plan=plan, sources=(source,), destination=root, subdir="linux-64", python="3.11", compiler=root / "compiler"
        )
        for plan, source in zip(plans, sources, strict=True)
    ]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill", "interrupt"])
def test_workers_end_with_the_run_that_started_them(tmp_path: Path, number: signal.Signals) -> None:
    pipe = tmp_path / "held_1.0_amd64.deb"
    os.mkfifo(pipe)
    jobs = tmp_path / "jobs"
    jobs.write_bytes(pickle.dumps(make_jobs(tmp_path, pipe)))
    command = [sys.executable, "-c", _SCRIPT, str(jobs)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as run:
        writing = os.open(pipe, os.O_WRONLY)  # waits until the worker has opened the other end
        os.kill(run.pid, number)
        try:
            assert run.wait(timeout=TEST_TIMEOUT_S) != 0
        finally:
            run.kill()
    poll = select.poll()
    poll.register(writing, select.POLLERR)
    ended = poll.poll(TEST_TIMEOUT_S * 1000)
    os.close(writing)
    assert ended, "the worker still holds its end of the pipe"
    assert not list(tmp_path.glob("*/*.conda"))


def test_what_was_made_before_an_error_stays(tmp_path: Path) -> None:
    good = write_deb(tmp_path, "good", {"share/a": "1" * 5000})
    bad = write_deb(tmp_path, "bad", {"share/b": "2"})
    bad.write_bytes(bad.read_bytes()[:100])
    with pytest.raises(IntegrityError, match=r"package p1 \(table\.yaml:\d+\): .*bad"):
        list(make_packages(make_jobs(tmp_path, good, bad), processes=1))
    assert [path.name.split("-")[0] for path in tmp_path.glob("*/*.conda")] == ["p0"]
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_worker_that_is_killed_is_said_to_be(tmp_path: Path) -> None:
    pipe = tmp_path / "held_1.0_amd64.deb"
    os.mkfifo(pipe)
    running = make_packages(make_jobs(tmp_path, pipe), processes=1)
    killer = subprocess.Popen(
        [sys.executable, "-c", _KILL_READER, str(pipe), str(os.getpid())],
    )
    with pytest.raises(FoundationError, match="memory ran out"):
        next(running)
    assert killer.wait(timeout=TEST_TIMEOUT_S) == 0


# waits until a worker reads the pipe, then kills the process that holds it open
_KILL_READER = """\
import os, pathlib, signal, sys
writing = os.open(sys.argv[1], os.O_WRONLY)
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    if int(folder.name) in (os.getpid(), int(sys.argv[2])):
        continue
    try:
        held = [os.readlink(link) for link in (folder / "fd").iterdir()]
    except OSError:
        continue
    if sys.argv[1] in held:
        os.kill(int(folder.name), signal.SIGKILL)
"""
