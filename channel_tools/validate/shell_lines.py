# SPDX-License-Identifier: BSD-3-Clause
"""The shell lines that methods share in ``ValidationMethod.how_to_run``."""

from __future__ import annotations

RANKS = 4


def torchrun_line() -> str:
    """Starts ``train.py`` on this host, and says how on more."""
    more = "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint HOST:29500"
    return f"torchrun --nproc-per-node {RANKS} train.py   # on more hosts, on each: {more}"


def last_line(module: str, call: str) -> str:
    """What ``train.py`` prints at its end, to prove what carried its data."""
    return f"# at the end of train.py: import {module}; print({module}.{call})"
