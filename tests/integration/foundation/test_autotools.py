# SPDX-License-Identifier: BSD-3-Clause
"""Autotools of the foundation work from wherever they are installed, without the host's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from channel_tools.environments import activated_environment
from channel_tools.system.processes import run_command
from channel_tools.system.settings import Settings
from tests.integration.conftest import ROOT, build_into_output
from tests.support.processes import TEST_TIMEOUT_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_TOOLS = ("autoconf", "automake", "libtool")
_CONFIGURE = """\
AC_INIT([toy], [1.0])
AC_CONFIG_AUX_DIR([build-aux])
AC_CONFIG_MACRO_DIRS([m4])
AM_INIT_AUTOMAKE([foreign -Wall -Werror])
AM_PROG_AR
LT_INIT([shared disable-static])
AC_PROG_CC
AC_CONFIG_HEADERS([config.h])
AC_CONFIG_FILES([Makefile])
AC_OUTPUT
"""
_MAKEFILE = """\
ACLOCAL_AMFLAGS = -I m4
lib_LTLIBRARIES = libtoy.la
libtoy_la_SOURCES = toy.c
bin_PROGRAMS = show
show_SOURCES = show.c
show_LDADD = libtoy.la
"""


@pytest.fixture(scope="module")
def prefix(own_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = build_into_output("foundation", "build", *(word for tool in _TOOLS for word in ("--with", tool)))
    assert result.returncode == 0, result.stderr
    place = tmp_path_factory.mktemp("autotools") / "env"
    driver = [sys.executable, "-m", "tests.integration.conda.clients", "create", str(own_settings.foundation)]
    driver += [str(own_settings.package_cache), str(place), *_TOOLS, "make", "gcc_linux-64"]
    run_command(driver, cwd=ROOT, timeout_s=TEST_TIMEOUT_S)
    return place


def test_a_libtool_project_is_made_and_built(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "m4").mkdir()
    (tmp_path / "configure.ac").write_text(_CONFIGURE)
    (tmp_path / "Makefile.am").write_text(_MAKEFILE)
    (tmp_path / "toy.c").write_text("int toy(void) { return 42; }\n")
    (tmp_path / "show.c").write_text('#include <stdio.h>\nint toy(void);\nint main(void) { printf("%d\\n", toy()); }\n')
    script = 'autoreconf -ivf && ./configure --prefix="$PWD/out" && make install && out/bin/show'
    done = run_command(
        ["bash", "-ec", script],
        cwd=tmp_path,
        env=activated_environment(prefix, environ=os.environ),
        timeout_s=TEST_TIMEOUT_S,
    )
    assert done.stdout.splitlines()[-1] == "42"
    assert (tmp_path / "out" / "lib" / "libtoy.so.0").exists()


def test_perl_has_its_own_modules_and_no_other(prefix: Path) -> None:
    shown = run_command([prefix / "bin" / "perl", "-MPOSIX", "-MStorable", "-e", 'print join("\\n", @INC, $^X)'])
    folders = [Path(line) for line in shown.stdout.splitlines()]
    assert [folder for folder in folders if folder.exists() and not folder.is_relative_to(prefix)] == []
    assert folders[-1] == prefix / "bin" / "perl"
