# SPDX-License-Identifier: BSD-3-Clause
"""Locks on their way through a bundle: kept as values, so that the far side writes them with its own addresses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from channel_tools.channel.records import encode_json
from channel_tools.mirror.model import LOCKS_FOLDER, BundleRefusedError
from channel_tools.pins import Lock  # noqa: TC001  (msgspec reads the annotation)

if TYPE_CHECKING:
    from collections.abc import Mapping

_SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class _LockFile:
    lock: Lock
    schema: int = _SCHEMA


def lock_path(stack: str) -> str:
    """Where a bundle holds the lock of a stack."""
    return f"{LOCKS_FOLDER}/{stack}.json"


def encode_lock(lock: Lock) -> bytes:
    """A lock as a bundle holds it."""
    return encode_json(_LockFile(lock=lock)) + b"\n"


def decode_lock(content: bytes, *, where: str) -> Lock:
    """What encode_lock wrote. Raises BundleRefusedError."""
    try:
        schema = msgspec.json.decode(content, type=_Schema).schema
        if schema > _SCHEMA:
            message = f"{where}: has schema {schema}; this version of channel_tools reads {_SCHEMA}"
            raise BundleRefusedError("newer schema", message, hint="install the channel_tools that the bundle holds")
        return msgspec.json.decode(content, type=_LockFile).lock
    except msgspec.MsgspecError as err:
        raise BundleRefusedError("damaged", f"{where}: cannot be read: {err}") from None


class _Schema(msgspec.Struct):
    schema: int


def relocated(lock: Lock, addresses: Mapping[str, str]) -> Lock:
    """The lock with its channels at other addresses; those not in ``addresses`` stay."""

    def moved(address: str) -> str:
        return addresses.get(address.rstrip("/"), address)

    platforms = tuple(
        replace(
            platform,
            packages=tuple(
                replace(
                    package,
                    channel=moved(package.channel),
                    url=f"{moved(package.channel).rstrip('/')}/{package.subdir}/{package.file_name}",
                )
                for package in platform.packages
            ),
        )
        for platform in lock.platforms
    )
    return replace(lock, channels=tuple(moved(address) for address in lock.channels), platforms=platforms)
