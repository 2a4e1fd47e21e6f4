# SPDX-License-Identifier: BSD-3-Clause
"""Packages made in parallel processes, which never outlive the one that asked for them."""

from __future__ import annotations

import concurrent.futures
import ctypes
import logging
import multiprocessing
import os
import signal
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING

from channel_tools.errors import FoundationError
from channel_tools.foundation.worker import MadePackage, PackageJob, make_package

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PR_SET_PDEATHSIG = 1


def make_packages(jobs: Sequence[PackageJob], *, processes: int) -> Iterator[MadePackage]:
    """Make all packages, the largest first, and yield each as it is done.

    The first error ends the others and is raised; what was made before it stays. The same holds for an interrupt.
    """
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    largest_first = sorted(jobs, key=lambda job: -sum(source.stat().st_size for source in job.sources))
    pool = concurrent.futures.ProcessPoolExecutor(
        max_workers=max(1, min(processes, len(jobs))),
        mp_context=context,
        initializer=_prepare_worker,
        initargs=(os.getpid(),),
    )
    try:
        futures = [pool.submit(make_package, job) for job in largest_first]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()
    except BrokenProcessPool:
        message = "a process that made a package was killed, most likely because memory ran out"
        raise FoundationError(message, hint="run it again with fewer --jobs; what is made is kept") from None
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.kill()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _prepare_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end with it however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # python-debian remarks on every copyright file that names an old address of the format
    logging.getLogger("debian").setLevel(logging.CRITICAL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)
