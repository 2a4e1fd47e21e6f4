# SPDX-License-Identifier: BSD-3-Clause
"""One worker that uses libswitchml through its C ABI alone, as ``python switchml_worker.py LIBRARY RANK WORKERS PLAN``.

PLAN is a list of sessions in JSON; each is a list of sizes to reduce, in int32. A size of -1 waits for the end of
standard input and submits nothing. The report is one JSON line: per session the sums' verdicts and the status.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading

OK = 0
INT32 = 1
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)


class Config(ctypes.Structure):
    """The start of ``switchml_config``; the fields after it come from the environment."""

    _fields_ = (("struct_size", ctypes.c_size_t), ("rank", ctypes.c_uint32), ("num_workers", ctypes.c_uint32))


def main() -> None:
    library = ctypes.CDLL(sys.argv[1])
    library.switchml_last_error.restype = ctypes.c_char_p
    rank, workers = int(sys.argv[2]), int(sys.argv[3])
    sessions = [run_session(library, rank, workers, sizes) for sizes in json.loads(sys.argv[4])]
    sys.stdout.write(json.dumps(sessions))


def run_session(library: ctypes.CDLL, rank: int, workers: int, sizes: list[int]) -> dict[str, object]:
    config = Config(ctypes.sizeof(Config), rank, workers)
    context = ctypes.c_void_p()
    status = library.switchml_open(ctypes.byref(config), ctypes.byref(context))
    if status != OK:
        return {"status": status, "message": library.switchml_last_error().decode(), "right": []}
    right = []
    message = ""
    for size in sizes:
        if size < 0:
            sys.stdin.read()
            continue
        status, message, sums_are_right = reduce(library, context, rank, workers, size)
        if status != OK:
            break
        right.append(sums_are_right)
    library.switchml_close(context)
    return {"status": status, "message": message, "right": right}


def reduce(library: ctypes.CDLL, context: ctypes.c_void_p, rank: int, workers: int, size: int) -> tuple[int, str, bool]:
    values = (ctypes.c_int32 * size)(*(index * (rank + 1) for index in range(size)))
    done = threading.Event()
    outcome: list[tuple[int, str]] = []

    def completed(_user: int | None, status: int, message: bytes) -> None:
        outcome.append((status, message.decode()))
        done.set()

    callback = CALLBACK(completed)
    status = library.switchml_allreduce_submit(context, values, values, ctypes.c_uint64(size), INT32, callback, None)
    if status != OK:
        return status, library.switchml_last_error().decode(), False
    done.wait()
    factor = workers * (workers + 1) // 2
    return *outcome[0], all(value == index * factor for index, value in enumerate(values))


if __name__ == "__main__":
    main()
