# SPDX-License-Identifier: BSD-3-Clause
"""Packages made in parallel processes, the largest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.errors import FoundationError
from channel_tools.foundation.worker import MadePackage, PackageJob, make_package
from channel_tools.pool import run_in_processes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def make_packages(jobs: Sequence[PackageJob], *, processes: int) -> Iterator[MadePackage]:
    """Make all packages and yield each as it is done.

    The first error ends the others and is raised; what was made before it stays. The same holds for an interrupt.
    """
    largest_first = sorted(jobs, key=lambda job: -sum(source.stat().st_size for source in job.sources))
    for _job, made in run_in_processes(
        make_package, largest_first, processes=processes, what="made a package", error=FoundationError
    ):
        yield made
