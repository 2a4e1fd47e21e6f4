# SPDX-License-Identifier: BSD-3-Clause
"""The libraries that the loader finds first for a rank, and what they report: MPI, oneCCL, libfabric, NCCL's plugin.

A library that brings a search path of its own (DT_RPATH), as those of wheels and of conda packages do, finds what it
needs there before LD_LIBRARY_PATH is searched. Only LD_PRELOAD comes first (ld.so(8)), so that is what is advised.

NCCL looks for ``ncclNetPlugin_vN`` and ``ncclTunerPlugin_vN`` in a plugin that it has opened, from the newest N that it
knows to the oldest (src/plugin/net.cc, src/plugin/tuner.cc). The names that it knows are strings in its library.
"""

from __future__ import annotations

import mmap
import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from channel_tools.doctor.devices import fabric_adapters, has_slingshot
from channel_tools.doctor.model import Diagnosis
from channel_tools.system.errors import CommandError, ValidationError
from channel_tools.system.processes import run_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from channel_tools.doctor.model import ExaminedStack

_PROBE = Path(__file__).with_name("library_probe.py")
_TIMEOUT_S = 60.0
MPI, OPEN_MPI, STANDARD_MPI = "libmpi.so.12", "libmpi.so.40", "libmpi_abi.so.1"
SWITCHML = "libswitchml.so.1"
FABRIC, CCL, NCCL_PLUGIN, NCCL = "libfabric.so.1", "libccl.so.1", "libnccl-net.so", "libnccl.so.2"
RCCL_PLUGIN, RCCL = "librccl-net.so", "librccl.so.1"
"""AMD's NCCL, which is the site's, and its plugin."""
TORCH_CUDA = "libtorch_cuda.so"
_FAST_PROVIDERS = frozenset({"cxi", "efa", "verbs", "psm2", "psm3", "opx", "gni"})
_ATL = ("mpi", "ofi")
_PRELOAD = "LD_PRELOAD"
_LOADER_VARIABLES = (_PRELOAD, "LD_LIBRARY_PATH")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedLibrary:
    """A library as the environment's Python loaded it; ``error`` is the loader's message, "" if it loaded."""

    name: str
    file: str
    error: str
    version: str = ""
    device: str = ""
    takes_gpu: bool | None = None
    providers: tuple[str, ...] = ()
    net_abis: tuple[int, ...] = ()
    tuner_abis: tuple[int, ...] = ()
    """The versions of NCCL's plugin interfaces that it has."""
    nccl: str = ""
    """The NCCL that PyTorch's library has loaded, "" if none."""


def load_libraries(subject: ExaminedStack, names: Sequence[str]) -> dict[str, LoadedLibrary]:
    """Load each library in the activated environment, with the caller's variables of the loader.

    All are in one process, in the order of the names: what one has loaded for itself, a later name finds. An
    environment without a Python, of libraries alone, is asked by this one's.

    Raises CommandError if the environment's Python cannot be run.
    """
    if subject.prefix is None:
        return {}
    python = subject.prefix / "bin" / "python"
    command = [str(python) if python.exists() else sys.executable, "-I", "-S", str(_PROBE), *names]
    result = run_command(command, env=subject.variables, timeout_s=_TIMEOUT_S)
    libraries = TypeAdapter(tuple[LoadedLibrary, ...]).validate_json(result.stdout.splitlines()[-1])
    return {library.name: library for library in libraries}


def find_mpi(subject: ExaminedStack) -> Iterator[Diagnosis]:
    """Which MPI a rank gets, whether it is the right one for the machine, and whether something starts its ranks."""
    name = mpi_library(subject.installed)
    library = load_libraries(subject, [name]).get(name)
    if library is None:
        return
    if library.error:
        fix = f"channel_tools env add {subject.prefix_word} --variant {subject.stack}, or load the site's MPI module"
        yield Diagnosis(subject="MPI library", level="fault", found=library.error, fix=fix)
        return
    yield _which_mpi(subject, library)
    yield from _fabric_of_mpi(subject, library)
    if mpiexec := shutil.which("mpiexec", path=subject.variables.get("PATH", "")):
        yield Diagnosis(subject="mpiexec", level="ok", found=mpiexec)
    else:
        fix = f"conda install -p {subject.prefix_word} mpich, or load the module that brings mpiexec"
        yield Diagnosis(subject="mpiexec", level="fault", found="not on the activated environment's PATH", fix=fix)


def mpi_library(installed: Mapping[str, str]) -> str:
    """The library of the ABI that the environment's programs are built for."""
    if " mpi_abi_" in installed.get("torch-mpi", ""):
        return STANDARD_MPI
    return OPEN_MPI if "openmpi" in installed else MPI


def _is_external(subject: ExaminedStack) -> bool:
    return "external" in subject.installed.get("mpich", "")


def _which_mpi(subject: ExaminedStack, library: LoadedLibrary) -> Diagnosis:
    description = f"{library.file}: {library.version}" + (f", {library.device}" if library.device else "")
    if library.takes_gpu is not None:
        description += f", {'takes' if library.takes_gpu else 'does not take'} CUDA memory"
    inside = subject.prefix is not None and os.path.realpath(library.file).startswith(
        os.path.realpath(subject.prefix) + os.sep
    )
    if not inside and not _is_external(subject):
        set_here = [name for name in _LOADER_VARIABLES if subject.variables.get(name)]
        message = f"the loader takes {description}, not the environment's ({', '.join(set_here) or 'no variable'} set)"
        fix = f"unset {' '.join(set_here)}" if set_here else f"conda install -p {subject.prefix_word} mpich"
        return Diagnosis(subject="MPI library", level="fault", found=message, fix=fix)
    if inside and _is_external(subject):
        message = f"{description}, although the site's MPI is expected in its place"
        return Diagnosis(
            subject="MPI library", level="fault", found=message, fix="export CRAY_MPICH_DIR=DIR, and activate again"
        )
    return Diagnosis(subject="MPI library", level="ok", found=description)


def _fabric_of_mpi(subject: ExaminedStack, library: LoadedLibrary) -> Iterator[Diagnosis]:
    """Whether MPI can use the machine's fabric adapter, if it has one."""
    adapters = fabric_adapters(subject.root)
    if has_slingshot(subject.root) and "cray" not in library.version.lower():
        fix = f"conda install -p {subject.prefix_word} 'mpich=*=external_cray*'"
        message = f"the machine has Slingshot, which {library.version} does not support: TCP would carry the data"
        yield Diagnosis(subject="MPI's fabric", level="fault", found=message, fix=fix)
    elif adapters:
        yield Diagnosis(
            subject="MPI's fabric", level="ok", found=f"{', '.join(adapters)}, by {library.device or 'MPI'}"
        )
    else:
        message = "no fabric adapter: shared memory inside this machine, TCP between machines"
        yield Diagnosis(subject="MPI's fabric", level="ok", found=message)


def find_switchml(subject: ExaminedStack) -> Iterator[Diagnosis]:
    """Whether the plugin's transport loads: the environment's, or the one that SWITCHML_LIBRARY names."""
    named = subject.variable("SWITCHML_LIBRARY")
    fix = "unset SWITCHML_LIBRARY" if named else f"conda install -p {subject.prefix_word} --force-reinstall libswitchml"
    yield from _loads(subject, named or SWITCHML, "SwitchML library", fix)


def find_oneccl(subject: ExaminedStack) -> Iterator[Diagnosis]:
    """Whether oneCCL loads, and which transport layer (ATL) and interface it is configured to use."""
    atl = subject.variable("CCL_ATL_TRANSPORT") or "mpi"
    if atl not in _ATL:
        message = f"CCL_ATL_TRANSPORT is {atl!r}, expected {' or '.join(_ATL)}"
        yield Diagnosis(subject="oneCCL's ATL", level="fault", found=message, fix="export CCL_ATL_TRANSPORT=mpi")
    else:
        yield Diagnosis(subject="oneCCL's ATL", level="ok", found=atl)
    interface = subject.variable("CCL_KVS_IFACE")
    if interface and not (subject.root / "sys/class/net" / interface).exists():
        message = f"CCL_KVS_IFACE is {interface!r}, which is not an interface of this machine"
        yield Diagnosis(subject="oneCCL's interface", level="fault", found=message, fix="export CCL_KVS_IFACE=lo")
    yield from _loads(subject, CCL, "oneCCL", f"conda install -p {subject.prefix_word} oneccl")
    if atl == "ofi":
        yield from find_providers(subject)
    else:
        yield from find_mpi(subject)


def find_nccl(subject: ExaminedStack) -> Iterator[Diagnosis]:
    """Which NCCL PyTorch loads, whether that can use the plugin, and the providers of the plugin's libfabric.

    Of RCCL and its plugin, for a stack of AMD's.
    """
    if is_for_amd(subject):
        libraries = load_libraries(subject, [RCCL, str(nccl_plugin(subject)), FABRIC])
        if plugin := libraries.get(str(nccl_plugin(subject))):
            yield _rccl_abis(subject, plugin, libraries[RCCL])
    else:
        torch = _torch_cuda(subject)
        if torch is not None:
            yield _nccl_of_torch(subject, torch)
        libraries = load_libraries(subject, [NCCL_PLUGIN, FABRIC])
        if plugin := libraries.get(NCCL_PLUGIN):
            yield _nccl_abis(subject, plugin, torch)
    if (wanted := subject.variable("NCCL_NET")) and wanted not in {"OFI", "AWS Libfabric"}:
        message = f"NCCL_NET is {wanted!r}: NCCL would not use the plugin"
        yield Diagnosis(subject="NCCL's network", level="fault", found=message, fix="unset NCCL_NET")
    if FABRIC in libraries:
        yield _providers(subject, libraries[FABRIC])


def is_for_amd(subject: ExaminedStack) -> bool:
    """Whether the stack's plugin is RCCL's."""
    return subject.settings.get("vendor") == "amd"


def nccl_plugin(subject: ExaminedStack) -> Path | None:
    """The file of the stack's plugin; None without an environment."""
    return (
        None
        if subject.prefix is None
        else subject.prefix / "lib" / (RCCL_PLUGIN if is_for_amd(subject) else NCCL_PLUGIN)
    )


def rocm_hint(prefix: Path) -> str:
    """What brings the site's ROCm, which RCCL and its plugin run on."""
    check = shlex.quote(str(prefix / "bin" / "rocm-external-check"))
    return f"load the site's module of ROCm, or export CHANNEL_ROCM_DIR=DIR; {check} says what it has found"


def _rccl_abis(subject: ExaminedStack, plugin: LoadedLibrary, rccl: LoadedLibrary) -> Diagnosis:
    """Whether the plugin loads, and which of its net ABIs the site's RCCL would use."""
    title, prefix = "RCCL's plugin", subject.prefix or Path()
    if plugin.error:
        is_of_fabric = plugin.error.startswith(FABRIC)
        fix = _fabric_fix(subject) if is_of_fabric else rocm_hint(prefix)
        return Diagnosis(subject=title, level="fault", found=plugin.error, fix=fix)
    has = PluginAbis(net=plugin.net_abis, tuner=plugin.tuner_abis)
    if not rccl.file:
        message = f"{plugin.file}: net ABIs {in_words(has.net)}; no {RCCL} to compare it with: {rccl.error}"
        return Diagnosis(subject=title, level="warning", found=message, fix=rocm_hint(prefix))
    try:
        shared = shared_net_abi(has, known_abis(Path(rccl.file)))
    except ValidationError as err:
        return Diagnosis(subject=title, level="fault", found=str(err), fix=err.hint or "")
    return Diagnosis(subject=title, level="ok", found=f"{plugin.file}: {rccl.file} uses its net ABI v{shared}")


def _torch_cuda(subject: ExaminedStack) -> LoadedLibrary | None:
    """PyTorch's library for CUDA, loaded: the one of ``import torch``, if the environment has one."""
    if subject.prefix is None:
        return None
    lib = subject.prefix / "lib"
    files = [*sorted(lib.glob(f"python3*/site-packages/torch/lib/{TORCH_CUDA}")), lib / TORCH_CUDA]
    found = next((str(file) for file in files if file.is_file()), None)
    if found is None:
        return None
    try:
        return load_libraries(subject, [found])[found]
    except CommandError as err:  # it is large: what its file system is slow to give is no fault of the environment
        return LoadedLibrary(name=found, file="", error=err.message)


def _own_nccl(subject: ExaminedStack) -> Path | None:
    own = None if subject.prefix is None else subject.prefix / "lib" / NCCL
    return own if own is not None and own.is_file() else None


def _nccl_of_torch(subject: ExaminedStack, torch: LoadedLibrary) -> Diagnosis:
    """Whether PyTorch loads the environment's NCCL, which its plugin was built for, or brings its own."""
    title, own = "PyTorch's NCCL", _own_nccl(subject)
    if torch.error:
        fix = f"{subject.prefix_word}/bin/python -c 'import torch'"
        return Diagnosis(subject=title, level="warning", found=f"not known: {torch.error}", fix=fix)
    if not torch.nccl:
        return Diagnosis(subject=title, level="ok", found=f"{torch.name} loads none: it has it inside, or has none")
    if own is None or os.path.realpath(own) == os.path.realpath(torch.nccl):
        return Diagnosis(subject=title, level="ok", found=torch.nccl)
    message = f"{torch.nccl}, by the search path of {torch.name}; not the environment's {own}"
    return Diagnosis(subject=title, level="warning", found=message, fix=preload_command(subject, own))


def preload_command(subject: ExaminedStack, library: Path | str) -> str:
    """The command that has the loader take a library before all others, and what is preloaded already."""
    path, before = Path(library), subject.variables.get(_PRELOAD)
    if " " in str(path):  # which separates the libraries, like a colon
        at_hand = f"DIR/{path.name}"
        link = f"ln -s {shlex.quote(str(path))} {at_hand}; {preload_command(subject, at_hand)}"
        return f"{link} (DIR: a folder without a space in its path)"
    return f"export {_PRELOAD}={shlex.quote(f'{path}:{before}' if before else str(path))}"


def _nccl_abis(subject: ExaminedStack, plugin: LoadedLibrary, torch: LoadedLibrary | None) -> Diagnosis:
    """Whether the plugin loads, and which of its net ABIs NCCL would use: PyTorch's, else the environment's."""
    title, own = "NCCL's plugin", _own_nccl(subject)
    if plugin.error:
        is_of_fabric = plugin.error.startswith(FABRIC)
        fix = _fabric_fix(subject) if is_of_fabric else f"conda install -p {subject.prefix_word} nccl-ofi"
        return Diagnosis(subject=title, level="fault", found=plugin.error, fix=fix)
    has = PluginAbis(net=plugin.net_abis, tuner=plugin.tuner_abis)
    nccl = Path(torch.nccl) if torch is not None and torch.nccl else own
    if nccl is None:
        message = f"{plugin.file}: net ABIs {in_words(has.net)}; no {NCCL} in the environment to compare it with"
        return Diagnosis(subject=title, level="ok", found=message)
    try:
        shared = shared_net_abi(has, known_abis(nccl))
    except ValidationError as err:
        return Diagnosis(subject=title, level="fault", found=str(err), fix=err.hint or "")
    return Diagnosis(subject=title, level="ok", found=f"{plugin.file}: NCCL uses its net ABI v{shared}")


def plugin_abis(subject: ExaminedStack, plugin: str) -> PluginAbis:
    """The interfaces of a plugin, as the environment's Python loads it. Raises ValidationError if it does not load."""
    library = load_libraries(subject, [plugin])[plugin]
    if library.error:
        raise ValidationError(library.error, hint=f"conda install -p {subject.prefix_word} nccl-ofi")
    return PluginAbis(net=library.net_abis, tuner=library.tuner_abis)


def find_providers(subject: ExaminedStack) -> Iterator[Diagnosis]:
    """libfabric's providers that work on this machine."""
    for library in load_libraries(subject, [FABRIC]).values():
        yield _providers(subject, library)


def _providers(subject: ExaminedStack, library: LoadedLibrary) -> Diagnosis:
    title, wanted = "libfabric", subject.variable("FI_PROVIDER")
    if library.error:
        return Diagnosis(subject=title, level="fault", found=library.error, fix=_fabric_fix(subject))
    shown = f"{library.file}: {', '.join(library.providers) or 'no provider'}"
    if wanted and not wanted.startswith("^") and not set(wanted.split(",")) & _bare(library.providers):
        message = f"FI_PROVIDER is {wanted!r}; working here: {', '.join(library.providers) or 'none'}"
        return Diagnosis(subject=title, level="fault", found=message, fix="unset FI_PROVIDER")
    if not _bare(library.providers) & _FAST_PROVIDERS:
        fix = f"load the adapter's driver, or use the site's libfabric: {preload_command(subject, f'DIR/{FABRIC}')}"
        return Diagnosis(subject=title, level="warning", found=f"{shown}; none is for a fabric", fix=fix)
    return Diagnosis(subject=title, level="ok", found=shown)


def _fabric_fix(subject: ExaminedStack) -> str:
    """What brings a libfabric that does not load: the site's, where that is to be taken."""
    if "external" in subject.installed.get("libfabric", ""):
        says = f"{subject.prefix_word}/bin/libfabric-external-check says what it has found"
        return f"load the site's module of libfabric, or export CHANNEL_LIBFABRIC_DIR=DIR; {says}"
    return f"conda install -p {subject.prefix_word} libfabric"


def _bare(providers: Sequence[str]) -> set[str]:
    """The providers without their layers: ``tcp;ofi_rxm`` is tcp."""
    return {name.partition(";")[0] for name in providers}


def _loads(subject: ExaminedStack, name: str, title: str, fix: str) -> Iterator[Diagnosis]:
    for library in load_libraries(subject, [name]).values():
        if library.error:
            yield Diagnosis(subject=title, level="fault", found=library.error, fix=fix)
        else:
            yield Diagnosis(subject=title, level="ok", found=library.file)


_NAME = re.compile(rb"nccl(Net|Tuner)Plugin_v([0-9]{1,2})\0")


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginAbis:
    """The versions of NCCL's plugin ABIs that a library has or knows, in ascending order."""

    net: tuple[int, ...]
    tuner: tuple[int, ...]


def known_abis(nccl: Path) -> PluginAbis:
    """The versions that a library of NCCL or RCCL knows. Raises ValidationError for a file that names none."""
    abis: dict[bytes, set[int]] = {b"Net": set(), b"Tuner": set()}
    with nccl.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for kind, number in _NAME.findall(content):
            abis[kind].add(int(number))
    if not abis[b"Net"]:
        message = f"{nccl}: names no ncclNetPlugin_v<number>: expected NCCL's library"
        raise ValidationError(message, hint="install nccl again")
    return PluginAbis(net=tuple(sorted(abis[b"Net"])), tuner=tuple(sorted(abis[b"Tuner"])))


def shared_net_abi(plugin: PluginAbis, nccl: PluginAbis) -> int:
    """The version that NCCL uses: the newest that both have. Raises ValidationError if there is none."""
    shared = set(plugin.net) & set(nccl.net)
    if not shared:
        message = (
            f"NCCL cannot use the plugin: it knows net ABIs {in_words(nccl.net)}, the plugin has {in_words(plugin.net)}"
        )
        raise ValidationError(
            message, hint="install an NCCL in the range that variants/nccl-ofi.yaml gives for this nccl-ofi"
        )
    return max(shared)


def in_words(versions: tuple[int, ...]) -> str:
    """``v6, v7``, or ``none``."""
    return ", ".join(f"v{version}" for version in versions) or "none"
