# SPDX-License-Identifier: BSD-3-Clause
"""How long the start of MPI is watched."""

import threading
from datetime import timedelta

from torch_mpi.beginning import watched_beginning

SOON_S = 60.0


def test_a_time_limit_of_any_length_is_waited_for() -> None:
    """Python's own waiting takes 292 years at most, and raises for more."""
    with watched_beginning({"PMI_SIZE": "2"}, timedelta.max):
        (watch,) = (thread for thread in threading.enumerate() if thread.name == "torch-mpi beginning")
        watch.join(0.5)
        assert watch.is_alive()
    watch.join(SOON_S)
    assert not watch.is_alive()
