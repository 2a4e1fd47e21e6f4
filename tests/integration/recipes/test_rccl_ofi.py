# SPDX-License-Identifier: BSD-3-Clause
"""RCCL's plugin from upstream's sources, built on Debian's ROCm 5 in the place of a site's: looked at, never published.

In a tree of a site's own, which says that its ROCm is 5.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.elf import read_elf_file
from channel_tools.system.settings import Settings, make_settings
from tests.integration.conftest import BUILD_LIMIT_S, OUT_OF_REACH, ROOT
from tests.support.kept_builds import compiler_cache, kept_foundation
from tests.support.programs import folder_of_hip
from tests.support.stacks import install, sources_of
from tests.unit.doctor.test_nccl import NCCL_OF, compile_library
from tests.unit.validate.nccl.test_nccl_tests import WHOLE

pytestmark = [pytest.mark.integration, pytest.mark.slow]

HIP = {
    "hip_4.2": ("hipDriverGetVersion", "hipFree", "hipMalloc", "hipMemcpy", "hipRuntimeGetVersion"),
    "hip_5.0": ("hipPointerGetAttribute",),
}
"""What the plugin calls, by the versions of the symbols."""
OWN = "default_stack: own\nstacks: {own: {extends: rccl-ofi, description: ours}}\n"


def tool(site: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command in the site's tree."""
    options, environ = compiler_cache(os.environ) if words[0] == "build" else ([], dict(os.environ))
    command = [sys.executable, "-m", "channel_tools", *words, *options, "--root", str(site)]
    return subprocess.run(
        command, env=environ | variables, capture_output=True, text=True, check=False, timeout=BUILD_LIMIT_S
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    if missing := [source["urls"][0] for source in sources_of("rccl-ofi", "nccl-ofi") if not source["present"]]:
        pytest.skip(f"the source store lacks {missing}: `channel_tools sources fetch --variant rccl-ofi`")
    hip, root = folder_of_hip(), tmp_path_factory.mktemp("site")
    for name, text in {
        "site.yaml": f"upstreams: [{{name: theirs, path: {ROOT}}}]\n",
        "variants/stacks.yaml": OWN,
        "variants/rccl-ofi.yaml": 'rocm: ["5"]\n',
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    (root / "recipes").mkdir()
    assert tool(root, "upstream", "update").returncode == 0
    with kept_foundation(root / "output/foundation", os.environ):
        built = tool(root, "build", CHANNEL_ROCM_DIR=str(hip))
    if built.returncode in OUT_OF_REACH:
        pytest.skip(f"{OUT_OF_REACH[built.returncode]}: {built.stderr.splitlines()[-2:]}")
    assert built.returncode == 0, built.stderr
    return make_settings(root=root, output=None, environ=os.environ, cwd=root)


def test_the_plugin_is_rccls_and_runs_on_the_sites_rocm(site: Settings, tmp_path: Path) -> None:
    prefix = install(site, site.channel, tmp_path / "env", ["nccl-ofi=*=rocm5*"])
    for name in ("librccl-net.so", "librccl-net-ofi.so"):
        info = read_elf_file(prefix / "lib" / name)
        assert {"libamdhip64.so.5", "libfabric.so.1"} <= set(info.needed)
        assert not [library for library in info.needed if library.startswith(("libcuda", "libnccl"))]
        assert set(info.rpaths) <= {"$ORIGIN", "$ORIGIN/", "$ORIGIN/."}
    assert not [*prefix.glob("lib/libamdhip64*"), *prefix.glob("lib/libnccl-net*")]
    hip = folder_of_hip()
    variables = activated_environment(prefix, environ={**os.environ, "CHANNEL_ROCM_DIR": str(hip)}, inherit=True)
    assert variables["ROCM_PATH"] == str(hip)
    assert any(Path(folder, "libamdhip64.so.5").exists() for folder in variables["LD_LIBRARY_PATH"].split(":"))


def test_the_stack_is_validated_without_a_gpu_and_with_the_output_of_rccl_tests(site: Settings, tmp_path: Path) -> None:
    """On stand-ins for what a site's ROCm has; Debian's HIP loads much more than is unpacked here."""
    perf, rocm = tmp_path / "perf.txt", tmp_path / "rocm/lib"
    perf.write_text(WHOLE)
    script = tmp_path / "hip.map"
    script.write_text("".join(f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in HIP.items()))
    source = "".join(f"int {name}(void) {{ return 0; }}\n" for names in HIP.values() for name in names)
    compile_library(rocm / "libamdhip64.so.5", source, Path(f"-Wl,--version-script={script}"))
    compile_library(rocm / "libhsa-runtime64.so.1", "int hsa;\n")
    compile_library(rocm / "librccl.so.1", NCCL_OF.replace("WHOSE", "the site's").replace("ABI", "12"))
    validated = tool(site.tree.root, "validate", "--nccl-tests", str(perf), CHANNEL_ROCM_DIR=str(rocm.parent))
    assert validated.returncode == 0, validated.stderr
    report = json.loads((site.reports / "own.json").read_text())
    found = {check["name"]: check["found"] for check in report["checks"] if check["passed"]}
    assert len(found) == len(report["checks"])
    assert found["RCCL and the plugin share a net ABI"] == "v12"
    assert "nccl-tests found no wrong value" in found
    assert report["nccl_tests"]
    assert {case["reason"] for case in report["omitted"]} == {
        "the PyTorch that does them is the site's, not this stack's"
    }
    lacks = tool(site.tree.root, "validate", CHANNEL_ROCM_DIR=str(tmp_path))
    assert lacks.returncode == 10, lacks.stderr
    assert "libamdhip64.so.5" in lacks.stderr
    assert "export CHANNEL_ROCM_DIR=DIR" in lacks.stderr
    assert "Traceback" not in lacks.stderr


def test_a_build_without_rocm_says_what_it_needs(site: Settings, tmp_path: Path) -> None:
    (site.tree.variants / "rccl-ofi.yaml").write_text('rocm: ["7"]\n')
    built = tool(site.tree.root, "build", CHANNEL_ROCM_DIR=str(tmp_path))
    assert built.returncode != 0
    assert "This build needs the site's ROCm 7 with its headers on this machine" in built.stderr
    assert "Traceback" not in built.stderr
