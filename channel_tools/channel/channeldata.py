# SPDX-License-Identifier: BSD-3-Clause
"""The two indexes that rattler's indexer does not write: run_exports.json (CEP 12) and channeldata.json.

channeldata has no specification; the fields are those that conda-index writes and conda-build and web pages read.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from rattler import Version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.channel.archive import JsonObject
    from channel_tools.channel.records import CachedPackage

_MS = 1000
_LATER_THAN_SECONDS = 253402300799  # 9999-12-31: greater timestamps are in milliseconds (CEP 36)


def make_run_exports(subdir: str, listed: Mapping[str, JsonObject]) -> JsonObject:
    """run_exports.json of a subdir: every listed package, also those that export nothing."""
    rows = {name: {"run_exports": record.get("run_exports", {})} for name, record in sorted(listed.items())}
    return {"info": {"subdir": subdir, "version": 1}, "packages": {}, "packages.conda": rows}


def make_channeldata(listed: Mapping[str, Mapping[str, CachedPackage]]) -> JsonObject:
    """channeldata.json over all subdirs: what each package is, taken from its newest version."""
    by_name: defaultdict[str, list[tuple[str, CachedPackage]]] = defaultdict(list)
    for subdir, rows in sorted(listed.items()):
        for _file_name, row in sorted(rows.items()):
            by_name[str(row.record["name"])].append((subdir, row))
    return {
        "channeldata_version": 1,
        "packages": {name: _package_row(rows) for name, rows in sorted(by_name.items())},
        "subdirs": sorted(listed),
    }


def _package_row(rows: list[tuple[str, CachedPackage]]) -> JsonObject:
    newest = max((row for _subdir, row in rows), key=_age_key)
    exports: dict[str, object] = {}
    for _subdir, row in sorted(rows, key=lambda pair: _age_key(pair[1])):
        if row.record.get("run_exports"):
            exports[str(row.record["version"])] = row.record["run_exports"]
    return {
        **newest.about,
        "license": newest.record.get("license") or newest.about.get("license"),
        "run_exports": exports,
        "subdirs": sorted({subdir for subdir, _row in rows}),
        "timestamp": _seconds(newest.record.get("timestamp")),
        "version": newest.record["version"],
    }


def _age_key(row: CachedPackage) -> tuple[object, int, int]:
    return (
        Version(str(row.record["version"])),
        _number(row.record["build_number"]),
        _seconds(row.record.get("timestamp")),
    )


def _seconds(timestamp: object) -> int:
    value = _number(timestamp)
    return value // _MS if value > _LATER_THAN_SECONDS else value


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
