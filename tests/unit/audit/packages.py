# SPDX-License-Identifier: BSD-3-Clause
"""Packages as a build engine leaves them, sound or spoiled in one way."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.packages import write_conda

BUILD = "h0123456_0"
BUILD_FOLDER = "/srv/builder/out/bld/toy"
HOST_PREFIX = f"{BUILD_FOLDER}/bld/rattler-build_toy/host_env" + "_placehold" * 24


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A member of the payload: bytes with a mode, or a link."""

    content: bytes = b""
    mode: int = 0o644
    link: str = ""
    kind: bytes = tarfile.REGTYPE
    placeholder: str = ""
    file_mode: str = "text"

    def header(self, name: str) -> tarfile.TarInfo:
        """Its header in the payload, without a size."""
        header = tarfile.TarInfo(name)
        header.mode, header.linkname = self.mode, self.link
        header.type = tarfile.SYMTYPE if self.link else self.kind
        return header


Files = Mapping[str, bytes | Entry]


@dataclass(frozen=True, kw_only=True)
class Toy:
    """A package to write."""

    files: Files = field(default_factory=dict)
    name: str = "toy"
    version: str = "1.0"
    subdir: str = "linux-64"
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    info: Mapping[str, bytes] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        """The package file in ``folder/subdir``."""
        stem = f"{self.name}-{self.version}-{BUILD}"
        payload = {
            name: entry if isinstance(entry, Entry) else Entry(content=entry) for name, entry in self.files.items()
        }
        members = {name: (entry.header(name), entry.content) for name, entry in payload.items()}
        return write_conda(folder / self.subdir / f"{stem}.conda", members, self._info(payload))

    def _info(self, payload: Mapping[str, Entry]) -> dict[str, object]:
        index = {"name": self.name, "version": self.version, "build": BUILD, "build_number": 0, "subdir": self.subdir}
        index |= {"depends": list(self.depends), "constrains": list(self.constrains)}
        values = {
            "index.json": index,
            "about.json": {"extra": self.extra},
            "paths.json": {"paths": [_row(name, entry) for name, entry in payload.items()], "paths_version": 1},
        }
        return values | dict(self.info)


def index_json(**fields: object) -> bytes:
    """The index.json of a Toy with other fields."""
    return json.dumps(
        {"name": "toy", "version": "1.0", "build": BUILD, "build_number": 0, "subdir": "linux-64"} | fields
    ).encode()


def archive(members: Mapping[str, bytes]) -> bytes:
    """A static archive as GNU ar writes it: with an index, and a table of the names that are too long for a header."""
    table, content = b"", _ar_member("/", b"\0\0\0\0")
    names: dict[str, str] = {}
    for name in members:
        names[name] = f"{name}/"
        if len(name) > 15:
            names[name] = f"/{len(table)}"
            table += f"{name}/\n".encode()
    content += _ar_member("//", table) if table else b""
    return b"!<arch>\n" + content + b"".join(_ar_member(names[name], data) for name, data in members.items())


def _ar_member(name: str, data: bytes) -> bytes:
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
    return header + data + b"\n" * (len(data) % 2)


def _row(name: str, entry: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {"_path": name, "path_type": "softlink" if entry.link else "hardlink"}
    if not entry.link:
        row["size_in_bytes"] = len(entry.content)
    if entry.placeholder:
        row |= {"prefix_placeholder": entry.placeholder, "file_mode": entry.file_mode}
    return row
