# SPDX-License-Identifier: BSD-3-Clause
"""Reading one package for `foundation verify`: its files once, as a stream, with the findings that need no other.

Runs in a worker process. ELF files are held in memory while they are parsed, large ones in a temporary file.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from channel_tools.elf import ELF_MAGIC, ElfInfo, read_elf, search_folders
from channel_tools.errors import IntegrityError
from channel_tools.foundation.verify_model import Finding, Rule
from channel_tools.packages.model import split_file_name
from channel_tools.packages.reader import read_info_files, stream_component
from channel_tools.packages.texts import is_judged, leftover_paths

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_CHUNK_BYTES = 1 << 20
_MEMORY_BYTES = 32 << 20
_TEXT_BYTES = 4 << 20
_OBJECT_SUFFIXES = (".o", ".a")
_INFO = frozenset({"index.json", "paths.json", "link.json"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ElfFile:
    """What one ELF file of a package asks the loader for, and in which folders of the prefix it may look."""

    path: str
    soname: str | None
    needed: tuple[str, ...]
    folders: tuple[str, ...]
    symbol_versions: frozenset[str]


@dataclass(kw_only=True, slots=True)
class PackageScan:
    """Everything the rules about several packages want to know about one."""

    file_name: str
    subdir: str
    name: str
    index: dict[str, Any] = field(default_factory=dict)
    entry_points: tuple[str, ...] = ()
    files: set[str] = field(default_factory=set)
    links: dict[str, str] = field(default_factory=dict)
    elf: list[ElfFile] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def add(self, rule: Rule, file: str, message: str) -> None:
        """Note a finding."""
        self.findings.append(Finding(package=self.file_name, file=file, rule=rule, message=message))

    @property
    def paths(self) -> set[str]:
        """Files and links."""
        return self.files | self.links.keys()


def scan_package(path: Path, build_paths: Sequence[str]) -> PackageScan:
    """Read a package through. Damage ends the reading and becomes a finding, never an exception.

    ``build_paths`` are folders of this machine that no file of a package may name.
    """
    scan = PackageScan(file_name=path.name, subdir=path.parent.name, name=path.name)
    try:
        listed = _read_info(path, scan)
        _read_payload(path, scan, listed, [text.encode() for text in build_paths])
    except IntegrityError as err:
        scan.add(Rule.PACKAGE, "", err.message)
    return scan


def _read_info(path: Path, scan: PackageScan) -> dict[str, dict[str, Any]]:
    info = {name: _parsed(path, name, content) for name, content in read_info_files(path, _INFO).items()}
    for name in ("index.json", "paths.json"):
        if not isinstance(info.get(name), dict):
            raise IntegrityError(f"{path}: info/{name} is missing or no mapping")
    scan.index = info["index.json"]
    scan.name = str(scan.index.get("name"))
    noarch = info.get("link.json", {}).get("noarch", {})
    scan.entry_points = tuple(noarch.get("entry_points", ()))
    _check_index(path, scan)
    rows = info["paths.json"].get("paths", [])
    return {row["_path"]: row for row in rows if isinstance(row, dict) and isinstance(row.get("_path"), str)}


def _parsed(path: Path, name: str, content: bytes) -> Any:  # noqa: ANN401 - JSON of any shape
    try:
        return json.loads(content)
    except ValueError as err:
        raise IntegrityError(f"{path}: info/{name} is no JSON ({err})") from None


def _check_index(path: Path, scan: PackageScan) -> None:
    said = tuple(str(scan.index.get(key)) for key in ("name", "version", "build"))
    if said != split_file_name(path.name):
        scan.add(Rule.METADATA, "info/index.json", f"says {'-'.join(said)}, the file is named {path.name}")
    if scan.index.get("subdir") != scan.subdir:
        scan.add(Rule.METADATA, "info/index.json", f"says subdir {scan.index.get('subdir')}, lies in {scan.subdir}")


def _read_payload(path: Path, scan: PackageScan, listed: dict[str, dict[str, Any]], build_paths: list[bytes]) -> None:
    for member, stream in stream_component(path, "pkg"):
        if member.isdir():
            continue
        name = member.name
        if name in scan.paths:
            scan.add(Rule.METADATA, name, "is in the package twice")
        if member.issym() or member.islnk():
            _note_link(scan, member)
        elif stream is not None:
            scan.files.add(name)
            _read_file(scan, member, stream, listed.get(name), build_paths)
        else:
            scan.add(Rule.PACKAGE, name, "is neither a file nor a link")
    for name in sorted(listed.keys() - scan.paths):
        scan.add(Rule.METADATA, name, "is listed in paths.json but not in the package")
    for name in sorted(scan.paths - listed.keys()):
        scan.add(Rule.METADATA, name, "is in the package but not listed in paths.json")


def _note_link(scan: PackageScan, member: tarfile.TarInfo) -> None:
    target = member.linkname
    scan.links[member.name] = target
    if target.startswith("/"):
        scan.add(Rule.LINK, member.name, f"leads to the absolute path {target}")


def _read_file(
    scan: PackageScan, member: tarfile.TarInfo, stream: IO[bytes], row: dict[str, Any] | None, build_paths: list[bytes]
) -> None:
    with tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES) as held:
        digest, head, named = hashlib.sha256(), b"", set[bytes]()
        overlap = max((len(text) for text in build_paths), default=1) - 1
        keep = False
        tail = b""
        while chunk := stream.read(_CHUNK_BYTES):
            if not head:
                head = chunk
                keep = _is_kept(member, chunk)
            digest.update(chunk)
            named.update(text for text in build_paths if text in tail + chunk)
            tail = (tail + chunk)[-overlap:] if overlap else b""
            if keep:
                held.write(chunk)
        _check_row(scan, member, digest.hexdigest(), row)
        for text in sorted(named):
            scan.add(Rule.LEFTOVER, member.name, f"names {text.decode()}, a folder of the machine that made it")
        if keep and head.startswith(ELF_MAGIC):
            _note_elf(scan, member.name, cast("BinaryIO", held))
        elif keep:
            held.seek(0)
            _judge_text(scan, member, held.read())


def _is_kept(member: tarfile.TarInfo, head: bytes) -> bool:
    if head.startswith(ELF_MAGIC):
        return not member.name.endswith(_OBJECT_SUFFIXES)
    return member.size <= _TEXT_BYTES and is_judged(member.name, head, executable=bool(member.mode & 0o100))


def _check_row(scan: PackageScan, member: tarfile.TarInfo, sha256: str, row: dict[str, Any] | None) -> None:
    if row is None:
        return
    if row.get("size_in_bytes") != member.size:
        message = f"has {member.size} bytes, paths.json says {row.get('size_in_bytes')}"
        scan.add(Rule.METADATA, member.name, message)
    elif row.get("sha256") != sha256:
        scan.add(Rule.METADATA, member.name, f"has the sha256 {sha256}, paths.json says {row.get('sha256')}")


def _note_elf(scan: PackageScan, name: str, stream: BinaryIO) -> None:
    stream.seek(0)
    try:
        info = read_elf(stream, name=name)
    except IntegrityError as err:
        scan.add(Rule.ELF, name, err.message)
        return
    if not info.is_dynamic:
        return
    folders = search_folders(name, info.rpaths)
    for message in _bad_rpaths(info, folders):
        scan.add(Rule.RPATH, name, message)
    file = ElfFile(
        path=name, soname=info.soname, needed=info.needed, folders=folders, symbol_versions=info.symbol_versions
    )
    scan.elf.append(file)


def _bad_rpaths(info: ElfInfo, folders: tuple[str, ...]) -> Iterator[str]:
    for rpath, folder in zip(info.rpaths, folders, strict=True):
        if not rpath.startswith(("$ORIGIN", "${ORIGIN}")):
            yield f"has the rpath {rpath}, which is not relative to $ORIGIN"
        elif folder == ".." or folder.startswith("../"):
            yield f"has the rpath {rpath}, which leads out of the prefix"


def _judge_text(scan: PackageScan, member: tarfile.TarInfo, content: bytes) -> None:
    for line, found in leftover_paths(member.name, content.decode(errors="replace")):
        scan.add(Rule.LEFTOVER, member.name, f"line {line} names {found}")
