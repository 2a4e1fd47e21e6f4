# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.foundation.repairs.scripts import (
    Setting,
    activate_certificates,
    bundle_certificates,
    drop_host_scripts,
    wrap_pkg_config,
    write_activation,
)
from channel_tools.foundation.repairs.toolchain import activate_binutils, activate_gcc, activate_gxx
from channel_tools.system.errors import FoundationError
from channel_tools.system.processes import run_command
from tests.support.trees import make_tree, tree_state
from tests.unit.foundation.repairs.trees import TRIPLE, context

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


SHELL_OPTIONS = "set -eu"


def sourced(tmp_path: Path, commands: str, env: dict[str, str]) -> list[str]:
    """What ``commands`` print in a strict POSIX shell; ``on`` and ``off`` source the scripts in ``tmp_path``."""
    scripts = tmp_path / "etc" / "conda"
    functions = "\n".join(
        f'{name}() {{ for script in "{scripts}/{kind}.d"/*.sh; do . "$script"; done; }}'
        for name, kind in (("on", "activate"), ("off", "deactivate"))
    )
    script = f"{SHELL_OPTIONS}\n{functions}\n{commands}"
    return run_command(["/bin/sh", "-c", script], env={"PATH": "/usr/bin:/bin", **env}).stdout.splitlines()


def test_a_variable_is_set_and_what_it_held_comes_back(tmp_path: Path) -> None:
    write_activation(tmp_path, "demo", [Setting(name="CC", value="$CONDA_PREFIX/bin/cc")], reason="Demo.")
    lines = sourced(tmp_path, 'on; echo "$CC"; off; echo "$CC"', {"CONDA_PREFIX": "/p", "CC": "my cc"})
    assert lines == ["/p/bin/cc", "my cc"]
    lines = sourced(tmp_path, 'on; off; echo "${CC-unset} ${CONDA_BACKUP_CC-unset}"', {"CONDA_PREFIX": "/p"})
    assert lines == ["unset unset"]


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_the_users_certificates_are_left_alone(tmp_path: Path, name: str) -> None:
    activate_certificates(tmp_path, context("openssl"))
    commands = f'on; echo "${{SSL_CERT_FILE-unset}}"; off; echo "${name}"'
    lines = sourced(tmp_path, commands, {"CONDA_PREFIX": "/p", name: "/mine"})
    assert lines == ["/mine" if name == "SSL_CERT_FILE" else "unset", "/mine"]


def test_the_environments_certificates_are_named_and_forgotten(tmp_path: Path) -> None:
    activate_certificates(tmp_path, context("openssl"))
    commands = 'on; echo "$SSL_CERT_FILE"; off; echo "${SSL_CERT_FILE-unset}"'
    assert sourced(tmp_path, commands, {"CONDA_PREFIX": "/p"}) == ["/p/ssl/cacert.pem", "unset"]


def test_what_the_user_changed_meanwhile_stays(tmp_path: Path) -> None:
    activate_certificates(tmp_path, context("openssl"))
    commands = 'on; SSL_CERT_FILE=/later; off; echo "$SSL_CERT_FILE"'
    assert sourced(tmp_path, commands, {"CONDA_PREFIX": "/p"}) == ["/later"]


def make_toolchain(tmp_path: Path) -> None:
    activate_binutils(tmp_path, context("binutils_linux-64"))
    activate_gcc(tmp_path, context("gcc_linux-64"))
    activate_gxx(tmp_path, context("gxx_linux-64"))


def test_a_build_compiles_for_its_host_prefix(tmp_path: Path) -> None:
    make_toolchain(tmp_path)
    env = {"CONDA_BUILD": "1", "CONDA_PREFIX": "/b", "BUILD_PREFIX": "/b", "PREFIX": "/h", "SRC_DIR": "/s"}
    env |= {"PKG_NAME": "demo", "PKG_VERSION": "1", "CFLAGS": "-DMINE"}
    names = ("CC", "CXX", "LD", "CFLAGS", "CPPFLAGS", "LDFLAGS", "CMAKE_ARGS", "HOST")
    lines = sourced(tmp_path, "on\n" + "\n".join(f'echo "${name}"' for name in names), env)
    found = dict(zip(names, lines, strict=True))
    assert (found["CC"], found["CXX"], found["LD"]) == tuple(f"/b/bin/{TRIPLE}-{one}" for one in ("cc", "c++", "ld"))
    assert found["HOST"] == TRIPLE
    assert "-isystem /h/include" in found["CFLAGS"]
    assert "-ffile-prefix-map=/s=/usr/local/src/conda/demo-1" in found["CFLAGS"]
    assert found["CFLAGS"].endswith(" -DMINE")
    assert "-Wl,-rpath,/h/lib" in found["LDFLAGS"].split()
    assert "-L/h/lib" in found["LDFLAGS"].split()
    assert f"-DCMAKE_FIND_ROOT_PATH=/h;/b/{TRIPLE}/sysroot" in found["CMAKE_ARGS"].split()
    assert f"-DCMAKE_AR=/b/bin/{TRIPLE}-ar" in found["CMAKE_ARGS"].split()


def test_outside_a_build_a_users_prefix_variable_means_nothing(tmp_path: Path) -> None:
    make_toolchain(tmp_path)
    commands = 'on; echo "$CFLAGS$LDFLAGS$CMAKE_ARGS"'
    text = sourced(tmp_path, commands, {"CONDA_PREFIX": "/env", "PREFIX": "/somewhere"})[0]
    assert "/env/lib" in text
    assert "/somewhere" not in text
    assert "prefix-map" not in text


def test_the_whole_toolchain_leaves_no_trace(tmp_path: Path) -> None:
    make_toolchain(tmp_path)
    env = {"CONDA_PREFIX": "/env", "CFLAGS": "-DMINE", "CXX": "my c++"}
    before = sourced(tmp_path, "env | sort", env)
    after = sourced(tmp_path, "on; off; env | sort", env)
    helpers = sourced(tmp_path, 'on; set | grep "^_ct_" || true', env)
    assert (after, helpers) == (before, [])


FOLDER = "share/ca-certificates/mozilla"


def certificate(number: int) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{number:04}\n-----END CERTIFICATE-----\n"


def test_certificates_are_joined_in_order(tmp_path: Path) -> None:
    make_tree(tmp_path, {f"{FOLDER}/{number:03}.crt": certificate(number) for number in range(60)})
    bundle_certificates(tmp_path, context("ca-certificates"))
    assert (tmp_path / "ssl/cacert.pem").read_text() == "".join(certificate(number) for number in range(60))
    assert (tmp_path / "ssl/cert.pem").readlink().as_posix() == "cacert.pem"


@pytest.mark.parametrize("contents", [{}, {f"{FOLDER}/{number}.crt": "no PEM" for number in range(60)}])
def test_too_few_or_other_files_are_an_error(tmp_path: Path, contents: dict[str, str | bytes]) -> None:
    make_tree(tmp_path, contents)
    with pytest.raises(FoundationError, match="expected at least 50 PEM certificates"):
        bundle_certificates(tmp_path, context("ca-certificates"))
