# SPDX-License-Identifier: BSD-3-Clause
"""What a server of others has already: its index, and where that is behind, the file itself."""

from __future__ import annotations

import asyncio
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import rattler
from rattler.exceptions import FetchRepoDataError, GatewayError
from rattler.networking import AddHeadersMiddleware, AuthenticationMiddleware, Client, RetryMiddleware
from rattler.package_streaming import download_to_path

from channel_tools.errors import NetworkError
from channel_tools.files import sha256_of_file
from channel_tools.solving import gateway_error, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from channel_tools.publish.foreign_services import ForeignAddress

_NOT_THERE = re.compile(r"\b404\b|could not find subdir")
_REFUSED = re.compile(r"\b40[13]\b")


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignReader:
    """Reads a channel of a server of others with the ``key`` that there is for uploading, or what rattler keeps."""

    address: ForeignAddress
    key: str | None
    limit_s: float = 300.0

    def listed(self, label: str, keys: Iterable[str]) -> dict[str, str | None]:
        """Those of the names (``subdir/file name``) that the label's index lists, with their sha256 where it says.

        A channel without an index lists nothing. Raises NetworkError, ChannelError when there is no reading it.
        """
        return asyncio.run(self._listed(self.address.label_address(label), sorted(keys)))

    async def _listed(self, channel: str, keys: list[str]) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        with tempfile.TemporaryDirectory() as cache:
            gateway = rattler.Gateway(cache_dir=Path(cache), client=self._client())
            for subdir in sorted({key.partition("/")[0] for key in keys}):
                names = {_name_of(key) for key in keys if key.startswith(f"{subdir}/")}
                records = await self._records(gateway, channel, subdir, sorted(names))
                found |= {f"{record.subdir}/{record.file_name}": _hex(record.sha256) for record in records}
        return {key: found[key] for key in keys if key in found}

    async def _records(
        self, gateway: rattler.Gateway, channel: str, subdir: str, names: list[str]
    ) -> list[rattler.RepoDataRecord]:
        try:
            async with asyncio.timeout(self.limit_s):
                groups = await gateway.query(
                    [channel], [rattler.Subdir(subdir)], names, recursive=False, channel_relations="disabled"
                )
        except TimeoutError:
            raise NetworkError(f"{channel}: no answer in time to reading its index") from None
        except (GatewayError, FetchRepoDataError) as err:
            if _NOT_THERE.search(str(err)):
                return []
            told = gateway_error(err, channels=[channel])
            if _REFUSED.search(str(err)):
                hint = f"set {self.address.service.variable}, or: rattler-build auth login"
                raise NetworkError(f"{channel}: may not be read with these credentials", hint=hint) from None
            raise told from None
        return [record for group in groups for record in group]

    def sha256_of(self, label: str, key: str) -> str | None:
        """The sha256 of the file that the server hands out under a name, None when there is none.

        Raises NetworkError when it cannot be read.
        """
        return asyncio.run(self._sha256_of(f"{self.address.label_address(label)}/{key}"))

    async def _sha256_of(self, url: str) -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "package"
            try:
                async with asyncio.timeout(self.limit_s):
                    await download_to_path(self._client(), url, path)
            except TimeoutError:
                raise NetworkError(f"{url}: did not arrive in time") from None
            except (RuntimeError, OSError) as err:
                if _NOT_THERE.search(str(err)):
                    return None
                raise NetworkError(f"{url}: cannot be read: {one_line(err)}") from None
            return sha256_of_file(path)

    def _client(self) -> Client:
        header, key = self.address.service.key_header, self.key
        host = urlsplit(self.address.read).hostname or ""

        def key_for(asked_host: str, _path: str) -> dict[str, str] | None:
            if header is None or key is None or asked_host != host:
                return None
            return {header[0]: header[1].format(key=key)}

        return Client([RetryMiddleware(), AuthenticationMiddleware(), AddHeadersMiddleware(key_for)])


def _name_of(key: str) -> str:
    """The package name in ``subdir/name-version-build.conda``."""
    return key.partition("/")[2].rsplit("-", 2)[0]


def _hex(sha256: bytes | None) -> str | None:
    return None if sha256 is None else sha256.hex()
