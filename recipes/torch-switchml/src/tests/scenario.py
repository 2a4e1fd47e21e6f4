# SPDX-License-Identifier: BSD-3-Clause
"""What the scenarios have in common: the rank's place, its inputs, and what it leaves for the test."""

import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

Value = Any
FOLDER = Path(os.environ.get("SCENARIO_FOLDER", "."))
RANK = int(os.environ.get("RANK", "0"))

# What PyTorch itself warns of in an environment without numpy is not ours to judge.
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")


def stats() -> dict[str, Any]:
    import torch_switchml

    return torch_switchml.stats()


def ones(*, dtype: torch.dtype = torch.float32, numel: int = 10) -> torch.Tensor:
    return torch.ones(numel, dtype=dtype)


def error_of(action: Callable[[], Value]) -> tuple[str, str, float]:
    """The type and text of the error that the action must end with, and the seconds until then."""
    started = time.monotonic()
    try:
        action()
    except RuntimeError as err:
        return type(err).__name__, str(err), time.monotonic() - started
    raise AssertionError("no error")


def init_over_file(name: str) -> None:
    """A store of its own for each group: over one port, PyTorch may meet the store of the group before."""
    size = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{FOLDER}/store.{name}", rank=RANK, world_size=size)


def leave(value: Value) -> None:
    (FOLDER / f"value.{RANK}.json").write_text(json.dumps(value))
