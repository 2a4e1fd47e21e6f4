# SPDX-License-Identifier: BSD-3-Clause
"""Where a bundle is imported to, a folder or a channel on a server and its neighbours, and what is remembered there.

A folder holds everything. A server holds the channels only; what else a bundle brings lies in a folder of the machine
that imports. ``.mirror`` in either folder keeps the trusted metadata that detects older bundles, and the list of what
the site has. Metadata is replaced file by file in the order in which the TUF client reads it, so that a killed import
leaves a state that the client accepts and from which no version goes back.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.conda.addresses import parse_address, without_credentials
from channel_tools.mirror.bundle.format import (
    CHANNELS_FOLDER,
    RECEIVED,
    STATE_FOLDER,
    TRUSTED_FILES,
    Received,
    encode_received,
    read_received,
)
from channel_tools.mirror.trust.metadata import check_trusted
from channel_tools.system.errors import UsageError
from channel_tools.system.files import exclusive_lock, write_bytes_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from channel_tools.mirror.bundle.format import BundleChannel

_SERVER_SCHEMES = frozenset({"http", "https"})
_SHORT = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportTarget:
    """Where a bundle is imported to.

    ``files`` is the folder for locks, sources and the tool, and for the channels, too, unless ``server`` is the address
    (with any credentials) of our channel on a server; channels of others become its neighbours, under their own names.
    """

    files: Path
    server: str | None = None

    @property
    def state(self) -> ImportState:
        """What is remembered of earlier imports."""
        return import_state(self.files)

    def folder(self, channel: BundleChannel) -> Path | None:
        """The channel's folder, None where there is only an address."""
        return None if self.server is not None else self.files.absolute() / CHANNELS_FOLDER / channel.name

    def address(self, channel: BundleChannel) -> str:
        """Where the channel is published to: its folder, or its address with any credentials."""
        if self.server is None:
            return str(self.folder(channel))
        return self.server if channel.own else f"{self.server.rpartition('/')[0]}/{channel.name}"


def import_target(to: str, *, state: Path, cwd: Path) -> ImportTarget:
    """What ``to`` names: a folder, or ``https://HOST/CHANNEL``; then ``state`` holds a folder per server.

    Raises UsageError for any other address.
    """
    if "://" not in to:
        return ImportTarget(files=cwd / to)
    parse_address(to)
    address = to.rstrip("/")
    scheme, _, rest = address.partition("://")
    if scheme not in _SERVER_SCHEMES or "/" not in rest:
        message = f"{without_credentials(to)}: bundles are imported into a folder or into https://HOST/CHANNEL"
        raise UsageError(message, hint="import into a folder, then publish from there")
    name = hashlib.sha256(without_credentials(address).encode()).hexdigest()[:_SHORT]
    return ImportTarget(files=state / f"{rest.rpartition('/')[2]}-{name}", server=address)


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportState:
    """What an importing site trusts and has, kept in ``folder``."""

    folder: Path

    @property
    def incoming(self) -> Path:
        """Files that were verified and are not in place yet."""
        return self.folder / "incoming"

    @property
    def received_file(self) -> Path:
        """The list of what the site has; this file may be carried back."""
        return self.folder / RECEIVED

    def locked(self) -> AbstractContextManager[None]:
        """Hold it against another import."""
        return exclusive_lock(self.folder / "lock", what=f"the mirror {self.folder.parent}")

    def trusted(self) -> dict[str, bytes]:
        """The metadata files that were trusted last; none before the first import.

        Raises IntegrityError for damaged ones.
        """
        folder = self.folder / "trusted"
        trusted = {name: (folder / name).read_bytes() for name in TRUSTED_FILES if (folder / name).is_file()}
        check_trusted(trusted, folder)
        return trusted

    def put_trusted(self, metadata: Mapping[str, bytes]) -> None:
        """From now on accept nothing older than this."""
        for name in TRUSTED_FILES:
            path = self.folder / "trusted" / name
            if not path.is_file() or path.read_bytes() != metadata[name]:
                write_bytes_atomically(path, metadata[name])

    def received(self) -> dict[str, str] | None:
        """What the site has, path to sha256; None before the first import. Raises ConfigError as read_received."""
        return read_received(self.received_file).files if self.received_file.is_file() else None

    def put_received(self, received: Received) -> None:
        """Replace the list of what the site has."""
        write_bytes_atomically(self.received_file, encode_received(received))


def import_state(folder: Path) -> ImportState:
    """What is remembered beside the files that were imported into ``folder``."""
    return ImportState(folder=folder / STATE_FOLDER)
