# SPDX-License-Identifier: BSD-3-Clause
"""The run_exports of a foundation's packages, alike for a folder and an address.

They are looked up where the build engine finds them (rattler's ``RunExportExtractor``): in the record, which a shard
may give whole (CEP 21), else in the subdir's ``run_exports.json`` (CEP 12, also as ``.zst``), else in the package
itself, of which only the part with the metadata is requested (HTTP range requests).
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import zstandard
from rattler.package import RunExportsJson

from channel_tools.conda.addresses import without_credentials
from channel_tools.conda.archive import read_package
from channel_tools.conda.clients import make_client, make_http_client
from channel_tools.conda.package import RunExports
from channel_tools.conda.repodata import RUN_EXPORTS
from channel_tools.system.document import decode_json
from channel_tools.system.errors import FoundationError, NetworkError
from channel_tools.system.http.client import MissingError
from channel_tools.system.http.pace import TransientError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rattler import RepoDataRecord

    from channel_tools.system.http.client import HttpClient

RunExportsIndex = dict[str, RunExports]
"""The run_exports by file name."""
_INDEX_BYTES = 512 << 20
"""The largest index that is read; conda-forge's linux-64 has 30 MB."""
_NOT_FOUND = 404


class FolderRunExports:
    """The run_exports of packages in a channel's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._indexes: dict[str, RunExportsIndex] = {}
        self._found: dict[str, RunExports | None] = {}

    async def of(self, record: RepoDataRecord) -> RunExports | None:
        """Those of a package; None if neither an index nor the package's file says so. Raises FoundationError."""
        if (given := _in_record(record)) is not None:
            return given
        key = f"{record.subdir}/{record.file_name}"
        if key not in self._found:
            index = self._index(record.subdir)
            self._found[key] = index[record.file_name] if record.file_name in index else self._in_package(key)
        return self._found[key]

    def _index(self, subdir: str) -> RunExportsIndex:
        if subdir not in self._indexes:
            path = self._folder / subdir / RUN_EXPORTS
            self._indexes[subdir] = parse_index(path.read_bytes(), path) if path.is_file() else {}
        return self._indexes[subdir]

    def _in_package(self, key: str) -> RunExports | None:
        path = self._folder / key
        if not path.is_file():
            return None
        return read_run_exports(read_package(path, contents=False).run_exports or {})


class RemoteRunExports:
    """The run_exports of packages of a channel at an address, which may have credentials in it."""

    def __init__(self, address: str, environ: Mapping[str, str]) -> None:
        self._address = address.rstrip("/")
        self._environ = environ
        self._indexes: dict[str, RunExportsIndex] = {}
        self._found: dict[str, RunExports | None] = {}

    async def of(self, record: RepoDataRecord) -> RunExports | None:
        """Those of a package; None if neither an index nor the package says so, which then is not there.

        Raises NetworkError for what cannot be reached, FoundationError for an index that cannot be read.
        """
        if (given := _in_record(record)) is not None:
            return given
        if record.url not in self._found:
            client = make_http_client(self._environ)
            if record.subdir not in self._indexes:
                self._indexes[record.subdir] = self._read_index(client, record.subdir)
            index = self._indexes[record.subdir]
            known = record.file_name in index
            self._found[record.url] = index[record.file_name] if known else await self._in_package(client, record.url)
        return self._found[record.url]

    def _read_index(self, client: HttpClient, subdir: str) -> RunExportsIndex:
        for name in (f"{RUN_EXPORTS}.zst", RUN_EXPORTS):
            url = f"{self._address}/{subdir}/{name}"
            try:
                content = client.read(url, limit_bytes=_INDEX_BYTES)
            except MissingError:
                continue
            return parse_index(_unpacked(content, url) if name.endswith(".zst") else content, without_credentials(url))
        return {}

    async def _in_package(self, client: HttpClient, url: str) -> RunExports | None:
        try:
            with client.open("HEAD", url) as response:
                if response.status == _NOT_FOUND:
                    return None
            _addresses, reader = make_client([self._address])
            return _taken_from(await RunExportsJson.from_remote_url(reader, url))
        except (TransientError, OSError) as err:
            message = f"{without_credentials(url)}: its run_exports cannot be read: {err}"
            raise NetworkError(message, hint="check the address and the network") from None


RunExportsSource = FolderRunExports | RemoteRunExports


def parse_index(content: bytes, where: object) -> RunExportsIndex:
    """Parse run_exports.json (CEP 12). Raises FoundationError for anything else."""
    try:
        index = decode_json(content)
        entries = {**index.get("packages", {}), **index.get("packages.conda", {})}
        return {name: read_run_exports(entry["run_exports"]) for name, entry in entries.items()}
    except (ValueError, KeyError, AttributeError, TypeError) as err:
        message = f"{where}: not a valid run_exports.json (CEP 12): {err}"
        raise FoundationError(message, hint="index the channel again") from None


def read_run_exports(value: Mapping[str, Any]) -> RunExports:
    """The kinds of run_exports that add requirements; those that constrain add none."""
    kinds = {kind: tuple(value.get(kind) or ()) for kind in ("weak", "strong", "noarch")}
    return RunExports(**kinds)


def _in_record(record: RepoDataRecord) -> RunExports | None:
    given = json.loads(record.to_json()).get("run_exports")
    return None if given is None else read_run_exports(given)


def _taken_from(found: RunExportsJson | None) -> RunExports:
    if found is None:
        return RunExports()
    return RunExports(weak=tuple(found.weak), strong=tuple(found.strong), noarch=tuple(found.noarch))


def _unpacked(content: bytes, url: str) -> bytes:
    try:
        with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content)) as stream:
            unpacked = stream.read(_INDEX_BYTES + 1)
    except zstandard.ZstdError as err:
        raise _unreadable(without_credentials(url), err) from None
    if len(unpacked) > _INDEX_BYTES:
        raise _unreadable(without_credentials(url), ValueError(f"it has more than {_INDEX_BYTES >> 20} MiB"))
    return unpacked


def _unreadable(where: object, err: Exception) -> FoundationError:
    reason = " ".join(str(err).split())
    return FoundationError(f"{where}: its run_exports cannot be read: {reason}", hint="index the channel again")
