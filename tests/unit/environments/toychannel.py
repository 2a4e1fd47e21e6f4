# SPDX-License-Identifier: BSD-3-Clause
"""Real channels of tiny packages, written here byte by byte so that tests can also write wrong ones."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import http.server
import io
import json
import sys
import tarfile
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import zstandard

from channel_tools.pins import solve_lock
from tests.support.packages import link, write_conda
from tests.support.server_thread import in_thread

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.pins import Lock

PREFIX_PLACEHOLDER = "/placeholder" + "_hold" * 16
SUBDIR = "linux-64"


@dataclass(frozen=True, kw_only=True)
class ToyChannel:
    root: Path

    @property
    def address(self) -> str:
        return self.root.as_uri()

    def archive(self, name: str, version: str = "1.0", *, build: str = "0", subdir: str = SUBDIR) -> Path:
        return self.root / subdir / f"{name}-{version}-{build}.conda"

    def add(
        self,
        name: str,
        *,
        version: str = "1.0",
        build: str = "0",
        subdir: str = SUBDIR,
        depends: Sequence[str] | None = (),
        constrains: Sequence[str] | None = (),
        files: Mapping[str, bytes] | None = None,
        links: Mapping[str, str] | None = None,
        index: bool = True,
        without: Collection[str] = (),
        noarch: str = "generic",
        more: Mapping[str, object] | None = None,
    ) -> Path:
        """Write a package; files with the placeholder get the prefix at installation.

        Its index.json lacks the keys ``without``, and has what is ``more``.
        """
        archive = self.archive(name, version, build=build, subdir=subdir)
        archive.parent.mkdir(parents=True, exist_ok=True)
        said = {
            "name": name,
            "version": version,
            "build": build,
            "build_number": 0,
            "depends": depends,
            "constrains": constrains,
            "subdir": subdir,
        }
        said |= {"noarch": noarch} if subdir == "noarch" else {}
        said = {key: value for key, value in said.items() if key not in without} | dict(more or {})
        _write_package(archive, said, files or {f"share/{name}": name.encode()}, links or {})
        if index:
            self.index()
        return archive

    def lock(self, *specs: str, cache: Path, virtual: Sequence[str] = ()) -> Lock:
        """What the specs are solved to."""
        return asyncio.run(
            solve_lock("toy", specs, [self.address], [SUBDIR], virtual_packages={SUBDIR: virtual}, package_cache=cache)
        )

    def index(self) -> None:
        present = {folder.name for folder in self.root.iterdir() if folder.is_dir()}
        for subdir in sorted({SUBDIR, "noarch", *present}):
            folder = self.root / subdir
            folder.mkdir(parents=True, exist_ok=True)
            records = {archive.name: _record(archive) for archive in sorted(folder.glob("*.conda"))}
            document = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": records, "repodata_version": 1}
            (folder / "repodata.json").write_text(json.dumps(document), encoding="utf-8")


def move_packages(root: Path, base_url: str, files: Path) -> None:
    """Move each subdir's packages to ``files/SUBDIR``; its repodata.json says so in ``base_url`` (CEP 15)."""
    for index in sorted(root.glob("*/repodata.json")):
        subdir = index.parent.name
        (files / subdir).mkdir(parents=True, exist_ok=True)
        for archive in sorted(index.parent.glob("*.conda*")):
            archive.rename(files / subdir / archive.name)
        document = json.loads(index.read_bytes())
        document["info"]["base_url"] = base_url.replace("SUBDIR", subdir)
        document["repodata_version"] = 2
        index.write_text(json.dumps(document), encoding="utf-8")


@contextmanager
def served(folder: Path, *, authorization: str | None = None) -> Iterator[str]:
    """The address under which ``folder`` is served on loopback, to those who send ``authorization`` where it is set.

    A bearer's token may stand in the path instead, as ``/t/TOKEN``.
    """
    in_path = None if authorization is None else f"/t/{authorization.removeprefix('Bearer ')}/"

    class Handler(_QuietHandler):
        def do_GET(self) -> None:
            if self._allowed():
                super().do_GET()

        def do_HEAD(self) -> None:
            if self._allowed():
                super().do_HEAD()

        def _allowed(self) -> bool:
            if in_path is not None and self.path.startswith(in_path):
                self.path = self.path[len(in_path) - 1 :]
            elif authorization is not None and self.headers["Authorization"] != authorization:
                self.send_error(HTTPStatus.UNAUTHORIZED)
                return False
            return True

    handler = functools.partial(Handler, directory=str(folder))
    with in_thread(_Server(("127.0.0.1", 0), handler)) as address:
        yield address


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the base class
        """Say nothing of a client that left before it had its answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
        del format, args


def _write_package(
    archive: Path, index: Mapping[str, object], files: Mapping[str, bytes], links: Mapping[str, str]
) -> None:
    rows = [_path_entry(path, content) for path, content in files.items()]
    rows += [{"_path": path, "path_type": "softlink"} for path in links]
    paths = {"paths": rows, "paths_version": 1}
    payload: dict[str, tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]] = {
        path: (_header(path), content) for path, content in files.items()
    }
    payload |= {path: link(path, target) for path, target in links.items()}
    write_conda(archive, payload, {"index.json": index, "paths.json": paths, "about.json": {}})


def _header(path: str) -> tarfile.TarInfo:
    header = tarfile.TarInfo(path)
    header.mode = 0o755 if path.startswith("bin/") else 0o644
    return header


def _path_entry(path: str, content: bytes) -> dict[str, object]:
    entry: dict[str, object] = {
        "_path": path,
        "path_type": "hardlink",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size_in_bytes": len(content),
    }
    if PREFIX_PLACEHOLDER.encode() in content:
        entry |= {"prefix_placeholder": PREFIX_PLACEHOLDER, "file_mode": "text"}
    return entry


def _record(archive: Path) -> dict[str, object]:
    content = archive.read_bytes()
    with zipfile.ZipFile(archive) as container:
        packed = container.read(f"info-{archive.stem}.tar.zst")
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    with tarfile.open(fileobj=io.BytesIO(plain)) as members:
        stream = members.extractfile("info/index.json")
        assert stream is not None
        record: dict[str, object] = json.load(stream)
    return (
        {"subdir": archive.parent.name}
        | record
        | {
            "sha256": hashlib.sha256(content).hexdigest(),
            "md5": hashlib.md5(content, usedforsecurity=False).hexdigest(),
            "size": len(content),
        }
    )
