# SPDX-License-Identifier: BSD-3-Clause
"""The two indexes that rattler's indexer does not write: run_exports.json (CEP 12) and channeldata.json.

channeldata has no specification; the fields are those that conda-index writes and conda-build and web pages read.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from channel_tools.channel.records import encode_json

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from channel_tools.channel.archive import JsonObject
    from channel_tools.channel.records import CachedPackage

    Row = tuple[str, CachedPackage, JsonObject]  # the subdir, the package, its record

_MS = 1000
_LATER_THAN_SECONDS = 253402300799  # 9999-12-31: greater timestamps are in milliseconds (CEP 36)


def make_run_exports(subdir: str, listed: Mapping[str, CachedPackage]) -> bytes:
    """run_exports.json of a subdir: every listed package, also those that export nothing."""
    rows = {name: {"run_exports": msgspec.Raw(row.exports_json)} for name, row in listed.items()}
    body = {"info": {"subdir": subdir, "version": 1}, "packages": {}, "packages.conda": rows}
    return encode_json(body) + b"\n"


def make_channeldata(
    listed: Mapping[str, Mapping[str, CachedPackage]],
    *,
    before: bytes | None = None,
    changed: Collection[str] = (),
) -> bytes:
    """channeldata.json over all subdirs: what each package is, taken from its newest version.

    With ``before``, the channeldata.json of the last index, only the rows of the package names ``changed`` are made.
    """
    kept = _kept_rows(before, changed)
    by_name: defaultdict[str, list[tuple[str, CachedPackage]]] = defaultdict(list)
    for subdir, rows in sorted(listed.items()):
        for row in rows.values():
            if row.name not in kept:
                by_name[row.name].append((subdir, row))
    made = {name: msgspec.Raw(encode_json(_package_row(rows))) for name, rows in by_name.items()}
    packages = dict(sorted((kept | made).items()))  # msgspec's own sorting is slow for what is nearly in order
    body = {"channeldata_version": 1, "packages": packages, "subdirs": sorted(listed)}
    return encode_json(body) + b"\n"


class _Channeldata(msgspec.Struct):
    packages: dict[str, msgspec.Raw]


def _kept_rows(before: bytes | None, changed: Collection[str]) -> dict[str, msgspec.Raw]:
    if before is None:
        return {}
    rows = msgspec.json.decode(before, type=_Channeldata).packages
    return {name: row for name, row in rows.items() if name not in changed}


def _package_row(packages: list[tuple[str, CachedPackage]]) -> JsonObject:
    rows = _by_age([(subdir, row, row.record) for subdir, row in packages])
    _subdir, newest, record = rows[-1]
    about = newest.about
    return {
        **about,
        "license": record.get("license") or about.get("license"),
        "run_exports": {
            str(found["version"]): found["run_exports"] for _, _, found in rows if found.get("run_exports")
        },
        "subdirs": sorted({subdir for subdir, _, _ in rows}),
        "timestamp": _seconds(record.get("timestamp")),
        "version": record["version"],
    }


def _by_age(rows: list[Row]) -> list[Row]:
    """Oldest first."""
    if len(rows) == 1:
        return rows
    from rattler import Version  # noqa: PLC0415 - slow to import, and most names have one version

    def age(row: Row) -> tuple[object, int, int]:
        record = row[2]
        return Version(str(record["version"])), _number(record["build_number"]), _seconds(record.get("timestamp"))

    return sorted(rows, key=age)


def _seconds(timestamp: object) -> int:
    value = _number(timestamp)
    return value // _MS if value > _LATER_THAN_SECONDS else value


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
