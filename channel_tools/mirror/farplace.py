# SPDX-License-Identifier: BSD-3-Clause
"""Where a bundle is imported to: a folder, or a channel on a server and its neighbours.

A folder holds everything. A server holds the channels only; what else a bundle brings, and what the far side remembers,
lies in a folder of the machine that imports.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from channel_tools.addresses import without_credentials
from channel_tools.errors import UsageError
from channel_tools.mirror.farside import FarState, far_state
from channel_tools.mirror.model import CHANNELS_FOLDER

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.mirror.model import BundleChannel

_SERVER_SCHEMES = frozenset({"http", "https"})
_SHORT = 12


class FarPlace(Protocol):
    """What importing asks of its destination."""

    @property
    def files(self) -> Path:
        """The folder for what is no channel: locks, sources, the tool."""
        ...

    @property
    def state(self) -> FarState:
        """What the far side remembers."""
        ...

    def target(self, channel: BundleChannel) -> str:
        """Where a channel is published to, with any credentials."""
        ...

    def folder(self, channel: BundleChannel) -> Path | None:
        """The channel's folder, None where there is only an address."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderPlace:
    """A folder that is laid out as the bundle is."""

    root: Path

    @property
    def files(self) -> Path:
        """The folder itself."""
        return self.root

    @property
    def state(self) -> FarState:
        """Beside the channels."""
        return far_state(self.root)

    def target(self, channel: BundleChannel) -> str:
        """The channel's folder."""
        return str(self.folder(channel))

    def folder(self, channel: BundleChannel) -> Path:
        """``channels/NAME``."""
        return self.root.absolute() / CHANNELS_FOLDER / channel.name


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerPlace:
    """Our channel on a server of ours; foreign ones become its neighbours, under their own names."""

    address: str
    files: Path

    @property
    def state(self) -> FarState:
        """Beside the files."""
        return far_state(self.files)

    def target(self, channel: BundleChannel) -> str:
        """The address given, or with its last part replaced."""
        return self.address if channel.own else f"{self.address.rpartition('/')[0]}/{channel.name}"

    def folder(self, channel: BundleChannel) -> None:
        """A server's folder is its own."""
        del channel


def far_place(to: str, *, state: Path, cwd: Path) -> FarPlace:
    """The place that ``to`` names: a folder, or ``https://HOST/CHANNEL``; then ``state`` holds a folder per server.

    Raises UsageError for any other address.
    """
    if "://" not in to:
        return FolderPlace(root=cwd / to)
    address = to.rstrip("/")
    scheme, _, rest = address.partition("://")
    if scheme not in _SERVER_SCHEMES or "/" not in rest:
        message = f"{without_credentials(to)}: bundles are imported into a folder or into https://HOST/CHANNEL"
        raise UsageError(message, hint="import into a folder, then publish from there")
    name = hashlib.sha256(without_credentials(address).encode()).hexdigest()[:_SHORT]
    return ServerPlace(address=address, files=state / f"{rest.rpartition('/')[2]}-{name}")
