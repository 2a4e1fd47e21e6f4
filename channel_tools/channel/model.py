# SPDX-License-Identifier: BSD-3-Clause
"""The values of the channel stage.

Only ``channel_writer`` makes a ChannelWriter, so having one means holding the writer's lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from channel_tools.conda.addresses import channel_address, channel_name, has_credentials, without_credentials
from channel_tools.requests.names import (
    BASES,
    DEFAULT_FOUNDATION,
    FIRST_BASE,
    FOUNDATIONS,
    BaseName,
    FoundationKind,
    FoundationTraits,
)
from channel_tools.system.beneath import folder_beneath
from channel_tools.system.errors import UsageError
from channel_tools.system.files import absolute_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from channel_tools.channel.records import CachedPackage
    from channel_tools.conda.package import PackageRef
    from channel_tools.system.beneath import Beneath

ChannelFaultKind = Literal[
    "damaged", "unindexed", "missing", "changed", "inconsistent", "foreign", "uninstallable", "changing"
]

RECORD_FOLDER = ".channel_tools"
_MACHINES = {"linux-64": "x86-64", "linux-aarch64": "aarch64"}
_CONDA_FORGE = "https://conda.anaconda.org/conda-forge"


@dataclass(frozen=True, kw_only=True, slots=True)
class Foundation:
    """The channel that provides what is not built here: linked in (if it ``is_made_here``) or read at ``address``.

    ``further`` are the addresses of other channels that packages of ours were built with, in order of priority, below
    ours and above a foundation at an address. Packages built with some fit into a channel with others, so two
    foundations that differ in these alone are equal.
    """

    kind: FoundationKind = DEFAULT_FOUNDATION
    address: str | None = None
    further: tuple[str, ...] = field(default=(), compare=False)
    base: BaseName | None = None
    """The Debian release of one that is made here; None is the first base's, as in channels that record none."""

    @classmethod
    def named(cls, kind: FoundationKind | None, address: str | None, base: BaseName | None = None) -> Foundation | None:
        """The one that ``--foundation``, ``--foundation-channel`` and ``--base`` name; None if none is given.

        Raises UsageError for an address of one that is made here, and for one with credentials, since it is recorded.
        """
        if address is not None and has_credentials(address):
            shown = without_credentials(address)
            message = (
                f"--foundation-channel {shown}: given with credentials, and the address is recorded in the channel"
            )
            raise UsageError(message, hint="store them: in ~/.netrc, or by rattler auth login")
        is_made_here = kind is None or FOUNDATIONS[kind].is_made_here
        if address is not None and is_made_here:
            message = f"--foundation-channel {address} needs --foundation conda-forge"
            raise UsageError(message, hint="the registry foundation is made on this machine and has no address")
        if base is not None and not is_made_here:
            message = (
                f"--base {base} with --foundation {kind}: only the registry foundation is made from a Debian release"
            )
            raise UsageError(message, hint="leave one of the two out")
        if kind is None:
            return None if base is None else cls().on(base)
        return cls(kind=kind, address=None if is_made_here else channel_address(address or _CONDA_FORGE)).on(base)

    def on(self, base: BaseName | None) -> Foundation:
        """The same of this Debian release; None is the first base's."""
        return replace(self, base=None if base == FIRST_BASE else base)

    @property
    def release(self) -> BaseName:
        """The Debian release that it is made from, if it is made here."""
        return self.base or FIRST_BASE

    @property
    def base_in_words(self) -> str:
        """The release, and whether Debian still cares for it.

        >>> Foundation().on("debian-11").base_in_words
        "debian-11, which is out of Debian's support"
        """
        return self.release if BASES[self.release].is_supported else f"{self.release}, which is out of Debian's support"

    @property
    def glibc(self) -> str | None:
        """The oldest glibc that runs all that is built on it; None if that is not known, as elsewhere."""
        return BASES[self.release].glibc if self.is_made_here else None

    def runs_on(self, subdirs: Iterable[str]) -> str | None:
        """``glibc 2.36 or later, x86-64``: the machines that its channel is for; None if that is not known."""
        names = sorted({_MACHINES[subdir] for subdir in subdirs if subdir in _MACHINES}, reverse=True)
        return None if self.glibc is None else ", ".join([f"glibc {self.glibc} or later", " and ".join(names)])

    @property
    def traits(self) -> FoundationTraits:
        """What it has in common with others of its kind."""
        return FOUNDATIONS[self.kind]

    @property
    def is_made_here(self) -> bool:
        """Whether this program makes it, and links its packages into our channels."""
        return self.traits.is_made_here

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where clients find what the channel itself does not have, in order of priority."""
        return self.further if self.address is None else (*self.further, self.address)

    @property
    def client_addresses(self) -> tuple[str, ...]:
        """The channels beside ours that a client is to name, in order of priority."""
        is_unsaid = self.address is None and not self.is_made_here
        return (*self.addresses, self.kind) if is_unsaid else self.addresses

    @property
    def is_updated_by_others(self) -> bool:
        """Whether others change what builds get of it, so that a tree has a lock: not a foundation made here alone."""
        return not self.is_made_here or bool(self.further)

    def with_further(self, addresses: Iterable[str]) -> Foundation:
        """The same with these further channels first; of two with one name (channel_name), the new one stays."""
        known: dict[str, str] = {}
        for address in (*addresses, *self.further):
            known.setdefault(channel_name(address), address)
        return replace(self, further=tuple(known.values()))

    def __str__(self) -> str:
        if self.base is not None:
            return f"{self.kind} of {self.base}"
        return self.kind if self.address is None else f"{self.kind} at {self.address}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """A channel folder that has been created or opened."""

    path: Path
    foundation: Foundation
    within: Path | None = None
    """The folder that links must stay in, if that is not the channel's own: for a label, its channel's."""

    @property
    def files(self) -> Beneath:
        """The channel's folder, to name files in it."""
        return folder_beneath(self.path, within=self.within)

    @property
    def address(self) -> str:
        """The ``file://`` address for conda clients."""
        return absolute_path(self.path).as_uri()

    @property
    def record_folder(self) -> Path:
        """The folder of our own records beside the subdirs; conda clients do not read it."""
        return self.path / RECORD_FOLDER

    @property
    def record_file(self) -> Path:
        """The file with the channel's schema, name and foundation."""
        return self.record_folder / "channel.json"

    @property
    def lock_file(self) -> Path:
        """The lock file, held by the one writer."""
        return self.record_folder / "lock"

    def state_file(self, subdir: str) -> Path:
        """The cache of the last index of ``subdir``; if deleted, it is made again from the packages."""
        return self.record_folder / "state" / f"{subdir}.msgpack"


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelWriter:
    """A channel whose writer's lock is held; ``clock`` returns seconds since the epoch."""

    channel: Channel
    clock: Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexedFile:
    """A complete package file of the channel; ``hidden`` is why new solves do not see it (None if they do)."""

    ref: PackageRef
    path: Path
    row: CachedPackage
    hidden: str | None


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class ChannelFault:
    """One fault of a channel: where, what, and what to do next."""

    path: Path
    kind: ChannelFaultKind
    message: str
    hint: str
