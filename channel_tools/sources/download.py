# SPDX-License-Identifier: BSD-3-Clause
"""One file from one address, going on where an earlier download was cut off.

Nothing that a server says about length, ranges or validators is believed: what came is judged by its sha256. A part
that was continued and turns out wrong is fetched once more from its beginning, since the part may have been another
file's; only then is the address given up.
"""

from __future__ import annotations

import http
import http.client
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools import __version__
from channel_tools.errors import IntegrityError, NetworkError
from channel_tools.files import disk_full_reported, sha256_of_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.client import HTTPResponse
    from pathlib import Path

_TIMEOUT_S = 30.0
_ATTEMPTS = 3
_CHUNK_BYTES = 1 << 18
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")
_REFUSED = frozenset(
    {
        http.HTTPStatus.FORBIDDEN, http.HTTPStatus.NOT_FOUND, http.HTTPStatus.GONE, http.HTTPStatus.UNAUTHORIZED,
        http.HTTPStatus.PROXY_AUTHENTICATION_REQUIRED,
    }
)  # fmt: skip


class Cancelled(Exception):  # noqa: N818 - no error: somebody asked for the end
    """The download was asked to stop; its part is kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Download:
    """What is to come from ``url`` into ``part``; ``on_bytes`` hears how many came, ``cancelled`` may end it."""

    url: str
    part: Path
    sha256: str
    on_bytes: Callable[[int], None]
    cancelled: Callable[[], bool]


def download(wanted: Download) -> None:
    """Leave exactly the wanted bytes in ``wanted.part``.

    Raises NetworkError when they cannot be had there, IntegrityError when other bytes came (the part is gone then),
    DiskFullError, Cancelled.
    """
    problem = ""
    for _attempt in range(_ATTEMPTS):
        continued = _size(wanted.part) > 0
        try:
            _fetch(wanted)
        except urllib.error.HTTPError as err:
            problem = f"HTTP status {err.code} {err.reason}"
            if err.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and continued:
                if sha256_of_file(wanted.part) == wanted.sha256:
                    return
                wanted.part.unlink()
                continue
            if err.code in _REFUSED:
                break
            continue
        except (OSError, http.client.HTTPException) as err:
            if isinstance(err, OSError) and err.errno is not None and err.filename is not None:
                raise  # ours: the part's file, not the connection
            problem = _words(err)
            continue
        found = sha256_of_file(wanted.part)
        if found == wanted.sha256:
            return
        size_bytes = wanted.part.stat().st_size
        wanted.part.unlink()
        if not continued:
            raise IntegrityError(f"gave {size_bytes} bytes with sha256 {found}")
        problem = "the part of an earlier download did not fit"
    raise NetworkError(problem or "the bytes that came were never those expected")


def _fetch(wanted: Download) -> None:
    """One request: the rest of the part where the server gives ranges, else the whole file."""
    start = _size(wanted.part)
    headers = {"User-Agent": f"channel_tools/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(wanted.url, headers=headers)  # noqa: S310 - recipes name https, http, ftp or file
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310
        mode = "ab" if start and _continues_at(response, start) else "wb"
        with disk_full_reported(wanted.part.parent), wanted.part.open(mode) as stream:
            while chunk := response.read(_CHUNK_BYTES):
                stream.write(chunk)
                wanted.on_bytes(len(chunk))
                if wanted.cancelled():
                    raise Cancelled
        _check_length(response, _size(wanted.part) - (start if mode == "ab" else 0))


def _continues_at(response: HTTPResponse, start: int) -> bool:
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        return False
    found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if found is None or int(found[1]) != start:
        raise http.client.HTTPException(f"asked for bytes from {start}, got {response.headers.get('Content-Range')}")
    return True


def _check_length(response: HTTPResponse, received: int) -> None:
    """Reading in pieces ends silently where the connection does; the rest is asked for then."""
    announced = response.headers.get("Content-Length", "")
    if announced.isdigit() and received < int(announced):
        raise http.client.HTTPException(f"the connection ended after {received} of {announced} bytes")


def _words(err: Exception) -> str:
    reason = getattr(err, "reason", None)
    return str(reason or err) or type(err).__name__


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
