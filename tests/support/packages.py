# SPDX-License-Identifier: BSD-3-Clause
"""Small real packages, sound ones and lying ones: the parts that a .conda file is made of, and whole files."""

from __future__ import annotations

import bz2
import io
import json
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

import zstandard

from channel_tools.channel.model import Channel, Foundation
from channel_tools.channel.store import create_channel
from channel_tools.conda.archive import stream_component
from channel_tools.conda.metadata import PackageMetadata
from channel_tools.conda.writer import write_conda_package
from tests.support.tars import plain_tar
from tests.support.trees import make_tree

Members = Mapping[str, bytes | tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]]
"""What a tar archive holds, by name: contents, members without one, as links, or members with their contents."""
FORMAT = b'{"conda_pkg_format_version": 2}'
"""metadata.json of a .conda file."""
REGISTRY = Foundation(kind="registry")
CONDA_FORGE = Foundation(kind="conda-forge", address="https://channel.example/conda-forge")


def new_channel(folder: Path) -> Channel:
    return create_channel(folder / "channel", REGISTRY)


def tar_zst(members: Members) -> bytes:
    """A part of a .conda file: its payload, or its metadata under names that begin with ``info/``."""
    return zstandard.compress(plain_tar(members))


def conda_bytes(
    stem: str,
    payload: bytes,
    info: bytes,
    *,
    metadata: bytes = FORMAT,
    method: int = zipfile.ZIP_STORED,
    more: Sequence[tuple[str, bytes]] = (),
) -> bytes:
    """The .conda file of these parts, whose names have the ``stem`` of the file; the same parts give the same bytes.

    ``more`` are further members of the zip, also under names that are there already; ``method`` compresses all.
    """
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", method) as archive:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, content in (
            ("metadata.json", metadata),
            (f"pkg-{stem}.tar.zst", payload),
            (f"info-{stem}.tar.zst", info),
            *more,
        ):
            archive.writestr(zipfile.ZipInfo(name), content, method)  # with ZipInfo's own fixed time
    return stream.getvalue()


def write_conda(path: Path, payload: Members, info: Mapping[str, bytes | object]) -> Path:
    """The .conda file at ``path`` with this payload; ``info`` are the files of info/, as bytes or what JSON holds."""
    documents = {
        f"info/{name}": content if isinstance(content, bytes) else json.dumps(content).encode()
        for name, content in info.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(conda_bytes(path.name.removesuffix(".conda"), tar_zst(payload), tar_zst(documents)))
    return path


def write_files(folder: Path, metadata: PackageMetadata, files: Mapping[str, bytes | str]) -> Path:
    """A package of these files in ``folder``, by the program's own writer; ``make_tree`` says what makes a link."""
    with tempfile.TemporaryDirectory() as name:
        make_tree(Path(name), files)
        folder.mkdir(parents=True, exist_ok=True)
        return write_conda_package(Path(name), metadata, folder / metadata.file_name).path


def toy_package(
    channel: Path,
    name: str,
    files: Mapping[str, str | bytes],
    *,
    version: str = "1.0",
    depends: tuple[str, ...] = (),
    constrains: tuple[str, ...] = (),
    entry_points: tuple[str, ...] = (),
    noarch_python: bool = False,
) -> Path:
    """As ``write_files``, into the channel folder's subdir."""
    subdir = "noarch" if noarch_python else "linux-64"
    metadata = PackageMetadata(
        name=name,
        version=version,
        build="h0123456_0",
        subdir=subdir,
        depends=depends,
        constrains=constrains,
        noarch="python" if noarch_python else None,
        entry_points=entry_points,
    )
    return write_files(channel / subdir, metadata, files)


def rewrite(
    package: Path, *, payload: Mapping[str, bytes | str] | None = None, info: Mapping[str, object] | None = None
) -> None:
    """Replace members of a package and leave everything else: what a faulty tool would have written.

    In ``payload`` a text that begins with ``-> `` makes a link, which may be absolute; in ``info`` JSON is written.
    """
    files: dict[str, bytes | tarfile.TarInfo] = {}
    for name, content in (payload or {}).items():
        if isinstance(content, str) and content.startswith("-> "):
            files[name] = link(name, content[3:])
        else:
            files[name] = content if isinstance(content, bytes) else content.encode()
    documents = {f"info/{name}": json.dumps(value).encode() for name, value in (info or {}).items()}
    parts = _with_members(package, "pkg", files), _with_members(package, "info", documents)
    package.write_bytes(conda_bytes(package.name.removesuffix(".conda"), *parts))


def _with_members(package: Path, component: Literal["pkg", "info"], members: Members) -> bytes:
    """A part of the package with these members in place of its own."""
    kept = {
        member.name: member if stream is None else (member, stream.read())
        for member, stream in stream_component(package, component)
        if member.name not in members
    }
    return tar_zst({**kept, **members})


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
    documents: dict[str, object] = {
        "index.json": said,
        "about.json": about or {},
        "run_exports.json": run_exports,
        "hash_input.json": variant,
        "paths.json": {"paths": rows if paths is None else paths, "paths_version": 1},
    }
    written = {name: value for name, value in documents.items() if value is not None and f"info/{name}" not in without}
    written |= {name.removeprefix("info/"): content for name, content in (info or {}).items()}
    return write_conda(folder / subdir / f"{stem or f'{name}-{version}-{build}'}.conda", payload, written)


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


def taken(digest: str) -> dict[str, object]:
    """about.json of a package of the registry foundation, which names the files that it was made from."""
    return {"extra": {"channel_tools": {"schema": 1, "digest": digest, "taken": []}}}
