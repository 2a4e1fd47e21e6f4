# SPDX-License-Identifier: BSD-3-Clause
"""Small real packages, sound ones and lying ones."""

from __future__ import annotations

import bz2
import json
import tarfile
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path

import zstandard

from channel_tools.channel.model import Channel, Foundation
from channel_tools.channel.store import create_channel
from channel_tools.conda.archive import stream_component
from tests.support.tars import plain_tar

REGISTRY = Foundation(kind="registry")
CONDA_FORGE = Foundation(kind="conda-forge", address="https://channel.example/conda-forge")


def new_channel(folder: Path) -> Channel:
    return create_channel(folder / "channel", REGISTRY)


def tar_zst(members: Mapping[str, bytes | tarfile.TarInfo]) -> bytes:
    return zstandard.compress(plain_tar(members))


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.type = kind
    header.linkname = target
    return header


def make_conda(
    folder: Path,
    name: str,
    *,
    version: str = "1.0",
    build: str = "0",
    subdir: str = "linux-64",
    index: dict[str, object] | None = None,
    without: tuple[str, ...] = (),
    about: dict[str, object] | None = None,
    variant: dict[str, str] | None = None,
    run_exports: dict[str, list[str]] | None = None,
    files: Mapping[str, bytes | tarfile.TarInfo] | None = None,
    paths: list[dict[str, object]] | None = None,
    info: Mapping[str, bytes] | None = None,
    stem: str | None = None,
) -> Path:
    """A package file in ``folder/subdir``.

    ``index`` adds to its index.json, ``info`` are further files of info/, ``stem`` gives it another file name.
    """
    payload: Mapping[str, bytes | tarfile.TarInfo] = {f"share/{name}.txt": b"hello\n"} if files is None else files
    said: dict[str, object] = {"name": name, "version": version, "build": build, "build_number": 0, "subdir": subdir}
    said |= {"depends": []} | (index or {})
    rows = [
        {"_path": path, "path_type": "hardlink", "size_in_bytes": len(content)}
        if isinstance(content, bytes)
        else {"_path": path, "path_type": "softlink"}
        for path, content in payload.items()
    ]
    metadata: dict[str, object] = {
        "info/index.json": said,
        "info/about.json": about or {},
        "info/run_exports.json": run_exports,
    }
    metadata["info/hash_input.json"] = variant
    metadata["info/paths.json"] = {"paths": rows if paths is None else paths, "paths_version": 1}
    members: dict[str, bytes | tarfile.TarInfo] = {
        path: json.dumps(value).encode()
        for path, value in metadata.items()
        if value is not None and path not in without
    }
    members |= info or {}
    stem = stem or f"{name}-{version}-{build}"
    destination = folder / subdir / f"{stem}.conda"
    destination.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(destination, "w") as archive:
        # ZipInfo's own fixed time: the same package made twice has the same bytes
        archive.writestr(zipfile.ZipInfo("metadata.json"), '{"conda_pkg_format_version": 2}')
        archive.writestr(zipfile.ZipInfo(f"pkg-{stem}.tar.zst"), tar_zst(payload))
        archive.writestr(zipfile.ZipInfo(f"info-{stem}.tar.zst"), tar_zst(members))
    return destination


def old_format(package: Path, *, without: Collection[str] = (), index: Mapping[str, object] | None = None) -> Path:
    """The same package as ``.tar.bz2`` beside it, as before .conda; the .conda file is deleted.

    It lacks the files ``without`` of info/; ``index`` replaces fields of its index.json (None: takes them away).
    """
    members: dict[str, bytes | tarfile.TarInfo] = {}
    for component in ("pkg", "info"):  # payload first, as in packages that conda-build made
        for member, stream in stream_component(package, component):
            members[member.name] = member if stream is None else stream.read()
    members["info/files"] = "".join(f"{name}\n" for name in members if not name.startswith("info/")).encode()
    said = json.loads(members["info/index.json"]) | (index or {})  # type: ignore[arg-type]
    members["info/index.json"] = json.dumps({key: value for key, value in said.items() if value is not None}).encode()
    destination = package.with_name(package.name.removesuffix(".conda") + ".tar.bz2")
    kept = {name: content for name, content in members.items() if name.removeprefix("info/") not in without}
    destination.write_bytes(bz2.compress(plain_tar(kept)))
    package.unlink()
    return destination


def own(digest: str, **inputs: str) -> dict[str, object]:
    """about.json of a package that the plan made."""
    return {"extra": {"channel_tools": {"schema": 1, "digest": digest, "inputs": inputs}}}
