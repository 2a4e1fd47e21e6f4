# SPDX-License-Identifier: BSD-3-Clause
"""What a process of the environment has loaded once it has imported PyTorch, and why from there.

The loader itself says where it found each library, when LD_DEBUG asks it (ld.so(8)): by a DT_RPATH or DT_RUNPATH, by
LD_LIBRARY_PATH, in the system's folders. So nothing of its rules is repeated here. What is loaded is compared with what
packages promise each other: the versions of libfabric's symbols, MPI's soname, Cray MPICH's library for the GPU's
vendor, the driver's CUDA. What two of them together are known to do wrong is a table, each row with its source.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rattler import Version

from channel_tools.doctor.devices import has_slingshot, names_in
from channel_tools.doctor.libraries import (
    FABRIC,
    NCCL,
    known_abis,
    mpi_library,
    nccl_plugin,
    plugin_abis,
    preload_command,
    shared_net_abi,
)
from channel_tools.doctor.loaded_probe import MARK
from channel_tools.doctor.model import Diagnosis
from channel_tools.system.counting import counted
from channel_tools.system.document import decode_json
from channel_tools.system.elf import defined_versions, needed_versions, read_elf_file
from channel_tools.system.errors import CommandError, IntegrityError, ValidationError
from channel_tools.system.processes import run_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from channel_tools.doctor.model import ExaminedStack, Level

_PROBE = Path(__file__).with_name("loaded_probe.py")
PROBE_LIMIT_S = 300.0
"""PyTorch from a slow file system takes minutes."""
_PROCESS = "a process with PyTorch"
_PRELOAD = "LD_PRELOAD"
_GTL = {"cuda": "libmpi_gtl_cuda.so", "hsa": "libmpi_gtl_hsa.so"}
_GPU_SUPPORT = "MPICH_GPU_SUPPORT_ENABLED"


class Library(msgspec.Struct, frozen=True):
    """A library of the process."""

    kind: str
    path: str
    version: str = ""
    by: str = ""


class Loaded(msgspec.Struct, frozen=True):
    """What the probe says; ``collective`` is why none was done, "" if one was."""

    host: str
    torch: str
    error: str
    collective: str
    libraries: tuple[Library, ...]

    def first(self, kind: str) -> Library | None:
        """The library of a kind, None if none is loaded."""
        return next((library for library in self.libraries if library.kind == kind), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownProblem:
    """What an NCCL since a version does on Slingshot unless a variable is set; ``source`` says who has seen it."""

    nccl_since: Version
    machine: str
    unless_set: str
    found: str
    fix: str
    source: str


KNOWN_PROBLEMS = (
    KnownProblem(
        nccl_since=Version("2.27"),
        machine="aarch64",
        unless_set="NCCL_PROTO",
        found="this NCCL may use its protocol LL128, which has given wrong data on Slingshot with GH200, and is slower",
        fix="export NCCL_PROTO=^LL128",
        source="https://github.com/NVIDIA/nccl/issues/2001, https://docs.cscs.ch/software/communication/nccl/",
    ),
)


def find_loaded(subject: ExaminedStack) -> Iterator[Diagnosis]:
    """What the process has loaded, and what does not fit together; nothing for an environment without PyTorch."""
    if subject.prefix is None or not has_torch(subject.prefix):
        return
    try:
        loaded = probe(subject)
    except CommandError as err:
        yield _no_answer(subject, err.message)
    else:
        yield from _compare(subject, loaded)


def find_loaded_by_ranks(
    subject: ExaminedStack, answers: Sequence[Loaded], *, ranks: int, said: str
) -> Iterator[Diagnosis]:
    """As find_loaded, of the answers of one rank on each of several hosts; ``said`` is the last that they printed.

    What is compared are files at the same paths on this machine. Hosts with the same answer have one finding.
    """
    by_answer: dict[Loaded, list[str]] = {}
    for answer in answers:
        by_answer.setdefault(msgspec.structs.replace(answer, host=""), []).append(answer.host)
    if lacking := ranks - len(answers):
        silent = f"{lacking} of {counted(ranks, 'rank')} did not answer, with: {said or 'no word'}"
        heard = f"; heard: {', '.join(answer.host for answer in answers)}" if answers else ""
        yield replace(_no_answer(subject, silent + heard), level="fault")
    for answer, hosts in by_answer.items():
        names = ", ".join(sorted(hosts))
        for one in _compare(subject, answer):
            on = f" on {names}" if len(by_answer) > 1 or one.subject == _PROCESS else ""
            yield replace(one, subject=one.subject + on)


def _no_answer(subject: ExaminedStack, words: str) -> Diagnosis:
    fix = f"{subject.prefix_word}/bin/python -c 'import torch'"
    return Diagnosis(subject=_PROCESS, level="warning", found=words, fix=fix)


def _compare(subject: ExaminedStack, loaded: Loaded) -> Iterator[Diagnosis]:
    if loaded.error:
        yield replace(_no_answer(subject, loaded.error), level="fault")
        return
    did = "one allreduce done" if not loaded.collective else f"no collective: {loaded.collective}"
    yield Diagnosis(subject=_PROCESS, level="ok", found=f"PyTorch {loaded.torch}, {did}")
    for library in loaded.libraries:
        version = f", {library.version}" if library.version else ""
        by = library.by or "how it was found is not known"
        yield Diagnosis(subject=f"loaded: {library.kind}", level="ok", found=f"{library.path}{version}; {by}")
    yield from _nccl(subject, loaded)
    yield from _plugin(subject, loaded)
    yield from _fabric(subject, loaded)
    yield from _mpi(subject, loaded)
    yield from _cuda(loaded)
    yield from _known(subject, loaded)


def has_torch(prefix: Path) -> bool:
    """Whether the environment has PyTorch."""
    return any(prefix.glob("lib/python3*/site-packages/torch/__init__.py"))


def probe_words(backend: str) -> tuple[str, ...]:
    """The words after Python's that run the probe, on any host that has the environment."""
    return ("-c", _PROBE.read_text(encoding="utf-8"), backend)


def read_answers(printed: str) -> list[Loaded]:
    """The probes' answers among what they have printed; a line that is none is left out."""
    answers = []
    for line in printed.splitlines():
        _, mark, text = line.partition(MARK)
        if mark:
            with contextlib.suppress(msgspec.DecodeError):
                answers.append(decode_json(text, Loaded))
    return answers


def probe(subject: ExaminedStack) -> Loaded:
    """The answer of one process. Raises CommandError if the environment's Python does not run or gives none."""
    if subject.prefix is None:
        raise ValueError("no environment is examined")
    command = [str(subject.prefix / "bin" / "python"), *probe_words(subject.backend)]
    result = run_command(command, env=subject.variables, timeout_s=PROBE_LIMIT_S)
    for answer in read_answers(result.stdout):
        return answer
    raise CommandError(f"it did not answer, but printed: {last_line(result.stdout)}")


def last_line(text: str) -> str:
    """The last line that has words; "" if there is none."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def _nccl(subject: ExaminedStack, loaded: Loaded) -> Iterator[Diagnosis]:
    """Whether the process has the environment's NCCL, and why not."""
    nccl, own = loaded.first("NCCL"), None if subject.prefix is None else subject.prefix / "lib" / NCCL
    if nccl is None or own is None or not own.is_file() or os.path.realpath(own) == os.path.realpath(nccl.path):
        return
    by = nccl.by
    why = ", which is searched before LD_LIBRARY_PATH" if "RPATH" in by and "RUNPATH" not in by else ""
    found = f"{nccl.path} {by}{why}; not the environment's {own}"
    yield Diagnosis(subject="the process's NCCL", level="warning", found=found, fix=preload_command(subject, own))


def _plugin(subject: ExaminedStack, loaded: Loaded) -> Iterator[Diagnosis]:
    """Whether NCCL has taken the plugin, if it has been asked for a network at all."""
    nccl, plugin = loaded.first("NCCL") or loaded.first("RCCL"), loaded.first("NCCL's plugin")
    own = nccl_plugin(subject)
    title = "the process's plugin"
    if nccl is None or own is None or not own.is_file():
        return
    if plugin is not None:
        try:
            shared = shared_net_abi(plugin_abis(subject, plugin.path), known_abis(Path(nccl.path)))
        except ValidationError as err:
            yield Diagnosis(subject=title, level="fault", found=str(err), fix=err.hint or "")
        else:
            yield Diagnosis(subject=title, level="ok", found=f"{plugin.path}: net ABI v{shared}")
    elif subject.backend == "nccl" and not loaded.collective:
        found = f"NCCL has done an allreduce without opening {own}: between hosts it would use sockets"
        yield Diagnosis(subject=title, level="fault", found=found, fix="export NCCL_NET_PLUGIN=ofi NCCL_DEBUG=INFO")


def _fabric(subject: ExaminedStack, loaded: Loaded) -> Iterator[Diagnosis]:
    """Whether the libfabric that the loader takes has the versions of symbols that the plugin was linked with."""
    plugin, own = loaded.first("NCCL's plugin"), nccl_plugin(subject)
    if subject.prefix is None or own is None:
        return
    path = Path(plugin.path) if plugin is not None else own
    fabric = loaded.first("libfabric")
    used = Path(fabric.path) if fabric is not None else _fabric_by_variables(subject)
    if not path.is_file() or used is None:
        return
    try:
        needed, has = needed_versions(path).get(FABRIC, frozenset()), defined_versions(used)
    except IntegrityError as err:
        yield Diagnosis(subject="libfabric's symbols", level="fault", found=err.message, fix=err.hint or "")
        return
    lacking = sorted(needed - has)
    if lacking:
        newest = max(has, key=_release, default="no version")
        found = f"{path} needs {', '.join(lacking)}, and {used} has up to {newest}: it is too old for the plugin"
        fix = preload_command(subject, subject.prefix / "lib" / FABRIC)
        yield Diagnosis(subject="libfabric's symbols", level="fault", found=found, fix=fix)
    elif needed:
        words = f"{used} has what {path.name} needs, up to {max(needed, key=_release)}"
        yield Diagnosis(subject="libfabric's symbols", level="ok", found=words)


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _fabric_by_variables(subject: ExaminedStack) -> Path | None:
    """The libfabric that the user's variables put before the plugin's own search path, None for the environment's."""
    if subject.prefix is None:
        return None
    preloaded = [Path(entry) for entry in re.split(r"[ :]+", subject.variables.get(_PRELOAD, "")) if FABRIC in entry]
    candidates = [*preloaded, subject.prefix / "lib" / FABRIC]
    return next((path for path in candidates if path.is_file()), None)


def _mpi(subject: ExaminedStack, loaded: Loaded) -> Iterator[Diagnosis]:
    """Whether MPI is of the ABI that the environment is built for, and has what GPU memory needs."""
    mpi = loaded.first("MPI")
    if mpi is None:
        return
    if subject.backend in {"mpi", "ccl"}:
        wanted, soname = mpi_library(subject.installed), read_elf_file(Path(mpi.path)).soname
        if soname != wanted:
            found = f"{mpi.path} is {soname}, and the environment is built for {wanted}"
            fix = f"conda install -p {subject.prefix_word} mpich, or load the module of an MPI with {wanted}"
            yield Diagnosis(subject="the process's MPI", level="fault", found=found, fix=fix)
    if "CRAY" not in mpi.version.upper() or subject.variable(_GPU_SUPPORT) != "1":
        return
    vendor = _gpu_vendor(subject)
    if vendor and not any(_GTL[vendor] in Path(one.path).name for one in loaded.libraries):
        beside = Path(mpi.path).with_name(_GTL[vendor])
        library = beside if beside.is_file() else Path("DIR") / _GTL[vendor]
        # https://docs.cscs.ch/software/communication/cray-mpich/
        found = f"{_GPU_SUPPORT} is 1, and {_GTL[vendor]} is not loaded: MPI_Init ends each rank"
        fix = f"{preload_command(subject, library)}, or: export {_GPU_SUPPORT}=0"
        yield Diagnosis(subject="Cray MPICH's GTL", level="fault", found=found, fix=fix)


def _gpu_vendor(subject: ExaminedStack) -> str:
    if (subject.root / "dev/kfd").exists():
        return "hsa"
    return "cuda" if any(name.startswith("nvidia") for name in names_in(subject.root / "dev")) else ""


def _cuda(loaded: Loaded) -> Iterator[Diagnosis]:
    """Whether the driver is as new as the runtime: within one major version, older drivers serve newer runtimes."""
    driver, runtime = loaded.first("CUDA's driver"), loaded.first("CUDA's runtime")
    if driver is None or runtime is None or not driver.version or not runtime.version:
        return
    if _release(driver.version)[0] < _release(runtime.version)[0]:
        found = f"the driver is of CUDA {driver.version}, and the process's runtime is {runtime.version}"
        fix = f"use a newer driver, or a PyTorch for CUDA {_release(driver.version)[0]}"
        yield Diagnosis(subject="CUDA's driver", level="fault", found=found, fix=fix)


def _known(subject: ExaminedStack, loaded: Loaded) -> Iterator[Diagnosis]:
    nccl = loaded.first("NCCL")
    if nccl is None or not nccl.version or not has_slingshot(subject.root):
        return
    level: Level = "warning"
    for problem in KNOWN_PROBLEMS:
        is_here = Version(nccl.version) >= problem.nccl_since and os.uname().machine == problem.machine
        if is_here and not subject.variable(problem.unless_set):
            found = f"{problem.found} ({problem.source})"
            yield Diagnosis(subject="known problem", level=level, found=found, fix=problem.fix)
