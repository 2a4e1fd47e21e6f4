# SPDX-License-Identifier: BSD-3-Clause
"""The native packages for real: made from Debian's, installed, and compiled with in a moved prefix."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.elf import read_elf_file
from channel_tools.system.processes import CommandResult, run_command
from channel_tools.system.settings import Settings
from tests.support.stacks import install

pytestmark = pytest.mark.integration

SPECS = ["gxx_linux-64", "pkg-config", "zlib", "mpich", "openssl"]
TEST_TIMEOUT_S = 600.0
MPI_PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank, one = 1, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d\n", sum);
  MPI_Finalize();
}
"""
CXX_PROGRAM = r"""
#include <iostream>
#include <stdexcept>
#include <vector>
#include <zlib.h>
int main() {
  try { std::vector<int>().at(1); } catch (const std::out_of_range &) { std::cout << zlibVersion() << " " << __FILE__; }
}
"""
LEAST_CERTIFICATES = 50
LEGACY_SETTINGS = """\
openssl_conf = settings
[settings]
providers = providers
[providers]
legacy = on
[on]
activate = 1
"""


class Environment:
    """An installed prefix that was moved from where it was installed."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.variables = activated_environment(prefix, environ=os.environ)

    def run(
        self, script: str, cwd: Path, *, check: bool = True, variables: Mapping[str, str] | None = None
    ) -> CommandResult:
        """Run shell commands with the environment activated."""
        env = self.variables | dict(variables or {})
        return run_command(["bash", "-ec", script], cwd=cwd, env=env, check=check, timeout_s=TEST_TIMEOUT_S)


@pytest.fixture(scope="module")
def environment(own_settings: Settings, stack_channel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """From the foundation that the stack was built on; test_main_job.py verifies all of it."""
    del stack_channel
    folder = tmp_path_factory.mktemp("foundation")
    install(own_settings, own_settings.foundation, folder / "env", SPECS)
    moved = folder / "moved" / "elsewhere"
    moved.parent.mkdir()
    return Environment((folder / "env").rename(moved))


def test_cxx_programs_are_compiled_for_the_prefix(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "a.cc").write_text(CXX_PROGRAM)
    command = "$CXX $CPPFLAGS $CXXFLAGS $LDFLAGS a.cc -o a $(pkg-config --cflags --libs zlib) && ./a"
    assert environment.run(command, tmp_path).stdout == "1.2.13 a.cc"
    assert f"{environment.prefix}/lib" in read_elf_file(tmp_path / "a").rpaths


def test_nothing_of_the_host_is_searched(environment: Environment, tmp_path: Path) -> None:
    shown = environment.run("$CXX -E -v -x c++ /dev/null 2>&1; $CXX -print-search-dirs", tmp_path).stdout
    included = shown.partition("search starts here:\n")[2].partition("End of search list")[0].splitlines()
    libraries = shown.partition("libraries: =")[2].split(":")
    folders = [Path(line.strip()) for line in included if line.startswith(" ")] + [Path(one) for one in libraries]
    assert len(folders) > 10
    assert [folder for folder in folders if not folder.is_relative_to(environment.prefix)] == []


def test_a_header_that_the_environment_lacks_is_not_found(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("#include <sqlite3.h>\n")
    refused = environment.run("$CC $CPPFLAGS -c a.c", tmp_path, check=False)
    assert refused.returncode == 1
    assert "sqlite3.h: No such file or directory" in refused.stderr


def test_a_build_leaves_no_path_of_its_own_behind(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "a.cc").write_text(CXX_PROGRAM)
    build = {"CONDA_BUILD": "1", "PREFIX": str(environment.prefix), "SRC_DIR": str(tmp_path), "PKG_NAME": "demo"}
    scripts = f'for script in "{environment.prefix}"/etc/conda/activate.d/*.sh; do . "$script"; done'
    clean = "unset CFLAGS CXXFLAGS CPPFLAGS LDFLAGS"
    environment.run(f"{clean}; {scripts}; $CXX -g $CXXFLAGS -c {tmp_path}/a.cc -o a.o", tmp_path, variables=build)
    content = (tmp_path / "a.o").read_bytes()
    assert b"/usr/local/src/conda/demo-0/a.cc" in content
    assert os.fsencode(tmp_path) not in content
    assert os.fsencode(environment.prefix) not in content


@pytest.mark.parametrize(("wrapper", "file"), [("mpicc", "m.c"), ("mpicxx", "m.cc")])
def test_mpi_programs_are_compiled_and_run(environment: Environment, tmp_path: Path, wrapper: str, file: str) -> None:
    (tmp_path / file).write_text(MPI_PROGRAM)
    assert environment.run(f"{wrapper} {file} -o m && mpiexec -n 2 ./m", tmp_path).stdout == "2\n"


def test_openssl_trusts_the_environments_certificates(environment: Environment, tmp_path: Path) -> None:
    assert environment.variables["SSL_CERT_FILE"] == f"{environment.prefix}/ssl/cacert.pem"
    subject = environment.run('openssl x509 -in "$SSL_CERT_FILE" -noout -subject', tmp_path).stdout
    assert subject.startswith("subject=")


def test_openssl_has_the_environments_certificates_and_settings_without_activation(
    own_settings: Settings, stack_channel: Path, tmp_path: Path
) -> None:
    del stack_channel
    prefix = tmp_path / "env"
    install(own_settings, own_settings.foundation, prefix, ["python", "openssl"])
    count = "import ssl; context = ssl.create_default_context(); print(context.cert_store_stats()['x509_ca'])"
    assert int(run_command([prefix / "bin/python", "-I", "-c", count], env={}).stdout) > LEAST_CERTIFICATES
    settings = prefix / "ssl" / "openssl.cnf"
    settings.unlink()  # it is a link to the package cache's file
    settings.write_text(LEGACY_SETTINGS)
    listed = run_command([prefix / "bin/openssl", "list", "-providers"], env={}).stdout
    assert "OpenSSL Legacy Provider" in listed
