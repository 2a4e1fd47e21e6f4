# SPDX-License-Identifier: BSD-3-Clause
"""How ranks end, by themselves or by others' doing."""

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from scenario import FOLDER, RANK, Value, error_of, init_over_file, ones, stats


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


def fail() -> None:
    raise ValueError("the user's own mistake")


def end_by_handler() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.kill(os.getpid(), signal.SIGTERM)


def end_after_thread() -> None:
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    sys.exit(1)


WAYS_TO_END: dict[str, Callable[[], None]] = {
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "handler of SIGTERM": end_by_handler,
    "exit 0": lambda: sys.exit(0),
    "exit 3": lambda: sys.exit(3),
    "exit with words": lambda: sys.exit("no data"),
    "_exit 0": lambda: os._exit(0),
    "exception": fail,
    "failed thread": end_after_thread,
}


def ending_rank() -> Value:
    """The last rank ends in the way named at some moment among allreduces; the others reduce on until they know."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    ended = FOLDER / "ended"
    ends_at = time.monotonic() + float(os.environ["SCENARIO_DELAY_S"])
    is_last = dist.get_world_size() - 1 == RANK

    def reduce_on() -> None:
        step = 0
        while True:
            if is_last and time.monotonic() > ends_at:
                ended.write_text(repr(time.time()))
                WAYS_TO_END[os.environ["SCENARIO_END"]]()
            dist.all_reduce(ones(numel=1 + step * 9973 % 100_000))
            step += 1

    error = error_of(reduce_on)
    return {"error": error, "seconds": time.time() - float(ended.read_text())}


def end_without_a_word(died: Path) -> None:
    """Have the system end this process after the delay, whatever it does then; leaves the time in the file."""
    delay_s = float(os.environ["SCENARIO_DELAY_S"])
    died.write_text(repr(time.time() + delay_s))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(delay_s, 1e-6))


def dying_rank() -> Value:
    """The last rank ends itself by the signal named, the others reduce on."""
    dist.init_process_group("gloo")
    dist.all_reduce(ones())
    if dist.get_rank() == dist.get_world_size() - 1:
        os.kill(os.getpid(), getattr(signal, os.environ["SCENARIO_SIGNAL"]))
    return {"error": error_of(lambda: dist.all_reduce(ones()))}


def stopped_rank() -> Value:
    """The last rank is stopped; rank 0 ends it once the others have their errors."""
    dist.init_process_group("gloo")
    dist.all_reduce(ones())
    stopped = FOLDER / "stopped"
    if dist.get_rank() == dist.get_world_size() - 1:
        stopped.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
    error = error_of(lambda: dist.all_reduce(ones()))
    (FOLDER / f"knows.{RANK}").touch()
    if RANK == 0:
        while not (FOLDER / "knows.1").exists():
            time.sleep(0.01)
        os.kill(int(stopped.read_text()), signal.SIGKILL)
    return {"error": error}


def killed_as_it_opens() -> Value:
    """One rank is ended by the system at a moment after gloo has connected it; the others reduce until they know."""
    from torch_switchml import pytorch
    from torch_switchml.agreement import Store

    died = FOLDER / "died"
    store_of = pytorch.store_of

    def come_to_the_end(group: object) -> Store:
        store = store_of(group)
        store.add("scenario/connected", 1)
        if int(os.environ["SCENARIO_FAILING"]) == RANK:
            while store.add("scenario/connected", 0) < int(os.environ["WORLD_SIZE"]):
                time.sleep(0.001)
            end_without_a_word(died)
        return store

    vars(pytorch)["store_of"] = come_to_the_end

    def reduce_on() -> None:
        dist.init_process_group("gloo")
        while True:
            dist.all_reduce(ones())

    kind, text, _ = error_of(reduce_on)
    return {"kind": kind, "text": text, "seconds": time.time() - float(died.read_text())}


def live_on(knows: Path) -> None:
    """As a child that outlives its parent, until the file is there."""
    until = time.monotonic() + 60
    while not knows.exists() and time.monotonic() < until:
        time.sleep(0.01)
    os._exit(0)


def killed_once_it_is_open() -> Value:
    """One rank is ended by the system at a moment among allreduces, between which the ranks do something else."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    died, knows = FOLDER / "died", FOLDER / "knows"
    dist.all_reduce(ones())
    if int(os.environ["SCENARIO_FAILING"]) == RANK:
        if os.environ.get("SCENARIO_CHILD") and os.fork() == 0:
            live_on(knows)
        end_without_a_word(died)

    def reduce_on() -> None:
        step = 0
        while True:
            dist.all_reduce(ones(numel=1 + step * 9973 % 100_000))
            step += 1
            if step % 8 == 0:
                time.sleep(0.01)

    kind, text, _ = error_of(reduce_on)
    seconds = time.time() - float(died.read_text())
    knows.touch()
    return {"kind": kind, "text": text, "seconds": seconds}


def limit_passes_in_gloo() -> Value:
    """On rank 0, which awaits the others in vain; then all go on with SwitchML."""
    dist.init_process_group("gloo")
    dist.all_reduce(ones())
    passed = FOLDER / "passed"
    if RANK == 0:
        error_of(lambda: dist.monitored_barrier(timeout=timedelta(milliseconds=200)))
        passed.touch()
    while not passed.exists():
        time.sleep(0.01)
    tensor = ones()
    dist.all_reduce(tensor)
    return {"sum": tensor[0].item(), "failure": stats()["failure"]}
