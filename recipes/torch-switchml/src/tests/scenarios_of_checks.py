# SPDX-License-Identifier: BSD-3-Clause
"""Many checks of single operations in one launch (operations.py, collectives.py, order_ and device_operations.py)."""

import importlib
import json
import sys
from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from scenario import Value, leave, ones, stats


def all_operations() -> Value:
    return run_checks("operations", "collectives", "order_operations", "strided_operations", backend="gloo")


def device_operations() -> Value:
    import devices

    name = devices.load().type
    return run_checks("device_operations", backend=f"cpu:gloo,{name}:gloo")


def device_operations_of_hosts() -> Value:
    """Those that tell whether sums are right and streams are waited for, of a backend that is asked for by name."""
    import devices

    name = devices.load().type
    chosen = {
        "sizes_around_a_chunk",
        "asynchronous_to_the_caller",
        "tensors_freed_while_under_way",
        "another_stream_than_the_default_one",
        "order_among_cpu_and_device",
        "sums_of_sums",
        "through_a_copy",
    }
    return run_checks("device_operations", backend=f"cpu:gloo,{name}:switchml", only=chosen)


def cuda_available() -> Value:
    return torch.cuda.is_available()


def run_checks(*modules: str, backend: str, only: Collection[str] = ()) -> Value:
    """Every check, or those of these names, in order, up to the first that fails on this rank."""
    from checks import CHECKS

    for module in modules:
        importlib.import_module(module)  # enters its checks
    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    passed = []
    for name, check in CHECKS.items():
        if only and name not in only:
            continue
        print(f"check {name}", file=sys.stderr, flush=True)
        check()
        dist.barrier()
        passed.append(name)
        leave({"passed": passed})
    dist.destroy_process_group()
    return {"passed": passed, "stats": json.loads(json.dumps(stats()))}


def average_of_integers() -> Value:
    """Alone, since gloo may report this error once more to a barrier that follows."""
    dist.init_process_group("gloo")
    tensor = ones(dtype=torch.int32)
    with suppress(RuntimeError):  # of gloo as well
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    counts = stats()
    dist.destroy_process_group()
    return {"fallbacks": counts["fallbacks"]["reduce_op"], "delegated": counts["delegated"]["int32"]["jobs"]}
