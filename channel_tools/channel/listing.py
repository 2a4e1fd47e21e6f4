# SPDX-License-Identifier: BSD-3-Clause
"""Changes of a listing, as pure functions: a channel in a folder and one in a bucket make the same ones."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from channel_tools.channel.patches import Patch  # noqa: TC001 - msgspec reads the annotations
from channel_tools.system.errors import ChannelError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from channel_tools.channel.model import PublishedPackage


CHANNEL_SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Retired:
    """A file that retention took out of the indexes at ``since_s`` (epoch seconds); its name keeps its ``sha256``."""

    sha256: str
    since_s: float
    deleted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """listing.json: which packages new solves see. All names are ``subdir/file name``.

    ``incoming`` are files of a set that is being added: no index names them until all are there. ``foundation`` is the
    set of foundation packages in force, ``superseded`` those of earlier sets, ``hidden`` own packages with the reason.
    ``yanked`` are packages that people took back, with their reason, ``patches`` what people changed in the records of
    a subdir. ``retired`` are files that retention takes away: hidden at once, deleted later, never of other bytes.
    """

    schema: int = CHANNEL_SCHEMA
    incoming: tuple[str, ...] = ()
    foundation: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    hidden: dict[str, str] = field(default_factory=dict)
    yanked: dict[str, str] = field(default_factory=dict)
    patches: dict[str, Patch] = field(default_factory=dict)
    retired: dict[str, Retired] = field(default_factory=dict)


def not_listed(listing: Listing) -> dict[str, str]:
    """``subdir/file name`` of what new solves must not see, with the reason."""
    removed = {
        f"{subdir}/{name}": "removed by a repodata patch"
        for subdir, patch in listing.patches.items()
        for name in patch.remove
    }
    return removed | hidden_packages(listing)


def hidden_packages(listing: Listing) -> dict[str, str]:
    """What not even the unpatched repodata lists (``subdir/file name``), with the reason."""
    superseded = dict.fromkeys(listing.superseded, "superseded by the foundation in force")
    retired = dict.fromkeys(listing.retired, "retired")
    yanked = {name: f"yanked: {reason}" for name, reason in listing.yanked.items()}
    return superseded | listing.hidden | retired | yanked


def admitted(listing: Listing, files: Mapping[str, str | None]) -> Listing:
    """The listing once ``files`` (``subdir/file name`` to sha256, None when it is in place) have entered.

    What retention had taken away comes back. Raises ChannelError for a name that was yanked, or that other bytes had.
    """
    for key, sha256 in files.items():
        if (reason := listing.yanked.get(key)) is not None:
            message = f"{key}: was yanked ({reason}) and is not published again"
            raise ChannelError(message, hint="raise the build number and build again, or channel_tools yank --undo")
        if (retired := listing.retired.get(key)) is not None and sha256 not in {None, retired.sha256}:
            message = (
                f"{key}: other bytes were published under this name before (sha256 {retired.sha256}, not {sha256})"
            )
            raise ChannelError(message, hint="published files never change: raise the recipe's build number")
    back = listing.retired.keys() & files.keys()
    return dataclasses.replace(listing, retired={key: row for key, row in listing.retired.items() if key not in back})


def with_foundation(listing: Listing, names: Collection[str]) -> Listing:
    """The listing with ``names`` (``subdir/file name``) as the foundation of their subdirs; others are superseded."""
    subdirs = {_subdir(name) for name in names}
    kept = {name for name in listing.foundation if _subdir(name) not in subdirs}
    foundation = {*kept, *names}
    return dataclasses.replace(
        listing,
        foundation=tuple(sorted(foundation)),
        superseded=tuple(sorted({*listing.foundation, *listing.superseded} - foundation)),
    )


def prefer(listing: Listing, packages: Iterable[PublishedPackage], names: Iterable[str]) -> Listing:
    """The listing in which the own packages ``names`` are seen and no other build of the same variant.

    Two builds count as the same variant when name, version, build number, subdir and recorded variant are equal.
    """
    by_name = {f"{package.subdir}/{package.file_name}": package for package in packages}
    wanted = {_variant_key(by_name[name]): name for name in names if name in by_name}
    hidden = dict(listing.hidden)
    for name, package in by_name.items():
        chosen = wanted.get(_variant_key(package))
        if chosen == name:
            hidden.pop(name, None)
        elif chosen is not None and package.variant is not None:
            hidden[name] = f"superseded by {chosen}"
    return dataclasses.replace(listing, hidden=hidden)


def with_yanked(listing: Listing, names: Iterable[str], reason: str) -> Listing:
    """The listing with the packages ``names`` taken back."""
    return dataclasses.replace(listing, yanked=dict(sorted((listing.yanked | dict.fromkeys(names, reason)).items())))


def without_yanked(listing: Listing, names: Collection[str]) -> Listing:
    """The listing with the packages ``names`` seen again."""
    kept = {name: reason for name, reason in listing.yanked.items() if name not in names}
    return dataclasses.replace(listing, yanked=kept)


def with_patch(listing: Listing, subdir: str, patch: Patch, *, replace: bool) -> Listing:
    """The listing with a repodata patch on top of the subdir's present one, or in its place."""
    before = None if replace else listing.patches.get(subdir)
    merged = patch if before is None else before.merged(patch)
    others = {name: old for name, old in listing.patches.items() if name != subdir}
    return dataclasses.replace(
        listing, patches=dict(sorted((others | {subdir: merged} if merged.names() else others).items()))
    )


def names_in(subdir: str, keys: Iterable[str]) -> frozenset[str]:
    """The file names of those ``keys`` (``subdir/file name``) that lie in one subdir."""
    return frozenset(key.partition("/")[2] for key in keys if key.startswith(subdir + "/"))


def _subdir(key: str) -> str:
    return key.partition("/")[0]


def _variant_key(package: PublishedPackage) -> tuple[object, ...]:
    variant = None if package.variant is None else tuple(sorted(package.variant.items()))
    unknown = package.file_name if variant is None else ""
    return package.subdir, package.name, package.version, package.build_number, variant, unknown
