# SPDX-License-Identifier: BSD-3-Clause
"""A rank of the SwitchML validation with a fault: runs as the worker script does, in the validated environment.

The environment variable VALIDATION_FAULT names the fault; each strikes at a point of the plan, not at a point in time.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

WORKERS = Path(__file__).parents[3] / "channel_tools" / "validate" / "workers"
FAULT = os.environ["VALIDATION_FAULT"]
STRIKES_AT = "integers"


def strike() -> None:
    """Do what the fault is, on the rank where it happens."""
    rank = int(os.environ["RANK"])
    if FAULT == "rank-dies" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "rank-raises" and rank == 1:
        raise RuntimeError("out of luck")
    if FAULT == "switch-dies" and rank == 0:
        os.kill(_switch_pid(), signal.SIGKILL)


def _switch_pid() -> int:
    """The switch of this run: it was told the address that the ranks' controller has."""
    address = os.environ["SWITCHML_CONTROLLER"].partition(":")[0].encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"switchml-switch") and address in words:
            return int(process.name)
    raise LookupError(f"no switch on {address.decode()}")


def add_one(tensor: Any) -> None:  # noqa: ANN401  (torch has no types here)
    """Make one value wrong on one rank."""
    if os.environ["RANK"] == "0" and tensor.numel() > 200:
        tensor[200] += 1


def make_finite(tensor: Any) -> None:  # noqa: ANN401  (as above)
    """Turn Inf and NaN into ordinary numbers."""
    tensor.nan_to_num_()


def narrow(tensor: Any) -> None:  # noqa: ANN401  (as above)
    """Leave of a double what a single holds."""
    if str(tensor.dtype) == "torch.float64":
        tensor.copy_(tensor.float())


SPOILED_RESULTS = {"wrong-sums": add_one, "infinities-lost": make_finite, "narrowed": narrow}


def make_faulty(worker: ModuleType) -> None:
    """Patch the worker script's module."""
    say = worker.SwitchmlRank.say
    all_reduce = worker.dist.all_reduce

    def striking_say(self: object, step: str) -> None:
        say(self, step)
        if step == STRIKES_AT:
            strike()

    def spoiling_all_reduce(tensor: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  (as above)
        work = all_reduce(tensor, *args, **kwargs)
        if work is not None:
            work.wait()
        SPOILED_RESULTS[FAULT](tensor)
        return work

    worker.SwitchmlRank.say = striking_say
    if FAULT in SPOILED_RESULTS:
        worker.dist.all_reduce = spoiling_all_reduce
    if FAULT == "no-controller":
        os.environ["SWITCHML_CONTROLLER"] = "127.0.0.1:1"


if __name__ == "__main__":
    sys.path.insert(0, str(WORKERS))
    module = importlib.import_module("switchml_allreduce")
    make_faulty(module)
    module.main()
