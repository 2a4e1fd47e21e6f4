# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's backend ``accl`` on ACCL's emulator: importing this registers it.

Upstream's package ``accl_process_group`` wants the list of ranks before the group exists. Here it follows from
what ``init_process_group`` is told and from ACCL_EMULATOR_PORT, which ``accl-emulator`` sets for its command.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from datetime import timedelta

    from accl_process_group import ProcessGroupACCL

__all__ = ["BACKEND", "DEVICES", "register"]

BACKEND = "accl"
DEVICES = ["cpu", "cuda"]
PORT_VARIABLE = "ACCL_EMULATOR_PORT"
BUFFER_VARIABLE = "ACCL_BUFFER_BYTES"
DEFAULT_BUFFER_BYTES = 4096
BUFFERS = 16

_taken: list[int] = []


def register() -> None:
    """Tell PyTorch of the backend; twice does no harm."""
    if BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, _create, devices=DEVICES)


def _number(name: str, default: int | None) -> int:
    text = os.environ.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isdecimal():
        msg = f"{name}: found {text!r}, expected a number; run this under accl-emulator --ranks N -- COMMAND"
        raise RuntimeError(msg)
    return int(text)


def _create(store: dist.Store, rank: int, size: int, _timeout: timedelta) -> ProcessGroupACCL:
    from accl_process_group import ACCLDesign, ProcessGroupACCL, Rank

    port = _number(PORT_VARIABLE, None)
    if port in _taken:
        msg = "ACCL has one communicator per process: a second group cannot be made on it"
        raise RuntimeError(msg)
    buffer_bytes = _number(BUFFER_VARIABLE, DEFAULT_BUFFER_BYTES)
    ranks = [Rank("127.0.0.1", port + one, one, buffer_bytes) for one in range(size)]
    group = ProcessGroupACCL(
        store, rank, size, ranks, simulator=True, design=ACCLDesign.tcp, nbufs=BUFFERS, bufsize=buffer_bytes
    )
    group.initialize()
    _taken.append(port)
    return group


register()
