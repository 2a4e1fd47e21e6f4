# SPDX-License-Identifier: BSD-3-Clause
"""NCCL beside its plugin, in an environment whose Python says what the loader would find, and by the loader itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from channel_tools.doctor.examine import examine
from channel_tools.doctor.libraries import FABRIC, NCCL_PLUGIN, find_nccl
from channel_tools.doctor.model import Diagnosis, ExaminedStack
from tests.support.programs import program
from tests.unit.validate.fakes import write_program


def found(prefix: Path, known: bytes, **variables: str) -> dict[str, Diagnosis]:
    """What is said, by subject, of a plugin with the net ABIs 6 and 7 beside an NCCL that holds these names."""
    loaded = {
        NCCL_PLUGIN: {"name": NCCL_PLUGIN, "file": "/env/lib/libnccl-net.so", "error": "", "net_abis": [6, 7]},
        FABRIC: {"name": FABRIC, "file": "/env/lib/libfabric.so.1", "error": "", "providers": ["cxi"]},
    }
    write_program(prefix / "bin/python", f"print({json.dumps([*loaded.values()])!r})\n")
    (prefix / "lib").mkdir()
    (prefix / "lib/libnccl.so.2").write_bytes(bytes(100) + known)
    subject = ExaminedStack(stack="toy", backend="nccl", settings={}, prefix=prefix, variables=variables, installed={})
    return {one.subject: one for one in find_nccl(subject)}


@pytest.mark.parametrize(
    ("known", "level", "text"),
    [
        pytest.param(b"ncclNetPlugin_v5\0ncclNetPlugin_v6\0", "ok", "NCCL uses its net ABI v6", id="fits"),
        pytest.param(
            b"ncclNetPlugin_v8\0ncclNetPlugin_v9\0",
            "fault",
            "NCCL cannot use the plugin: it knows net ABIs v8, v9, the plugin has v6, v7",
            id="none-in-common",
        ),
        pytest.param(b"", "fault", "names no ncclNetPlugin_v<number>", id="no-nccl"),
    ],
)
def test_the_net_abis_of_both_sides_are_compared(tmp_path: Path, known: bytes, level: str, text: str) -> None:
    finding = found(tmp_path, known)["NCCL's plugin"]
    assert (finding.level, text in finding.found) == (level, True)


def test_a_network_that_is_not_the_plugin_is_not_to_be_named(tmp_path: Path) -> None:
    """NCCL takes the plugin by itself, and must not be told to on one node, where Slingshot has no VNI for it."""
    findings = found(tmp_path, b"ncclNetPlugin_v6\0", NCCL_NET="Socket")
    assert (findings["NCCL's network"].level, findings["NCCL's network"].fix) == ("fault", "unset NCCL_NET")


NCCL_OF = """
const char *whose(void) { return "WHOSE"; }
const char *known[] = {"ncclNetPlugin_vABI"};
"""
PYTORCH = "extern const char *whose(void); const char *whose_nccl(void) { return whose(); }\n"
PLUGIN = "extern int fi_getinfo(void); int ncclNetPlugin_v6; int uses(void) { return fi_getinfo(); }\n"
# what the probe reads of struct fi_info and struct fi_fabric_attr
FABRIC_OF = """
static char info[256], fabric[64];
int fi_getinfo(int version, const char *node, const char *service, unsigned long flags, void *hints, void **found) {
  (void)version, (void)node, (void)service, (void)flags, (void)hints;
  *(char **)(fabric + 16) = "PROVIDER";
  *(char **)(info + 104) = fabric;
  *found = info;
  return 0;
}
"""


@dataclass(frozen=True, kw_only=True)
class Wheels:
    """An environment of conda's with PyTorch from a wheel, which brings an NCCL; and a site's libfabric."""

    prefix: Path
    site: Path

    @property
    def own(self) -> Path:
        return self.prefix / "lib/libnccl.so.2"

    @property
    def packages(self) -> Path:
        return self.prefix / "lib/python3.11/site-packages"

    @property
    def of_the_wheel(self) -> Path:
        return self.packages / "nvidia/nccl/lib/libnccl.so.2"

    @property
    def torch_cuda(self) -> Path:
        return self.packages / "torch/lib/libtorch_cuda.so"

    def findings(self, variables: dict[str, str]) -> dict[str, Diagnosis]:
        subject = ExaminedStack(
            stack="s", backend="nccl", settings={}, prefix=self.prefix, variables=variables, installed={}
        )
        return {one.subject: one for one in find_nccl(subject)}

    def loaded_by(self, variables: dict[str, str]) -> str:
        """Whose NCCL PyTorch's library uses, asked without doctor."""
        script = f"import ctypes; f = ctypes.CDLL({str(self.torch_cuda)!r}).whose_nccl; f.restype = ctypes.c_char_p"
        command = [sys.executable, "-I", "-S", "-c", script + "; print(f().decode())"]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.strip()


def compile_library(made: Path, source: str, *needed: Path, rpath: str = "") -> None:
    """A library with its file's name as its soname, and with DT_RPATH, which is what wheels and conda packages have."""
    made.parent.mkdir(parents=True, exist_ok=True)
    path = ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{rpath}"] if rpath else []
    command = [program("gcc"), "-shared", "-fPIC", "-Wall", "-Werror", "-x", "c", "-", "-x", "none", *map(str, needed)]
    command += [*path, f"-Wl,-soname,{made.name}", "-o", str(made)]
    subprocess.run(command, input=source, text=True, check=True)


@pytest.fixture(params=["env", "an env"], ids=["a plain path", "a path with a space"])
def wheels(request: pytest.FixtureRequest, tmp_path: Path) -> Wheels:
    made = Wheels(prefix=tmp_path / request.param, site=tmp_path / "site")
    write_program(
        made.prefix / "bin/python", "import os, sys\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
    )
    compile_library(made.own, NCCL_OF.replace("WHOSE", "the environment's").replace("ABI", "6"))
    compile_library(made.of_the_wheel, NCCL_OF.replace("WHOSE", "the wheel's").replace("ABI", "9"))
    compile_library(made.torch_cuda, PYTORCH, made.of_the_wheel, rpath="$ORIGIN/../../nvidia/nccl/lib")
    fabric = made.prefix / "lib/libfabric.so.1"
    compile_library(fabric, FABRIC_OF.replace("PROVIDER", "tcp"))
    compile_library(made.site / "libfabric.so.1", FABRIC_OF.replace("PROVIDER", "cxi"))
    compile_library(made.prefix / "lib/libnccl-net.so", PLUGIN, fabric, rpath="$ORIGIN")
    return made


def applied(fix: str, variables: dict[str, str], folder: Path) -> dict[str, str]:
    """The variables after a shell has run what doctor advises; ``folder`` is what it calls DIR."""
    lines = fix.partition(" (DIR: ")[0].replace("DIR", str(folder))
    result = subprocess.run(
        ["sh", "-ec", f"{lines}\nexec env -0"], env=variables, capture_output=True, text=True, check=True
    )
    return dict(line.split("=", 1) for line in result.stdout.split("\0") if line)


@pytest.mark.parametrize(
    ("abi", "level", "text"),
    [
        pytest.param("6", "ok", "librccl.so.1 uses its net ABI v6", id="fits"),
        pytest.param("9", "fault", "it knows net ABIs v9, the plugin has v6", id="none-in-common"),
        pytest.param("", "warning", "net ABIs v6; no librccl.so.1 to compare it with", id="no-rccl"),
    ],
)
def test_rccls_plugin_is_compared_with_the_sites_rccl_in_an_environment_without_python(
    tmp_path: Path, abi: str, level: str, text: str
) -> None:
    prefix, site, root = tmp_path / "env", tmp_path / "site", tmp_path / "root"
    compile_library(prefix / "lib/libfabric.so.1", FABRIC_OF.replace("PROVIDER", "cxi"))
    compile_library(prefix / "lib/librccl-net.so", PLUGIN, prefix / "lib/libfabric.so.1", rpath="$ORIGIN")
    if abi:
        compile_library(site / "librccl.so.1", NCCL_OF.replace("WHOSE", "the site's").replace("ABI", abi))
    subject = ExaminedStack(
        stack="s", backend="nccl", settings={"vendor": "amd"}, prefix=prefix, variables={"LD_LIBRARY_PATH": str(site)},
        installed={}, root=root,
    )  # fmt: skip
    (root / "dev").mkdir(parents=True)
    before = {one.subject: one for one in examine(subject)}
    assert (before["GPU"].level, before["GPU"].found) == ("fault", f"no {root}/dev/kfd")
    (root / "dev/kfd").touch()
    findings = {one.subject: one for one in examine(subject)}
    assert findings["GPU"].level == "ok"
    plugin = findings["RCCL's plugin"]
    assert (plugin.level, text in plugin.found) == (level, True), plugin
    assert findings["libfabric"].found.endswith(": cxi")


def test_what_is_advised_has_pytorch_load_the_environments_nccl(wheels: Wheels, tmp_path: Path) -> None:
    # by the first of these the test's Python finds the plugin, as conda's does by its rpath
    variables = {"LD_LIBRARY_PATH": str(wheels.own.parent), "PATH": os.environ["PATH"]}
    assert wheels.loaded_by(variables) == "the wheel's"
    before = wheels.findings(variables)
    finding = before["PyTorch's NCCL"]
    assert finding.level == "warning"
    assert finding.found.startswith(f"{wheels.of_the_wheel}, by the search path of {wheels.torch_cuda}; not ")
    assert str(wheels.own) in finding.found
    assert before["NCCL's plugin"].level == "fault"  # beside the NCCL that is loaded, not the environment's
    assert "it knows net ABIs v9, the plugin has v6" in before["NCCL's plugin"].found

    after = applied(finding.fix, variables, tmp_path)
    assert wheels.loaded_by(after) == "the environment's"
    findings = wheels.findings(after)
    assert findings["PyTorch's NCCL"].level == "ok"
    assert Path(findings["PyTorch's NCCL"].found).samefile(wheels.own)
    assert findings["NCCL's plugin"].found.endswith("NCCL uses its net ABI v6")


def test_what_is_advised_has_the_plugin_use_the_sites_libfabric(wheels: Wheels) -> None:
    paths = f"{wheels.site}:{wheels.own.parent}"
    variables = {"LD_LIBRARY_PATH": paths, "PATH": os.environ["PATH"]}
    finding = wheels.findings(variables)["libfabric"]
    assert (finding.level, finding.found) == (
        "warning",
        f"{wheels.own.parent}/libfabric.so.1: tcp; none is for a fabric",
    )
    fix = finding.fix.partition("use the site's libfabric: ")[2]
    after = wheels.findings(applied(fix, variables, wheels.site))["libfabric"]
    assert (after.level, after.found) == ("ok", f"{wheels.site}/libfabric.so.1: cxi")


def test_what_is_preloaded_already_stays_so(wheels: Wheels, tmp_path: Path) -> None:
    variables = {
        "LD_LIBRARY_PATH": str(wheels.own.parent),
        "LD_PRELOAD": str(wheels.site / "libfabric.so.1"),
        "PATH": os.environ["PATH"],
    }
    after = wheels.findings(applied(wheels.findings(variables)["PyTorch's NCCL"].fix, variables, tmp_path))
    assert [after[name].level for name in ("PyTorch's NCCL", "NCCL's plugin", "libfabric")] == ["ok"] * 3


@pytest.mark.parametrize("lost", ["own", "of_the_wheel", "torch_cuda"])
def test_an_environment_without_one_of_them_is_examined_as_it_is(wheels: Wheels, lost: str) -> None:
    getattr(wheels, lost).unlink()
    findings = wheels.findings({"LD_LIBRARY_PATH": str(wheels.prefix / "lib")})
    if lost == "own":
        assert (findings["PyTorch's NCCL"].level, findings["PyTorch's NCCL"].found) == ("ok", str(wheels.of_the_wheel))
    elif lost == "of_the_wheel":  # then it is found by the variable
        assert (findings["PyTorch's NCCL"].level, findings["PyTorch's NCCL"].found) == ("ok", str(wheels.own))
    else:
        assert "PyTorch's NCCL" not in findings
    assert findings["NCCL's plugin"].level == ("fault" if lost == "own" else "ok")
