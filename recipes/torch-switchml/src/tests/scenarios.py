# SPDX-License-Identifier: BSD-3-Clause
"""What the ranks of a test do: `python scenarios.py NAME` runs one function of this module.

A scenario that ends leaves its return value, as JSON, in the test's folder.
The many checks of single operations (operations.py, collectives.py) share one launch.
"""

import atexit
import importlib
import json
import os
import resource
import runpy
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
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


# --- one launch, many checks ---------------------------------------------------------------


def all_operations() -> Value:
    return run_checks("operations", "collectives", backend="gloo")


def device_operations() -> Value:
    import devices

    name = devices.load().type
    return run_checks("device_operations", backend=f"cpu:gloo,{name}:gloo")


def cuda_available() -> Value:
    return torch.cuda.is_available()


def run_checks(*modules: str, backend: str) -> Value:
    """Every check in order, up to the first that fails on this rank."""
    from checks import CHECKS

    for module in modules:
        importlib.import_module(module)  # enters its checks
    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    passed = []
    for name, check in CHECKS.items():
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


# --- set-up ---------------------------------------------------------------------------------


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


# --- ends -----------------------------------------------------------------------------------


def no_destroy() -> Value:
    dist.init_process_group("gloo")
    tensors = [ones(numel=1000) for _ in range(20)]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    return {}


def callback_at_exit() -> Value:
    """A Python callback that is still to run when the interpreter ends."""
    dist.init_process_group("gloo")
    done = FOLDER / f"callback.{RANK}"

    def note(future: torch.futures.Future[Any]) -> None:
        done.write_text(str(future.wait()[0][0].item()))

    dist.all_reduce(ones(numel=100_000), async_op=True).get_future().then(note)
    return {}


def forked_child() -> Value:
    dist.init_process_group("gloo")
    dist.all_reduce(ones())
    child = os.fork()
    if child == 0:
        # As far as a child gets: the rest of the interpreter's exit hangs in gloo's own threads.
        atexit._run_exitfuncs()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    tensor = ones()
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return {"child": os.waitstatus_to_exitcode(status), "sum": tensor[0].item()}


def forked_worker() -> Value:
    """A child that outlives the group, as a DataLoader's workers do, while the parent makes another group."""
    init_over_file("before")
    dist.all_reduce(ones())
    ours, theirs = os.pipe()
    started, says_so = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(theirs)
        os.write(says_so, b".")
        os.read(ours, 1)  # until the parent is through
        os._exit(0)
    os.close(ours)
    os.read(started, 1)
    dist.destroy_process_group()
    init_over_file("after")
    tensor = ones()
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    os.close(theirs)
    _, status = os.waitpid(child, 0)
    return {"child": os.waitstatus_to_exitcode(status), "sum": tensor[0].item()}


def interrupted_init() -> Value:
    """Rank 0 hears Ctrl-C while it waits for rank 1, which takes its time."""
    if dist.is_initialized():
        raise AssertionError
    over = FOLDER / "interrupted"
    if RANK == 1:
        try:
            dist.init_process_group("gloo")
        except RuntimeError:
            return {}  # it was told, or missed rank 0
        while not over.exists():
            time.sleep(0.01)
        return {}
    delay_s = float(os.environ["SCENARIO_DELAY_S"])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in a shell's background
    threading.Timer(delay_s, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    try:
        dist.init_process_group("gloo")
    except KeyboardInterrupt:
        over.touch()
        return {"seconds": time.monotonic() - started - delay_s}
    raise AssertionError("not interrupted")


def exception_in_script() -> Value:
    dist.init_process_group("gloo")
    dist.all_reduce(ones())
    raise ValueError("the user's own mistake")


# --- failures -------------------------------------------------------------------------------


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


def init_over_file(name: str) -> None:
    """A store of its own for each group: over one port, PyTorch may meet the store of the group before."""
    size = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{FOLDER}/store.{name}", rank=RANK, world_size=size)


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


def dying_rank() -> Value:
    """The last rank ends itself by the signal named, the others reduce on."""
    dist.init_process_group("gloo")
    dist.all_reduce(ones())
    if dist.get_rank() == dist.get_world_size() - 1:
        os.kill(os.getpid(), getattr(signal, os.environ["SCENARIO_SIGNAL"]))
    return {"error": error_of(lambda: dist.all_reduce(ones()))}


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


def other_numel_of_device() -> Value:
    import devices

    device = devices.load()
    dist.init_process_group(f"cpu:gloo,{device.type}:gloo")
    tensor = torch.empty(devices.CHUNK_NUMEL * (1 + dist.get_rank()), device=device)
    return {"error": error_of(lambda: dist.all_reduce(tensor))}


def named_backend_of_device() -> Value:
    import devices

    device = devices.load()
    dist.init_process_group(f"cpu:gloo,{device.type}:switchml")
    sums = []
    for tensor in (ones(), ones().to(device)):
        dist.all_reduce(tensor)
        sums.append(tensor.cpu()[0].item())
    dist.destroy_process_group()
    return {"cpu": sums[0], "device": sums[1], "sessions": stats()["sessions"]}


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


def leave(value: Value) -> None:
    (FOLDER / f"value.{RANK}.json").write_text(json.dumps(value))


if __name__ == "__main__":
    result = globals()[sys.argv[1]]()
    leave(result)
