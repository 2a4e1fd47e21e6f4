# SPDX-License-Identifier: BSD-3-Clause
"""Tiny tables, .debs and wheels, a folder that apt takes for a repository, and one that pip takes for an index."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import zstandard

from channel_tools.foundation.table import FoundationTable, load_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MTIME_S = 1_650_000_000
_AR_HEADER = "{name:<16}{mtime:<12}{uid:<6}{gid:<6}{mode:<8}{size:<10}`\n"


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member of a .deb's data archive that is not a plain file."""

    name: str
    kind: bytes = tarfile.REGTYPE
    target: str = ""
    content: bytes = b""
    mode: int = 0o644


_COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "xz": lzma.compress,
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


def write_deb(
    folder: Path,
    name: str,
    files: Mapping[str, str | bytes] | Sequence[Member],
    *,
    version: str = "1.0-1",
    data_name: str = "data.tar.xz",
) -> Path:
    """A .deb whose data archive holds ``files``."""
    members = [_plain(*item) for item in files.items()] if isinstance(files, Mapping) else files
    path = folder / f"{name}_{version}_amd64.deb"
    data = _data_archive(members)
    compressed = _COMPRESS.get(data_name.rpartition(".")[2], bytes)(data)
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": lzma.compress(_data_archive([])), data_name: compressed}
    with path.open("wb") as stream:
        stream.write(b"!<arch>\n")
        for part, content in parts.items():
            header = _AR_HEADER.format(name=part, mtime=0, uid=0, gid=0, mode="100644", size=len(content))
            stream.write(header.encode() + content + b"\n" * (len(content) % 2))
    return path


def _plain(name: str, content: str | bytes) -> Member:
    data = content.encode() if isinstance(content, str) else content
    return Member(name=f"./{name}", content=data, mode=0o755 if "/bin/" in name else 0o644)


def _data_archive(members: Sequence[Member]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member in members:
            info = tarfile.TarInfo(member.name)
            info.type, info.linkname, info.mode, info.mtime = member.kind, member.target, member.mode, MTIME_S
            info.size = len(member.content)
            tar.addfile(info, io.BytesIO(member.content))
    return buffer.getvalue()


def write_wheel(
    folder: Path,
    name: str,
    files: Mapping[str, str | bytes],
    *,
    version: str = "1.0",
    tag: str = "py3-none-any",
    requires: Sequence[str] = (),
    entry_points: str | None = None,
    record_changes: Mapping[str, str | None] | None = None,
) -> Path:
    """A wheel of ``files``; ``record_changes`` replaces hashes in its RECORD, or leaves lines out (None)."""
    stem = f"{name.replace('-', '_')}-{version}"
    dist_info = f"{stem}.dist-info"
    requirements = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    content: dict[str, str | bytes] = {
        **files,
        f"{dist_info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requirements}",
        f"{dist_info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    if entry_points is not None:
        content[f"{dist_info}/entry_points.txt"] = entry_points
    plain = {path: text.encode() if isinstance(text, str) else text for path, text in content.items()}
    hashes: dict[str, str | None] = {path: _record_hash(data) for path, data in plain.items()}
    hashes |= record_changes or {}
    lines = [f"{path},{value},{len(plain[path])}\n" for path, value in hashes.items() if value is not None]
    plain[f"{dist_info}/RECORD"] = ("".join(lines) + f"{dist_info}/RECORD,,\n").encode()
    wheel = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in plain.items():
            info = zipfile.ZipInfo(path, (2022, 5, 1, 12, 0, 0))
            info.external_attr = (0o755 if "/bin/" in path else 0o644) << 16
            archive.writestr(info, data)
    return wheel


def _record_hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def write_apt_repository(folder: Path) -> str:
    """Make apt's index of the .debs in ``folder`` and return the sources entry for it."""
    stanzas = []
    for path in sorted(folder.glob("*.deb")):
        name, version, _ = path.name.split("_")
        content = path.read_bytes()
        stanzas.append(
            f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody\nDescription: toy\n"
            f"Filename: ./{path.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
        )
    (folder / "Packages").write_text("\n".join(stanzas))
    return f"Types: deb\nURIs: file:{folder}\nSuites: ./\nTrusted: yes\n"


HEADER = 'suite: bookworm\npython: "3.11"\nglibc: "2.36"\nconda_names: {typing-extensions: typing_extensions}\n'


def write_table(folder: Path, rows: str, *, name: str = "table.yaml", header: str = HEADER) -> Path:
    """A table file with ``rows`` (YAML, not indented) below ``packages``."""
    path = folder / name
    indented = "".join(f"  {line}\n" for line in rows.strip().splitlines())
    path.write_text(f"{header}packages:\n{indented}")
    return path


def make_table(folder: Path, rows: str, *, header: str = HEADER) -> FoundationTable:
    """The table of ``rows``."""
    return load_table([write_table(folder, rows, header=header)], subdir="linux-64")
