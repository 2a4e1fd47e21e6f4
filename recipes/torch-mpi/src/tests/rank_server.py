# SPDX-License-Identifier: BSD-3-Clause
"""Ranks without the seconds that PyTorch takes to import: a process that has imported it forks one for each.

``python rank_server.py SOCKET`` is the server; it ends when its stdin does, and ends the ranks that are left. MPI's
launcher starts ``python rank_server.py SOCKET SCRIPT ...`` where a rank would be: that process imports nothing of
PyTorch, sends the server what it got (environment, open files, the launcher's connection among them), and ends as the
server's child does, which goes on as the rank. Where the launcher kills it, the server kills the child.
"""

import array
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

LONGEST = 1 << 17
MOST_FILES = 64
LIMIT_S = 120.0
# What a rank loads: groups, DistributedDataParallel, sharded models.
MODULES = (
    "torch.distributed",
    "torch._dynamo",
    "torch.distributed._functional_collectives",
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks",
    "torch.distributed.device_mesh",
    "torch.distributed.fsdp",
)


def start_server(address: Path) -> subprocess.Popen[bytes]:
    """It listens when this returns."""
    server = subprocess.Popen(
        [sys.executable, __file__, str(address)],
        # one thread, for what has several cannot be forked; the ranks load the plugin themselves
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        stdin=subprocess.PIPE,
    )
    until = time.monotonic() + LIMIT_S
    while not address.exists() and server.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    assert address.exists(), "the server of ranks did not begin"
    return server


def stand_in(address: str, words: Sequence[str]) -> None:
    """Have the server start a rank with these words, and end as that one does."""
    listed = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    files = [number for number in listed if is_open(number)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(address)
        message = json.dumps([words, dict(os.environ), str(Path.cwd()), files]).encode()
        connection.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
        code = int(connection.recv(LONGEST))
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def is_open(number: int) -> bool:
    """False for what the listing itself had opened."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


class Server:
    """Forks a rank for each connection, and watches both; a rank returns from :meth:`serve` with its words."""

    def __init__(self, address: str) -> None:
        self.rank: Sequence[str] = ()
        self._selector = selectors.DefaultSelector()
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, self._stop)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(f"{address}.new")
        self._listener.listen(MOST_FILES)
        Path(f"{address}.new").rename(address)
        self._selector.register(self._listener, selectors.EVENT_READ, self._start)
        self._is_over = False
        self._children: set[int] = set()

    def serve(self) -> Sequence[str]:
        """The words of a rank in its process; none where the server has ended."""
        while not self.rank and not self._is_over:
            for key, _ in self._selector.select():
                if not self.rank and key.fd in self._selector.get_map():
                    key.data()
        if not self.rank:
            for child in self._children:  # not waited for yet, so that the number is still its own
                os.kill(child, signal.SIGKILL)
        return self.rank

    def _stop(self) -> None:
        self._is_over = True

    def _start(self) -> None:
        connection = self._listener.accept()[0]
        message, files, _, _ = socket.recv_fds(connection, LONGEST, MOST_FILES)
        words, environment, folder, numbers = json.loads(message)
        child = os.fork()
        if child == 0:
            self._selector.close()
            become_rank(environment, folder, dict(zip(numbers, files, strict=True)))
            self.rank = words
            return
        for number in files:
            os.close(number)
        self._children.add(child)
        ended = os.pidfd_open(child)
        self._selector.register(ended, selectors.EVENT_READ, partial(self._end, connection, child, ended))
        self._selector.register(connection, selectors.EVENT_READ, partial(self._kill, connection, child))

    def _kill(self, connection: socket.socket, child: int) -> None:
        """The launcher ended who stood for the child."""
        self._selector.unregister(connection)
        os.kill(child, signal.SIGKILL)

    def _end(self, connection: socket.socket, child: int, ended: int) -> None:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self._children.remove(child)
        self._selector.unregister(ended)
        os.close(ended)
        if connection.fileno() in self._selector.get_map():
            self._selector.unregister(connection)
            connection.send(str(code).encode())
        connection.close()


def become_rank(environment: dict[str, str], folder: str, files: dict[int, int]) -> None:
    """Take over what the launcher gave: variables, folder, and files under their own numbers."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    above = max(*files, *files.values()) + 1  # out of the way of the numbers wanted
    copies = {number: os.dup2(file, above + place) for place, (number, file) in enumerate(files.items())}
    os.closerange(3, above)
    for number, copy in copies.items():
        os.dup2(copy, number)
    os.closerange(above, above + len(copies))


def import_modules() -> None:
    for module in MODULES:
        importlib.import_module(module)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "PyTorch's import started threads: it cannot be forked"
    gc.freeze()  # what the ranks share stays shared when their interpreters end


def run_rank(words: Sequence[str]) -> None:
    """Load what ``import torch`` loads for this environment, and run the script.

    What ends it is for the interpreter, as in a process of its own.
    """
    import torch

    torch.distributed.set_debug_level_from_env()
    torch._import_device_backends()
    sys.argv = list(words)
    sys.path[0] = str(Path(words[0]).parent)
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        stand_in(sys.argv[1], sys.argv[2:])
    import_modules()
    if words := Server(sys.argv[1]).serve():
        run_rank(words)
