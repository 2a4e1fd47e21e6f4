# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from channel_tools.foundation.downloads import DownloadStore
from channel_tools.foundation.model import LockedArtifact
from channel_tools.system.errors import IntegrityError

if TYPE_CHECKING:
    from pathlib import Path


def _taken(content: bytes, *, size_bytes: int | None = None) -> LockedArtifact:
    return LockedArtifact(
        kind="deb",
        name="toy",
        version="1",
        file_name="toy_1_amd64.deb",
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content) if size_bytes is None else size_bytes,
    )


def test_an_accepted_file_is_no_longer_missing(tmp_path: Path) -> None:
    store, taken = DownloadStore(folder=tmp_path / "store"), _taken(b"hello")
    assert store.missing([taken]) == [taken]
    (tmp_path / "new").write_bytes(b"hello")
    path = store.accept(tmp_path / "new", taken)
    assert path == tmp_path / "store" / taken.sha256 / "toy_1_amd64.deb"
    assert store.missing([taken, _taken(b"hello", size_bytes=0)]) == []
    assert not (tmp_path / "new").exists()


def test_a_link_is_accepted_by_its_content_and_the_original_stays(tmp_path: Path) -> None:
    store, taken = DownloadStore(folder=tmp_path / "store"), _taken(b"hello")
    (tmp_path / "original").write_bytes(b"hello")
    (tmp_path / "link").symlink_to(tmp_path / "original")
    assert store.accept(tmp_path / "link", taken).read_bytes() == b"hello"
    assert not store.path_of(taken).is_symlink()
    assert (tmp_path / "original").is_file()


def test_other_bytes_are_refused_with_what_was_found_and_expected(tmp_path: Path) -> None:
    store, taken = DownloadStore(folder=tmp_path / "store"), _taken(b"hello")
    (tmp_path / "new").write_bytes(b"hell")
    with pytest.raises(IntegrityError, match=rf"got 4 bytes .* expected 5 bytes with sha256 {taken.sha256}"):
        store.accept(tmp_path / "new", taken)
    assert store.missing([taken]) == [taken]


@pytest.mark.parametrize("content", [b"hell", b"jello"], ids=["short", "other"])
def test_a_file_that_broke_in_the_store_is_removed_and_missing(tmp_path: Path, content: bytes) -> None:
    store, taken = DownloadStore(folder=tmp_path), _taken(b"hello")
    store.path_of(taken).parent.mkdir()
    store.path_of(taken).write_bytes(content)
    assert store.missing([taken]) == [taken]
    assert not store.path_of(taken).exists()
