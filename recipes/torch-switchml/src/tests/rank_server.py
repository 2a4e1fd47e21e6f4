# SPDX-License-Identifier: BSD-3-Clause
"""Ranks without the seconds that PyTorch takes to import: a process that has imported it forks one for each.

The server reads a launch per line from stdin: a script and its arguments; per rank its environment and the file for
what it prints; and the seconds until all must have ended. It answers with a line: per rank the exit code and the
seconds since the start, or null where it had to kill the rank. A rank first loads what ``import torch`` would load for
its environment.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent
Ended = list[tuple[int, float] | None]


@dataclass(frozen=True, slots=True)
class RankServer:
    """The server's side that tests see."""

    process: subprocess.Popen[str]

    def launch(self, words: Sequence[str], ranks: Sequence[tuple[Mapping[str, str], Path]], limit_s: float) -> Ended:
        """Exit code and seconds of each rank, None for one that took longer than the limit."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        launch = [list(words), [[dict(environment), str(output)] for environment, output in ranks], limit_s]
        self.process.stdin.write(json.dumps(launch) + "\n")
        self.process.stdin.flush()
        return [None if one is None else (one[0], one[1]) for one in json.loads(self.process.stdout.readline())]


def start_server() -> subprocess.Popen[str]:
    """It ends when its stdin does."""
    return subprocess.Popen(
        [sys.executable, Path(__file__)],
        # one thread, for what has several cannot be forked; the ranks load the plugin themselves
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def serve() -> None:
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    for module in ("torch.distributed", "torch._dynamo"):  # the second is what DistributedDataParallel imports
        importlib.import_module(module)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "PyTorch's import started threads: it cannot be forked"
    keep_for_good([dict(vars(module)) for module in list(sys.modules.values())])
    gc.freeze()  # what the ranks share stays shared when their interpreters end, two thirds of a rank's processor time
    for line in sys.stdin:
        words, ranks, limit_s = json.loads(line)
        started = time.monotonic()
        children = []
        for environment, output in ranks:
            child = os.fork()
            if child == 0:
                return become_rank(words, environment, output)
            children.append(child)
        ended = wait(children, started, started + limit_s)
        print(json.dumps(ended), flush=True)
    return None


def keep_for_good(shared: object) -> None:
    """Give away a reference that nobody drops: a rank's interpreter leaves what it has from the server where it is."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(shared))


def wait(children: Sequence[int], started: float, until: float) -> Ended:
    """Kills those that still run at the end of the time."""
    ended: dict[int, tuple[int, float]] = {}
    while len(ended) < len(children) and time.monotonic() < until:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            ended[child] = (os.waitstatus_to_exitcode(status), time.monotonic() - started)
        else:
            time.sleep(0.005)
    for child in children:
        if child not in ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return [ended.get(child) for child in children]


def become_rank(words: Sequence[str], environment: Mapping[str, str], output: str) -> None:
    """Go on as a process that was started with these words; what ends it is for the interpreter, as there."""
    os.environ.clear()
    os.environ.update(environment)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, number in ((nothing, 0), (descriptor, 1), (descriptor, 2)):
        os.dup2(source, number)
    import torch

    torch.distributed.set_debug_level_from_env()
    if torch._is_device_backend_autoload_enabled():
        torch._import_device_backends()
    sys.argv = list(words)
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    serve()
