# SPDX-License-Identifier: BSD-3-Clause
"""Reading from channels over HTTP: kept-alive connections, ranges, credentials that stay out of every message.

On the standard library's connections, since bodies are read straight into a buffer that is used again and again: with
large packages it is copying that costs, not the network.
"""

from __future__ import annotations

import base64
import http
import http.client
import re
import ssl
import threading
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from channel_tools import __version__
from channel_tools.addresses import without_credentials
from channel_tools.errors import NetworkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from channel_tools.mirror.credentials import Credentials

TIMEOUT_S = 30.0
_HEADERS = {"User-Agent": f"channel_tools/{__version__}", "Accept-Encoding": "identity"}
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")
_MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_REFUSED: Mapping[int, str] = {
    http.HTTPStatus.UNAUTHORIZED: "a token is needed, or the one given is wrong or has expired",
    http.HTTPStatus.FORBIDDEN: "the token given may not read there",
    http.HTTPStatus.PROXY_AUTHENTICATION_REQUIRED: "the proxy asks for credentials",
}
_Place = tuple[str, str, int | None]


class TryAgainError(Exception):
    """This request failed in a way that another one may not."""


class MissingError(NetworkError):
    """The server says that there is no such file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The body that a server sends: from which byte on, and as a stream."""

    start: int
    response: http.client.HTTPResponse

    def readinto(self, buffer: memoryview) -> int:
        """Put what has arrived into ``buffer``; 0 at the end. Raises TryAgainError for a broken connection."""
        response = self.response
        try:
            if response.chunked or response.length is None:
                chunk = response.read1(len(buffer))
                buffer[: len(chunk)] = chunk
                return len(chunk)
            if response.isclosed() or not response.length:
                return 0
            count: int = response.fp.readinto1(buffer[: response.length])
        except (http.client.HTTPException, OSError, ValueError) as err:
            raise TryAgainError(_words(err)) from None
        response.length -= count
        return count

    @property
    def complete(self) -> bool:
        """Whether all of it was read, so that the connection can carry another request."""
        return self.response.isclosed() or (not self.response.chunked and self.response.length == 0)


class HttpReader:
    """Connections to any number of servers, for any number of threads."""

    def __init__(self, *, credentials: Credentials, timeout_s: float = TIMEOUT_S) -> None:
        self.timeout_s = timeout_s
        self._credentials = credentials
        self._idle: defaultdict[_Place, list[http.client.HTTPConnection]] = defaultdict(list)
        self._proxies: dict[_Place, SplitResult | None] = {}
        self._lock = threading.Lock()
        self._tls: ssl.SSLContext | None = None

    @contextmanager
    def get(self, url: str, *, start: int = 0) -> Iterator[Answer]:
        """Ask for ``url`` from byte ``start`` on; the answer may begin at 0 all the same.

        Raises NetworkError for an answer that will not change (no such file, no right to read), TryAgainError else.
        """
        plain, headers = self._credentials.request_of(url)
        headers = {**_HEADERS, **headers, **({"Range": f"bytes={start}-"} if start else {})}
        place, connection, response = self._ask(_checked(plain), headers)
        usable = False
        try:
            answer = Answer(start=_check_status(response, url, start), response=response)
            yield answer
            usable = answer.complete and not response.will_close
        finally:
            response.close()
            if usable:
                with self._lock:
                    self._idle[place].append(connection)
            else:
                connection.close()

    def _ask(
        self, parts: SplitResult, headers: dict[str, str]
    ) -> tuple[_Place, http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send the request, following redirections; credentials do not go to other hosts."""
        for _ in range(_MAX_REDIRECTS + 1):
            place, connection, response = self._send(parts, headers)
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or location is None:
                return place, connection, response
            connection.close()
            after = _checked(urljoin(parts.geturl(), location))
            if (after.scheme, after.netloc) != (parts.scheme, parts.netloc):
                headers = {name: value for name, value in headers.items() if name != "Authorization"}
            parts = after
        raise NetworkError(f"{without_credentials(parts.geturl())}: is redirected again and again")

    def _send(
        self, parts: SplitResult, headers: dict[str, str]
    ) -> tuple[_Place, http.client.HTTPConnection, http.client.HTTPResponse]:
        place = (parts.scheme, parts.hostname or "", parts.port)
        proxy = self._proxy_of(place)
        target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
        if proxy is not None and parts.scheme == "http":
            target, headers = parts._replace(fragment="").geturl(), {**headers, **_proxy_headers(proxy)}
        while True:
            with self._lock:
                idle = self._idle[place]
                connection, kept = (idle.pop(), True) if idle else (self._connect(parts, proxy), False)
            try:
                connection.request("GET", target, headers=headers)
                return place, connection, connection.getresponse()
            except (http.client.HTTPException, OSError, ValueError) as err:
                connection.close()
                if not kept:  # else the server had closed it meanwhile
                    raise TryAgainError(_words(err)) from None

    def _proxy_of(self, place: _Place) -> SplitResult | None:
        """Looked for once per server: the environment is read and compared for it."""
        if place not in self._proxies:
            self._proxies[place] = _proxy_of(place)
        return self._proxies[place]

    def _connect(self, parts: SplitResult, proxy: SplitResult | None) -> http.client.HTTPConnection:
        """A connection that opens with its first request."""
        host, port = (parts.hostname or "", parts.port) if proxy is None else (proxy.hostname or "", proxy.port)
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self.timeout_s)
        self._tls = self._tls or ssl.create_default_context()
        connection = http.client.HTTPSConnection(host, port, timeout=self.timeout_s, context=self._tls)
        if proxy is not None:
            connection.set_tunnel(parts.hostname or "", parts.port or 443, headers=_proxy_headers(proxy))
        return connection


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid:
        message = f"{without_secrets(url)}: is no address that can be read; expected http://, https:// or file://"
        raise NetworkError(message, hint="check the channel's address")
    return parts


def _proxy_of(place: _Place) -> SplitResult | None:
    scheme, host, _port = place
    proxy = getproxies().get(scheme)
    if proxy is None or proxy_bypass(host):
        return None
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}")


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode("ascii")}


def _check_status(response: http.client.HTTPResponse, url: str, start: int) -> int:
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


def _words(err: Exception) -> str:
    return without_secrets(str(err) or type(err).__name__)


def without_secrets(words: str) -> str:
    """Text of a library, with the credentials of any address in it taken out."""
    shown = re.sub(r"[a-z]+://\S+", lambda found: without_credentials(found[0]), words)
    return " ".join(re.sub(r"/t/[^/\s]+", "/t/***", shown).split())
