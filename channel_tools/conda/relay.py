# SPDX-License-Identifier: BSD-3-Clause
"""Requests of rattler that our own HTTP client makes, so that no secret travels where the channel's owner is not.

rattler (0.28) follows redirects with the whole address as Referer, also with a ``/t/TOKEN`` in it, and sends what is
stored for a host to its plain http addresses as well; its client has no option for either. Channels for which that
matters are given to rattler at an address of this process on loopback, which asks for them by ``HttpClient``. The
addresses have a random part, without which nobody else on this machine gets an answer. To be removed when
rattler's client takes a policy for redirects, and credentials by scheme.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import logging
import re
import secrets
import socketserver
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.system.errors import ChannelToolsError
from channel_tools.system.http.pace import TransientError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.system.http.client import HttpClient, Response

_log = logging.getLogger(__name__)
_ASKED = ("Range", "If-None-Match", "If-Modified-Since", "If-Range", "Cache-Control")
"""Headers of rattler's requests that are passed on."""
_ANSWERED = (
    "Content-Type", "Content-Length", "Content-Encoding", "Content-Range", "Accept-Ranges", "ETag", "Last-Modified",
    "Cache-Control", "Expires", "Age", "Date", "Retry-After",
)  # fmt: skip
"""Headers of the server's responses that are passed on."""
RELAY_HOST = "127.0.0.1"
_UNREACHABLE = 502
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+(?:/t/[^/\s]+)?/relay-[\w-]{43}/(https?)/")


def text_without_relay(text: str) -> str:
    """A text of rattler with the addresses of channels in place of those on loopback."""
    return _ADDRESS.sub(r"\1://", text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Relay:
    """Where channels are answered for on loopback, until the process ends."""

    origin: str

    def address_of(self, channel: str) -> str:
        """The address on loopback for a channel's (http or https, without credentials)."""
        return f"{self.origin}/{channel.replace('://', '/', 1)}"


def start_relay(client: HttpClient, channels: Mapping[str, str]) -> Relay:
    """Answer for ``channels``: addresses without credentials, and those to ask instead; all end with a slash."""
    key = f"/relay-{secrets.token_urlsafe(32)}"
    handler = functools.partial(_Handler, client, key, channels)
    server = _Server((RELAY_HOST, 0), handler)
    threading.Thread(target=server.serve_forever, name="relay", daemon=True).start()
    return Relay(origin=f"http://{RELAY_HOST}:{server.server_port}{key}")


@functools.cache  # once, though rattler asks again
def _warn(reason: str) -> None:
    _log.warning("%s", reason)


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that rattler has closed is none of the user's errors."""
        del request, client_address


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, client: HttpClient, key: str, channels: Mapping[str, str], *connection: object) -> None:
        self._client, self._key, self._channels = client, key, channels
        super().__init__(*connection)  # type: ignore[arg-type]  # as socketserver gives them

    def do_GET(self) -> None:
        address = self._address()
        if address is None:
            self.send_error(404)
            return
        asked = {name: self.headers[name] for name in _ASKED if name in self.headers}
        try:
            with self._client.open(self.command, address, headers=asked) as response:
                self._pass_on(response)
        except TransientError as err:
            self._fail(f"{self._client.credentials.redact(address)}: {err}")
        except ChannelToolsError as err:
            self._fail(err.message)

    do_HEAD = do_GET  # noqa: N815 - the names that http.server gives them

    def _address(self) -> str | None:
        """The address to ask for, None for one that is not below a channel's."""
        # what is stored for this machine, rattler has put before it
        _token, key, path = self.path.partition(f"{self._key}/")
        scheme, _, rest = path.partition("/")
        if not key:
            return None
        plain = f"{scheme}://{rest}"
        below = [channel for channel in self._channels if plain.startswith(channel)]
        channel = max(below, key=len, default=None)
        return None if channel is None else self._channels[channel] + plain.removeprefix(channel)

    def _pass_on(self, response: Response) -> None:
        self.send_response_only(response.status)
        for name in _ANSWERED:
            if name in response.headers:
                self.send_header(name, response.headers[name])
        if "Content-Length" not in response.headers:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "HEAD":
            return
        try:
            while chunk := response.read1():
                self.wfile.write(chunk)
        except (TransientError, OSError):  # rattler sees a body that ends early, and asks again
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.close()

    def _fail(self, reason: str) -> None:
        """Say why there is no response, which rattler would take from no header."""
        _warn(reason)
        self.send_response_only(_UNREACHABLE)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing: an address may have a secret."""
