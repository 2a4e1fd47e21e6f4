# SPDX-License-Identifier: BSD-3-Clause
"""No rank waits for ever in MPI_Init for one that does not come there.

MPI_Init returns once all ranks have called it, and has no time limit. A rank that ends before cannot call MPI_Abort,
and its exit code does not end the others under the mpiexec of MPICH and its relatives (Hydra): that ends all ranks if
one is ended by a signal, or once it has joined MPI. So a rank that could not join ends by a signal.
"""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

from torch_mpi.launch import is_one_of_several, launched_rank


@contextmanager
def watched_beginning(environ: Mapping[str, str], limit: timedelta) -> Iterator[None]:
    """Around the start of MPI: ends all ranks if it takes longer than ``limit``, the group's own time limit.

    Where the block raises, so does this; should that error then end the process, it ends all ranks.
    """
    if not is_one_of_several(environ):
        yield
        return
    started = threading.Event()
    watch = threading.Thread(target=_end_after, args=(started, environ, limit), name="torch-mpi beginning", daemon=True)
    try:
        watch.start()
        yield
    except BaseException:
        atexit.register(_end_for_error, os.getpid(), environ)
        raise
    finally:
        started.set()


def _end_after(started: threading.Event, environ: Mapping[str, str], limit: timedelta) -> None:
    """The main thread is in MPI_Init, where no handler of a signal runs."""
    if started.wait(min(limit.total_seconds(), threading.TIMEOUT_MAX)):
        return
    _say(
        f"torch-mpi: rank {launched_rank(environ)}: MPI has not started within {limit.total_seconds():g} s, the "
        "group's time limit: a rank has ended before init_process_group, or does not come to it; all ranks are ended"
    )
    os.kill(os.getpid(), signal.SIGKILL)


def _end_for_error(owner: int, environ: Mapping[str, str]) -> None:
    """At exit of the process that could not join; a script that went on without MPI ends as it would."""
    if os.getpid() != owner or getattr(sys, "last_value", None) is None:
        return
    _say(f"torch-mpi: rank {launched_rank(environ)} has ended before it joined MPI, so all ranks are ended")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _say(line: str) -> None:
    """After all that this process has printed; the signal leaves nothing time to be written."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    os.write(2, f"{line}\n".encode())
