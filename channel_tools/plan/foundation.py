# SPDX-License-Identifier: BSD-3-Clause
"""The foundation for planning: records to solve with, and their run_exports as far as known.

A folder is read directly, without a cache; an address is read through rattler's gateway, which revalidates its cache.
Further channels, which a tree's recipes may take packages from besides, are read in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rattler import Channel, SparseRepoData

from channel_tools.conda.addresses import channel_address, channel_name, local_path
from channel_tools.conda.answers import index_addresses
from channel_tools.conda.package import NOARCH
from channel_tools.conda.repodata import INDEX_LIMIT_BYTES, REPODATA, RUN_EXPORTS
from channel_tools.conda.solving import check_indexes
from channel_tools.conda.specs import spec_name, texts_of
from channel_tools.plan.own import OWN_CHANNEL
from channel_tools.plan.run_exports import FolderRunExports
from channel_tools.requests.names import DEFAULT_FOUNDATION, FOUNDATIONS
from channel_tools.system.document import decode_json
from channel_tools.system.errors import FoundationError, IntegrityError
from channel_tools.system.files import absolute_path, read_regular, sha256_of_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rattler import RepoDataRecord
    from rattler.networking import Client

    from channel_tools.conda.package import RunExports
    from channel_tools.plan.locking import LockedFoundation
    from channel_tools.plan.run_exports import RunExportsSource
    from channel_tools.requests.names import FoundationKind


def not_asked_for(name: str) -> str:
    """Why the registry foundation lacks an optional package, and how to request it: ``--with`` takes ``name``."""
    remedy = f"channel_tools build does so, or: channel_tools foundation build --with {name}"
    return f"{FOUNDATIONS[DEFAULT_FOUNDATION].label} makes it only on request; {remedy}"


@dataclass(frozen=True, kw_only=True, slots=True)
class FurtherChannel:
    """A channel besides the foundation: the ``name`` that locks know it by, its address, what is read from it."""

    name: str
    address: str
    sources: tuple[Channel | SparseRepoData, ...]
    run_exports: RunExportsSource


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundationIndex:
    """A channel that provides everything that is not built here; ``label`` names it in messages."""

    label: str
    sources: tuple[Channel | SparseRepoData, ...]
    run_exports: RunExportsSource
    client: Client | None = None
    """What reads addresses, with the credentials that were given in them."""
    cache: Path | None = None
    """Where indexes read from an address are kept; None: rattler's own place in the user's cache."""
    shared_channel: str | None = None
    """The channel that its packages and those built here are in, so that neither has priority; None if these differ."""
    further: tuple[FurtherChannel, ...] = ()
    """Further channels in order of priority: below what is built here, and above a foundation that is another channel.
    What the shared channel has of a name hides what they have."""
    optional: frozenset[str] = frozenset()
    """Packages that it makes only on request."""
    requirements: Mapping[str, frozenset[str]] | None = None
    """The names that packages of each name require, in any version; None if that is not known."""
    locked: LockedFoundation | None = None
    """The tree's view of it and of the further channels, or of these alone if the tree itself makes the foundation;
    None if the tree has no lock."""

    @property
    def shares_channel(self) -> bool:
        """Whether its packages are in the same channel as those built here."""
        return self.shared_channel is not None

    @property
    def own_channel(self) -> str:
        """The channel that packages built here are in, to the solver."""
        return self.shared_channel or OWN_CHANNEL

    @property
    def unlocked(self) -> tuple[SparseRepoData, ...]:
        """What is solved with besides the lock: a foundation that the tree itself makes, always a folder."""
        return cast("tuple[SparseRepoData, ...]", self.sources) if self.shares_channel else ()

    @property
    def all_sources(self) -> tuple[Channel | SparseRepoData, ...]:
        """The foundation and the further channels, in order of priority."""
        further = tuple(source for channel in self.further for source in channel.sources)
        return (*self.sources, *further) if self.shares_channel else (*further, *self.sources)

    @property
    def asked(self) -> list[str]:
        """The addresses of the indexes that are not in folders."""
        return index_addresses(str(source.base_url) for source in self.all_sources if isinstance(source, Channel))

    def further_of(self, record: RepoDataRecord) -> FurtherChannel | None:
        """The further channel that a record is from, None if it is the foundation's."""
        address = (record.channel or "").rstrip("/")
        return next((channel for channel in self.further if channel.address == address), None)

    def key_of(self, record: RepoDataRecord) -> str:
        """The key of a record: ``subdir/file name``, below the name of a further channel if it is from one."""
        further, key = self.further_of(record), f"{record.subdir}/{record.file_name}"
        return key if further is None else f"{further.name}/{key}"

    async def exports_of(self, record: RepoDataRecord) -> RunExports | None:
        """The run_exports of a record. Raises FoundationError and NetworkError as RunExportsSource does."""
        further = self.further_of(record)
        return await (self.run_exports if further is None else further.run_exports).of(record)

    def reach(
        self, names: Iterable[str], also: Callable[[str], frozenset[str]] = lambda _name: frozenset()
    ) -> frozenset[str] | None:
        """All names that a solve for ``names`` can look up, in the lock if there is one; None if that is not known.

        ``also`` returns the names that packages from elsewhere require.
        """
        known = [self.requirements] if self.locked is None or self.shares_channel else []
        known += [] if self.locked is None else [self.locked.requirements]
        if None in known or (self.further and self.locked is None):
            return None
        reached: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                for requirements in known:
                    waiting += (requirements or {}).get(name, frozenset()) - reached
                waiting += also(name)
        return frozenset(reached)


def open_foundation(
    location: Path | str,
    *,
    kind: FoundationKind,
    platform: str,
    optional: frozenset[str] = frozenset(),
    environ: Mapping[str, str] | None = None,
    cache: Path | None = None,
    further: Sequence[str] = (),
) -> FoundationIndex:
    """The foundation in a channel folder or at a channel address, for packages of ``platform`` and noarch.

    Text is an address (with ``://``), a folder (with a slash, or one that exists), or else a channel's name.
    ``environ`` has the proxies and stored credentials for reading run_exports from an address, whose index is kept in
    ``cache``. ``further`` are the addresses of further channels. Raises FoundationError if a folder has no index for
    the platform or one that cannot be read, ChannelError as check_indexes does.
    """
    foundation = _open_foundation(
        location, kind=kind, platform=platform, optional=optional, environ=environ or {}, cache=cache
    )
    if not further:
        return foundation
    channels = tuple(_open_further(address, platform, environ or {}) for address in further)
    addresses = [*([] if isinstance(location, Path) else [channel_address(location)]), *further]
    if remote := [address for address in addresses if local_path(address) is None]:
        from channel_tools.conda.clients import make_client  # noqa: PLC0415 - as in _open_foundation

        _plain, client = make_client(remote)
        foundation = replace(foundation, client=client)
    return replace(foundation, further=channels, cache=cache)


def index_digest(folder: Path, platform: str) -> str:
    """A hash of everything that planning reads from a foundation in a folder."""
    names = [(subdir, name) for subdir in (platform, NOARCH) for name in (REPODATA, RUN_EXPORTS)]
    files = [folder.joinpath(*name) for name in names]
    return " ".join(sha256_of_file(path) for path in files if path.is_file())


def _open_further(address: str, platform: str, environ: Mapping[str, str]) -> FurtherChannel:
    """A further channel. Raises FoundationError if a folder has no index or one that cannot be read."""
    name, folder, channel = channel_name(address), local_path(address), Channel(address)
    base_url = str(channel.base_url).rstrip("/")  # as records name it
    if folder is None:
        from channel_tools.plan.remote_run_exports import RemoteRunExports  # noqa: PLC0415 - as in _open_foundation

        exports = RemoteRunExports(address, environ)
        return FurtherChannel(name=name, address=base_url, sources=(channel,), run_exports=exports)
    subdirs = [subdir for subdir in (platform, "noarch") if has_index(folder, subdir)]
    if not subdirs:
        message = f"{folder}: the channel has no index for {platform} or noarch"
        raise FoundationError(message, hint="give a channel's folder or address; channel_tools channel index makes one")
    sources = tuple(_open_index(channel, subdir, folder / subdir / REPODATA) for subdir in subdirs)
    return FurtherChannel(name=name, address=base_url, sources=sources, run_exports=FolderRunExports(folder))


def _open_foundation(
    location: Path | str,
    *,
    kind: FoundationKind,
    platform: str,
    optional: frozenset[str],
    environ: Mapping[str, str],
    cache: Path | None,
) -> FoundationIndex:
    traits = FOUNDATIONS[kind]
    folder = location if isinstance(location, Path) else local_path(channel_address(location))
    if folder is None:
        # only addresses need HTTP, which is slow to import
        from channel_tools.conda.clients import make_client  # noqa: PLC0415
        from channel_tools.plan.remote_run_exports import RemoteRunExports  # noqa: PLC0415

        address = channel_address(str(location))
        (plain,), client = make_client([address])
        return FoundationIndex(
            label=traits.label,
            sources=(Channel(plain),),
            run_exports=RemoteRunExports(address, environ),
            client=client,
            cache=cache,
        )
    subdirs = [subdir for subdir in (platform, "noarch") if has_index(folder, subdir)]
    if platform not in subdirs:
        message = f"{folder / platform / 'repodata.json'}: {traits.label} has no index for {platform}"
        raise FoundationError(message, hint=traits.absent_hint)
    channel = Channel(absolute_path(folder).as_uri())
    sources = tuple(_open_index(channel, subdir, folder / subdir / REPODATA) for subdir in subdirs)
    return FoundationIndex(
        label=traits.label,
        sources=sources,
        run_exports=FolderRunExports(folder),
        shared_channel=str(channel.base_url) if traits.is_made_here else None,
        optional=optional,
        # conda-forge's index is far too long to read for this
        requirements=_read_requirements(folder, subdirs) if traits.is_made_here else None,
    )


def has_index(folder: Path, subdir: str) -> bool:
    """Whether the channel in ``folder`` has an index of this subdir. Raises as check_indexes."""
    check_indexes(folder, [subdir])
    return (folder / subdir / REPODATA).is_file()


def _open_index(channel: Channel, subdir: str, path: Path) -> SparseRepoData:
    try:
        return SparseRepoData(channel, subdir, path)
    except (OSError, ValueError) as err:
        reason = " ".join(str(err).split())
        raise FoundationError(f"{path}: the index cannot be read: {reason}", hint="index the channel again") from None


def _read_requirements(folder: Path, subdirs: list[str]) -> dict[str, frozenset[str]]:
    requirements: dict[str, frozenset[str]] = {}
    for subdir in subdirs:
        try:
            content = decode_json(read_regular(folder / subdir / REPODATA, limit_bytes=INDEX_LIMIT_BYTES))
            for record in [*content.get("packages", {}).values(), *content.get("packages.conda", {}).values()]:
                names = frozenset(spec_name(text) for text in texts_of(record, "depends"))
                requirements[record["name"]] = requirements.get(record["name"], frozenset()) | names
        except IntegrityError as err:
            message = f"{folder / subdir / 'repodata.json'}: the index has a record that cannot be read: {err}"
            raise FoundationError(message, hint="index the channel again") from None
        except (ValueError, KeyError, AttributeError, TypeError) as err:
            message = f"{folder / subdir / 'repodata.json'}: the index cannot be read: {err!r}"
            raise FoundationError(message, hint="index the channel again") from None
    return requirements
