# SPDX-License-Identifier: BSD-3-Clause
"""Checks of single operations; all ranks of one launch run them in the order of CHECKS (`python checks.py`).

Each says how many collectives MPI has to have carried: a right result alone proves nothing.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

CHECKS: dict[str, Callable[[], None]] = {}
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


def rank() -> int:
    return int(dist.get_rank())


def size() -> int:
    return int(dist.get_world_size())


def calls(name: str) -> int:
    import torch_mpi

    return int(torch_mpi.stats()["collectives"].get(name, {"calls": 0})["calls"])


@contextmanager
def carries(name: str, count: int = 1) -> Iterator[None]:
    """MPI completes so many calls of this name in the block."""
    before = calls(name)
    yield
    assert calls(name) - before == count


def error_of(action: Callable[[], object]) -> str:
    """The text of the error that the action must end with."""
    try:
        action()
    except (RuntimeError, TypeError, ValueError) as err:
        return str(err)
    raise AssertionError("no error")


def mine(numel: int = 7, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(numel).remainder(5).to(dtype) + rank()


def everybodys(numel: int = 7, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.arange(numel).remainder(5).to(dtype) + one for one in range(size())]


def run() -> None:
    """Every check in order, up to the first that fails; those that passed are noted for the test."""
    dist.init_process_group("mpi", timeout=timedelta(seconds=60))
    noted = Path(os.environ["SCENARIO_FOLDER"], f"passed.{rank()}.json")
    passed: list[str] = []
    for name, function in CHECKS.items():
        print(f"check {name}", file=sys.stderr, flush=True)
        function()
        dist.barrier()
        passed.append(name)
        noted.write_text(json.dumps(passed))
    dist.destroy_process_group()


if __name__ == "__main__":
    # what PyTorch itself warns of is not ours to judge
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    warnings.filterwarnings("ignore", message=".* is deprecated. Please use", category=FutureWarning)
    import importlib

    for subject in ("collectives", "order", "groups", "training"):
        importlib.import_module(f"checks_of_{subject}")  # enters its checks
    sys.modules["checks"].run()  # the module that they import; this is another
