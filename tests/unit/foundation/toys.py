# SPDX-License-Identifier: BSD-3-Clause
"""Tiny conda packages, sound or deliberately spoiled."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import zstandard

from channel_tools.conda.metadata import PackageMetadata
from channel_tools.conda.writer import write_conda_package
from tests.unit.foundation.repairs.trees import make_tree


def toy_package(
    channel: Path,
    name: str,
    files: dict[str, str | bytes],
    *,
    version: str = "1.0",
    depends: tuple[str, ...] = (),
    entry_points: tuple[str, ...] = (),
    noarch_python: bool = False,
) -> Path:
    """Write a package of ``files`` (a text that begins with ``-> `` is a link) into the channel folder."""
    subdir = "noarch" if noarch_python else "linux-64"
    metadata = PackageMetadata(
        name=name,
        version=version,
        build="h0123456_0",
        subdir=subdir,
        depends=depends,
        noarch="python" if noarch_python else None,
        entry_points=entry_points,
    )
    tree = make_tree(channel.parent / "trees" / metadata.file_name, files)
    tree.mkdir(parents=True, exist_ok=True)
    destination = channel / subdir / metadata.file_name
    destination.parent.mkdir(parents=True, exist_ok=True)
    write_conda_package(tree, metadata, destination)
    return destination


def rewrite(
    package: Path, *, payload: dict[str, bytes | str] | None = None, info: dict[str, Any] | None = None
) -> None:
    """Replace members of a package and leave everything else: what a faulty tool would have written.

    In ``payload`` a text that begins with ``-> `` makes a link, which may be absolute; in ``info`` JSON is written.
    """
    stem = package.name.removesuffix(".conda")
    with zipfile.ZipFile(package) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    spoiled = {f"info/{name}": json.dumps(value).encode() for name, value in (info or {}).items()}
    for name, changes in ((f"pkg-{stem}.tar.zst", payload or {}), (f"info-{stem}.tar.zst", spoiled)):
        members[name] = _changed_tar(members[name], changes)
    with zipfile.ZipFile(package, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def _changed_tar(compressed: bytes, changes: dict[str, Any]) -> bytes:
    plain = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(compressed)).read()
    result = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(plain)) as old, tarfile.open(fileobj=result, mode="w") as new:
        for member in old:
            if member.name not in changes:
                new.addfile(member, old.extractfile(member) if member.isreg() else None)
        for name, content in changes.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, str) and content.startswith("-> "):
                member.type, member.linkname = tarfile.SYMTYPE, content[3:]
                new.addfile(member)
            else:
                data = content if isinstance(content, bytes) else content.encode()
                member.size = len(data)
                new.addfile(member, io.BytesIO(data))
    return zstandard.ZstdCompressor().compress(result.getvalue())
