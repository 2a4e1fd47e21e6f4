# SPDX-License-Identifier: BSD-3-Clause
"""Imports PyTorch as a rank does, does one small collective where it can, and says which libraries it has loaded.

Runs in the environment that is examined, so it uses only the standard library beside PyTorch. The answer is read from
the process's own memory map, which alone says what is loaded, whatever variables and search paths promise. Why from
there, the loader says, which LD_DEBUG has write a log (ld.so(8)); for that the process begins anew.

Usage: loaded_probe.py BACKEND, the process group's: nccl, mpi, ccl or another. As one of several ranks (RANK,
WORLD_SIZE) the collective is theirs. Prints a line of MARK and one JSON object.
"""

import ctypes
import datetime as dt
import json
import os
import re
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

MARK = "channel_tools-loaded "
_LOG_FOLDER = "CHANNEL_TOOLS_LOADER_LOG"
_COLLECTIVE_S = 120.0
_PRELOAD = "LD_PRELOAD"
_SEARCHES = re.compile(r"find library=\S+ \[\d+\]; searching")
_BY = re.compile(r"search path=.*\((?P<by>[^()]*(?:\([^()]*\))?[^()]*)\)$")
_CACHE = re.compile(r"search cache=(?P<by>\S+)")
_TRIES = re.compile(r"trying file=(?P<path>.*)")
_OPENS = re.compile(r"file=(?P<path>/.*) \[\d+\];  dynamically loaded by (?P<by>.*) \[\d+\]")
KINDS = {
    "NCCL": r"libnccl\.so",
    "RCCL": r"librccl\.so",
    "NCCL's plugin": r"lib[nr]ccl-net[^/]*\.so",
    "libfabric": r"libfabric[^/]*\.so",
    "MPI": r"libmpi(_cray|_gnu[^/]*|_nvidia|_amd|_abi)?\.so",
    "Cray MPICH's GTL": r"libmpi_gtl_[a-z]+\.so",
    "CUDA's driver": r"libcuda\.so",
    "CUDA's runtime": r"libcudart[^/]*\.so",
    "HIP's runtime": r"libamdhip64\.so",
    "oneCCL": r"libccl\.so",
}
_VERSION_BYTES = 8_192
_OF_MAJOR, _OF_MAJOR_BEFORE = 10_000, 1_000
_NUMBERS = {
    "NCCL": "ncclGetVersion",
    "RCCL": "ncclGetVersion",
    "CUDA's driver": "cuDriverGetVersion",
    "CUDA's runtime": "cudaRuntimeGetVersion",
    "HIP's runtime": "hipRuntimeGetVersion",
}
_IMPORTS = {"ccl": "oneccl_bindings_for_pytorch"}


def collective(backend: str) -> str:
    """Do an allreduce, of one rank or of all that were started; why it was not done, "" if it was."""
    if backend not in {"nccl", "mpi", "ccl"}:
        return "not asked for"
    import torch  # noqa: PLC0415 - what it does when it is imported is what is examined
    import torch.distributed as dist  # noqa: PLC0415

    device = "cpu"
    if backend == "nccl":
        if not torch.cuda.is_available():
            return "no GPU here that PyTorch can use"
        device = "cuda"
    if backend in _IMPORTS:
        __import__(_IMPORTS[backend])
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group(backend, timeout=dt.timedelta(seconds=_COLLECTIVE_S))
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    tensor = torch.ones(8, device=device)
    dist.all_reduce(tensor)
    tensor.sum().item()  # waits for a device
    return ""


def bounded(backend: str) -> str:
    """As collective, which may hang: then that is why it was not done."""
    said = [f"it did not end within {_COLLECTIVE_S:g} s"]

    def do() -> None:
        try:
            said[0] = collective(backend)
        except Exception as err:  # noqa: BLE001 - whatever PyTorch raises is the answer
            said[0] = f"{type(err).__name__}: {err}"

    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    thread.join(_COLLECTIVE_S)
    return said[0]


def read_loader_log(text: str) -> dict[str, str]:
    """How each file was found, by its real path, from the loader's own words."""
    found_by: dict[str, str] = {}
    by = ""
    for line in text.splitlines():
        if _SEARCHES.search(line):
            by = ""
        elif match := _BY.search(line) or _CACHE.search(line):
            by = match["by"]
        elif match := _TRIES.search(line):
            found_by[os.path.realpath(match["path"])] = f"by {by}"
        elif match := _OPENS.search(line):
            found_by.setdefault(os.path.realpath(match["path"]), f"opened by {match['by']} (dlopen)")
    return found_by


def how_found() -> dict[str, str]:
    """How each file of this process was found, by its real path."""
    folder = Path(os.environ[_LOG_FOLDER])
    found_by: dict[str, str] = {}
    for log in folder.glob(f"*.{os.getpid()}"):
        found_by.update(read_loader_log(log.read_text(encoding="utf-8", errors="replace")))
    shutil.rmtree(folder, ignore_errors=True)
    for entry in re.split(r"[ :]+", os.environ.get(_PRELOAD, "")):
        if entry:
            found_by[os.path.realpath(entry)] = f"by {_PRELOAD}"
    return found_by


def mapped_files() -> list[str]:
    """Every file that this process has mapped."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    return sorted({line[line.index("/") :] for line in lines if "/" in line})


def version_of(kind: str, path: str) -> str:
    """What a library that is loaded says of its version; "" if it does not."""
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        if kind in _NUMBERS:
            number = ctypes.c_int()
            getattr(library, _NUMBERS[kind])(ctypes.byref(number))
            return in_words(kind, number.value)
        if kind == "libfabric":
            library.fi_version.restype = ctypes.c_uint32
            return f"{library.fi_version() >> 16}.{library.fi_version() & 0xFFFF}"
        if kind == "MPI":
            text, length = ctypes.create_string_buffer(_VERSION_BYTES), ctypes.c_int()
            library.MPI_Get_library_version(text, ctypes.byref(length))
            return " ".join(text.value.decode(errors="replace").split())[:200]
    except (OSError, AttributeError):
        pass
    return ""


def in_words(kind: str, number: int) -> str:
    """``22703`` of NCCL is 2.27.3, ``12040`` of CUDA 12.4, ``60240090`` of HIP 6.2."""
    if kind in {"NCCL", "RCCL"}:
        # before 2.9 a thousand for the major version
        major, rest = divmod(number, _OF_MAJOR if number >= _OF_MAJOR else _OF_MAJOR_BEFORE)
        return f"{major}.{rest // 100}.{rest % 100}"
    if kind == "HIP's runtime":
        return f"{number // 10_000_000}.{number // 100_000 % 100}"
    return f"{number // 1_000}.{number % 1_000 // 10}"


def main() -> None:
    """Print what is loaded."""
    if _LOG_FOLDER not in os.environ:
        folder = tempfile.mkdtemp()
        os.environ.update({_LOG_FOLDER: folder, "LD_DEBUG": "libs,files", "LD_DEBUG_OUTPUT": f"{folder}/loader"})
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the same program, without a shell
    answer: dict[str, Any] = {"host": os.uname().nodename, "torch": "", "error": "", "collective": ""}
    try:
        import torch  # noqa: PLC0415 - what it cannot load is the answer

        answer["torch"] = getattr(torch, "__version__", "")
    except Exception as err:  # noqa: BLE001 - whatever PyTorch raises is the answer
        answer["error"] = f"import torch: {type(err).__name__}: {err}"
    else:
        answer["collective"] = bounded(sys.argv[1])
    libraries, found_by = [], how_found()
    for path in mapped_files():
        for kind, pattern in KINDS.items():
            if re.match(pattern, Path(path).name):
                by = found_by.get(os.path.realpath(path), "")
                libraries.append({"kind": kind, "path": path, "version": version_of(kind, path), "by": by})
    answer["libraries"] = libraries
    sys.stdout.write(f"\n{MARK}{json.dumps(answer)}\n")
    sys.stdout.flush()
    os._exit(0)  # MPI of one rank, and what a half-made collective left, are not to be waited for


if __name__ == "__main__":
    main()
