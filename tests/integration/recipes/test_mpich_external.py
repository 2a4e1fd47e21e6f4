# SPDX-License-Identifier: BSD-3-Clause
"""The site's MPICH in the place of mpich: chosen only when asked for, and programs linked with mpich run on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.elf import read_elf_file
from channel_tools.system.processes import run_command
from channel_tools.system.settings import Settings
from tests.integration.conftest import ROOT, build_into_output
from tests.support.cray import make_cray
from tests.support.processes import TEST_TIMEOUT_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank, size, mine, sum = 0;
  Dl_info found;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  mine = rank + 1;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  dladdr((void *)MPI_Allreduce, &found);
  if (rank == 0) printf("%d ranks, sum %d, by %s\n", size, sum, found.dli_fname);
  MPI_Finalize();
}
"""


class Site:
    """Two environments of one channel, one with mpich and one with its stand-in, and a program built in the first."""

    def __init__(self, channel: Path, cache: Path, folder: Path) -> None:
        self.real, self.external = folder / "real", folder / "external"
        self.real_packages = self._install(channel, cache, self.real, "mpich", "gcc_linux-64")
        self.external_packages = self._install(channel, cache, self.external, "mpich=*=external_cray*")
        (folder / "allreduce.c").write_text(_PROGRAM)
        variables = activated_environment(self.real, environ=os.environ)
        # as a package of the channel: its library beside it, wherever it is installed
        command = "$CC -I$CONDA_PREFIX/include allreduce.c -L$CONDA_PREFIX/lib -lmpi -Wl,-rpath,'$ORIGIN/../lib' -o mpi"
        run_command(["bash", "-ec", command], cwd=folder, env=variables, timeout_s=TEST_TIMEOUT_S)
        self.program = self.external / "bin" / "allreduce"
        shutil.move(folder / "mpi", self.program)

    @staticmethod
    def _install(channel: Path, cache: Path, prefix: Path, *specs: str) -> list[str]:
        driver = [
            sys.executable,
            "-m",
            "tests.integration.conda.clients",
            "create",
            str(channel),
            str(cache),
            str(prefix),
        ]
        names: list[str] = json.loads(run_command([*driver, *specs], cwd=ROOT, timeout_s=TEST_TIMEOUT_S).stdout)
        return names

    def make_cray(self, root: Path, version: str) -> Path:
        """A Cray system's folders below ``root``, with the real library of MPICH in them, bound to its own folders."""
        return make_cray(root, version, mpich=self.real)

    def run(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run shell commands where the second environment is activated, with the first's mpiexec as the site's."""
        environ = {name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ}
        environ |= {
            "CONDA_PREFIX": str(self.external),
            "PATH": f"{self.external}/bin:/usr/bin:/bin",
            "CONDA_SHLVL": "1",
        }
        activate = 'for file in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do . "$file"; done\n'
        return subprocess.run(
            ["bash", "-euc", activate + script],
            env=environ | {"MPIEXEC": f"{self.real}/bin/mpiexec"} | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=TEST_TIMEOUT_S,
        )


@pytest.fixture(scope="module")
def site(own_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Site:
    result = build_into_output("build", "--variant", "mpich-external")
    assert result.returncode == 0, result.stderr
    return Site(own_settings.channel, own_settings.package_cache, tmp_path_factory.mktemp("site"))


def test_only_the_build_string_chooses_the_stand_in(site: Site) -> None:
    assert [name for name in site.real_packages if name.startswith("mpich-") and "external" in name] == []
    assert [name.rsplit("_h", 1)[0] for name in site.external_packages if name.startswith("mpich-")] == [
        "mpich-4.3.2-external_cray"
    ]
    assert list((site.external / "lib").glob("libmpi*")) == []


def test_a_program_linked_with_mpich_runs_on_the_sites(site: Site, tmp_path: Path) -> None:
    assert "libmpi.so.12" in read_elf_file(site.program).needed
    folder = site.make_cray(tmp_path, "8.1.27")
    done = site.run('"$MPIEXEC" -n 2 allreduce', CHANNEL_CRAY_PE_ROOT=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"2 ranks, sum 3, by {folder}/libmpi.so.12\n"


def test_the_check_reads_the_real_librarys_version(site: Site, tmp_path: Path) -> None:
    site.make_cray(tmp_path, "8.1.9")
    folder = site.make_cray(tmp_path, "8.1.27")
    done = site.run("mpich-external-check", CHANNEL_CRAY_PE_ROOT=str(tmp_path))
    assert f"library:      {folder}/libmpi.so.12." in done.stdout
    assert "version:      MPICH Version:\t4.0.2" in done.stdout
    assert "not taken:    " in done.stdout


def test_without_a_cray_mpich_there_is_one_clear_error(site: Site, tmp_path: Path) -> None:
    done = site.run(
        "mpich-external-check || echo code $?; allreduce || echo code $?", CHANNEL_CRAY_PE_ROOT=str(tmp_path)
    )
    assert done.stdout == "code 3\ncode 127\n"
    assert done.stderr.count("no Cray MPICH that this environment can use") == 2  # the activation's, and the check's
    assert "module load cray-mpich" in done.stderr
