# SPDX-License-Identifier: BSD-3-Clause
"""What conda 26.7 asks of a channel and of an explicit list, written from its sources, for runs without conda.

- Shards: ``conda/_private/shards``. Bytes become text in ``sha256`` and ``md5`` alone (``misc.ensure_hex_hash``); then
  a record must be JSON, as which it is kept. Addresses are those of CEP 16: relative ones to the index.
- Explicit lists: ``conda/misc.py``, ``_get_url_pattern``.
"""

from __future__ import annotations

import hashlib
import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urljoin

import msgspec
import pytest
import zstandard

from channel_tools.channel import content
from channel_tools.conda import repodata

_EXPLICIT = re.compile(
    r"(?:(?P<folder>.+)(?:[/\\]))?(?P<file>[^/\\#]+(?:\.conda|\.tar\.bz2))"
    r"(?:#((?P<md5>[0-9a-f]{32})|((sha256:)?(?P<sha256>[0-9a-f]{64}))))?$"
)
_INDEX = "repodata_shards.msgpack.zst"


@contextmanager
def earlier_form() -> Iterator[None]:
    """Within, shards are made as until 0.2: all hashes as bytes, at which conda fails."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(repodata, "SHARD_BYTES", ("md5", "sha256", "attestations_sha256"))
        patched.setattr(content, "_FORM", b"")
        yield


@dataclass(frozen=True, kw_only=True)
class Download:
    """A package that conda would fetch: where, and the sha256 that it holds it to."""

    url: str
    sha256: str

    def fetch(self) -> bytes:
        """The package's bytes. Raises ValueError if they are others than the index or list says."""
        content = get(self.url)
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise ValueError(f"{self.url}: other bytes than {self.sha256}")
        return content


def get(url: str) -> bytes:
    """The answer to a request, as bytes; an http.client or urllib error for any but a success."""
    with urllib.request.urlopen(url) as answer:  # noqa: S310 - loopback and file addresses of tests
        content: bytes = answer.read()
    return content


def records(channel: str, subdir: str) -> dict[str, dict[str, object]]:
    """All records of a subdir by file name, as conda keeps them from shards. Raises TypeError for one it cannot."""
    return dict(_sharded(channel, subdir)[1])


def downloads(channel: str, subdir: str) -> dict[str, Download]:
    """What conda fetches for each package of a subdir, by file name."""
    base, rows = _sharded(channel, subdir)
    return {name: Download(url=urljoin(base, name), sha256=str(row["sha256"])) for name, row in rows}


def explicit(text: str) -> list[Download]:
    """The downloads of an explicit list. Raises ValueError for a line that conda cannot read or does not check."""
    found = []
    for line in (row.strip() for row in text.splitlines()):
        if line and not line.startswith("#") and line != "@EXPLICIT":
            match = _EXPLICIT.match(line)
            if match is None or match["sha256"] is None:
                raise ValueError(f"{line}: no address with a sha256")
            found.append(Download(url=f"{match['folder']}/{match['file']}", sha256=match["sha256"]))
    return found


class _Info(msgspec.Struct):
    base_url: str
    shards_base_url: str


class _Index(msgspec.Struct):
    info: _Info
    shards: dict[str, bytes]


class _Shard(msgspec.Struct):
    packages: dict[str, dict[str, object]]
    conda: dict[str, dict[str, object]] = msgspec.field(name="packages.conda")


def _sharded(channel: str, subdir: str) -> tuple[str, list[tuple[str, dict[str, object]]]]:
    """The address that file names are relative to, and the records."""
    address = f"{channel.rstrip('/')}/{subdir}/{_INDEX}"
    index = msgspec.msgpack.decode(_unpacked(get(address)), type=_Index)
    folder = urljoin(address, index.info.shards_base_url)
    rows = [
        row
        for name, sha256 in index.shards.items()
        for row in _rows(_unpacked(get(urljoin(folder, f"{sha256.hex()}.msgpack.zst"))), name)
    ]
    return urljoin(address, index.info.base_url), rows


def _rows(packed: bytes, name: str) -> Iterator[tuple[str, dict[str, object]]]:
    shard = msgspec.msgpack.decode(packed, type=_Shard)
    for file_name, row in (shard.packages | shard.conda).items():
        text = {key: value.hex() for key in ("sha256", "md5") if isinstance(value := row.get(key), bytes)}
        kept = json.loads(json.dumps(row | text))
        if kept["name"] != name:
            raise ValueError(f"{file_name} is in the shard of {name}")
        yield file_name, kept


def _unpacked(packed: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(packed)
