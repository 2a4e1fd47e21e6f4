# SPDX-License-Identifier: BSD-3-Clause
"""The foundation for planning: records to solve with, and their run_exports as far as known.

A folder is read directly, without a cache; an address is read through rattler's gateway, which revalidates its cache.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rattler import Channel, SparseRepoData

from channel_tools.conda.addresses import channel_address, local_path
from channel_tools.conda.specs import spec_name, texts_of
from channel_tools.plan.run_exports import FolderRunExports
from channel_tools.system.errors import FoundationError, IntegrityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rattler.networking import Client

    from channel_tools.matrix.model import FoundationKind
    from channel_tools.plan.locking import LockedFoundation
    from channel_tools.plan.run_exports import RunExportsSource

_KIND_LABELS: Mapping[FoundationKind, str] = {
    "registry": "the registry foundation",
    "conda-forge": "the conda-forge foundation",
}
_ABSENT_HINTS: Mapping[FoundationKind, str] = {
    "registry": "channel_tools build makes it, or without a build: channel_tools plan --make-foundation",
    "conda-forge": "give a channel's folder or address, or use --foundation registry",
}


def not_asked_for(name: str) -> str:
    """Why the registry foundation lacks an optional package, and how to request it: ``--with`` takes ``name``."""
    how = f"channel_tools build does so, or: channel_tools foundation build --with {name}"
    return f"{_KIND_LABELS['registry']} makes it only on request; {how}"


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundationIndex:
    """A channel that provides everything that is not built here; ``label`` names it in messages."""

    label: str
    sources: tuple[Channel | SparseRepoData, ...]
    run_exports: RunExportsSource
    client: Client | None = None
    cache: Path | None = None
    """Where indexes read from an address are kept; None: rattler's own place in the user's cache."""
    """What reads an address, with the credentials that were given in it."""
    shares_channel: bool = False
    """Whether its packages are in the same channel as those built here, so that neither has priority."""
    optional: frozenset[str] = frozenset()
    """Packages that it makes only on request."""
    requirements: Mapping[str, frozenset[str]] | None = None
    """The names that packages of each name require, in any version; None if that is not known."""
    locked: LockedFoundation | None = None
    """The tree's view of it; None for a foundation that the tree itself makes."""

    def reach(
        self, names: Iterable[str], also: Callable[[str], frozenset[str]] = lambda _name: frozenset()
    ) -> frozenset[str] | None:
        """All names that a solve for ``names`` can look up, in the lock if there is one; None if that is not known.

        ``also`` returns the names that packages from elsewhere require.
        """
        requirements = self.requirements if self.locked is None else self.locked.requirements
        if requirements is None:
            return None
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += requirements.get(name, frozenset()) - found
                waiting += also(name)
        return frozenset(found)


def open_foundation(
    location: Path | str,
    *,
    kind: FoundationKind,
    platform: str,
    optional: frozenset[str] = frozenset(),
    environ: Mapping[str, str] | None = None,
    cache: Path | None = None,
) -> FoundationIndex:
    """The foundation in a channel folder or at a channel address, for packages of ``platform`` and noarch.

    Text is an address (with ``://``), a folder (with a slash, or one that exists), or else a channel's name.
    ``environ`` has the proxies and stored credentials for reading run_exports from an address, whose index is kept in
    ``cache``. Raises FoundationError if a folder has no index for the platform or one that cannot be read.
    """
    label = _KIND_LABELS[kind]
    folder = _folder_of(location)
    if folder is None:
        # only addresses need HTTP, which is slow to import
        from channel_tools.conda.clients import make_client  # noqa: PLC0415
        from channel_tools.plan.remote_run_exports import RemoteRunExports  # noqa: PLC0415

        given = channel_address(str(location))
        (plain,), client = make_client([given])
        return FoundationIndex(
            label=label,
            sources=(Channel(plain),),
            run_exports=RemoteRunExports(given, environ or {}),
            client=client,
            cache=cache,
        )
    subdirs = [subdir for subdir in (platform, "noarch") if has_index(folder, subdir)]
    if platform not in subdirs:
        message = f"{folder / platform / 'repodata.json'}: {label} has no index for {platform}"
        raise FoundationError(message, hint=_ABSENT_HINTS[kind])
    channel = Channel(folder.absolute().as_uri())
    sources = tuple(_open_index(channel, subdir, folder / subdir / "repodata.json") for subdir in subdirs)
    return FoundationIndex(
        label=label,
        sources=sources,
        run_exports=FolderRunExports(folder),
        shares_channel=kind == "registry",
        optional=optional,
        # conda-forge's index is far too long to read for this
        requirements=_read_requirements(folder, subdirs) if kind == "registry" else None,
    )


def has_index(folder: Path, subdir: str) -> bool:
    """Whether the channel in ``folder`` has an index of this subdir."""
    return (folder / subdir / "repodata.json").is_file()


def _folder_of(location: Path | str) -> Path | None:
    if isinstance(location, Path):
        return location
    return local_path(channel_address(location))


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
            content = json.loads((folder / subdir / "repodata.json").read_bytes())
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
