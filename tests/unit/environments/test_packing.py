# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import asyncio
import os
import stat
import tarfile
from typing import TYPE_CHECKING

import pytest

from channel_tools.environments import create_environment
from channel_tools.environments.packing import SUFFIXES, check_archive, pack_environment
from channel_tools.system.errors import UsageError
from channel_tools.system.progress import SilentProgress
from tests.unit.environments.toychannel import PREFIX_PLACEHOLDER, SUBDIR, ToyChannel

if TYPE_CHECKING:
    from pathlib import Path


def make_environment(folder: Path, channel: ToyChannel, *specs: str) -> Path:
    asyncio.run(create_environment(
        folder / "env", specs, [channel.address],
        package_cache=folder / "pkgs", subdir=SUBDIR, progress=SilentProgress(), virtual_packages=(),
    ))  # fmt: skip
    return folder / "env"


def test_an_archive_has_a_format_a_folder_and_a_new_name(tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        check_archive(tmp_path / f"env{suffix}", replace=False)
    with pytest.raises(UsageError, match="not the name of an archive"):
        check_archive(tmp_path / "env.rar", replace=False)
    with pytest.raises(UsageError, match=f"there is no folder {tmp_path / 'none'}"):
        check_archive(tmp_path / "none" / "env.tar", replace=False)
    (tmp_path / "env.tar").write_bytes(b"kept")
    with pytest.raises(UsageError, match="exists; nothing was written"):
        check_archive(tmp_path / "env.tar", replace=False)
    check_archive(tmp_path / "env.tar", replace=True)
    assert (tmp_path / "env.tar").read_bytes() == b"kept"


def test_a_file_of_two_packages_is_packed_once_as_it_is(tmp_path: Path) -> None:
    channel = ToyChannel(root=tmp_path / "channel")
    placed = f"#!{PREFIX_PLACEHOLDER}/bin/sh\n".encode()
    of_first = {"share/same": b"first", "share/text": b"first", "bin/run": placed, "share/equal": b"equal"}
    of_second = {"share/same": b"second", "share/text": placed, "bin/run": b"#!/bin/sh\n", "share/equal": b"equal"}
    channel.add("first", files=of_first, links={"lib/link": "../share/same"}, index=False)
    channel.add("second", files=of_second, links={"lib/link": "../share/text"})
    prefix = make_environment(tmp_path, channel, "first", "second")
    pack_environment(prefix, tmp_path / "env.tar", threads=1)
    with tarfile.open(tmp_path / "env.tar") as archive:
        names = archive.getnames()
        archive.extractall(tmp_path / "there", filter="tar")
    assert [name for name in names if names.count(name) > 1] == []
    for name in ("share/same", "share/text", "share/equal", "lib/link"):
        assert (tmp_path / "there" / name).read_bytes() == (prefix / name).read_bytes(), name
    assert (tmp_path / "there/lib/link").readlink() == (prefix / "lib/link").readlink()
    assert (tmp_path / "there/bin/run").read_bytes() == b"#!/usr/bin/env sh\n"


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_an_archive_is_readable_for_whom_the_umask_says(tmp_path: Path, umask: int, mode: int) -> None:
    channel = ToyChannel(root=tmp_path / "channel")
    channel.add("tool")
    prefix = make_environment(tmp_path, channel, "tool")
    previous = os.umask(umask)
    try:
        pack_environment(prefix, tmp_path / "env.tar", threads=1)
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "env.tar").stat().st_mode) == mode


def test_a_zip_file_that_cannot_have_a_link_says_what_can(tmp_path: Path) -> None:
    channel = ToyChannel(root=tmp_path / "channel")
    channel.add("library", files={"lib/library.so.1": b""}, index=False)
    channel.add("plugin", links={"lib/plugin.so": "library.so.1"}, depends=["library"])
    prefix = make_environment(tmp_path, channel, "plugin")
    with pytest.raises(UsageError, match="leads to a file of another package") as caught:
        pack_environment(prefix, tmp_path / "env.zip", threads=1)
    assert caught.value.hint == "pack it as a tar file: -o env.tar.gz"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["channel", "env", "pkgs"]
    pack_environment(prefix, tmp_path / "env.tar.gz", threads=1)
