# SPDX-License-Identifier: BSD-3-Clause
"""Imports PyTorch as a rank does, does one small collective where one rank can, and says which libraries it has loaded.

Runs in the environment that is examined, so it uses only the standard library beside PyTorch. The answer is read from
the process's own memory map, which alone says what is loaded, whatever variables and search paths promise.

Usage: loaded_probe.py BACKEND, the process group's: nccl, mpi, ccl or another. Prints one JSON object as its last line.
"""

import ctypes
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

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
    """Do an allreduce as the only rank; why it was not done, "" if it was."""
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
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    tensor = torch.ones(8, device=device)
    dist.all_reduce(tensor)
    tensor.sum().item()  # waits for a device
    return ""


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
    answer: dict[str, Any] = {"torch": "", "error": "", "collective": ""}
    try:
        import torch  # noqa: PLC0415 - what it cannot load is the answer

        answer["torch"] = getattr(torch, "__version__", "")
    except Exception as err:  # noqa: BLE001 - whatever PyTorch raises is the answer
        answer["error"] = f"import torch: {type(err).__name__}: {err}"
    else:
        try:
            answer["collective"] = collective(sys.argv[1])
        except Exception as err:  # noqa: BLE001 - as above
            answer["collective"] = f"{type(err).__name__}: {err}"
    libraries = []
    for path in mapped_files():
        for kind, pattern in KINDS.items():
            if re.match(pattern, Path(path).name):
                libraries.append({"kind": kind, "path": path, "version": version_of(kind, path)})
    answer["libraries"] = libraries
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)  # MPI of one rank, and what a half-made collective left, are not to be waited for


if __name__ == "__main__":
    main()
