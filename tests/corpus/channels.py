# SPDX-License-Identifier: BSD-3-Clause
"""A channel in which every one of a list of MatchSpecs finds something, without a reader of MatchSpecs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_VERSION = re.compile(r"\d[\w.]*")
_OLDEST, _NEWEST = "0.0.1", "9999"


def write_channel_for(wanted: Mapping[str, str], channel: Path) -> None:
    """Write repodata with each name in many versions: those in its condition, later ones, the oldest and the newest.

    Packages depend on nothing, so that a solution has as many as there are names.
    """
    records = {
        f"{name}-{version}-{build}.conda": {
            "name": name,
            "version": version,
            "build": build,
            "build_number": 0,
            "depends": [],
            "sha256": hashlib.sha256(f"{name}{version}{build}".encode()).hexdigest(),
            "size": 1,
            "subdir": "noarch",
        }
        for name, condition in wanted.items()
        for version in _versions(condition)
        for build in _builds(condition)
    }
    write_channel({f"noarch/{name}": record for name, record in records.items()}, channel)


def write_channel(records: Mapping[str, Mapping[str, object]], channel: Path) -> None:
    """Write repodata of these records, by ``subdir/file name``."""
    for subdir in {"noarch", "linux-64", *(key.partition("/")[0] for key in records)}:
        here = {key.partition("/")[2]: record for key, record in records.items() if key.startswith(f"{subdir}/")}
        old = {name: record for name, record in here.items() if name.endswith(".tar.bz2")}
        new = {name: record for name, record in here.items() if name not in old}
        (channel / subdir).mkdir(parents=True)
        repodata = {"info": {"subdir": subdir}, "packages": old, "packages.conda": new, "repodata_version": 1}
        (channel / subdir / "repodata.json").write_text(json.dumps(repodata))


def _versions(condition: str) -> set[str]:
    found = [version.rstrip(".") for version in _VERSION.findall(condition)]
    return {_OLDEST, _NEWEST, *found, *(f"{version}.1" for version in found)}


def _builds(condition: str) -> Iterator[str]:
    yield "0"
    last = re.split(r"[=\s]", condition.strip())[-1].strip("'\"[]").replace("*", "x")
    if re.fullmatch(r"\w+", last):
        yield last
