# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.errors import DiskFullError
from channel_tools.files import (
    atomic_path,
    disk_full_reported,
    link_or_copy,
    remove_leftovers,
    sha256_of_file,
    write_text_atomically,
)


def test_failed_write_leaves_the_old_bytes_and_no_temporary(tmp_path: Path) -> None:
    target = tmp_path / "index.json"
    write_text_atomically(target, "old")
    with pytest.raises(FileNotFoundError), atomic_path(target) as temporary:
        temporary.with_name(str(temporary.write_text("half"))).read_text()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_folder_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    with atomic_path(target) as temporary:
        temporary.mkdir()
        (temporary / "a").write_text("1")
        assert not target.exists()
    assert (target / "a").read_text() == "1"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_is_named_as_such(tmp_path: Path, number: int) -> None:
    with pytest.raises(DiskFullError, match="no space left") as caught, disk_full_reported(tmp_path):
        raise OSError(number, os.strerror(number), str(tmp_path / "x"))
    assert caught.value.hint is not None


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), disk_full_reported(tmp_path):
        raise PermissionError(errno.EACCES, "denied")


def test_real_full_device_is_reported(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    with (
        pytest.raises(DiskFullError),
        disk_full_reported(tmp_path),
        full.open("wb", buffering=0) as stream,
    ):
        stream.write(b"x")


@given(st.binary(max_size=4096))
def test_sha256_agrees_with_hashlib(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("hash") / "f"
    path.write_bytes(content)
    assert sha256_of_file(path) == hashlib.sha256(content).hexdigest()


def test_link_shares_the_bytes_and_keeps_an_existing_file(tmp_path: Path) -> None:
    source = tmp_path / "a"
    source.write_text("1")
    link_or_copy(source, tmp_path / "sub" / "b")
    assert (tmp_path / "sub" / "b").samefile(source)
    other = tmp_path / "c"
    other.write_text("2")
    link_or_copy(source, other)
    assert other.read_text() == "2"


def test_copy_where_links_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.EXDEV, "cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    source = tmp_path / "a"
    source.write_text("1")
    link_or_copy(source, tmp_path / "b")
    assert (tmp_path / "b").read_text() == "1"
    assert not (tmp_path / "b").samefile(source)


def test_leftovers_are_only_our_own_names(tmp_path: Path) -> None:
    (tmp_path / ".tmp-abc").mkdir()
    (tmp_path / ".tmp-abc" / "x").write_text("1")
    (tmp_path / ".tmp-file").write_text("1")
    (tmp_path / "kept").write_text("1")
    assert len(remove_leftovers(tmp_path)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
