# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from channel_tools.foundation.apt import host_sources
from channel_tools.system.errors import FoundationError, NetworkError
from tests.unit.foundation.registries import Registries, needs_apt

if TYPE_CHECKING:
    from pathlib import Path

ONE_LINE = """\
# deb http://mirror/debian bookworm main
deb [signed-by=/usr/share/keyrings/d.gpg arch=amd64] http://mirror/debian bookworm main contrib
deb-src http://mirror/debian bookworm main
deb http://security/debian-security bookworm-security main # fixes
deb http://elsewhere/apt stable main
"""
DEB822 = """\
Types: deb deb-src
URIs: http://mirror/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main
Signed-By: /usr/share/keyrings/d.gpg

Types: deb
URIs: http://elsewhere/node
Suites: nodistro
Components: main

Types: deb
Enabled: no
URIs: http://off/debian
Suites: bookworm
Components: main
"""


def _host(root: Path, *, one_line: str = "", deb822: str = "", codename: str = "bookworm") -> tuple[Path, Path]:
    (root / "sources.list.d").mkdir()
    (root / "sources.list").write_text(one_line)
    (root / "sources.list.d" / "debian.sources").write_text(deb822)
    (root / "os-release").write_text(f'ID=debian\nVERSION_CODENAME="{codename}"\n')
    return root, root / "os-release"


def test_only_the_hosts_debian_is_taken_from_one_line_sources(tmp_path: Path) -> None:
    etc, os_release = _host(tmp_path, one_line=ONE_LINE)
    text = host_sources("bookworm", etc=etc, os_release=os_release)
    assert text.count("Types: deb\n") == 2
    assert "URIs: http://mirror/debian\nSuites: bookworm\nComponents: main contrib\n" in text
    assert "Signed-By: /usr/share/keyrings/d.gpg" in text
    assert "elsewhere" not in text


def test_only_the_hosts_debian_is_taken_from_deb822_sources(tmp_path: Path) -> None:
    etc, os_release = _host(tmp_path, deb822=DEB822)
    text = host_sources("bookworm", etc=etc, os_release=os_release)
    assert "Suites: bookworm bookworm-updates\n" in text
    assert "elsewhere" not in text
    assert "off" not in text


def test_a_host_of_another_release_asks_its_mirror_for_the_tables_suite(tmp_path: Path) -> None:
    etc, os_release = _host(tmp_path, deb822=DEB822.replace("bookworm", "trixie"), codename="trixie")
    assert "Suites: bookworm bookworm-updates\n" in host_sources("bookworm", etc=etc, os_release=os_release)


def test_the_suite_that_is_never_released_has_no_updates_of_its_own(tmp_path: Path) -> None:
    text = "deb http://mirror/debian bookworm main\ndeb http://mirror/security bookworm-security main\n"
    etc, os_release = _host(tmp_path, one_line=text)
    assert host_sources("sid", etc=etc, os_release=os_release) == (
        "Types: deb\nURIs: http://mirror/debian\nSuites: sid\nComponents: main\n"
    )


def test_a_host_without_debian_sources_is_told_of_the_other_foundation(tmp_path: Path) -> None:
    etc, _ = _host(tmp_path, one_line="deb http://elsewhere/ubuntu jammy main\n")
    with pytest.raises(FoundationError, match="no Debian sources for this host or bookworm") as caught:
        host_sources("bookworm", etc=etc, os_release=tmp_path / "absent")
    assert "--foundation conda-forge" in str(caught.value.hint)


@needs_apt
def test_the_lists_tell_version_hash_and_size(registries: Registries) -> None:
    deb = registries.add_deb("toy", {"usr/a": "1"}, version="1.2-3")
    registries.sources.apt.update()
    found = registries.sources.apt.find(["toy", "absent"])
    assert sorted(found) == ["toy"]
    assert (found["toy"].version, found["toy"].size_bytes) == ("1.2-3", deb.stat().st_size)
    assert found["toy"].file_name == "toy_1.2-3_amd64.deb"
    assert registries.sources.apt.find(["toy=9"]) == {}
    assert registries.sources.apt.find(["absent"]) == {}


@needs_apt
def test_an_unreachable_mirror_is_a_network_error_that_names_it(registries: Registries) -> None:
    with pytest.raises(NetworkError, match=r"could not be fetched:\n.*127\.0\.0\.1") as caught:
        registries.unreachable().apt.update()
    assert "--foundation conda-forge" in str(caught.value.hint)


def test_a_host_without_apt_is_told_of_the_other_foundation(
    registries: Registries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(FoundationError, match="apt-get is not installed") as caught:
        registries.sources.apt.update()
    assert "--foundation conda-forge" in str(caught.value.hint)


@needs_apt
def test_the_hosts_hooks_and_state_are_left_alone(registries: Registries, tmp_path: Path) -> None:
    apt = replace(registries.sources.apt, state=tmp_path / "state")
    apt.update()
    configuration = (tmp_path / "state" / "apt.conf").read_text()
    assert "#clear APT::Update::Post-Invoke;" in configuration
    assert f'Dir::State::Lists "{tmp_path}/state/lists";' in configuration
