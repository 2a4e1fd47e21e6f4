# SPDX-License-Identifier: BSD-3-Clause
"""Runs a rank's script as Python would, and lets ``launch --watch`` know that it moves, and where it stands.

It is copied into the watch's folder and run by the environment's Python on each host, so it uses only the standard
library. A thread looks several times in the watch's seconds whether the rank has moved: whether it has written
anything, its main thread is elsewhere, or a collective was entered. Only then it writes its file anew, so
that the watch takes a rank for standing still whose file stays as it is: also one that is stopped, has ended, or does
not let its threads run. A rank whose main thread stays in a collective does not move by what its other threads write,
as those do that report to somebody every few seconds. A rank that has neither written nor entered a collective for long
says where it is, and which collectives it is in.

What a rank's Python cannot say itself is read from outside (look_at_ranks.py). For that it may be traced by processes
of its user, where the kernel leaves that to processes (Yama), and a signal has faulthandler write its Python stacks,
also while other code holds the interpreter's lock.

Usage: watch_rank.py FOLDER SECONDS SCRIPT [ARGUMENT]..., or -m MODULE in place of SCRIPT.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import runpy
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

LOOKS = 4
"""In the watch's seconds."""
LEAST_S, MOST_S = 0.1, 15.0
"""Between two looks."""
PR_SET_PTRACER, PR_SET_PTRACER_ANY = 0x59616D61, -1
SIGNAL = int(signal.SIGRTMAX) - 3
"""One that neither libraries nor schedulers use."""
_PLUGINS = ("torch_switchml", "torch_mpi")


class Moves:
    """What changes while a rank moves."""

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        self._place: tuple[Any, ...] = ()
        self._written = -1
        self._counts: tuple[int, ...] = ()

    def look(self, own_bytes: int) -> tuple[bool, bool]:
        """Whether it has moved, and whether it has worked, since the last call; ``own_bytes`` are the watch's.

        It works by collectives, and by output while its main thread moves. What only gets from place to place may go
        round in circles, and what other threads write may be no more than that they are there.
        """
        place = tuple((id(frame), frame.f_lasti) for frame in frames_of(self._main))
        written, counts = written_bytes() - own_bytes, sequence_numbers()
        is_elsewhere, has_written, has_entered = (
            place != self._place,
            written != self._written,
            counts != self._counts,
        )
        self._place, self._written, self._counts = place, written, counts
        has_worked = has_entered or (has_written and is_elsewhere)
        return has_worked or is_elsewhere or (has_written and not is_in_collective()), has_worked

    def place(self) -> list[tuple[str, str, int]]:
        """Function, file and line of each frame of the main thread, the innermost first."""
        codes = [(frame.f_code, frame.f_lineno or 0) for frame in frames_of(self._main)]
        return [(getattr(code, "co_qualname", code.co_name), code.co_filename, line) for code, line in codes]


def frames_of(thread: int | None) -> list[Any]:
    """The frames of a thread, the innermost first."""
    frame = sys._current_frames().get(thread or 0)  # noqa: SLF001 - a documented name
    frames = []
    while frame is not None:
        if frame.f_code.co_filename != __file__:
            frames.append(frame)
        frame = frame.f_back
    return frames


def written_bytes() -> int:
    """What this process has written so far, to files and pipes."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:  # a kernel without it
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("wchar:")), 0)


def sequence_numbers() -> tuple[int, ...]:
    """How many collectives each process group was asked for."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not getattr(distributed, "is_initialized", bool)():
        return ()
    numbers = []
    for group in list(process_groups()):
        with contextlib.suppress(RuntimeError):  # of a backend that does not count
            numbers.append(group._get_sequence_number_for_group())  # noqa: SLF001 - docs/explanation/overrides.md
    return tuple(numbers)


def process_groups() -> dict[Any, str]:
    """The name of each process group of this process."""
    names: dict[Any, str] = sys.modules["torch.distributed.distributed_c10d"]._world.pg_names  # noqa: SLF001
    return names


def collectives() -> list[dict[str, Any]]:
    """Each group's collectives, as PyTorch's flight recorder and our plugins have them.

    ``entered`` is the number of the last one that this rank has come to, ``pending`` those that have not ended.
    """
    torch = sys.modules.get("torch")
    distributed = sys.modules.get("torch.distributed")
    if torch is None or distributed is None or not hasattr(distributed, "is_initialized"):
        return []
    found: list[dict[str, Any]] = []
    if distributed.is_available() and distributed.is_initialized():
        members = group_members()
        c10d = getattr(torch._C, "_distributed_c10d", None)  # noqa: SLF001 - docs/explanation/overrides.md
        # the second: of NCCL, whose recorder is another one
        for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):
            if (dump := getattr(c10d, name, None)) is not None:
                found += recorded(json.loads(dump()))
        for plugin in _PLUGINS:
            if (ask := getattr(sys.modules.get(plugin), "collectives", None)) is not None:
                found += ask()
        for one in found:
            one["description"], one["ranks"] = members.get(one["group"], ("", []))
    return found


def is_in_collective() -> bool:
    """Whether one has begun and not ended."""
    try:
        return any(group["pending"] for group in collectives())
    except Exception:  # noqa: BLE001 - as in say_place
        return False


def group_members() -> dict[str, tuple[str, list[int]]]:
    """What each process group of this rank is for, and its global ranks, by its name."""
    c10d = sys.modules["torch.distributed.distributed_c10d"]
    world = c10d._world  # noqa: SLF001 - docs/explanation/overrides.md
    own = ((group, ranks) for group, ranks in list(world.pg_group_ranks.items()) if group in world.pg_names)
    return {world.pg_names[group]: (group.group_desc, sorted(ranks)) for group, ranks in own}


def recorded(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """The groups of a flight recorder's trace (torch/distributed/flight_recorder reads the same)."""
    groups: dict[str, dict[str, Any]] = {}
    for entry in trace.get("entries") or []:
        name = entry["process_group"][0]
        new = {"by": "PyTorch's flight recorder", "group": name, "entered": 0, "pending": []}
        group = groups.setdefault(name, new)
        number = entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"]
        if not entry["is_p2p"]:
            group["entered"] = max(group["entered"], number)
        if not entry["retired"] and entry["state"] != "completed":
            group["pending"].append(
                {
                    "number": number,
                    "is_message": entry["is_p2p"],
                    "kind": entry["profiling_name"].partition(":")[2] or entry["profiling_name"],
                    "sizes": entry["input_sizes"],
                    "dtypes": entry["input_dtypes"],
                }
            )
    return list(groups.values())


class Watched:
    """The rank's files in the watch's folder, which only its user can read."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._seconds = seconds
        self._rank = os.environ.get("RANK", "0")
        self._folder = folder
        self._moves = Moves()
        self._count = self._works = 0
        self._bytes = 0
        self._is_over = self._has_failed = False
        with contextlib.suppress(OSError):  # of a kernel without Yama
            ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_long(PR_SET_PTRACER_ANY), 0, 0, 0)
        # to the end of the process, which writes it in the signal's handler
        self._stacks = open(self._file("stacks"), "w", opener=opened_for_owner)  # noqa: SIM115
        faulthandler.register(SIGNAL, file=self._stacks, all_threads=True)
        self.say_moved(has_worked=True)

    def _file(self, what: str) -> Path:
        return self._folder / f"rank-{self._rank}.{what}"

    def say_moved(self, *, has_worked: bool) -> None:
        """Write the file by which the watch sees that the rank has moved, and finds it."""
        self._count += 1
        self._works += has_worked
        uname = os.uname()
        document = {
            "rank": int(self._rank),
            "host": uname.nodename,
            "boot": Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
            "pid": os.getpid(),
            "started": int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]),
            "signal": SIGNAL,
            "moved": self._count,
            "worked": self._works,
            "over": self._is_over,
            "failed": self._has_failed,
            "frames": self._moves.place(),
        }
        self._write("json", document)

    def say_over(self, *, has_failed: bool) -> None:
        """Say that the script has ended: a process that then ends was not killed."""
        self._is_over, self._has_failed = True, has_failed
        with contextlib.suppress(OSError):  # the watch may have ended before
            self.say_moved(has_worked=True)

    def say_place(self) -> None:
        """Write where the rank stands."""
        try:
            found, error = collectives(), ""
        except Exception as err:  # noqa: BLE001 - whatever PyTorch is like, it must not end the rank
            found, error = [], f"{type(err).__name__}: {err}"
        self._write("place", {"moved": self._count, "frames": self._moves.place(), "groups": found, "error": error})

    def _write(self, what: str, document: dict[str, Any]) -> None:
        part, text = self._file(f"{what}.part"), json.dumps(document)
        with open(part, "w", encoding="ascii", opener=opened_for_owner) as stream:
            self._bytes += stream.write(text)
        part.replace(self._file(what))

    def go_on(self) -> None:
        """Look for as long as the process runs; ends where the watch has ended and taken its folder away."""
        every = min(max(self._seconds / LOOKS, LEAST_S), MOST_S)
        idle_since, has_said = time.monotonic(), False
        with contextlib.suppress(OSError):
            while True:
                time.sleep(every)
                try:
                    moved, worked = self._moves.look(self._bytes + os.fstat(self._stacks.fileno()).st_size)
                except Exception:  # noqa: BLE001 - as in say_place; what is not known has not moved
                    moved = worked = False
                if moved:
                    self.say_moved(has_worked=worked)
                    has_said = False
                if worked:
                    idle_since = time.monotonic()
                elif not has_said and time.monotonic() - idle_since > self._seconds / 2:
                    self.say_place()
                    has_said = True


def opened_for_owner(path: str, flags: int) -> int:
    """Open a file that only its owner may read, whatever the umask."""
    return os.open(path, flags, 0o600)


def main() -> None:
    """Watch this process, and run the script in it."""
    folder, seconds, words = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    watched = Watched(folder, seconds)
    threading.Thread(target=watched.go_on, name="launch --watch", daemon=True).start()
    owner, has_failed = os.getpid(), True
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            if not sys.flags.safe_path:
                sys.path[0] = str(Path.cwd())
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            if not sys.flags.safe_path:
                sys.path[0] = str(Path(words[0]).resolve().parent)
            runpy.run_path(words[0], run_name="__main__")
        has_failed = False
    except SystemExit as end:
        has_failed = end.code not in {None, 0}
        raise
    finally:
        if os.getpid() == owner:  # not a child that the script forked
            watched.say_over(has_failed=has_failed)


if __name__ == "__main__":
    main()
