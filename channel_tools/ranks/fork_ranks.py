# SPDX-License-Identifier: BSD-3-Clause
"""Starts ranks on one host with torchrun's variables, but forks them from one process that has imported PyTorch.

The import takes a second or two of processor time; the ranks share it and its memory. They also share MODULE, which
imports the other parts of PyTorch that they need. As with torchrun, the launcher has the store, on a port chosen by the
system, and a rank that fails ends the others.

Usage: fork_ranks.py RANKS MODULE SCRIPT ARGUMENT...
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_SELF_TASKS = Path("/proc/self/task")


def end_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


end_with_parent()  # also while it imports torch, which takes seconds

import torch.distributed as dist  # noqa: E402


def refuse_threads() -> None:
    """Raise RuntimeError if the imports have started threads, which a fork would lose."""
    threads = len(list(_SELF_TASKS.iterdir()))
    if threads > 1:
        raise RuntimeError(f"importing PyTorch has started threads ({threads} run), so ranks cannot be forked")


def run_rank(rank: int, ranks: int, port: int, arguments: list[str]) -> NoReturn:
    """Run the script as a rank, as Python would, and exit without the interpreter's shutdown, which is slow."""
    end_with_parent()
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(ranks),
        LOCAL_WORLD_SIZE=str(ranks),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE=str(True),
    )
    sys.argv = arguments
    status = 0
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        status = exit_status(end)
    except BaseException as error:  # noqa: BLE001  (whatever ends a rank is told by its hook, as Python does)
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def exit_status(end: SystemExit) -> int:
    """The status for sys.exit, which calls no hook: 0 for None, a number itself, else 1 with its text on stderr."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    print(end.code, file=sys.stderr)
    return 1


def main() -> int:
    """Fork the ranks, give them the store's port, and wait for them; the exit status."""
    ranks, module, arguments = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    importlib.import_module(module)
    sys.path[0] = str(Path(arguments[0]).parent)
    refuse_threads()
    gc.freeze()  # a collection in a rank would write to, and so copy, all objects
    ports = os.pipe()
    processes: dict[int, int] = {}
    for rank in range(ranks):
        process = os.fork()
        if not process:
            os.close(ports[1])
            run_rank(rank, ranks, int.from_bytes(os.read(ports[0], 2), "big"), arguments)
        processes[process] = rank
    store = serve_store()
    os.write(ports[1], store.port.to_bytes(2, "big") * ranks)
    return wait_for(processes)


def serve_store() -> dist.TCPStore:
    """Create the ranks' store, after they were forked, since it has threads."""
    # as PyTorch itself, which may be built without libuv
    use_libuv = os.environ.get("USE_LIBUV", "1") == "1"
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=use_libuv)


def wait_for(processes: dict[int, int]) -> int:
    """The exit status: 0 if every rank's is 0; otherwise the first failure ends the others."""
    while processes:
        process, status = os.wait()
        rank = processes.pop(process)
        if code := os.waitstatus_to_exitcode(status):
            print(f"failed (exitcode: {code}) local_rank: {rank}", file=sys.stderr)  # torchrun's words
            for other in processes:
                os.kill(other, signal.SIGKILL)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
