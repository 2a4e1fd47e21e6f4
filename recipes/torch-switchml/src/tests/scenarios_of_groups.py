# SPDX-License-Identifier: BSD-3-Clause
"""How groups are made, with what is asked for, and what they carry."""

import os
import runpy
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from scenario import RANK, Value, error_of, init_over_file, ones, stats


def unconfigured() -> Value:
    from torch._C._distributed_c10d import ProcessGroup

    dist.init_process_group("gloo")
    tensor = ones()
    dist.all_reduce(tensor)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    dist.destroy_process_group()
    return {
        "modules": sorted(name for name in sys.modules if name.startswith("torch_switchml")),
        "hook": type(ProcessGroup._register_backend).__name__,
        "backend": type(backend).__name__,
        "maps": "libswitchml" in Path("/proc/self/maps").read_text(),
        "sum": tensor[0].item(),
    }


def init_error() -> Value:
    name, text, seconds = error_of(lambda: dist.init_process_group("gloo"))
    return {"type": name, "text": text, "seconds": seconds, "initialized": dist.is_initialized()}


def one_allreduce() -> Value:
    backend = os.environ.get("SCENARIO_BACKEND") or None
    dist.init_process_group(backend)
    tensor = ones()
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return {"sum": tensor[0].item(), "stats": stats()}


def installed_late() -> Value:
    import torch_switchml

    os.environ["SWITCHML_CONTROLLER"] = os.environ["SCENARIO_CONTROLLER"]
    torch_switchml.install()
    torch_switchml.install()
    return one_allreduce()


def named_backend() -> Value:
    dist.init_process_group("switchml")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        tensor = ones()
        dist.all_reduce(tensor)
    dist.barrier()
    objects: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(objects, RANK)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()
    value = {
        "sum": tensor[0].item(),
        "backend": dist.get_backend(),
        "events": [event.name for event in profile.events() if event.name == "switchml:all_reduce"],
        "objects": objects,
    }
    dist.destroy_process_group()
    return {**value, "stats": stats()}


def required() -> Value:
    """Under SWITCHML_REQUIRE: what SwitchML carries, then what it does not."""
    dist.init_process_group("gloo")
    tensor = ones()
    dist.all_reduce(tensor)
    errors = {
        "dtype": error_of(lambda: dist.all_reduce(ones(dtype=torch.float64))),
        "reduce_op": error_of(lambda: dist.all_reduce(ones(), op=dist.ReduceOp.MAX)),
        "group": error_of(lambda: dist.all_reduce(ones(), group=dist.new_group())),
    }
    dist.barrier()
    dist.destroy_process_group()
    return {"sum": tensor[0].item(), "errors": errors, "stats": stats()}


def group_of_all_ranks() -> Value:
    """Two groups whose allreduces, of equal sizes, each rank calls in another order; then DDP over the second."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    group = dist.new_group()
    tensors = [torch.full((1000,), index, dtype=torch.int32) for index in range(20)]
    in_second = [index for index in range(20) if index % 2]
    in_first = [index for index in range(20) if not index % 2]
    order = in_first + in_second if RANK == 0 else in_second + in_first
    works = [dist.all_reduce(tensors[index], group=group if index % 2 else None, async_op=True) for index in order]
    for work in works:
        work.wait()
    model = torch.nn.Linear(4, 4)
    parallel = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    parallel(torch.full((2, 4), float(RANK))).sum().backward()
    part_of_them = dist.new_group([0])
    sessions = stats()["sessions"]
    dist.destroy_process_group(group)
    last = ones()
    dist.all_reduce(last)
    dist.destroy_process_group()
    assert model.weight.grad is not None
    return {
        "sums": [tensor.unique().tolist() for tensor in tensors],
        "gradient": model.weight.grad.unique().tolist(),
        "last": last[0].item(),
        "sessions": sessions,
        "members": part_of_them is not dist.GroupMember.NON_GROUP_MEMBER,
        "stats": stats(),
    }


def groups_one_after_another() -> Value:
    """More than the switch has places for at a time."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    for _ in range(4):
        reduce_in_new_group()
    dist.destroy_process_group()
    return stats()


def refused_group() -> Value:
    """The switch has no place for another session, or rank 1 no port, which the next group has."""
    dist.init_process_group("gloo")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        if RANK == 1 and "SCENARIO_TAKE_PORT" in os.environ:
            taken.bind(("127.0.83.2", int(os.environ["SWITCHML_WORKER_PORT"]) + 1))
        started = time.monotonic()
        error = None
        try:
            reduce_in_new_group()
        except RuntimeError as err:
            error = str(err)
        seconds = time.monotonic() - started
    refused = stats()
    dist.all_reduce(ones())
    if "SCENARIO_TAKE_PORT" in os.environ:
        reduce_in_new_group()
    after = stats()["delegated"]["float32"]["jobs"]
    dist.destroy_process_group()
    return {"error": error, "seconds": seconds, "refused": refused, "jobs_after": after}


def reduce_in_new_group() -> None:
    group = dist.new_group()
    tensor = ones()
    dist.all_reduce(tensor, group=group)
    assert tensor[0].item() == dist.get_world_size()
    dist.destroy_process_group(group)


def ddp_logging_data() -> Value:
    """What DDP's logger reads of the group, among it gloo's number of threads from the gloo itself."""
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()
    data = model._get_ddp_logging_data()
    dist.destroy_process_group()
    return {name: data.get(name) for name in ("backend_name", "gloo_num_threads", "world_size", "rank")}


def training_example() -> Value:
    """The example of examples/, as it is."""
    example = runpy.run_path(str(Path(__file__).parent.parent / "examples" / "train_cnn.py"))
    dist.init_process_group("gloo")
    losses = example["train"]()
    dist.destroy_process_group()
    return {"losses": losses, "stats": stats()}


def training_features() -> Value:
    import training

    dist.init_process_group("gloo")
    values = training.run_features()
    dist.destroy_process_group()
    return {"values": values, "stats": stats()}


def two_groups_in_turn() -> Value:
    jobs = []
    for turn in range(2):
        init_over_file(str(turn))
        dist.all_reduce(ones())
        dist.destroy_process_group()
        jobs.append(stats()["delegated"]["float32"]["jobs"])
    return {"jobs": jobs, "active": stats()["active"]}


def debug_detail() -> Value:
    value = one_allreduce()
    return {**value, "debug": dist.get_debug_level().name}
