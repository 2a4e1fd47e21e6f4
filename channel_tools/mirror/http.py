# SPDX-License-Identifier: BSD-3-Clause
"""Reading from channels over HTTP: kept-alive connections, ranges, credentials that stay out of every message."""

from __future__ import annotations

import http
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError
from urllib3.util import Timeout

from channel_tools import __version__
from channel_tools.addresses import without_credentials
from channel_tools.errors import NetworkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from urllib3.response import BaseHTTPResponse

    from channel_tools.mirror.credentials import Credentials

TIMEOUT_S = 30.0
_HEADERS = {"User-Agent": f"channel_tools/{__version__}", "Accept-Encoding": "identity"}
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")
_REFUSED: Mapping[int, str] = {
    http.HTTPStatus.UNAUTHORIZED: "a token is needed, or the one given is wrong or has expired",
    http.HTTPStatus.FORBIDDEN: "the token given may not read there",
    http.HTTPStatus.PROXY_AUTHENTICATION_REQUIRED: "the proxy asks for credentials",
}


class TryAgainError(Exception):
    """This request failed in a way that another one may not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The body that a server sends: from which byte on, and as a stream."""

    start: int
    response: BaseHTTPResponse

    def read(self, amount: int) -> bytes:
        """What has arrived, at most ``amount`` bytes; b"" at the end. Raises TryAgainError for a broken connection."""
        try:
            return self.response.read1(amount, decode_content=False)
        except (HTTPError, OSError) as err:
            raise TryAgainError(_words(err)) from None


class HttpReader:
    """Connections to any number of servers, for ``connections`` threads at once."""

    def __init__(self, *, connections: int, credentials: Credentials, timeout_s: float = TIMEOUT_S) -> None:
        self.timeout_s = timeout_s
        self._credentials = credentials
        self._options = {"maxsize": connections, "block": False, "timeout": Timeout(connect=timeout_s, read=timeout_s)}
        self._direct = urllib3.PoolManager(retries=False, **self._options)  # type: ignore[arg-type]
        self._proxies: dict[str, urllib3.ProxyManager] = {}

    @contextmanager
    def get(self, url: str, *, start: int = 0) -> Iterator[Answer]:
        """Ask for ``url`` from byte ``start`` on; the answer may begin at 0 all the same.

        Raises NetworkError for an answer that will not change (no such file, no right to read), TryAgainError else.
        """
        plain, headers = self._credentials.request_of(url)
        headers |= _HEADERS
        if start:
            headers["Range"] = f"bytes={start}-"
        try:
            response = self._manager(plain).request(
                "GET", plain, headers=headers, preload_content=False, redirect=True, retries=_redirects()
            )
        except LocationParseError as err:
            raise NetworkError(f"{without_credentials(url)}: is no address that can be asked: {err}") from None
        except (HTTPError, OSError) as err:
            raise TryAgainError(_words(err)) from None
        try:
            yield Answer(start=_check_status(response, url, start), response=response)
            response.drain_conn() if response.length_remaining == 0 else response.close()
        except BaseException:
            response.close()
            raise
        finally:
            response.release_conn()

    def _manager(self, url: str) -> urllib3.PoolManager:
        parts = urlsplit(url)
        proxy = getproxies().get(parts.scheme)
        if proxy is None or proxy_bypass(parts.hostname or ""):
            return self._direct
        if proxy not in self._proxies:
            self._proxies[proxy] = urllib3.ProxyManager(proxy, retries=False, **self._options)  # type: ignore[arg-type]
        return self._proxies[proxy]


def _redirects() -> urllib3.Retry:
    return urllib3.Retry(total=5, connect=0, read=0, status=0, other=0, redirect=5)


def _check_status(response: BaseHTTPResponse, url: str, start: int) -> int:
    """From which byte on the body is."""
    status = response.status
    if status == http.HTTPStatus.PARTIAL_CONTENT:
        found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != start:
            raise TryAgainError(f"asked for bytes from {start}, got {response.headers.get('Content-Range')}")
        return start
    if status == http.HTTPStatus.OK:
        return 0
    where = without_credentials(url)
    if status in _REFUSED:
        raise NetworkError(f"{where}: HTTP status {status}: {_REFUSED[status]}", hint="check the channel's address")
    if status in {http.HTTPStatus.NOT_FOUND, http.HTTPStatus.GONE}:
        raise MissingError(f"{where}: HTTP status {status}: there is no such file", hint="check the channel's address")
    raise TryAgainError(f"HTTP status {status}")


class MissingError(NetworkError):
    """The server says that there is no such file."""


def _words(err: Exception) -> str:
    reason = getattr(err, "reason", None)
    words = str(reason or err) or type(err).__name__
    return without_secrets(words)


def without_secrets(words: str) -> str:
    """Text of a library, with the credentials of any address in it taken out."""
    shown = re.sub(r"[a-z]+://\S+", lambda found: without_credentials(found[0]), words)
    return " ".join(re.sub(r"/t/[^/\s]+", "/t/***", shown).split())
