# SPDX-License-Identifier: BSD-3-Clause
"""What a program's strings open on the machine."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from channel_tools.audit.host_paths import elf_paths, owner_of
from channel_tools.conda.metadata import BINARY_PLACEHOLDER
from channel_tools.system.elf import open_elf
from tests.unit.foundation.elf_files import shared_library


def paths_of(constants: bytes, *own: str) -> list[str]:
    stream = io.BytesIO(shared_library(constants=constants))
    return [found.text for found in elf_paths(stream, open_elf(stream), own=own)]


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/opt/openmpi/lib/libfabric",
            "/opt/%s/providers",
            "/usr/local/ssl/certs",
            "/usr/local",
            "/usr/etc/mpich.conf",
        ),
        *(
            "/usr/lib/libfabric",
            "/usr/lib64/libibverbs/x.so",
            "/usr/lib/x86_64-linux-gnu/hwloc",
            "/usr/libexec/toy/run",
        ),
        *("/home/builder/lib", "/root/.toyrc", "/srv/toy", "/mnt/nfs/toy", "/sw/lib/x", "/etc/../opt/x"),
    ],
)
def test_what_is_loaded_from_there_is_a_sites(path: str) -> None:
    assert owner_of(path) == "site"


@pytest.mark.parametrize(
    "path",
    ["/etc/toy.conf", "/usr/share/toy", "/usr/include", "/var/lib/toy", "/usr/lib/x86_64-linux-gnu", "/usr/lib/a.so"],
)
def test_what_only_root_writes_is_the_hosts(path: str) -> None:
    assert owner_of(path) == "host"


@pytest.mark.parametrize(
    "path",
    [
        *("/dev/shm/x", "/proc/self/maps", "/sys/class/net/%s", "/tmp/toy-XXXXXX", "/run/user/%i/x", "/etc/hosts"),  # noqa: S108
        *("/bin/sh", "/usr/bin/ssh", "/usr/local/bin", "/lib64/ld-linux-x86-64.so.2", "/usr/share/zoneinfo/UTC"),
        *("/proc/0//////etc/ucx", "/opt/build/src/toy.cpp", "/home/builder/include/x.hpp"),
        "/root/.cargo/registry/src/x/tuple.rsPython",
    ],
)
def test_what_every_system_has_and_names_of_sources_are_meant(path: str) -> None:
    assert owner_of(path) == "system"


@pytest.mark.parametrize("text", ["/CMakeFiles/x", "/api/v1", "/0", "/lib", "/share/toy"])
def test_the_end_of_a_longer_name_is_no_path(text: str) -> None:
    assert owner_of(text) in {None, "system"}


@pytest.mark.parametrize(
    ("constants", "found"),
    [
        (b"/opt/a/b", ["/opt/a/b"]),
        (b"x\0/opt/a/b\0", ["/opt/a/b"]),
        (b"\0lib:/opt/a;/opt/b:\0", ["/opt/a", "/opt/b"]),
        (b"\0DIR=/opt/a\0", ["/opt/a"]),
        (b"\0/opt/a/run --fast\0", ["/opt/a/run"]),
        (b"\0/opt/a\0/opt/a\0", ["/opt/a"]),
        (b"\0see the pages below /opt/a\0", []),
        (b"\0lib/opt/a\0%s/opt/a\0${HOME}/opt/a\0", []),
        (b"\0/opt/a\x80\0", []),
    ],
    ids=["alone", "string", "list", "setting", "command", "twice", "sentence", "end-of-a-name", "no-text"],
)
def test_a_path_is_a_string_or_an_element_of_one(constants: bytes, found: list[str]) -> None:
    assert paths_of(constants) == found


@pytest.mark.parametrize("own", [BINARY_PLACEHOLDER, "/opt/envs/toy"], ids=["placeholder", "installed"])
def test_the_prefix_is_no_path_of_the_machine(own: str) -> None:
    assert paths_of(f"\0{own}/lib/toy\0{own}\0{own}s/lib\0".encode(), own) == [f"{own}s/lib"]


def test_a_large_file_is_read_in_place(tmp_path: Path) -> None:
    library = tmp_path / "libtoy.so"
    library.write_bytes(shared_library(constants=bytes(9 << 20) + b"/opt/a\0"))
    with library.open("rb") as stream:
        assert [found.text for found in elf_paths(stream, open_elf(stream), own=())] == ["/opt/a"]
        assert stream.read(0) == b""
