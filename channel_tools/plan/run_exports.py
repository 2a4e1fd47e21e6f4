# SPDX-License-Identifier: BSD-3-Clause
"""The run_exports of a foundation's packages, alike for a folder and an address.

They are looked up where the build engine finds them (rattler's ``RunExportExtractor``): in the record, which a shard
may give whole (CEP 21), else in the subdir's ``run_exports.json`` (CEP 12, also as ``.zst``), else in the package
itself, of which only the part with the metadata is requested (HTTP range requests).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from channel_tools.conda.archive import read_package
from channel_tools.conda.package import RunExports
from channel_tools.conda.repodata import INDEX_LIMIT_BYTES, RUN_EXPORTS
from channel_tools.system.document import decode_json
from channel_tools.system.errors import FoundationError
from channel_tools.system.files import read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rattler import RepoDataRecord

RunExportsIndex = dict[str, RunExports]
"""The run_exports by file name."""


class FolderRunExports:
    """The run_exports of packages in a channel's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._indexes: dict[str, RunExportsIndex] = {}
        self._by_key: dict[str, RunExports | None] = {}

    async def of(self, record: RepoDataRecord) -> RunExports | None:
        """Those of a package; None if neither an index nor the package's file says so. Raises FoundationError."""
        if (run_exports := given_in(record)) is not None:
            return run_exports
        key = f"{record.subdir}/{record.file_name}"
        if key not in self._by_key:
            if record.subdir not in self._indexes:
                path = self._folder / record.subdir / RUN_EXPORTS
                try:
                    content = read_regular(path, limit_bytes=INDEX_LIMIT_BYTES)
                except FileNotFoundError:
                    self._indexes[record.subdir] = {}
                else:
                    self._indexes[record.subdir] = parse_index(content, path)
            index = self._indexes[record.subdir]
            self._by_key[key] = index[record.file_name] if record.file_name in index else self._in_package(key)
        return self._by_key[key]

    def _in_package(self, key: str) -> RunExports | None:
        path = self._folder / key
        if not path.is_file():
            return None
        return read_run_exports(read_package(path, contents=False).run_exports or {})


class RunExportsSource(Protocol):
    """Where the run_exports of a foundation's packages are looked up."""

    async def of(self, record: RepoDataRecord) -> RunExports | None:
        """Those of a package; None if nothing says so, not even the package.

        Raises FoundationError for an index that cannot be read, NetworkError for what cannot be reached.
        """


def parse_index(content: bytes, origin: object) -> RunExportsIndex:
    """Parse run_exports.json (CEP 12). Raises FoundationError for anything else."""
    try:
        index = decode_json(content)
        entries = {**index.get("packages", {}), **index.get("packages.conda", {})}
        return {name: read_run_exports(entry["run_exports"]) for name, entry in entries.items()}
    except (ValueError, KeyError, AttributeError, TypeError) as err:
        message = f"{origin}: not a valid run_exports.json (CEP 12): {err}"
        raise FoundationError(message, hint="index the channel again") from None


def read_run_exports(value: Mapping[str, Any]) -> RunExports:
    """The kinds of run_exports that add requirements; those that constrain add none."""
    kinds = {kind: tuple(value.get(kind) or ()) for kind in ("weak", "strong", "noarch")}
    return RunExports(**kinds)


def given_in(record: RepoDataRecord) -> RunExports | None:
    """The run_exports that a record itself has, None if it has none."""
    run_exports = json.loads(record.to_json()).get("run_exports")
    return None if run_exports is None else read_run_exports(run_exports)
