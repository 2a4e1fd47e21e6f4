# SPDX-License-Identifier: BSD-3-Clause
"""What a process has loaded, by the loader itself, of libraries compiled as stand-ins; what is advised is done."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from channel_tools.doctor.loaded import find_loaded
from channel_tools.doctor.loaded_probe import read_loader_log
from channel_tools.doctor.model import Diagnosis, ExaminedStack
from tests.support.programs import program
from tests.unit.doctor.test_nccl import Wheels, applied, compile_library, wheels

__all__ = ["wheels"]

TORCH = """\
import ctypes
from pathlib import Path
__version__ = "2.13.0"
for name in ({names}):
    ctypes.CDLL(str(Path(__file__).parent / "lib" / name) if "/" not in name else name)
"""
CRAY = """
#include <string.h>
void MPI_Get_library_version(char *text, int *length) {
  strcpy(text, "MPI VERSION    : CRAY MPICH version 8.1.30");
  *length = 40;
}
"""


def import_torch(packages: Path, *names: str) -> None:
    """A PyTorch that loads these libraries."""
    (packages / "torch").mkdir(parents=True, exist_ok=True)
    (packages / "torch/__init__.py").write_text(TORCH.replace("{names}", "".join(f"{name!r}, " for name in names)))
    (packages / "torch/distributed.py").write_text("")


def findings(
    prefix: Path, variables: dict[str, str], *, backend: str = "nccl", root: Path = Path("/"), **installed: str
) -> dict[str, Diagnosis]:
    subject = ExaminedStack(
        stack="s",
        backend=backend,
        settings={},
        prefix=prefix,
        variables={"PYTHONPATH": str(prefix / "lib/python3.11/site-packages"), **variables},
        installed=installed,
        root=root,
    )
    return {one.subject: one for one in find_loaded(subject)}


def test_a_wheels_nccl_is_named_with_the_loaders_reason_and_the_cure_works(wheels: Wheels, tmp_path: Path) -> None:
    import_torch(wheels.packages, "libtorch_cuda.so")
    variables = {"LD_LIBRARY_PATH": str(wheels.own.parent), "PATH": os.environ["PATH"]}
    before = findings(wheels.prefix, variables)
    row = before["loaded: NCCL"]
    assert row.found.startswith(f"{wheels.of_the_wheel}; by RPATH from file {wheels.torch_cuda}")
    finding = before["the process's NCCL"]
    assert finding.level == "warning"
    assert "RPATH" in finding.found
    assert "searched before LD_LIBRARY_PATH" in finding.found

    after = findings(wheels.prefix, applied(finding.fix, variables, tmp_path))
    assert "the process's NCCL" not in after
    assert after["loaded: NCCL"].found.endswith("; by LD_PRELOAD")


def test_a_plugin_that_the_process_has_is_compared_with_its_nccl(wheels: Wheels, tmp_path: Path) -> None:
    plugin = str(wheels.prefix / "lib/libnccl-net.so")
    import_torch(wheels.packages, "libtorch_cuda.so", plugin)
    variables = {"LD_LIBRARY_PATH": str(wheels.own.parent), "PATH": os.environ["PATH"]}
    before = findings(wheels.prefix, variables)
    assert before["loaded: NCCL's plugin"].found.endswith("(dlopen)")
    assert before["the process's plugin"].level == "fault"
    assert "it knows net ABIs v9, the plugin has v6" in before["the process's plugin"].found
    after = findings(wheels.prefix, applied(before["the process's NCCL"].fix, variables, tmp_path))
    assert after["the process's plugin"].found.endswith(": net ABI v6")


def fabric_of(made: Path, *versions: str) -> None:
    """A libfabric with symbols of these versions; the plugin is linked with the newest."""
    script = made.with_suffix(".map")
    made.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("".join(f"{version} {{ global: of_{version.replace('.', '_')}; }};\n" for version in versions))
    source = "".join(f"int of_{version.replace('.', '_')}(void) {{ return 0; }}\n" for version in versions)
    words = ["-shared", "-fPIC", "-x", "c", "-", f"-Wl,--version-script={script}", "-Wl,-soname,libfabric.so.1"]
    subprocess.run([program("gcc"), *words, "-o", str(made)], input=source, text=True, check=True)


def test_a_libfabric_that_is_too_old_for_the_plugin_is_a_fault_and_the_cure_works(
    tmp_path: Path, wheels: Wheels
) -> None:
    own, old = wheels.prefix / "lib/libfabric.so.1", wheels.site / "libfabric.so.1"
    fabric_of(own, "FABRIC_1.0", "FABRIC_1.7")
    fabric_of(old, "FABRIC_1.0")
    plugin = wheels.prefix / "lib/libnccl-net.so"
    compile_library(
        plugin, "int of_FABRIC_1_7(void); int ncclNetPlugin_v6; int f(void) { return of_FABRIC_1_7(); }\n", own
    )
    import_torch(wheels.packages, str(old))
    variables = {"LD_LIBRARY_PATH": str(wheels.own.parent), "PATH": os.environ["PATH"]}
    finding = findings(wheels.prefix, variables)["libfabric's symbols"]
    assert finding.level == "fault"
    assert "needs FABRIC_1.7, and " in finding.found
    assert finding.found.endswith("has up to FABRIC_1.0: it is too old for the plugin")
    # the name is loaded already then, and the site's is not opened
    import_torch(wheels.packages, "libtorch_cuda.so", "libfabric.so.1")
    (wheels.packages / "torch/lib/libfabric.so.1").symlink_to(old)
    after = findings(wheels.prefix, applied(finding.fix, variables, tmp_path))["libfabric's symbols"]
    assert after.level == "ok"
    assert after.found.endswith("up to FABRIC_1.7")


@pytest.mark.parametrize(("device", "library"), [("nvidia0", "libmpi_gtl_cuda.so"), ("kfd", "libmpi_gtl_hsa.so")])
def test_a_cray_mpich_without_its_library_for_the_gpu_is_a_fault(
    tmp_path: Path, wheels: Wheels, device: str, library: str
) -> None:
    root, mpi = tmp_path / "root", wheels.site / "libmpi.so.12"
    (root / "dev").mkdir(parents=True)
    (root / "dev" / device).touch()
    compile_library(mpi, CRAY)
    compile_library(wheels.site / library, "int gtl;\n")
    import_torch(wheels.packages, str(mpi))
    variables = {"MPICH_GPU_SUPPORT_ENABLED": "1", "PATH": os.environ["PATH"]}
    before = findings(wheels.prefix, variables, root=root)
    assert "CRAY MPICH version 8.1.30" in before["loaded: MPI"].found
    finding = before["Cray MPICH's GTL"]
    assert (finding.level, f"{library} is not loaded" in finding.found) == ("fault", True)
    fix = finding.fix.partition(", or: ")[0]
    after = findings(wheels.prefix, applied(fix, variables, wheels.site), root=root)
    assert after["loaded: Cray MPICH's GTL"].found.endswith("by LD_PRELOAD")
    assert "Cray MPICH's GTL" not in after
    without = findings(wheels.prefix, {**variables, "MPICH_GPU_SUPPORT_ENABLED": "0"}, root=root)
    assert "Cray MPICH's GTL" not in without


def test_an_mpi_of_another_abi_is_a_fault(wheels: Wheels) -> None:
    mpi = wheels.site / "libmpi.so.40"
    compile_library(mpi, CRAY.replace("CRAY MPICH", "Open MPI"))
    import_torch(wheels.packages, str(mpi))
    finding = findings(wheels.prefix, {"PATH": os.environ["PATH"]}, backend="mpi", mpich="4.0 h0")["the process's MPI"]
    assert finding.level == "fault"
    assert finding.found.endswith("is libmpi.so.40, and the environment is built for libmpi.so.12")


def test_a_pytorch_that_cannot_be_imported_is_a_fault(wheels: Wheels) -> None:
    import_torch(wheels.packages, "/lost/libx.so")
    (only,) = findings(wheels.prefix, {"PATH": os.environ["PATH"]}).values()
    assert only.level == "fault"
    assert only.found.startswith("import torch: OSError: /lost/libx.so")


def test_an_environment_without_pytorch_is_not_probed(tmp_path: Path) -> None:
    assert findings(tmp_path, {}) == {}


def test_the_loaders_words_are_read() -> None:
    text = (
        "     7:\tfind library=liba.so [0]; searching\n"
        "     7:\t search path=/r/x:/r\t\t(RPATH from file /r/libmain.so)\n"
        "     7:\t  trying file=/r/x/liba.so\n"
        "     7:\t search path=/l\t\t(LD_LIBRARY_PATH)\n"
        "     7:\t  trying file=/l/liba.so\n"
        "     7:\tfind library=libb.so [0]; searching\n"
        "     7:\t search cache=/etc/ld.so.cache\n"
        "     7:\t  trying file=/usr/lib/libb-none.so\n"
        "     7:\tfile=/opt/libc-none.so [0];  dynamically loaded by /r/libmain.so [0]\n"
    )
    assert read_loader_log(text) == {
        "/r/x/liba.so": "by RPATH from file /r/libmain.so",
        "/l/liba.so": "by LD_LIBRARY_PATH",
        "/usr/lib/libb-none.so": "by /etc/ld.so.cache",
        "/opt/libc-none.so": "opened by /r/libmain.so (dlopen)",
    }
