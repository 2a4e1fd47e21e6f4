# SPDX-License-Identifier: BSD-3-Clause
"""What the far side remembers of bundles: the trusted metadata that detects older ones, and the list of what it has.

It lies in ``.mirror`` beside what was imported. Metadata is replaced file by file in the order in which the TUF client
reads it, so that a killed import leaves a state that the client accepts and from which no version goes back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from channel_tools.errors import ConfigError
from channel_tools.files import write_bytes_atomically
from channel_tools.locks import exclusive_lock
from channel_tools.mirror.model import BUNDLE_SCHEMA, METADATA_FOLDER, TRUSTED_FILES, Received, bundle_damaged
from channel_tools.mirror.reading import open_bundle

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

STATE_FOLDER = ".mirror"
RECEIVED = "received.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class FarState:
    """The folder of that memory."""

    folder: Path

    @property
    def incoming(self) -> Path:
        """Files that were verified and are not in place yet."""
        return self.folder / "incoming"

    @property
    def received_file(self) -> Path:
        """What the far side has; this file may be carried back."""
        return self.folder / RECEIVED

    def locked(self) -> AbstractContextManager[None]:
        """Hold it against another import."""
        return exclusive_lock(self.folder / "lock", what=f"the mirror {self.folder.parent}")

    def trusted(self) -> dict[str, bytes]:
        """The metadata files that were trusted last; none before the first import."""
        folder = self.folder / "trusted"
        return {name: (folder / name).read_bytes() for name in TRUSTED_FILES if (folder / name).is_file()}

    def keep_trusted(self, metadata: Mapping[str, bytes]) -> None:
        """From now on accept nothing older than this."""
        for name in TRUSTED_FILES:
            path = self.folder / "trusted" / name
            if not path.is_file() or path.read_bytes() != metadata[name]:
                write_bytes_atomically(path, metadata[name])

    def received(self) -> Received | None:
        """What is here, None before the first import. Raises ConfigError as read_received."""
        return read_received(self.received_file) if self.received_file.is_file() else None

    def write_received(self, received: Received) -> None:
        """Replace the list."""
        write_bytes_atomically(self.received_file, encode_received(received))


def far_state(folder: Path) -> FarState:
    """The memory of the far side's folder."""
    return FarState(folder=folder / STATE_FOLDER)


def read_since(path: Path) -> Received:
    """What a far side has: from its received.json that was carried back, or from the last bundle that it took.

    Neither is verified: what is wrongly left out of a bundle is missed on the far side, nothing worse. Raises
    ConfigError, UsageError and BundleRefusedError for what is neither.
    """
    if path.is_file() and path.suffix == ".json":
        return read_received(path)
    reader = open_bundle(path)
    names = [name for name in reader.sizes if re.fullmatch(rf"{METADATA_FOLDER}/\d+\.targets\.json", name)]
    if len(names) != 1:
        raise bundle_damaged(path, f"has {len(names)} lists of targets; expected one")
    with reader.open(names[0]) as stream:
        content = stream.read()
    try:
        signed = msgspec.json.decode(content, type=_TargetsFile).signed
    except msgspec.MsgspecError as err:
        raise bundle_damaged(path, f"{names[0]} is no TUF metadata ({err})") from None
    files = {name: target.hashes.get("sha256", "") for name, target in signed.targets.items()}
    return Received(version=signed.version, root_sha256="", files=files)


class _Target(msgspec.Struct):
    hashes: dict[str, str]


class _Signed(msgspec.Struct):
    version: int
    targets: dict[str, _Target]


class _TargetsFile(msgspec.Struct):
    """As much of targets metadata as is needed, without the TUF library: nothing is decided by it."""

    signed: _Signed


def encode_received(received: Received) -> bytes:
    """received.json."""
    return msgspec.json.encode(received, order="sorted") + b"\n"


def read_received(path: Path) -> Received:
    """A list that was written on a far side. Raises ConfigError when it is none, or of a newer schema."""
    hint = f"take {RECEIVED} from the far side's folder {STATE_FOLDER}, or the last bundle itself"
    try:
        received = msgspec.json.decode(path.read_bytes(), type=Received)
    except (OSError, msgspec.MsgspecError) as err:
        raise ConfigError(f"is no list of what a far side has: {err}", path=path, hint=hint) from None
    if received.schema > BUNDLE_SCHEMA:
        message = f"has schema {received.schema}; this version of channel_tools reads {BUNDLE_SCHEMA}"
        raise ConfigError(message, path=path, hint="use the version of channel_tools that wrote it")
    return received
