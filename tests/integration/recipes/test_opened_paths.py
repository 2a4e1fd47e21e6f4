# SPDX-License-Identifier: BSD-3-Clause
"""What the ranks of each stack look for outside their environment: nothing but what stands here with its reason.

Whoever can write where a library looks for plugins or settings decides what every rank does. The audit finds such
paths in files, as far as they are whole there; this finds what is looked for, also where a path is put together.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Protocol

import pytest

from channel_tools.environments import activated_environment
from channel_tools.matrix import find_stack, load_tree
from channel_tools.system.elf import GLIBC_LIBRARIES
from channel_tools.system.settings import Settings, Tree
from tests.integration.conftest import ROOT, build_into_output
from tests.support.stacks import build_from_upstream, install
from tests.support.switch import SUM_SCRIPT, SUMMED_BY_TWO, running_switch
from tests.support.traces import Traced, run_traced

pytestmark = [pytest.mark.integration, pytest.mark.slow]

OF_EVERY_SYSTEM = {
    "/dev": "the kernel's",
    "/proc": "the kernel's",
    "/sys": "the kernel's",
    "/dev/*": "the kernel's",
    "/proc/*": "the kernel's",
    "/sys/*": "the kernel's",
    "/etc/ld.so.cache": "the loader's",
    "/etc/ld.so.preload": "the loader's",
    "/etc/host.conf": "the C library: names of hosts",
    "/etc/hosts": "the C library: names of hosts",
    "/etc/nsswitch.conf": "the C library: names of hosts and users",
    "/etc/resolv.conf": "the C library: names of hosts",
    "/etc/gai.conf": "the C library: names of hosts",
    "/etc/passwd": "the C library: names of users",
    "/etc/group": "the C library: names of users",
    "/etc/services": "the C library: names of ports",
    "/etc/protocols": "the C library: names of protocols",
    "/etc/localtime": "the C library: the time zone",
    "/usr/share/zoneinfo/*": "the C library: the time zone",
    "/usr/lib/locale/*": "the C library: languages",
    "/usr/share/locale/*": "the C library: languages",
    "/usr/share/locale-langpack/*": "Debian's C library: languages",
    "/usr/lib/*/gconv/gconv-modules*": "the C library: character sets",
    "/usr/lib64/gconv/gconv-modules*": "the C library: character sets",
    "/bin/*": "a program of the system, by PATH",
    "/sbin/*": "a program of the system, by PATH",
    "/usr/bin/*": "a program of the system, by PATH",
    "/usr/sbin/*": "a program of the system, by PATH",
    "/nonexistent/*": "what a library had compiled in, made a name of nothing (foundation/repairs/elf.py)",
}
SWITCHML = {"/etc/switchml.cfg": "libswitchml: settings for a machine, which its administrator writes"}
HWLOC = {"/run/udev/data/*": "hwloc: what the machine's udev knows of its disks"}
OF_STACK: Mapping[str, Mapping[str, str]] = {
    "udp": {},
    "dummy": SWITCHML,
    "dpdk": SWITCHML,
    "cray-mpich": HWLOC,
    "openmpi": HWLOC,
    "mpi-abi": {
        **HWLOC,
        "/etc/mpich.conf": "MPICH: settings for a machine, which its administrator writes",
        "/tmp/hydra_hwloc_xmlfile_??????": "hydra: a new file of its own (mkstemp) with the cores of the machine",  # noqa: S108
    },
    "oneccl": HWLOC,
    "nccl-ofi": {**HWLOC, "/boot/config-*": "NVIDIA's runtime: what the kernel was built with"},
    "rdma": {**SWITCHML, "/etc/rdma/*": "librdmacm: numbers that the machine's administrator writes"},
    "accl": {},
    "torchvision": {},
    "python": {
        "/etc/inputrc": "readline: keys, which the machine's administrator chooses",
        "/etc/terminfo*": "ncurses: the machine's descriptions of terminals",
        "/usr/share/terminfo*": "ncurses: the machine's descriptions of terminals",
    },
    "grpc": {},
    "tools": {},
    "fabric-profile": {},
    "libfabric-external": {},
    "mpich-external": {
        "/opt/cray/*": "the site's Cray MPICH, which it is made to find",
        "/opt": "around the site's Cray MPICH",
    },
}
NOT_HERE: Mapping[str, str] = {
    "dpdk-mlx5": "dpdk with another driver; wants DPDK built with rdma-core",
    "dpdk-mlx4": "dpdk with another driver; wants DPDK built with rdma-core",
    "switchml-patched": "PyTorch 1.7.1 from source takes hours",
    "cray-mpich-patched": "PyTorch from source takes hours: test_pytorch_whole.py",
    "accl-cuda": "accl for CUDA's PyTorch",
    "accl-rocm": "accl for ROCm's PyTorch",
    "accl-xrt": "wants the site's XRT",
    "rccl-ofi": "wants the site's ROCm",
}
LOADERS_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
OF_GLIBC = (*GLIBC_LIBRARIES, "libnss_*.so.2", "libgcc_s.so.1")
"""libgcc_s: the C library itself opens it, for threads that are cancelled."""
_MPI_SUM = """
import torch, torch.distributed as dist
dist.init_process_group("mpi")
tensor = torch.tensor(dist.get_rank() + 1.0)
dist.all_reduce(tensor)
print(f"sum {tensor.item()}\\n", end="", flush=True)
dist.destroy_process_group()
"""
_CCL_SUM = (
    _MPI_SUM.replace("import torch,", "import os, oneccl_bindings_for_pytorch, torch,")
    # mpiexec gives ranks no RANK, which only the backend of MPI does without
    .replace('("mpi")', '("ccl", f"file://{os.getcwd()}/store", rank=int(os.environ["PMI_RANK"]), world_size=2)')
)
_MPI_VARIABLES = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
_MPI_VARIABLES |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Install(Protocol):
    """Installs a stack, or these specs, into a new environment."""

    def __call__(self, stack: str, *specs: str) -> Path: ...


def outside(found: set[str], missed: set[str], own: Sequence[Path], allowed: Mapping[str, str]) -> list[str]:
    """The paths that are neither below ``own`` nor allowed; what is asked of a folder around them is no finding."""
    folders = {str(path) for each in own for path in (each.absolute(), each.resolve())}
    around = {str(parent) for folder in folders for parent in PurePosixPath(folder).parents}

    def is_meant(path: str) -> bool:
        if path in around or any(path == folder or path.startswith(f"{folder}/") for folder in folders):
            return True
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in (*OF_EVERY_SYSTEM, *allowed)):
            return True
        pure = PurePosixPath(path)
        if any(pure.is_relative_to(folder) for folder in LOADERS_FOLDERS):
            # the loader looks last for every library by its name there; one that it finds is no part of a stack
            return path in missed or any(fnmatch.fnmatchcase(pure.name, name) for name in OF_GLIBC) or ".so" not in path
        # CPython looks for its prefix in every folder around its program (Modules/getpath.py)
        return path in missed and fnmatch.fnmatchcase(pure.name, "python3*.zip") and str(pure.parent.parent) in around

    return sorted(path for path in found | missed if not is_meant(path))


def variables_of(prefix: Path, folder: Path) -> dict[str, str]:
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8"}
    return activated_environment(prefix, environ=environ) | _MPI_VARIABLES | {"OMP_NUM_THREADS": "1"}


def judge(traced: Traced, stack: str, prefix: Path, folder: Path) -> None:
    assert traced.returncode == 0, traced.output
    assert any(path.startswith(f"{prefix}/lib/") for path in traced.found)
    assert outside(traced.found, traced.missed, [prefix, folder], OF_STACK[stack]) == []


@pytest.fixture(scope="module")
def installed(own_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Install:
    def install_stack(stack: str, *specs: str) -> Path:
        wanted = specs or find_stack(load_tree(own_settings.tree), stack).install
        prefix = tmp_path_factory.mktemp(stack, numbered=True) / "env"
        return install(own_settings, own_settings.channel, prefix, wanted)

    return install_stack


def test_ranks_of_udp(stack_channel: Path, installed: Install, tmp_path: Path) -> None:
    assert stack_channel.is_dir()
    prefix = installed("udp")
    (tmp_path / "sum.py").write_text(SUM_SCRIPT)
    with running_switch(prefix) as switch:
        command: list[str | Path] = [
            prefix / "bin" / "torchrun",
            "--nproc-per-node=2",
            "--standalone",
            "sum.py",
        ]
        variables = variables_of(prefix, tmp_path) | {"SWITCHML_CONTROLLER": switch.controller}
        traced = run_traced(command, folder=tmp_path, variables=variables)
    lines = [line for line in traced.output.splitlines() if "SwitchML's jobs" in line]
    assert lines == SUMMED_BY_TWO
    judge(traced, "udp", prefix, tmp_path)


def test_ranks_of_dummy(own_settings: Settings, installed: Install, tmp_path: Path) -> None:
    build_from_upstream(own_settings, "dummy", "libswitchml")
    prefix = installed("dummy", "torch-switchml", "libswitchml=*=dummy_h*")
    (tmp_path / "sum.py").write_text(SUM_SCRIPT)
    command: list[str | Path] = [prefix / "bin" / "torchrun", "--nproc-per-node=2", "--standalone", "sum.py"]
    variables = variables_of(prefix, tmp_path) | {"SWITCHML_CONTROLLER": "none"}
    judge(run_traced(command, folder=tmp_path, variables=variables), "dummy", prefix, tmp_path)


@pytest.mark.parametrize("stack", ["cray-mpich", "openmpi", "mpi-abi"])
def test_ranks_over_mpi(stack: str, installed: Install, tmp_path: Path) -> None:
    result = build_into_output("build", "--variant", stack)
    assert result.returncode == 0, result.stderr
    run_mpi(installed(stack), stack, _MPI_SUM, tmp_path)


def test_ranks_over_oneccl(own_settings: Settings, installed: Install, tmp_path: Path) -> None:
    build_from_upstream(own_settings, "oneccl", "torch-ccl")
    run_mpi(installed("oneccl"), "oneccl", _CCL_SUM, tmp_path)


def run_mpi(prefix: Path, stack: str, script: str, folder: Path) -> None:
    (folder / "sum.py").write_text(script)
    command: list[str | Path] = [prefix / "bin" / "mpiexec", "-n", "2", prefix / "bin" / "python", "sum.py"]
    traced = run_traced(command, folder=folder, variables=variables_of(prefix, folder))
    assert [line for line in traced.output.splitlines() if line.startswith("sum")] == ["sum 3.0"] * 2, traced.output
    judge(traced, stack, prefix, folder)


_LOADED: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "nccl-ofi": ("nccl-ofi", ("nccl-ofi=*=generic*static*", "python"), "ctypes.CDLL(prefix + '/lib/libnccl-net.so')"),
    "rdma": ("libswitchml", ("torch-switchml", "libswitchml=*=rdma_h*"), "import torch, torch_switchml; load()"),
    "dpdk": ("libswitchml", ("torch-switchml", "libswitchml=*=dpdk_h*"), "import torch, torch_switchml; load()"),
    "accl": ("torch-accl", ("torch-accl=*=cpu*", "accl=*=sim*"), "import torch, torch_accl"),
    "torchvision": ("torchvision-stock", (), "import torchvision; torchvision.ops.nms"),
    "python": ("python", (), "import ssl, sqlite3, lzma, bz2, readline; ssl.create_default_context()"),
    "grpc": ("grpc", ("libgrpc=*=source*", "python"), "ctypes.CDLL(prefix + '/lib/libgrpc++.so')"),
}
"""By stack: the package that is built, what is installed ("" the stack's own), and what Python then runs."""
_LOAD = "load = lambda: ctypes.CDLL(prefix + '/lib/libswitchml.so.1')"


@pytest.mark.parametrize("stack", _LOADED)
def test_what_is_loaded(stack: str, own_settings: Settings, installed: Install, tmp_path: Path) -> None:
    """Of stacks whose ranks want hardware, or that have none."""
    package, specs, code = _LOADED[stack]
    build_from_upstream(own_settings, stack, package)
    prefix = installed(stack, *specs)
    script = f"import ctypes, os; prefix = os.environ['CONDA_PREFIX']; {_LOAD}; {code}"
    command: list[str | Path] = [prefix / "bin" / "python", "-c", script]
    judge(run_traced(command, folder=tmp_path, variables=variables_of(prefix, tmp_path)), stack, prefix, tmp_path)


@pytest.mark.parametrize(
    ("stack", "specs", "script"),
    [
        ("fabric-profile", ("fabric-profile", "libzlib"), ". $CONDA_PREFIX/etc/conda/activate.d/*fabric-profile.sh"),
        ("mpich-external", ("mpich=*=external_cray*", "libzlib"), "mpich-external-check; test $? = 3"),
        (
            "libfabric-external",
            ("libfabric=*=external*", "libzlib"),
            "CHANNEL_LIBFABRIC_DIR=$CONDA_PREFIX/none libfabric-external-check; test $? = 3",
        ),
        ("tools", (), "channel_tools list --help > /dev/null"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_what_a_script_of_the_package_reads(
    stack: str, specs: tuple[str, ...], script: str, installed: Install, tmp_path: Path
) -> None:
    result = build_into_output("build", "--variant", stack)
    assert result.returncode == 0, result.stderr
    prefix = installed(stack, *specs)
    traced = run_traced(["sh", "-c", script], folder=tmp_path, variables=variables_of(prefix, tmp_path))
    assert traced.returncode == 0, traced.output
    assert outside(traced.found, traced.missed, [prefix, tmp_path], OF_STACK[stack]) == []


def test_no_stack_is_left_out() -> None:
    stacks = set(load_tree(Tree(root=ROOT)).stacks)
    assert stacks == OF_STACK.keys() | NOT_HERE.keys()
    assert not OF_STACK.keys() & NOT_HERE.keys()
    mpi = {"cray-mpich", "openmpi", "mpi-abi", "oneccl"}
    external = {"mpich-external", "libfabric-external"}
    assert OF_STACK.keys() == {*_LOADED, "udp", "dummy", *mpi, "fabric-profile", *external, "tools"}


def test_an_environment_that_is_not_activated(stack_channel: Path, installed: Install, tmp_path: Path) -> None:
    assert stack_channel.is_dir()
    prefix = installed("udp")
    code = "import ssl, torch; print(len(ssl.create_default_context().get_ca_certs()))"
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    traced = run_traced([prefix / "bin" / "python", "-c", code], folder=tmp_path, variables=variables)
    judge(traced, "udp", prefix, tmp_path)
    assert int(traced.output) > 0


def test_what_is_looked_for_elsewhere_is_found(tmp_path: Path) -> None:
    names = ["/opt/vendor/lib/libfabric", "/etc/vendor.conf", "/usr/lib/vendor/plugin.so", "/etc/hosts"]
    reads = "".join(f'test -e {name}; test -e "{tmp_path}/$$"; ' for name in names)
    command = ["sh", "-c", f"({reads}) & wait; . {tmp_path}/settings"]
    (tmp_path / "settings").write_text(": < /etc/passwd; cd /var/lib")
    traced = run_traced(command, folder=tmp_path, variables={"PATH": os.environ["PATH"]})
    assert {*names[:2], "/var/lib"} <= set(outside(traced.found, traced.missed, [tmp_path], {}))
    assert "/etc/hosts" in traced.found | traced.missed
    assert "/var/lib" not in outside(traced.found, traced.missed, [tmp_path], {"/var/lib": "meant here"})
    assert f"{tmp_path}/settings" in traced.found
