# SPDX-License-Identifier: BSD-3-Clause
"""The run_exports of a foundation at an address; see run_exports.py, which folders do with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rattler.package import RunExportsJson

from channel_tools.conda.addresses import is_web, without_credentials
from channel_tools.conda.answers import while_answered
from channel_tools.conda.clients import make_client, make_http_client
from channel_tools.conda.package import RunExports
from channel_tools.conda.repodata import RUN_EXPORTS, unpack_index
from channel_tools.plan.run_exports import RunExportsIndex, given_in, parse_index
from channel_tools.system.errors import FoundationError, IntegrityError, NetworkError
from channel_tools.system.http.client import MissingError
from channel_tools.system.http.pace import TransientError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rattler import RepoDataRecord

    from channel_tools.system.http.client import HttpClient

_INDEX_BYTES = 512 << 20
"""The largest index that is read; conda-forge's linux-64 has 30 MB."""
_NOT_FOUND = 404


class RemoteRunExports:
    """The run_exports of packages of a channel at an address, which may have credentials in it."""

    def __init__(self, address: str, environ: Mapping[str, str]) -> None:
        self._address = address.rstrip("/")
        self._environ = environ
        self._indexes: dict[str, RunExportsIndex] = {}
        self._by_address: dict[str, RunExports | None] = {}

    async def of(self, record: RepoDataRecord) -> RunExports | None:
        """Those of a package; None if neither an index nor the package says so, which then is not there.

        Raises NetworkError for what cannot be reached, FoundationError for an index that cannot be read.
        """
        if (run_exports := given_in(record)) is not None:
            return run_exports
        if record.url not in self._by_address:
            client = make_http_client(self._environ)
            if record.subdir not in self._indexes:
                self._indexes[record.subdir] = self._read_index(client, record.subdir)
            index = self._indexes[record.subdir]
            known = record.file_name in index
            self._by_address[record.url] = (
                index[record.file_name] if known else await self._in_package(client, record.url)
            )
        return self._by_address[record.url]

    def _read_index(self, client: HttpClient, subdir: str) -> RunExportsIndex:
        if not is_web(self._address):  # a bucket or an OCI registry, which only rattler reads
            return {}
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
            if is_web(url):
                with client.open("HEAD", url) as response:
                    if response.status == _NOT_FOUND:
                        return None
            _addresses, reader = make_client([self._address])
            run_exports = await while_answered(RunExportsJson.from_remote_url(reader, url), [url])
            if run_exports is None:
                return RunExports()
            return RunExports(
                weak=tuple(run_exports.weak), strong=tuple(run_exports.strong), noarch=tuple(run_exports.noarch)
            )
        except (TransientError, OSError) as err:
            message = f"{without_credentials(url)}: its run_exports cannot be read: {err}"
            raise NetworkError(message, hint="check the address and the network") from None


def _unpacked(content: bytes, url: str) -> bytes:
    try:
        return unpack_index(content, without_credentials(url), limit_bytes=_INDEX_BYTES)
    except IntegrityError as err:
        raise FoundationError(err.message, hint=err.hint) from None


def _unreadable(origin: object, err: Exception) -> FoundationError:
    reason = " ".join(str(err).split())
    return FoundationError(f"{origin}: its run_exports cannot be read: {reason}", hint="index the channel again")
