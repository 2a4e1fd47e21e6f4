# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import io
import zipfile

import pytest

from channel_tools.conda.archive import open_zip


def zipped(compression: int = zipfile.ZIP_STORED, names: tuple[str, ...] = ("a", "b")) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name in names:
            archive.writestr(name, b"0" * 100)
    return stream.getvalue()


def test_stored_members_are_read() -> None:
    archive = open_zip(io.BytesIO(zipped()))
    assert {name: archive.read(name) for name in archive.namelist()} == {"a": b"0" * 100, "b": b"0" * 100}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "too short"),
        (zipped()[:-1], "not a zip, is truncated or has bytes after its end"),
        (zipped() + b"more", "not a zip, is truncated or has bytes after its end"),
        (b"before" + zipped(), "header of its member|bytes before its first member|directory"),
        (zipped(zipfile.ZIP_DEFLATED), r"compressed \(deflate\)"),
        (zipped().replace(b"a" + b"0" * 100, b"c" + b"0" * 100, 1), "does not match its directory"),
        (zipped(names=tuple(f"{number}" * 90 for number in range(40))), "has a directory of"),
    ],
    ids=["empty", "cut", "after", "before", "compressed", "other name", "long directory"],
)
def test_bytes_that_belong_to_no_member_and_packed_members_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(zipfile.BadZipFile, match=message):
        open_zip(io.BytesIO(content))
