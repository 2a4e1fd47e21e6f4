# SPDX-License-Identifier: BSD-3-Clause
"""Locks on their way through a bundle: as values there, in every format on the far side, with its addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from channel_tools.channel.records import encode_json
from channel_tools.mirror.model import LOCKS_FOLDER, BundleRefusedError
from channel_tools.pins import Lock  # noqa: TC001  (msgspec reads the annotation)
from channel_tools.pins.files import FORMATS, pin_files, write_pin_files
from channel_tools.pins.published import with_addresses

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class _LockFile:
    lock: Lock
    schema: int = _SCHEMA


class _Schema(msgspec.Struct):
    schema: int


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


def write_locks(locks: Mapping[str, Lock], folder: Path, addresses: Mapping[str, str]) -> None:
    """Write the locks of a bundle, by path in it, below ``folder``, with channels at their addresses there."""
    for path, lock in sorted(locks.items()):
        place = folder / path.removesuffix(".json")
        place.mkdir(parents=True, exist_ok=True)
        write_pin_files(place, pin_files(with_addresses(lock, addresses), FORMATS))
