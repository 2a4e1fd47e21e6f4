# SPDX-License-Identifier: BSD-3-Clause
"""How the records of a bucket change, and what is to be served for them; pure, the writing is done elsewhere."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.channel.content import not_listed, subdir_content
from channel_tools.channel.listing import admitted, prefer, with_foundation
from channel_tools.channel.model import NOARCH
from channel_tools.channel.records import Records
from channel_tools.channel.state import SubdirState
from channel_tools.channel.steps import SubdirChange, contents_in_order
from channel_tools.channel.store import published_package
from channel_tools.publish.objects_records import SubdirRecords

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from channel_tools.channel.content import SubdirContent
    from channel_tools.channel.model import PublishedPackage
    from channel_tools.channel.records import CachedPackage
    from channel_tools.publish.objects_records import ObjectRecords

ALWAYS_SERVED = ("linux-64", NOARCH)
"""Subdirs that are served even when they are empty, as in a new folder."""


def with_packages(
    records: ObjectRecords, rows: Mapping[str, CachedPackage], *, own: Sequence[str], foundation: Sequence[str]
) -> ObjectRecords:
    """The records after a set was published; ``rows`` (by ``subdir/file name``) are those of its files that are new.

    As in a folder, new own builds hide older ones of the same variant, and a ``foundation`` that is not empty takes the
    place of the one before. Raises ChannelError for a name that was yanked or that other bytes had.
    """
    subdirs = dict(records.subdirs)
    for subdir in {*ALWAYS_SERVED, *(key.partition("/")[0] for key in rows)}:
        new = {key.partition("/")[2]: row for key, row in rows.items() if key.startswith(f"{subdir}/")}
        part = subdirs.get(subdir, SubdirRecords())
        subdirs[subdir] = dataclasses.replace(part, packages=dict(sorted((part.packages | new).items())))
    present = dict.fromkeys((*own, *foundation))
    listing = admitted(records.listing, present | {key: row.sha256 for key, row in rows.items()})
    if foundation:
        listing = with_foundation(listing, foundation)
    grown = dataclasses.replace(records, subdirs=dict(sorted(subdirs.items())), listing=listing)
    return dataclasses.replace(grown, listing=prefer(listing, _candidates(grown, own), own))


def _candidates(records: ObjectRecords, own: Sequence[str]) -> list[PublishedPackage]:
    """The own packages that may be builds of the same variant as those of ``own``: the same names."""
    names = {row.name for key in own if (row := records.package(key)) is not None}
    foreign = {*records.listing.foundation, *records.listing.superseded}
    return [
        published_package(Path(subdir) / name, row, None)
        for subdir, part in records.subdirs.items()
        for name, row in part.packages.items()
        if row.name in names and f"{subdir}/{name}" not in foreign
    ]


def with_found_shards(records: ObjectRecords, found: Mapping[str, Iterable[str]], *, now_s: float) -> ObjectRecords:
    """The records that know of these shards too (hashes by subdir), left by a writer that did not commit them."""
    subdirs = dict(records.subdirs)
    for subdir, names in found.items():
        part = subdirs[subdir]
        lost = dict.fromkeys(sorted(set(names) - part.present_shards()), now_s)
        subdirs[subdir] = dataclasses.replace(part, stale_since_s=part.stale_since_s | lost)
    return dataclasses.replace(records, subdirs=subdirs)


def contents(records: ObjectRecords) -> dict[str, SubdirContent]:
    """What is to be served for each subdir; shards that the records name count as being in place."""
    return {
        subdir: subdir_content(
            subdir,
            part.packages,
            records.listing,
            known_shards=part.shards,
            present_shards=part.present_shards(),
        )
        for subdir, part in records.subdirs.items()
    }


def steps(before: ObjectRecords, after: ObjectRecords, made: Mapping[str, SubdirContent]) -> list[SubdirContent]:
    """The contents to put in place, in order, so that no visible package lacks one of its set that it needs."""
    hidden = not_listed(before.listing)
    changes = []
    for subdir, content in made.items():
        part = before.subdirs.get(subdir, SubdirRecords())
        if content.digest != part.content:
            state = SubdirState(
                records=Records(packages=part.packages),
                removed=tuple(name for name in part.packages if f"{subdir}/{name}" in hidden),
                content=part.content,
            )
            patch = after.listing.patches.get(subdir)
            packages = after.subdirs[subdir].packages
            changes.append(SubdirChange(final=content, packages=packages, before=state, patch=patch))
    present = {subdir: part.present_shards() for subdir, part in after.subdirs.items()}
    return contents_in_order(changes, present_shards=present)


def with_served(
    records: ObjectRecords,
    made: Mapping[str, SubdirContent],
    between: Iterable[SubdirContent],
    *,
    now_s: float,
    grace_s: float,
) -> tuple[ObjectRecords, dict[str, list[str]]]:
    """The records once ``made`` is served, ``between`` having been served before.

    Also returned are, by subdir, the shards that no index has named for ``grace_s``: the records forget them.
    """
    passing = {shard.sha256: content.subdir for content in between for shard in content.shards.shards.values()}
    subdirs, expired = dict(records.subdirs), {}
    for subdir, content in made.items():
        part = records.subdirs[subdir]
        used = {shard.sha256 for shard in content.shards.shards.values()}
        known = {sha256: now_s for sha256, where in passing.items() if where == subdir}
        known |= {shard.sha256: now_s for shard in part.shards.values()} | part.stale_since_s
        unused = {sha256: min(since, now_s) for sha256, since in sorted(known.items()) if sha256 not in used}
        expired[subdir] = [sha256 for sha256, since in unused.items() if now_s - since >= grace_s]
        stale = {sha256: since for sha256, since in unused.items() if sha256 not in expired[subdir]}
        subdirs[subdir] = dataclasses.replace(
            part, shards=content.shards.shards, stale_since_s=stale, content=content.digest
        )
    return dataclasses.replace(records, subdirs=subdirs), expired
