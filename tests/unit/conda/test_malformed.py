# SPDX-License-Identifier: BSD-3-Clause
"""Every kind of malformed package is refused by every reader of packages, by the one error and for the right reason."""

from __future__ import annotations

import io
import re
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import zstandard

from channel_tools.audit.model import PackageFacts
from channel_tools.audit.package import PackageReader
from channel_tools.audit.reading import Reader
from channel_tools.channel.publish import check_package
from channel_tools.conda.archive import open_zip, read_index_json, read_info_json, stream_component, visit_package
from channel_tools.serve.uploads.checks import check_digests
from channel_tools.system.errors import IntegrityError
from tests.support.malformed import FILE_NAME, KINDS, SUBDIR, info_part, packed, payload_part, sound, unpacks_to

_PROCESSOR_S = 10.0
"""Far more than any of them takes; what is read without a limit takes minutes."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / SUBDIR).mkdir()
    return tmp_path / SUBDIR / FILE_NAME


READERS: Mapping[str, Callable[[Path], object]] = {
    "the channel": check_package,
    "index": read_index_json,
    "paths": lambda path: read_info_json(path, "paths.json"),
    "digests": lambda path: check_digests([path]),
    "members": lambda path: [(one.name, stream and stream.read()) for one, stream in stream_component(path, "info")],
}


def said_by(reader: str, path: Path) -> str | None:
    """Why a reader refuses the package; None when it sees nothing wrong."""
    try:
        READERS[reader](path)
    except IntegrityError as err:
        return err.message
    return None


def _audited(path: Path) -> PackageFacts:
    visitor = PackageReader(path, Reader())
    try:
        visit_package(path, visitor)
    except IntegrityError as err:
        return visitor.facts(err)
    return visitor.facts()


@pytest.mark.parametrize("name", KINDS)
def test_a_malformed_package_is_refused_for_what_is_wrong_with_it(path: Path, name: str) -> None:
    kind = KINDS[name]
    path.write_bytes(kind.make())
    started_s = time.process_time()
    said = {reader: said_by(reader, path) for reader in READERS}
    audited = _audited(path)
    if not kind.audit_only:
        assert said["the channel"] is not None
        assert said["the channel"].startswith(f"{path}: ")
    assert audited.damage or audited.declared.faults
    for words in (*audited.damage, *audited.declared.faults, *(words for words in said.values() if words)):
        assert re.search(kind.said, words), words
        assert words.isprintable()
    assert time.process_time() - started_s < _PROCESSOR_S


def test_the_package_without_a_change_is_sound(path: Path) -> None:
    path.write_bytes(sound())
    check_package(path)
    assert _audited(path).damage == ()


class _Streamed(io.RawIOBase):
    """Somewhere that zips are written to without going back."""

    def __init__(self) -> None:
        self.content = b""

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(data)  # type: ignore[call-overload]
        self.content += piece
        return len(piece)


def test_a_zip_written_to_a_stream_is_read() -> None:
    """With sizes behind the members."""
    stream = _Streamed()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a", b"x")
        with archive.open("b", "w", force_zip64=True) as member:
            member.write(b"y" * 1000)
    assert open_zip(io.BytesIO(stream.content)).read("b") == b"y" * 1000


def test_what_is_unpacked_is_limited_by_what_is_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("channel_tools.system.tarstream._FREE_BYTES", 8 << 20)
    path.write_bytes(packed(payload=unpacks_to(64 << 20, "zeros"), info=info_part(paths=[{"_path": "zeros"}])))
    with pytest.raises(IntegrityError, match="unpacks to far more bytes"):
        check_package(path)
    monkeypatch.undo()
    check_package(path)  # as large as a library, it is none of our business
    monkeypatch.setattr("channel_tools.system.tarstream._MOST_BYTES", 1 << 20)
    with pytest.raises(IntegrityError, match="unpacks to far more bytes"):
        check_package(path)


def test_frames_without_content_cost_next_to_nothing(path: Path) -> None:
    skippable = b"\x50\x2a\x4d\x18" + bytes(4)
    path.write_bytes(packed(payload=(zstandard.compress(b"") + skippable) * 100_000 + payload_part()))
    started_s = time.process_time()
    check_package(path)
    assert time.process_time() - started_s < _PROCESSOR_S


def test_a_compressed_member_is_refused_unread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(KINDS["deflated bomb"].make())
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_arguments, **_named: pytest.fail("a member was read"))
    with pytest.raises(IntegrityError, match="is compressed"):
        check_package(path)
