# SPDX-License-Identifier: BSD-3-Clause
"""The one HTTP client: sources, mirrors and uploads share its rules for proxies, redirects, retries and secrets.

urllib3 manages the connections and the protocol; the rules are ours. Redirects are followed here, since each one
chooses its proxy again and must not send credentials to another host. A Credentials object tells the client where
credentials come from and which parts of an address are secret.

Proxies and .netrc are taken from the environment.
"""

from __future__ import annotations

import base64
import ipaddress
import netrc
import re
import ssl
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, TypedDict
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from channel_tools import __version__
from channel_tools.system.errors import ConfigError, NetworkError
from channel_tools.system.http.pace import Arrivals, Retry, Timeouts, TransientError, Watch, retry_after_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import urllib3

_HEADERS = {"User-Agent": f"channel_tools/{__version__}", "Accept-Encoding": "identity"}
_ANYWHERE = frozenset(
    (*_HEADERS, "Range", "If-Range", "If-None-Match", "If-Modified-Since", "Cache-Control", "Content-Type")
)
"""The headers that follow a redirect to another host; any other may be a secret, as services' keys are."""
_CHUNK_BYTES = 1 << 18
_CONNECTIONS_PER_HOST = 100
_MAX_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
TEMPORARY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")
_WORDS: Mapping[int, str] = {
    HTTPStatus.UNAUTHORIZED: "a token or password is required, or the given one is wrong or has expired",
    HTTPStatus.FORBIDDEN: "the given credentials, if any, do not permit reading it",
    HTTPStatus.NOT_FOUND: "there is no such file",
    HTTPStatus.GONE: "the file was removed",
    HTTPStatus.PROXY_AUTHENTICATION_REQUIRED: "the proxy requires credentials",
}
_REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_MISSING = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_SCHEMES = frozenset({"http", "https"})


class MissingError(NetworkError):
    """The server says that there is no such file."""


class RangeError(TransientError):
    """The partial file is as long as the server's file, or longer."""


class _PoolOptions(TypedDict, total=False):
    maxsize: int
    timeout: urllib3.Timeout
    blocksize: int
    ssl_context: ssl.SSLContext


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """How servers are verified, and what the client shows them.

    ``certificates`` is a file or folder to trust instead of the platform's; ``client`` is the file of the client's own
    certificate, and that of its key if it is another.
    """

    verifies: bool = True
    certificates: Path | None = None
    client: tuple[Path, Path | None] | None = None

    def context(self) -> ssl.SSLContext:
        """The same for Python's ssl. Raises ConfigError for a file without certificates."""
        try:
            if self.certificates is None:
                context = ssl.create_default_context()
            elif self.certificates.is_dir():
                context = ssl.create_default_context(capath=self.certificates)
            else:
                context = ssl.create_default_context(cafile=self.certificates)
            if self.client is not None:
                context.load_cert_chain(*self.client)
        except (OSError, ValueError) as err:  # an SSLError is one of the first
            paths = " and ".join(str(path) for path in (self.certificates, *(self.client or ())) if path is not None)
            raise ConfigError(f"{paths}: cannot be used: {err}", hint="expected certificates and keys as PEM") from None
        if not self.verifies:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


class Credentials(Protocol):
    """Tells the client which credentials and secrets addresses have."""

    def request_of(self, url: str) -> tuple[str, dict[str, str]]:
        """The address to request for ``url``, and the headers with its credentials."""

    def redact(self, url: str) -> str:
        """``url`` without secrets, for messages."""

    def redact_text(self, text: str) -> str:
        """A library's message without the secrets of addresses in it."""

    def hint_of(self, url: str) -> str:
        """What to do where a server refuses to give ``url``."""


@dataclass(kw_only=True, slots=True)
class Response:
    """A server's response; its body is read as a stream, which starts at byte ``start`` of the file."""

    raw: urllib3.BaseHTTPResponse
    timeouts: Timeouts
    watch: Watch
    redact_text: Callable[[str], str]
    start: int = 0
    _arrivals: Arrivals = field(init=False)

    def __post_init__(self) -> None:
        self._arrivals = Arrivals(timeouts=self.timeouts)

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.raw.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, by case-insensitive name."""
        return self.raw.headers

    def read1(self, limit_bytes: int = _CHUNK_BYTES) -> bytes:
        """The bytes that have arrived, at least one; empty at the end.

        Raises TransientError for a connection that breaks or ends early, and TooSlowError.
        """
        try:
            with self.watch.over(getattr(self.raw.connection, "opened", None)):
                return self._arrivals.read(lambda: self.raw.read1(limit_bytes, decode_content=False))
        except _errors_of_requests() as err:
            raise TransientError(self.redact_text(_reason(err))) from None


class HttpClient:
    """Makes requests to any number of servers, for any number of threads, over connections that are kept open."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        credentials: Credentials,
        timeouts: Timeouts | None = None,
        retry: Retry | None = None,
        tls: Tls | None = None,
    ) -> None:
        """``environ`` has the proxies: HTTP_PROXY, HTTPS_PROXY and NO_PROXY, in upper or lower case."""
        self.timeouts = timeouts or Timeouts()
        self.retry = retry or Retry()
        self.credentials = credentials
        self._environ = environ
        self._watch = Watch(2 * self.timeouts.read_s)
        self._tls = tls or Tls()
        self._managers: dict[tuple[str, str | None], urllib3.PoolManager] = {}
        self._lock = threading.Lock()

    @contextmanager
    def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | IO[bytes] | None = None,
        follow: bool = True,
    ) -> Iterator[Response]:
        """Send one request; the response may have any status. With ``follow``, redirects are followed.

        Raises TransientError if the server cannot be reached, NetworkError for an invalid address or endless redirects.
        """
        own = dict(headers or {})
        address, stored = (url, {}) if "Authorization" in own else self.credentials.request_of(url)
        raw = self._follow(method, address, {**_HEADERS, **stored, **own}, body, _MAX_REDIRECTS if follow else 0)
        try:
            redact_text = self.credentials.redact_text
            yield Response(raw=raw, timeouts=self.timeouts, watch=self._watch, redact_text=redact_text)
        finally:
            raw.close()  # closes only the connection, and only if the body was not read completely
            raw.release_conn()

    @contextmanager
    def get(self, url: str, *, start: int = 0, etag: str | None = None) -> Iterator[Response]:
        """Get a file from byte ``start`` on; a server may send all of it, and should if its ``etag`` has changed.

        Raises NetworkError (such as MissingError) if a retry cannot help, TransientError if it can.
        """
        headers = {"Range": f"bytes={start}-"} if start else {}
        if start and etag is not None:
            headers["If-Range"] = etag
        with self.open("GET", url, headers=headers) as response:
            response.start = self._checked_start(response, url, start)
            yield response

    def read(self, url: str, *, limit_bytes: int) -> bytes:
        """Read a small file. Raises NetworkError (such as MissingError), also if it has more than ``limit_bytes``."""
        where, failures = self.credentials.redact(url), 0
        while True:
            try:
                with self.get(url) as response:
                    return _read_all(response, where, limit_bytes)
            except TransientError as err:
                failures += 1
                if self.retry.is_last(failures, err.retry_after_s):
                    hint = "check the address and the route to it, then run it again"
                    raise NetworkError(f"{where}: {err}", hint=hint) from None
                time.sleep(self.retry.wait_s(failures, err.retry_after_s))

    def _follow(
        self, method: str, url: str, headers: dict[str, str], body: bytes | IO[bytes] | None, redirects: int
    ) -> urllib3.BaseHTTPResponse:
        parts = self._checked_url(url)
        for redirects_left in range(redirects, -1, -1):
            raw = self._send(method, parts, headers, body)
            location = raw.headers.get("Location")
            if not redirects or raw.status not in _REDIRECTS or location is None:
                return raw
            raw.close()
            raw.release_conn()
            if not redirects_left:
                break
            target = self._checked_url(urljoin(parts.geturl(), location))
            if (target.scheme, target.netloc) != (parts.scheme, parts.netloc):
                headers = {name: value for name, value in headers.items() if name in _ANYWHERE}
            parts = target
        raise NetworkError(f"more than {redirects} redirects from {self.credentials.redact(url)}")

    def _send(
        self, method: str, parts: SplitResult, headers: Mapping[str, str], body: bytes | IO[bytes] | None
    ) -> urllib3.BaseHTTPResponse:
        manager = self._manager(parts.scheme, proxy_of(parts, self._environ))
        try:
            return manager.request(
                method, parts.geturl(), headers=headers, body=body, redirect=False, retries=False, preload_content=False
            )
        except _errors_of_requests() as err:
            raise TransientError(self.credentials.redact_text(_reason(err))) from None

    def _manager(self, scheme: str, proxy: str | None) -> urllib3.PoolManager:
        """The pool of connections through ``proxy``, or of direct ones."""
        with self._lock:
            if (scheme, proxy) not in self._managers:
                self._managers[scheme, proxy] = _make_manager(scheme, proxy, self.timeouts, self._tls, self._watch)
            return self._managers[scheme, proxy]

    def _checked_url(self, url: str) -> SplitResult:
        try:
            parts = urlsplit(url)._replace(fragment="")
            valid = parts.scheme in _SCHEMES and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            valid = False
        if not valid:
            message = (
                f"{self.credentials.redact(url)}: not a valid address; expected http://HOST/... or https://HOST/..."
            )
            raise NetworkError(message, hint="check the address")
        return parts

    def _checked_start(self, response: Response, url: str, start: int) -> int:
        """The position in the file at which the body starts. Raises for a status without a file."""
        status = response.status
        if status == HTTPStatus.PARTIAL_CONTENT:
            match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if match is None or int(match[1]) != start:
                raise TransientError(f"requested bytes from {start} on, got {response.headers.get('Content-Range')}")
            return start
        if status == HTTPStatus.OK:
            return 0
        if start and status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise RangeError(f"the server has no bytes from {start} on")
        if status in TEMPORARY_STATUSES:
            raise TransientError(f"HTTP status {status}", retry_after_s=retry_after_s(response.headers))
        where = self.credentials.redact(url)
        hint = self.credentials.hint_of(url) if status in _REFUSED else "check the address"
        problem = f"HTTP status {status}: {_WORDS.get(status) or response.raw.reason or 'not a file'}"
        kind = MissingError if status in _MISSING else NetworkError
        raise kind(f"{where}: {problem}", hint=hint)


def _errors_of_requests() -> tuple[type[Exception], ...]:
    """What urllib3 raises for a request or response that failed."""
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - as in _make_manager

    return (HTTPError, OSError, ValueError)


def _make_manager(scheme: str, proxy: str | None, timeouts: Timeouts, tls: Tls, watch: Watch) -> urllib3.PoolManager:
    import urllib3  # noqa: PLC0415 - slow to import, and most commands send no request

    timeout = urllib3.Timeout(connect=timeouts.connect_s, read=timeouts.read_s)
    options: _PoolOptions = {"maxsize": _CONNECTIONS_PER_HOST, "timeout": timeout, "blocksize": _CHUNK_BYTES}
    if scheme == "https":  # one context for all; by default the platform's certificates, or those in SSL_CERT_FILE
        options["ssl_context"] = tls.context()
        if not tls.verifies:  # which the user has chosen, so it is no news
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    if proxy is None:
        return _watched(urllib3.PoolManager(**options), watch)
    parts = urlsplit(proxy)
    host = parts.netloc.rpartition("@")[2]
    if parts.scheme not in _SCHEMES or not host:
        raise NetworkError(f"the proxy {parts.scheme}://{host} cannot be used; expected http://HOST:PORT")
    pair = None if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    headers = urllib3.make_headers(proxy_basic_auth=pair)
    return _watched(urllib3.ProxyManager(f"{parts.scheme}://{host}", proxy_headers=headers, **options), watch)


def _watched(manager: urllib3.PoolManager, watch: Watch) -> urllib3.PoolManager:
    """``manager`` with connections on which responses' headers are read under ``watch``."""
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool  # noqa: PLC0415 - as in _make_manager
    from urllib3.connection import HTTPConnection, HTTPSConnection  # noqa: PLC0415

    class Plain(HTTPConnection):
        def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as urllib3's own
            self.opened = self.sock  # which is taken away from the connection if this is its last response
            with watch.over(self.sock):
                return super().getresponse()

    class Encrypted(Plain, HTTPSConnection):
        pass

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class EncryptedPool(HTTPSConnectionPool):
        ConnectionCls = Encrypted

    manager.pool_classes_by_scheme = {"http": PlainPool, "https": EncryptedPool}
    return manager


def _read_all(response: Response, where: str, limit_bytes: int) -> bytes:
    stated = response.raw.length_remaining
    if stated is not None and stated > limit_bytes:
        message = f"{where}: the server says that it has {stated} bytes; at most {limit_bytes} are read"
        raise NetworkError(message, hint="check the address")
    chunks, size_bytes = [], 0
    try:
        while chunk := response.read1():
            chunks.append(chunk)
            size_bytes += len(chunk)
            if size_bytes > limit_bytes:
                raise NetworkError(f"{where}: longer than {limit_bytes} bytes", hint="check the address")
        return b"".join(chunks)
    except MemoryError:
        chunks.clear()
        message = f"{where}: after {size_bytes} bytes this process has no memory for more"
        raise NetworkError(message, hint="check the address; if it is right, use a machine with more memory") from None


def _reason(err: Exception) -> str:
    """The reason for an error, without the object names in urllib3's messages."""
    from urllib3.exceptions import IncompleteRead  # noqa: PLC0415 - as in _make_manager

    cause = err.args[1] if len(err.args) > 1 and isinstance(err.args[1], Exception) else err
    if isinstance(cause, IncompleteRead) and cause.expected is not None:
        return f"the connection ended after {cause.partial} of {cause.partial + cause.expected} bytes"
    return re.sub(r"^\w+\(host=.*?\): ", "", str(cause)) or type(cause).__name__


def basic_authorization(username: str, password: str) -> str:
    """The value of an Authorization header."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode("ascii")


def netrc_authorization(host: str, environ: Mapping[str, str]) -> str | None:
    """The credentials for a host in .netrc (``NETRC``, else in ``HOME``), as the value of an Authorization header.

    Raises ConfigError for a file that cannot be read.
    """
    path = Path(environ.get("NETRC") or Path(environ.get("HOME", "/")) / ".netrc")
    if not path.is_file():
        return None
    try:
        login = netrc.netrc(path).authenticators(host)
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError) as err:
        # without the parser's message, which may quote the file
        raise ConfigError(f"cannot be read as credentials ({type(err).__name__})", path=path) from None
    return None if login is None else basic_authorization(login[0], login[2] or "")


def proxy_of(parts: SplitResult, environ: Mapping[str, str]) -> str | None:
    """The proxy for requests to an address, None for a direct connection. Raises NetworkError for one that is none."""

    def variable(name: str) -> str:
        return environ.get(name) or environ.get(name.upper(), "")

    proxy = variable(f"{parts.scheme}_proxy")
    host = (parts.hostname or "").lower()
    if not proxy or any(_is_exempt(host, parts.port, entry) for entry in variable("no_proxy").lower().split(",")):
        return None
    if not proxy.isascii() or not proxy.isprintable():
        message = f"the proxy for {parts.scheme} addresses has characters in it that no address has"
        raise NetworkError(message, hint=f"correct {parts.scheme}_proxy: http://HOST:PORT, other characters as %XX")
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_exempt(host: str, port: int | None, entry: str) -> bool:
    """Whether an entry of NO_PROXY matches the host: ``*``, a name or domain, with or without a port, or a network."""
    name = entry.strip().lstrip(".")
    if not name:
        return False
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(name.strip("[]"), strict=False)
    except ValueError:
        names = (host, f"{host}:{port}")
        return name == "*" or any(spelling == name or spelling.endswith(f".{name}") for spelling in names)
