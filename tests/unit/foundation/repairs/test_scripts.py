# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.commands import run_command
from channel_tools.errors import FoundationError
from channel_tools.foundation.repairs.scripts import drop_host_scripts, wrap_pkg_config
from tests.unit.foundation.repairs.trees import context, make_tree, tree_state

SAY_FOLDERS = '#!/bin/sh\necho "$PKG_CONFIG_LIBDIR"\n'


def test_config_scripts_and_perl_programs_go(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            "bin/demo-config": "#!/bin/sh\n",
            "bin/demo5-config": "-> demo-config",
            "bin/report": "#!/usr/bin/perl -w\n",
            "bin/kept": "#!/bin/sh\n",
            "bin/program": b"\x7fELF",
            "share/demo-config": "data",
        },
    )
    for name in ("bin/program",):
        (tmp_path / name).chmod(0o755)
    drop_host_scripts(tmp_path, context())
    assert sorted(path.name for path in (tmp_path / "bin").iterdir()) == ["kept", "program"]
    assert (tmp_path / "share/demo-config").exists()


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    root = make_tree(tmp_path / "env", {"bin/pkgconf": SAY_FOLDERS})
    wrap_pkg_config(root, context("pkg-config"))
    return root


def test_pkg_config_looks_into_its_environment_only(prefix: Path) -> None:
    said = run_command([prefix / "bin" / "pkg-config"], env={"PATH": "/usr/bin:/bin"}).stdout.strip()
    assert said == f"{prefix}/lib/pkgconfig:{prefix}/share/pkgconfig"


def test_in_a_build_the_host_prefix_comes_first(prefix: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "CONDA_BUILD": "1", "PREFIX": "/h"}
    said = run_command([prefix / "bin" / "pkg-config"], env=env).stdout.strip().split(":")
    assert said[:2] == ["/h/lib/pkgconfig", "/h/share/pkgconfig"]
    assert said[2:] == [f"{prefix}/lib/pkgconfig", f"{prefix}/share/pkgconfig"]


def test_the_users_choice_of_folders_stands(prefix: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "PKG_CONFIG_LIBDIR": "/mine"}
    assert run_command([prefix / "bin" / "pkg-config"], env=env).stdout.strip() == "/mine"


def test_without_pkgconf_there_is_nothing_to_wrap(tmp_path: Path) -> None:
    with pytest.raises(FoundationError, match="expected the program bin/pkgconf"):
        wrap_pkg_config(tmp_path, context("pkg-config"))
    assert tree_state(tmp_path) == {}
