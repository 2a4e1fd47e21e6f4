# SPDX-License-Identifier: BSD-3-Clause
"""What a bundle has of channels beside their packages: indexes, locks and attestations, whose content is made here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.conda.addresses import local_path, without_credentials
from channel_tools.conda.package import LIMIT_BYTES, RECORD_FIELD, hashed_name, read_sidecar, subdir_beneath
from channel_tools.conda.repodata import CHANNELDATA
from channel_tools.mirror.format import channel_path, encode_lock, is_safe_path, lock_path, package_at, sha256_of
from channel_tools.mirror.records import channeldata, derived_index, plain_index
from channel_tools.system.errors import ChannelError, IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from channel_tools.mirror.exporting.plan import ChannelPart
    from channel_tools.pins import Lock
    from channel_tools.system.http.client import HttpClient


def attestation_files(parts: Iterable[ChannelPart], client: HttpClient) -> dict[str, bytes]:
    """The attestations named in the records of a bundle's packages, by path.

    Raises IntegrityError if their bytes differ from the hash in the record, NetworkError.
    """
    contents: dict[str, bytes] = {}
    for part in parts:
        for package in part.packages:
            key = package_at(package.path)
            record = None if key is None else part.records[key.subdir].get(key.file_name)
            sha256 = None if record is None else record.get(RECORD_FIELD)
            if key is not None and isinstance(sha256, str):
                name = f"{key.subdir}/{hashed_name(key.file_name, sha256)}"
                path, url = channel_path(part.channel.name, name), hashed_name(package.url, sha256)
                contents[path] = _read_attestations(url, client)
                if sha256_of(contents[path]) != sha256 or not is_safe_path(path):
                    message = f"{without_credentials(url)}: its bytes differ from the hash in the record of {key}"
                    raise IntegrityError(message, hint="index the channel again")
    return contents


def _read_attestations(url: str, client: HttpClient) -> bytes:
    local = local_path(url)
    if local is None:
        return client.read(url, limit_bytes=LIMIT_BYTES)
    try:
        return read_sidecar(local, folder=subdir_beneath(local))
    except FileNotFoundError:
        message = f"{local}: is named in its package's record, but does not exist"
        raise ChannelError(message, hint="run channel_tools channel verify to see what is wrong there") from None


def index_files(
    locks: Iterable[Lock], parts: Iterable[ChannelPart], *, complete: bool, now: datetime
) -> dict[str, bytes]:
    """The indexes and locks of a bundle by path; with ``complete`` clients can use its channels as they are."""
    files: dict[str, bytes] = {lock_path(lock.stack): encode_lock(lock) for lock in locks}
    for part in parts:
        name = part.channel.name
        for subdir, records in part.records.items():
            contents = plain_index(subdir, records)
            if complete:
                contents |= derived_index(subdir, records, contents, now_s=now.timestamp())
            files |= {channel_path(name, f"{subdir}/{file_name}"): content for file_name, content in contents.items()}
        if complete:
            files[channel_path(name, CHANNELDATA)] = channeldata(part.records)
    return files
