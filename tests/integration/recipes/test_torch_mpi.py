# SPDX-License-Identifier: BSD-3-Clause
"""The stacks cray-mpich and openmpi on the registry foundation: built, installed, proven; their sources' tests.

One environment serves all that is asked of cray-mpich: the plugin's own tests in it, and ranks that channel_tools
validates. The build for Open MPI is the same sources compiled once more, so it is tested where minutes are given.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from channel_tools.doctor import examine, subject_of
from channel_tools.environments import activated_environment, installed_builds
from channel_tools.matrix import find_stack, load_tree
from channel_tools.system.processes import run_command
from channel_tools.system.settings import Settings
from channel_tools.workflow.launch import method_of
from tests.integration.conftest import ROOT, build_into_output
from tests.support.cray import make_cray
from tests.support.slow_device import VARIABLE, slow_device_library
from tests.support.slurm import running_slurm
from tests.support.stacks import DistributedRun, failed, install, install_pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STACK = "cray-mpich"
LIMIT_S = 600.0
_SUM = """
import sys, torch, torch.distributed as dist
dist.init_process_group("mpi")
tensor = torch.tensor(dist.get_rank() + 1.0)
dist.all_reduce(tensor)
if dist.get_rank() == 0:
    print("sum", tensor.item(), "by", sys.modules["torch_mpi"].stats()["library"]["path"])
"""
FEW: dict[str, object] = {"dtypes": ["int32"], "ops": ["SUM"], "ddp": False, "max_numel": 2000}


@pytest.fixture(scope="module")
def prefix(own_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = build_into_output("build", "--variant", STACK)
    assert result.returncode == 0, result.stderr
    prefix = tmp_path_factory.mktemp(STACK) / "env"
    return install(own_settings, own_settings.channel, prefix, ["pytorch-cray-mpich", "pip", "numpy"])


def test_the_plugin_keeps_pytorchs_promises(prefix: Path, tmp_path: Path) -> None:
    run_the_sources_tests(prefix, tmp_path)


def test_pytorchs_own_tests_pass_beside_them(prefix: Path, tmp_path: Path) -> None:
    run_the_sources_tests(prefix, tmp_path, "--pytorch-tests")


def test_the_plugin_keeps_them_over_open_mpi(own_settings: Settings, tmp_path: Path) -> None:
    result = build_into_output("build", "--variant", "openmpi")
    assert result.returncode == 0, result.stderr
    prefix = install(own_settings, own_settings.channel, tmp_path / "env", ["torch-mpi=*=openmpi*", "pip", "numpy"])
    run_the_sources_tests(prefix, tmp_path)
    run = DistributedRun(
        settings=own_settings, stack="openmpi", prefix=prefix, folder=tmp_path, few=FEW, limit_s=LIMIT_S
    )
    assert failed(run()) == set()


def run_the_sources_tests(prefix: Path, tmp_path: Path, *options: str) -> None:
    """Skips where pytest cannot be installed into the environment."""
    variables = activated_environment(prefix, environ=os.environ) | {VARIABLE: str(slow_device_library(prefix))}
    install_pytest(prefix)
    sources = tmp_path / "src"  # with room for byte code, which the clone's own are to be without
    shutil.copytree(
        ROOT / "recipes" / "torch-mpi" / "src", sources, ignore=shutil.ignore_patterns("__pycache__", ".*", "build")
    )
    # without a folder of its own, pytest removes what earlier runs left; with a short path, as sockets are in it
    with tempfile.TemporaryDirectory(prefix="pytest-") as folder:
        result = run_command(
            [prefix / "bin" / "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder}", *options],
            cwd=sources,
            env=variables,
            check=False,
            timeout_s=LIMIT_S,
        )
    assert result.returncode == 0, result.stdout
    assert re.search(r"\d+ passed", result.stdout)


def test_sruns_processes_are_ranks_of_one_world_or_an_error(prefix: Path) -> None:
    """A real Slurm of two nodes; with --mpi=none each process would train alone."""
    python, script = str(prefix / "bin" / "python"), str(ROOT / "recipes" / "torch-mpi" / "tests" / "allreduce.py")
    both = ("--nodes=2", "--ntasks=2", "--time=5", "--kill-on-bad-exit=1")
    with running_slurm() as slurm:
        slurm.run("srun", "--mpi=pmi2", *both, python, script)
        one_of_two = f"test $SLURM_PROCID = 1 || exec {python} {script}"
        with pytest.raises(subprocess.CalledProcessError) as refused:
            slurm.run("srun", "--mpi=none", *both, "sh", "-c", one_of_two)
    assert refused.value.stderr.count("Error: ") == 1
    assert "LaunchError: srun started 2 processes (SLURM_STEP_NUM_TASKS), but MPI" in refused.value.stderr
    assert "srun with the --mpi that fits" in refused.value.stderr


def test_the_sites_cray_mpich_carries_in_the_place_of_mpich(
    own_settings: Settings, prefix: Path, tmp_path: Path
) -> None:
    """The same packages but for mpich; the site's library and mpiexec are those of the other environment."""
    result = build_into_output("build", "--variant", "mpich-external")
    assert result.returncode == 0, result.stderr
    specs = ["pytorch-cray-mpich", "mpich=*=external_cray*"]
    external = install(own_settings, own_settings.channel, tmp_path / "env", specs)
    folder = make_cray(tmp_path / "site", "8.1.27", mpich=prefix)
    script = tmp_path / "sum.py"
    script.write_text(_SUM)
    site = {**os.environ, "CHANNEL_CRAY_PE_ROOT": str(tmp_path / "site")}
    done = run_command(
        [prefix / "bin" / "mpiexec", "-n", "2", external / "bin" / "python", script],
        env=activated_environment(external, environ=site),
        timeout_s=LIMIT_S,
    )
    assert done.stdout == f"sum 3.0 by {folder}/libmpi.so.12\n"


def test_the_package_alone_is_the_plugin(prefix: Path) -> None:
    names = [path.name for path in (prefix / "conda-meta").glob("*.json")]
    assert [name for name in names if name.startswith("pytorch-cray-mpich-") and "-plugin_py" in name]
    assert [name for name in names if name.startswith("mpich-") and "external" not in name]


@pytest.mark.parametrize(
    ("options", "not_passed"),
    [
        ({}, set()),
        (
            {"backend": "gloo"},
            {
                "the profiler saw every allreduce of the cases as mpi:all_reduce",
                "torch_mpi:carried_allreduces counted every allreduce of the cases as carried",
                "libmpi.so.12 is loaded from the environment alone",
            },
        ),
    ],
    ids=["mpi", "another backend is not taken for it"],
)
def test_validation_tells_who_carried(
    own_settings: Settings, prefix: Path, tmp_path: Path, options: dict[str, object], not_passed: set[str]
) -> None:
    run = DistributedRun(settings=own_settings, stack=STACK, prefix=prefix, folder=tmp_path, few=FEW, limit_s=LIMIT_S)
    assert failed(run(**options)) == not_passed


def test_doctor_names_what_keeps_mpi_from_its_ranks(own_settings: Settings, prefix: Path, tmp_path: Path) -> None:
    other = str(shutil.copy(prefix / "lib" / "libmpi.so.12", tmp_path))
    variables = activated_environment(prefix, environ=os.environ)
    stack = find_stack(load_tree(own_settings.tree), STACK)

    def faults(**changed: str) -> dict[str, str]:
        subject = subject_of(
            STACK, method_of(stack).backend(stack.validation), stack.validation, stack.install,
            prefix=prefix, variables={**variables, **changed}, installed=installed_builds(prefix),
        )  # fmt: skip
        return {one.subject: one.fix for one in examine(subject) if one.level == "fault"}

    assert faults() == {}
    assert faults(LD_PRELOAD=other) == {"MPI library": "unset LD_PRELOAD"}
    assert set(faults(PATH="/usr/bin:/bin")) == {"mpiexec"}
