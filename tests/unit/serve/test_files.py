# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
from pathlib import Path

import pytest

from channel_tools.serve.addresses import ChannelFile
from channel_tools.serve.files import FileCache

INDEX = ChannelFile(channel="ours", label="main", folder="noarch", name="repodata.json")
PACKAGE = ChannelFile(channel="ours", label="main", folder="noarch", name="a-1-0.conda")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "channels" / "ours" / "noarch").mkdir(parents=True)
    return tmp_path / "channels"


def put(root: Path, place: ChannelFile, content: bytes) -> Path:
    path = root.joinpath(*place.parts)
    path.write_bytes(content)
    return path


def test_what_was_replaced_is_seen_at_once(root: Path) -> None:
    files = FileCache(root)
    path = put(root, INDEX, b"one")
    first = files.find(INDEX)
    assert first is not None
    assert first.content == b"one"
    assert files.find(INDEX) is first
    new = path.with_name("new")
    new.write_bytes(b"two")
    os.utime(new, ns=(first.signature[2], first.signature[2]))  # same time, same length
    new.replace(path)
    second = files.find(INDEX)
    assert second is not None
    assert second.content == b"two"


def test_what_is_gone_is_gone(root: Path) -> None:
    files = FileCache(root)
    path = put(root, INDEX, b"one")
    assert files.find(INDEX) is not None
    path.unlink()
    assert files.find(INDEX) is None


def test_big_packages_are_not_kept_in_memory_and_small_ones_within_the_limit(root: Path) -> None:
    files = FileCache(root, memory_bytes=10_000)
    put(root, PACKAGE, bytes(1 << 20))
    big = files.find(PACKAGE)
    assert big is not None
    assert big.content is None
    assert big.size_bytes == 1 << 20
    places = [
        ChannelFile(channel="ours", label="main", folder="noarch", name=f"x{number}.json") for number in range(50)
    ]
    for place in places:
        put(root, place, bytes(1000))
        found = files.find(place)
        assert found is not None
        assert found.content == bytes(1000)
    assert files._used_bytes <= 10_000
    assert len(files._files) < 10


@pytest.mark.parametrize("kind", ["folder", "pipe", "link-out", "link-to-records", "folder-link-out"])
def test_what_is_no_file_of_the_channel_is_not_served(root: Path, tmp_path: Path, kind: str) -> None:
    path = root.joinpath(*INDEX.parts)
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (root / "ours" / ".channel_tools").mkdir()
    (root / "ours" / ".channel_tools" / "x").write_bytes(b"record")
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link-out":
        path.symlink_to(secret)
    elif kind == "link-to-records":
        path.symlink_to("../.channel_tools/x")
    else:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "repodata.json").write_bytes(b"x")
        (root / "ours" / "noarch").rmdir()
        (root / "ours" / "noarch").symlink_to(tmp_path / "elsewhere")
    assert FileCache(root).find(INDEX) is None


def test_a_channel_may_be_a_link_and_hold_links_inside(root: Path, tmp_path: Path) -> None:
    (tmp_path / "big-disk" / "noarch").mkdir(parents=True)
    (tmp_path / "big-disk" / "noarch" / "other.json").write_bytes(b"x")
    (tmp_path / "big-disk" / "noarch" / "repodata.json").symlink_to("other.json")
    (root / "ours" / "noarch").rmdir()
    (root / "ours").rmdir()
    (root / "ours").symlink_to(tmp_path / "big-disk")
    found = FileCache(root).find(INDEX)
    assert found is not None
    assert found.content == b"x"
