# SPDX-License-Identifier: BSD-3-Clause
"""Loads libraries as a rank would, in the environment's own Python, and reports which files the loader chose.

Runs in the environment that is examined, so it uses only the standard library. Prints one JSON object.

Usage: library_probe.py NAME..., each a library to load: libmpi.so.12, libccl.so.1, libfabric.so.1, libnccl-net.so ...
"""

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

_MOST_PROVIDERS = 1_000
_VERSION_BYTES = 8_192
_FI_VERSION = (1 << 16) | 5
# offsets in struct fi_info and struct fi_fabric_attr, which libfabric 1 keeps (fabric.h)
_NEXT, _FABRIC_ATTR, _PROVIDER = 0, 104, 16
_ABIS = range(1, 50)
# exit codes that no library ends a process with by itself
_YES, _NO = 101, 102


def load(name: str) -> dict[str, Any]:
    """Load a library: its file and what it reports about itself, or why it did not load."""
    try:
        library = ctypes.CDLL(name)
    except OSError as err:
        return {"name": name, "file": "", "error": str(err)}
    properties: dict[str, Any] = {"name": name, "file": mapped_file(name), "error": ""}
    kind = Path(name).name  # not of the folders above it
    if "libmpi" in kind:
        properties |= describe_mpi(library)
    if "libfabric" in kind:
        properties["providers"] = providers(library)
    if "libtorch_cuda" in kind:
        properties["nccl"] = mapped_file("libnccl.so.2")
    if "nccl" in kind or "rccl" in kind:
        properties["net_abis"] = [version for version in _ABIS if hasattr(library, f"ncclNetPlugin_v{version}")]
        properties["tuner_abis"] = [version for version in _ABIS if hasattr(library, f"ncclTunerPlugin_v{version}")]
    return properties


def mapped_file(name: str) -> str:
    """The file that this process has mapped for a library, found by the start of its real name."""
    stem = Path(name).name.split(".so")[0]
    files = {
        line.split(maxsplit=5)[5].strip() for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line
    }
    fitting = sorted(
        file for file in files if Path(file).name.split(".so")[0] in {stem, stem.replace("libmpi", "libmpich")}
    )
    return fitting[0] if fitting else ""


def describe_mpi(library: ctypes.CDLL) -> dict[str, Any]:
    """What MPI reports about itself, by calls that are allowed before MPI_Init."""
    text, length = ctypes.create_string_buffer(_VERSION_BYTES), ctypes.c_int()
    library.MPI_Get_library_version(text, ctypes.byref(length))
    lines = text.value.decode(errors="replace").splitlines()
    device = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("MPICH Device")), "")
    return {"version": " ".join(lines[0].split()) if lines else "", "device": device, "takes_gpu": takes_gpu(library)}


def takes_gpu(library: ctypes.CDLL) -> bool | None:
    """Whether MPI reports that it takes GPU memory; None if it has no such call, or only after MPI_Init.

    MPICH 4.0 ends the process if it is called before MPI_Init, so this is done in a child process.
    """
    query = getattr(library, "MPIX_Query_cuda_support", None)
    if query is None:
        return None
    process = os.fork()
    if process == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
        os._exit(_YES if query() else _NO)
    _, status = os.waitpid(process, 0)
    return {_YES: True, _NO: False}.get(os.waitstatus_to_exitcode(status))


def providers(library: ctypes.CDLL) -> list[str]:
    """The names of libfabric's providers that work on this machine, each once."""
    info = ctypes.c_void_p()
    if library.fi_getinfo(_FI_VERSION, None, None, ctypes.c_uint64(0), None, ctypes.byref(info)) != 0:
        return []
    names: list[str] = []
    at = info.value
    for _ in range(_MOST_PROVIDERS):
        if not at:
            break
        attributes = pointer_at(at + _FABRIC_ATTR)
        name = pointer_at(attributes + _PROVIDER) if attributes else 0
        if name:
            names.append(ctypes.string_at(name).decode(errors="replace"))
        at = pointer_at(at + _NEXT)
    return list(dict.fromkeys(names))


def pointer_at(address: int) -> int:
    """The pointer stored at an address; 0 for NULL."""
    return ctypes.c_void_p.from_address(address).value or 0


if __name__ == "__main__":
    sys.stdout.write(json.dumps([load(name) for name in sys.argv[1:]]) + "\n")
