# SPDX-License-Identifier: BSD-3-Clause
"""What has to be done for packages to be under a label of a bucket: compared with what is there, changing nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.channel.listing import admitted
from channel_tools.errors import ChannelError
from channel_tools.publish.objects_transfer import in_parallel, sha256_of_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.publish.objects_label import LabelPlace
    from channel_tools.publish.objects_lease import Incoming

_HINT = "published files never change: raise the recipe's build number and build again"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A package that is to be under a label, by its name in a channel (``subdir/file name``)."""

    key: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Names by what is to be done: sent, copied from another key, only committed, or nothing at all.

    ``replace`` are those of ``upload`` and ``copy`` under whose name an earlier run left bytes that nothing ever named.
    """

    upload: tuple[str, ...]
    copy: Mapping[str, str]
    arrived: tuple[str, ...]
    present: tuple[str, ...]
    replace: tuple[str, ...]


def compare(
    place: LabelPlace, others: Sequence[LabelPlace], wanted: Sequence[Wanted], incoming: Mapping[str, Incoming]
) -> Comparison:
    """Look at what the label, and the ``others`` of the bucket, have under the wanted names.

    ``incoming`` are the keys that unfinished runs brought in. Raises ChannelError for a name with other bytes and
    for one that was yanked.
    """
    committed = place.read()
    stored = in_parallel(lambda item: sha256_of_object(place.store, place.base + item.key), wanted)
    sources = _sources(others, wanted)
    admitted(committed.listing, {item.key: item.sha256 for item in wanted})
    upload: list[str] = []
    copy: dict[str, str] = {}
    arrived: list[str] = []
    present: list[str] = []
    replace: list[str] = []
    for item, found in zip(wanted, stored, strict=True):
        row = committed.package(item.key)
        if row is not None and row.sha256 != item.sha256:
            raise _other_bytes(place, item, row.sha256)
        if found == item.sha256:
            (arrived if row is None else present).append(item.key)
            continue
        if found is not None:
            if row is not None or place.base + item.key not in incoming:
                raise _other_bytes(place, item, found)
            replace.append(item.key)
        if item.key in sources:
            copy[item.key] = sources[item.key]
        else:
            upload.append(item.key)
    return Comparison(
        upload=tuple(upload), copy=copy, arrived=tuple(arrived), present=tuple(present), replace=tuple(replace)
    )


def _sources(others: Sequence[LabelPlace], wanted: Sequence[Wanted]) -> dict[str, str]:
    """The object keys under which other labels have wanted names; what is wrong there is wrong everywhere."""
    sources: dict[str, str] = {}
    for other in others:
        committed = other.read()
        admitted(committed.listing, {item.key: item.sha256 for item in wanted})
        for item in wanted:
            row = committed.package(item.key)
            if row is not None and row.sha256 != item.sha256:
                raise _other_bytes(other, item, row.sha256)
            if row is not None:
                sources.setdefault(item.key, other.base + item.key)
    return sources


def _other_bytes(place: LabelPlace, item: Wanted, found: str) -> ChannelError:
    message = (
        f"s3://{place.store.bucket}/{place.base}{item.key}: the bucket holds other bytes under this name "
        f"(sha256 {found}), not {item.sha256}"
    )
    return ChannelError(message, hint=_HINT)
