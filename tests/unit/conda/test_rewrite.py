# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import base64
import hashlib
import json
import struct
import tarfile
import zipfile
from typing import IO, TYPE_CHECKING

import pytest

from channel_tools.conda.archive import read_package, stream_component
from channel_tools.conda.metadata import PREFIX_PLACEHOLDER, PackageMetadata
from channel_tools.conda.rewrite import settle_package
from channel_tools.conda.writer import write_conda_package
from channel_tools.system.errors import IntegrityError
from tests.support.packages import conda_bytes, tar_zst

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

INDEX = {"name": "toy", "version": "1.0", "build": "h_0", "build_number": 0, "subdir": "linux-64", "depends": []}
STEM = "toy-1.0-h_0"
DATE_S = 1_600_000_000


def _part(files: Mapping[str, bytes], hour: int) -> bytes:
    """A part of a package whose members have the hour of its build."""
    members: dict[str, tuple[tarfile.TarInfo, bytes]] = {}
    for name, content in files.items():
        header = tarfile.TarInfo(name)
        header.mtime = hour + 0.5
        members[name] = header, content
    return tar_zst(members)


def _package(
    folder: Path,
    payload: Mapping[str, bytes],
    *,
    prefix: str,
    hour: int,
    ignored: str = "",
    lists: Mapping[str, bytes] | None = None,
) -> Path:
    """A package as an engine writes it: with the hour and the prefix of its build, which it ignores in one file.

    ``lists`` are further files of info/.
    """
    rows = [
        {"_path": name, "path_type": "hardlink", "sha256": hashlib.sha256(content).hexdigest()}
        | {"size_in_bytes": len(content)}
        | (
            {"prefix_placeholder": prefix, "file_mode": "text"}
            if prefix.encode() in content and name != ignored
            else {}
        )
        for name, content in payload.items()
    ]
    info = {
        "info/index.json": json.dumps(INDEX).encode(),
        "info/paths.json": json.dumps({"paths": rows, "paths_version": 1}).encode(),
        "info/about.json": b"{}",
    }
    folder.mkdir()
    path = folder / f"{STEM}.conda"
    path.write_bytes(conda_bytes(STEM, _part(payload, hour), _part(info | dict(lists or {}), hour)))
    return path


def _prefix(folder: str) -> str:
    return (folder + "_placehold" * 30)[:255]


def _settled(path: Path, *, threads: int = 1) -> bytes:
    settle_package(path, lambda _info: {}, date_s=DATE_S, threads=threads)
    return path.read_bytes()


def test_two_builds_in_other_folders_and_hours_give_the_same_bytes(tmp_path: Path) -> None:
    one, other = _prefix("/home/ada/build/"), _prefix("/scratch/b/")
    long = b"x" * ((1 << 20) - 100)  # the prefix lies across the border of two chunks
    first = _package(tmp_path / "a", {"p": long + one.encode() + b"/lib", "q": b"plain"}, prefix=one, hour=1)
    second = _package(tmp_path / "b", {"p": long + other.encode() + b"/lib", "q": b"plain"}, prefix=other, hour=2)

    assert _settled(first) == _settled(second, threads=3)

    assert read_package(first, contents=True).index == INDEX
    members = {
        member.name: (member.mtime, stream.read() if stream else b"")
        for member, stream in stream_component(first, "pkg")
    }
    expected = (PREFIX_PLACEHOLDER + "_placehold" * 3)[:255].encode()
    assert members == {"p": (DATE_S, long + expected + b"/lib"), "q": (DATE_S, b"plain")}


def test_a_package_has_no_header_that_releases_of_python_write_in_their_own_ways(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "p").write_bytes(b"plain")
    metadata = PackageMetadata(name="toy", version="1.0", build="h_0", subdir="linux-64", timestamp_ms=DATE_S * 1000)
    written = write_conda_package(tree, metadata, tmp_path / metadata.file_name).path
    settled = _package(tmp_path / "b", {"p": b"plain"}, prefix=_prefix("/b/"), hour=1)
    _settled(settled)
    for path in (written, settled):
        content = path.read_bytes()
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
        for entry in entries:
            version, *_, extra_bytes = struct.unpack_from("<4xHHHHHLLLHH", content, entry.header_offset)
            assert (version, extra_bytes) == (zipfile.DEFAULT_VERSION, 0), f"{path.name}: {entry.filename}"


def test_the_record_of_a_wheel_has_the_hashes_that_files_have_then(tmp_path: Path) -> None:
    prefix = _prefix("/b/")
    stale, name = "x" * 43, "site/toy-1.0.dist-info/RECORD"
    record = f"toy.py,sha256={stale},9\n../bin/toy,sha256={stale},9\ngone.py,sha256={stale},9\nRECORD,,\n".encode()
    payload = {name: record, "bin/toy": prefix.encode(), "site/toy.py": b"toy"}
    package = _package(tmp_path / "a", payload, prefix=prefix, hour=1)

    _settled(package)

    read_package(package, contents=True)
    found = {member.name: stream.read() for member, stream in stream_component(package, "pkg") if stream}
    expected = record.decode()
    for file in ("site/toy.py", "bin/toy"):
        digest = base64.urlsafe_b64encode(hashlib.sha256(found[file]).digest()).decode().rstrip("=")
        expected = expected.replace(stale, digest, 1)
    assert found[name].decode() == expected


@pytest.mark.parametrize("record", ["site/toy-1.0.dist-info/RECORD", "site/toy-1.0.dist-info/NO_RECORD"])
def test_files_that_are_left_out_are_in_no_list(tmp_path: Path, record: str) -> None:
    rows = b"toy.py,,\ntoy.pyc,,\nan toy.py,,\n"
    payload = {
        record: rows,
        "site/toy.py": b"toy",
        "site/toy.pyc": b"left",
        "site/an toy.py": b"left",
        "o": b"left",
        "o site/toy.pyc": b"",
    }
    lists = {
        "info/files": "\n".join(payload).encode() + b"\n",
        "info/has_prefix": b'/b text "site/toy.pyc"\n/b text o\n',
    }
    package = _package(tmp_path / "a", payload, prefix=_prefix("/b/"), hour=1, lists=lists)

    def leaves_out(name: str, content: IO[bytes]) -> bool:
        return name.startswith("site/") and content.read() == b"left"

    dropped = settle_package(package, lambda _info: {}, date_s=DATE_S, threads=1, leaves_out=leaves_out)

    assert dropped == ("site/an toy.py", "site/toy.pyc")
    read_package(package, contents=True)
    kept = {
        record: b"toy.py,,\n" if record.endswith("/RECORD") else rows,
        "site/toy.py": b"toy",
        "o": b"left",
        "o site/toy.pyc": b"",
    }
    found = {member.name: stream.read() for member, stream in stream_component(package, "pkg") if stream}
    assert found == kept
    written = {member.name: stream.read() for member, stream in stream_component(package, "info") if stream}
    assert written["info/files"].decode().split("\n")[:-1] == list(kept)
    assert written["info/has_prefix"] == b"/b text o\n"
    assert [row["_path"] for row in json.loads(written["info/paths.json"])["paths"]] == list(kept)


@pytest.mark.parametrize("ignored", ["p", "q"])
def test_files_of_the_same_content_may_become_different_ones(tmp_path: Path, ignored: str) -> None:
    prefix = _prefix("/b/")
    payload = {"p": prefix.encode(), "q": prefix.encode()}
    package = _package(tmp_path / "a", payload, prefix=prefix, hour=1, ignored=ignored)

    _settled(package)

    read_package(package, contents=True)
    found = {member.name: stream.read() for member, stream in stream_component(package, "pkg") if stream}
    assert [name for name, content in found.items() if content == payload[name]] == [ignored]


def test_other_content_stays_other(tmp_path: Path) -> None:
    prefix = _prefix("/b/")
    first = _package(tmp_path / "a", {"p": b"one"}, prefix=prefix, hour=1)
    second = _package(tmp_path / "b", {"p": b"two"}, prefix=prefix, hour=1)

    assert _settled(first) != _settled(second)


def test_a_prefix_too_short_for_a_placeholder_is_refused(tmp_path: Path) -> None:
    package = _package(tmp_path / "a", {"p": b"/short/lib"}, prefix="/short", hour=1)

    with pytest.raises(IntegrityError, match="a prefix of 6 bytes; expected 232 to 255"):
        _settled(package)


@pytest.mark.parametrize("filler_bytes", [0, 5 << 20], ids=["read from memory", "read forward"])
def test_a_record_that_needs_fewer_blocks_without_what_is_left_out(tmp_path: Path, filler_bytes: int) -> None:
    """The reader goes on after the RECORD that it read, not after the shorter one that is written."""
    left = f"site/{'x' * 90}.pyc"
    record = f"{left.removeprefix('site/')},,\n".encode() + b"toy.py,,\n" * 50
    assert len(record) // 512 > len(b"toy.py,,\n" * 50) // 512
    payload = {
        "site/toy-1.0.dist-info/RECORD": record,
        "site/filler": bytes(range(256)) * (filler_bytes // 256),
        "site/toy.py": b"toy",
        left: b"left",
    }
    package = _package(tmp_path / "a", payload, prefix=_prefix("/b/"), hour=1)

    dropped = settle_package(
        package, lambda _info: {}, date_s=DATE_S, threads=1, leaves_out=lambda name, _content: name == left
    )

    assert dropped == (left,)
    read_package(package, contents=True)
    found = {member.name: stream.read() for member, stream in stream_component(package, "pkg") if stream}
    assert found == {name: content for name, content in payload.items() if name != left} | {
        "site/toy-1.0.dist-info/RECORD": b"toy.py,,\n" * 50
    }
