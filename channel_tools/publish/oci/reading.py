# SPDX-License-Identifier: BSD-3-Clause
"""Reads a channel in an OCI registry: the index of a subdir, and the bytes of packages.

Clients read such channels themselves; this is for what they cannot do: to publish into one, and to mirror one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from channel_tools.conda.index import warn_of_unread
from channel_tools.conda.package import RECORD_FIELD
from channel_tools.conda.repodata import REPODATA, decode_repodata, unpack_index
from channel_tools.publish.model import MAIN_LABEL
from channel_tools.publish.oci.layout import (
    LATEST,
    REPODATA_TYPE,
    REPODATA_ZST_TYPE,
    Descriptor,
    package_type,
    parse_registry_address,
    required_layer,
)
from channel_tools.publish.oci.registry import Registry
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from channel_tools.conda.contents import JsonObject
    from channel_tools.conda.package import PackageRef
    from channel_tools.publish.oci.layout import RegistryAddress
    from channel_tools.publish.oci.registry import Repository


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistryIndex:
    """A subdir's index: its records by file name, and the digest of the manifest that names it (None: no index).

    ``unread`` are the numbers of entries under keys that this program does not read (unread_entries).
    """

    records: dict[str, JsonObject]
    removed: tuple[str, ...] = ()
    unread: Mapping[str, int] = field(default_factory=dict)
    digest: str | None = None

    def sha256_of(self, file_name: str) -> str | None:
        """The sha256 of a listed file; None if it is not listed."""
        record = self.records.get(file_name)
        return None if record is None else str(record.get("sha256", "unknown"))


def read_index(repository: Repository) -> RegistryIndex:
    """The index that a repository has; an empty one if it has none. Raises ChannelError for one that cannot be read."""
    stored = repository.manifest(LATEST)
    if stored is None:
        return RegistryIndex(records={})
    where = f"{repository.where}:{LATEST}"
    layer = required_layer(stored.manifest, (REPODATA_TYPE, REPODATA_ZST_TYPE), where=where)
    content = repository.read(layer)
    if layer.media_type == REPODATA_ZST_TYPE:
        content = unpack_index(content, where)
    try:
        index = decode_repodata(content)
        records = {name: decode_json(row, dict[str, object]) for name, row in index.records.items()}
    except msgspec.MsgspecError as err:
        message = f"{where}: the index cannot be read: {err}"
        raise ChannelError(message, hint="restore the tag's former manifest, or publish to another path") from None
    return RegistryIndex(records=records, removed=index.removed, unread=index.unread, digest=stored.digest)


def index_name(address: RegistryAddress, subdir: str, *, label: str = MAIN_LABEL) -> str:
    """The repository with the index of a subdir. Raises UsageError for a label that no registry can have."""
    return f"{address.label(label)}/{subdir}/{REPODATA}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistryChannel:
    """A channel in an OCI registry, to read from. All methods raise as Repository's do."""

    registry: Registry

    def records(self, subdir: str) -> dict[str, JsonObject]:
        """All records of a subdir by file name, without attestations, for which the layout has no place.

        A warning names entries of its index that this program does not read. Raises ChannelError if it has no index,
        or one that cannot be read.
        """
        with self.registry.repository(index_name(self.registry.address, subdir)) as repository:
            index = read_index(repository)
        if index.digest is None:
            message = f"{self.registry.address}/{subdir}: not a channel: it has no {REPODATA}"
            raise ChannelError(message, hint="check the channel's address")
        warn_of_unread(index.unread, f"{self.registry.address}/{subdir}")
        return {
            name: {key: value for key, value in record.items() if key != RECORD_FIELD}
            for name, record in index.records.items()
        }

    def copy_package(self, package: PackageRef, begin: Callable[[], Callable[[bytes], object]]) -> None:
        """Pass a package's bytes to what ``begin`` returns, in pieces; ``begin`` is called again for each attempt.

        Raises IntegrityError for other bytes than those of the package's sha256, or more than its size.
        """
        name, _tag = self.registry.address.place_of(package.key, label=MAIN_LABEL)
        blob = Descriptor(
            media_type=package_type(package.key), digest=f"sha256:{package.sha256}", size=package.size_bytes
        )
        with self.registry.repository(name) as repository:
            repository.copy(blob, begin)


def open_registry_channel(address: str, environ: Mapping[str, str]) -> RegistryChannel:
    """The channel at an ``oci://`` address; nothing is contacted. Raises UsageError."""
    return RegistryChannel(registry=Registry(address=parse_registry_address(address), environ=environ))
