# SPDX-License-Identifier: BSD-3-Clause
"""What goes wrong once a group is there."""

import ctypes
import fcntl
import importlib.abc
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from scenario import RANK, Value, error_of, init_over_file, ones, stats

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch_switchml import _C


def failing_job() -> Value:
    """One job after the first fails on one rank; what follows, and what still works."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    dist.all_reduce(ones())
    first = error_of(lambda: dist.all_reduce(ones()))
    after = error_of(lambda: dist.all_reduce(ones()))
    still = ones(dtype=torch.float64)
    dist.all_reduce(still)
    dist.barrier()
    dist.destroy_process_group()
    return {"first": first, "after": after, "gloo": still[0].item(), "stats": stats()}


def group_after_failed_job() -> Value:
    init_over_file("failing")
    dist.all_reduce(ones())
    error = error_of(lambda: dist.all_reduce(ones()))
    dist.destroy_process_group()
    os.environ.pop("SWITCHML_FAKE_FAIL_JOB", None)
    init_over_file("again")
    tensor = ones()
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return {"error": error, "sum": tensor[0].item(), "failure": stats()["failure"]}


def group_after_failed_init() -> Value:
    error = error_of(lambda: init_over_file("failing"))
    os.environ.pop("SWITCHML_FAKE_FAIL_OPEN", None)
    init_over_file("again")
    tensor = ones()
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return {"error": error, "sum": tensor[0].item()}


def port_held_at_first() -> Value:
    failing = int(os.environ["SCENARIO_FAILING"])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        if failing == RANK:
            taken.bind((f"127.0.83.{RANK + 1}", int(os.environ["SWITCHML_WORKER_PORT"])))
        error = error_of(lambda: init_over_file("failing"))
    init_over_file("again")
    tensor = ones()
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return {"error": error, "sum": tensor[0].item()}


def failure_of_one_rank() -> Value:
    """What ended each rank's init_process_group, where one rank has what SCENARIO_FAILURE names."""
    prepare_failure(os.environ.get("SCENARIO_FAILURE", ""))
    started = time.monotonic()
    try:
        init_over_file("failing")
    except (RuntimeError, MemoryError, SystemExit) as err:
        return {"text": str(err), "seconds": time.monotonic() - started}
    dist.all_reduce(ones())  # a rank without the plugin goes on, until the others have ended
    raise AssertionError("no error")


class SlowLoading(importlib.abc.MetaPathFinder):
    """Takes longer to find the compiled part than ranks wait for one that has not begun."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        del path, target
        if name == "torch_switchml._C":
            time.sleep(4)


def slow_to_load() -> Value:
    """An allreduce of a group in which the rank with a SCENARIO_FAILURE takes long to load the plugin."""
    assert "torch_switchml._C" not in sys.modules
    if "SCENARIO_FAILURE" in os.environ:
        sys.meta_path.insert(0, SlowLoading())
    init_over_file("slow")
    tensor = ones()
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return {"sum": tensor[0].item(), "stats": stats()}


def prepare_failure(kind: str) -> None:
    """Nothing for a rank without one. What fails as the session opens stands for whatever may fail there."""
    if kind == "compiled part":
        sys.modules["torch_switchml._C"] = None  # type: ignore[assignment]  # cannot be imported from now on
    elif kind == "version":
        from torch_switchml import plugin

        vars(plugin)["__version__"] = "0.0.1"
    elif kind:
        from torch_switchml import _C

        open_session: Callable[..., _C.Session | None] = _C.Session.open

        def fail(**options: object) -> _C.Session | None:
            if kind == "memory":
                raise MemoryError("no more")
            if kind == "exit":
                raise SystemExit(3)
            if kind == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if kind == "threads":
                return open_without_room_for_a_stack(open_session, options)
            lose_network(kind)
            return open_session(**options)

        _C.Session.open = fail  # type: ignore[method-assign]


def open_without_room_for_a_stack(
    open_session: "Callable[..., _C.Session | None]", options: dict[str, Any]
) -> "_C.Session | None":
    """Open it while this process may not take the memory of another thread's stack."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**22, resource.RLIM_INFINITY))
    try:
        return open_session(**options)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


listeners: list[socket.socket] = []


def lose_network(kind: str) -> None:
    """Open what is opened from now on in another network: without any route, or where the controller's port is
    refused, or where whoever listens there never answers."""
    clone_newnet = 0x40000000
    if ctypes.CDLL(None, use_errno=True).unshare(clone_newnet) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    if kind == "no route":
        return
    set_interface_flags, up_and_running = 0x8914, 0x41
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, set_interface_flags, struct.pack("16sH22x", b"lo", up_and_running))
    if kind == "silence":
        host, port = os.environ["SWITCHML_CONTROLLER"].rsplit(":", 1)
        listeners.append(socket.create_server((host, int(port))))


def nested_callbacks(depth: int) -> torch.Tensor:
    """Each of so many callbacks waits for an allreduce whose callback does the same."""
    tensor = ones()

    def again(done: torch.futures.Future[list[torch.Tensor]], left: int) -> torch.Tensor:
        if left == 0:
            return done.value()[0]
        future = dist.all_reduce(done.value()[0], op=dist.ReduceOp.AVG, async_op=True).get_future()
        result: torch.Tensor = future.then(lambda inner: again(inner, left - 1)).wait()
        return result

    result: torch.Tensor = (
        dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: again(done, depth)).wait()
    )
    return result


def nested_futures() -> Value:
    dist.init_process_group("gloo")
    result = nested_callbacks(100)
    dist.destroy_process_group()
    return {"value": result[0].item(), "jobs": stats()["delegated"]["float32"]["jobs"]}


def chained_futures() -> Value:
    dist.init_process_group("gloo")
    future = dist.all_reduce(ones(), async_op=True).get_future()
    for _ in range(100):
        future = future.then(lambda done: [done.value()[0] + 1])
    result = future.wait()
    dist.destroy_process_group()
    return {"value": result[0][0].item()}


def no_thread_for_callbacks() -> Value:
    """The last rank may not take the memory of another thread's stack, which nested callbacks need."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    nested_callbacks(0)
    dist.barrier()
    if dist.get_rank() == dist.get_world_size() - 1:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**22, resource.RLIM_INFINITY))
    error = error_of(lambda: nested_callbacks(10))
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    dist.destroy_process_group()
    return {"error": error, "failure": stats()["failure"]}


def exception_in_callback() -> Value:
    """A callback's exception is its future's, and the group goes on."""
    dist.init_process_group("gloo")

    def fail(_: torch.futures.Future[Any]) -> None:
        raise MemoryError("the user's callback")

    first = error_of(dist.all_reduce(ones(), async_op=True).get_future().then(fail).wait)
    ignored = dist.all_reduce(ones(), async_op=True)
    ignored.get_future().add_done_callback(fail)
    ignored.wait()
    tensor = ones()
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return {"error": first, "sum": tensor[0].item()}


def failing_future() -> Value:
    dist.init_process_group("gloo")
    work = dist.all_reduce(ones(), async_op=True)
    future = work.get_future()
    error = error_of(future.wait)
    again = error_of(work.wait)
    exception = work.exception()
    return {"future": error, "work": again, "success": work.is_success(), "exception": exception is not None}


def other_numel() -> Value:
    """Rank 1 sends more packets than rank 0."""
    dist.init_process_group("gloo")
    tensor = ones(numel=1000 * (1 + 9 * dist.get_rank()))
    return {"error": error_of(lambda: dist.all_reduce(tensor))}


def lost_device() -> Value:
    """One rank's device fails at a copy of a tensor of several chunks; later allreduces fail at once."""
    import devices

    device = devices.load()
    dist.init_process_group(f"cpu:gloo,{device.type}:gloo")
    dist.all_reduce(ones().to(device))
    tensor = ones(numel=3 * devices.CHUNK_NUMEL).to(device)
    if dist.get_rank() == 0:
        devices.lose_after(int(os.environ["SCENARIO_COPIES"]))
    error = error_of(lambda: reduce_until_error(tensor))
    after = error_of(lambda: dist.all_reduce(ones()))
    dist.destroy_process_group()
    return {"error": error, "after": after, "stats": stats()}


def reduce_until_error(tensor: torch.Tensor) -> None:
    """The rank that does not fail itself may have its sum by then: it learns of the failure with the next one."""
    for _ in range(2):
        dist.all_reduce(tensor)


def failed_collective_of_gloo() -> Value:
    """An allreduce of what gloo was to bring and did not: the first rank is alone with its maximum."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    works = []
    tensor = torch.ones(1000)
    if RANK == 0:
        works.append(dist.all_reduce(tensor, op=dist.ReduceOp.MAX, async_op=True))
    works.append(dist.all_reduce(tensor, async_op=True))
    return {"errors": [error_of(work.wait) for work in works]}


def other_numel_of_device() -> Value:
    import devices

    device = devices.load()
    dist.init_process_group(f"cpu:gloo,{device.type}:gloo")
    tensor = torch.empty(devices.CHUNK_NUMEL * (1 + dist.get_rank()), device=device)
    return {"error": error_of(lambda: dist.all_reduce(tensor))}


def no_memory_to_share() -> Value:
    """Rank 0 may make no file as large as what ranks of a host share, also where that has no name."""
    if RANK == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, resource.RLIM_INFINITY))
    dist.init_process_group("gloo")
    tensor = ones()
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return {"sum": tensor[0].item(), "stats": stats()}


def memory_in_use() -> Value:
    """What there is of shared memory where it could remain, while ranks reduce."""
    dist.init_process_group("gloo")
    dist.all_reduce(ones())
    found = {
        "files": [path.name for path in Path("/dev/shm").iterdir() if "switchml" in path.name],  # noqa: S108 - only looked at
        "mapped": "/memfd:torch-switchml-" in Path("/proc/self/maps").read_text(),
        "descriptors": [str(path) for path in Path("/proc/self/fd").iterdir() if is_shared_memory(path)],
    }
    dist.barrier()
    dist.destroy_process_group()
    return found


def is_shared_memory(descriptor: Path) -> bool:
    with suppress(OSError):  # it may have been the listing's own
        return "torch-switchml" in str(descriptor.readlink())
    return False


def abort_pending() -> Value:
    """Rank 0 waits for a job that nobody joins, and aborts the group from another thread."""
    dist.init_process_group("gloo")
    dist.all_reduce(ones())
    if dist.get_rank() != 0:
        dist.barrier()  # held until rank 0 is through
        return {}
    group = dist.group.WORLD
    work = dist.all_reduce(ones(), async_op=True)
    aborter = threading.Thread(target=lambda: group._get_backend(torch.device("cpu")).abort())
    aborter.start()
    error = error_of(work.wait)
    aborter.join()
    dist.barrier()
    return {"error": error}


def group_timeout() -> Value:
    """The group's own time limit, shorter than the library's, bounds a job."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 0:
        error = error_of(lambda: dist.all_reduce(ones()))
        store.set("scenario/over", "1")
        return {"error": error}
    store.wait(["scenario/over"], timedelta(seconds=60))  # alive, and takes no part
    return {}


def time_limit_of_a_call() -> Value:
    """Rank 0 alone submits what has a limit: in the call, or for all calls from now on, or of what waits for gloo."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    group = dist.group.WORLD
    store = dist.distributed_c10d._get_default_store()
    if os.environ["SCENARIO_LIMIT"] == "later" and not hasattr(group, "set_timeout"):
        return None
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=30)
    group.allreduce([ones()], options).wait()  # both ranks come to this one
    if RANK == 0:
        tensor = ones()
        if os.environ["SCENARIO_LIMIT"] == "later":
            group.set_timeout(timedelta(seconds=1))
            options = dist.AllreduceOptions()
        else:
            options.timeout = timedelta(seconds=1)
        if os.environ["SCENARIO_LIMIT"] == "behind gloo":
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX, async_op=True)
        error = error_of(group.allreduce([tensor], options).wait)
        after = error_of(lambda: dist.all_reduce(ones()))
        store.set("scenario/over", "1")
        store.wait(["scenario/told"], timedelta(seconds=60))  # lives on
        return {"error": error, "after": after}
    store.wait(["scenario/over"], timedelta(seconds=60))
    # what rank 0 sent of the first is there, and right
    error = error_of(lambda: [dist.all_reduce(ones()), dist.all_reduce(ones())])
    store.set("scenario/told", "1")
    return {"error": error}


def time_limit_behind_another_call() -> Value:
    """Rank 1 comes to both calls when the second one's limit has long passed since rank 0 submitted it."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=3)
    if RANK == 1:
        time.sleep(4)
    works = [dist.all_reduce(ones(), async_op=True), dist.group.WORLD.allreduce([ones()], options)]
    for work in works:
        work.wait()
    dist.destroy_process_group()
    return {"failure": stats()["failure"]}
