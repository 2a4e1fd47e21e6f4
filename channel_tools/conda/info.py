# SPDX-License-Identifier: BSD-3-Clause
"""The files below ``info/`` of a package (CEP 34): how large they may be, where they are kept, and the JSON in them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any, Self, cast

from channel_tools.conda.contents import damaged_package
from channel_tools.system.document import decode_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JsonObject = dict[str, object]

_MEMORY_BYTES = 32 << 20
METADATA_BYTES: Mapping[str, int] = {
    "paths.json": 64 << 20,  # 300 bytes a row: 200,000 files, twice what the largest packages of conda-forge have
    "index.json": 1 << 20,
    **dict.fromkeys(("about.json", "hash_input.json", "run_exports.json"), 4 << 20),
}
"""The files of info/ that are read of every package, and how large they may be: JSON takes 20 times its bytes in
memory, so that a job of the server stays below its limit."""
_DEPTH = 100
"""How deep JSON in info/ may be nested: clients written in Rust end at 128."""
OTHER_METADATA_BYTES = 64 << 20
"""Larger files of info/ are not shown to visitors."""


class InfoFiles(Mapping[str, bytes]):
    """Files of info/ by their names without ``info/``: those that every reader wants, or ``all_files``.

    The others are kept on disk when they are large together, until the block ends that this was entered for.
    """

    def __init__(self, *, all_files: bool) -> None:
        self._all_files = all_files
        self._wanted: dict[str, bytes] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._others: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._others is not None:
            self._others.close()

    def add(self, name: str, size_bytes: int, stream: IO[bytes] | None) -> bool:
        """Take a member that is wanted; False when it is not a plain file, too large or there already."""
        if (limit := METADATA_BYTES.get(name)) is not None:
            if stream is None or size_bytes > limit or name in self._wanted:
                return False
            self._wanted[name] = stream.read()
        elif self._all_files and stream is not None and size_bytes <= OTHER_METADATA_BYTES:
            if self._others is None:
                self._others = cast("IO[bytes]", tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES))  # noqa: SIM115 - closed by __exit__
            content = stream.read()
            self._places[name] = self._others.seek(0, os.SEEK_END), len(content)
            self._others.write(content)
        return True

    def __getitem__(self, name: str) -> bytes:
        if name in self._wanted:
            return self._wanted[name]
        offset, size_bytes = self._places[name]
        others = cast("IO[bytes]", self._others)
        others.seek(offset)
        return others.read(size_bytes)

    def __iter__(self) -> Iterator[str]:
        yield from self._wanted
        yield from self._places

    def __len__(self) -> int:
        return len(self._wanted) + len(self._places)


def info_object(info: Mapping[str, bytes], name: str, path: Path) -> dict[str, Any]:
    """The JSON object in one of the files of info/. Raises IntegrityError when it is missing or something else."""
    value = parsed_json(info, name, path)
    if not isinstance(value, dict):
        raise damaged_package(path, f"info/{name} is not a JSON object")
    return value


def optional_object(info: Mapping[str, bytes], name: str, path: Path) -> JsonObject | None:
    """As ``info_object``, None where the package does not have the file."""
    return info_object(info, name, path) if name in info else None


def content_of(info: Mapping[str, bytes], name: str, path: Path) -> bytes:
    """The bytes of info/``name``; ``path`` is the package. Raises IntegrityError when it is missing."""
    if name not in info:
        raise damaged_package(path, f"info/{name} is missing in it")
    return info[name]


def parsed_json(info: Mapping[str, bytes], name: str, path: Path) -> object:
    """The JSON in info/``name``. Raises IntegrityError when it is missing, damaged or nested too deep."""
    try:
        value = decode_json(content := content_of(info, name, path))
    except ValueError as err:
        raise damaged_package(path, f"info/{name} is not valid JSON ({err})") from None
    if content.count(b"[") + content.count(b"{") > _DEPTH and _is_deeper(value, _DEPTH):
        raise damaged_package(path, f"info/{name} is nested more than {_DEPTH} deep")
    return value


def _is_deeper(value: object, depth: int) -> bool:
    """Whether lists and objects in a value are nested deeper than this; level by level, since it may be deep."""
    level = [value]
    for _ in range(depth + 1):
        level = [
            item
            for one in level
            if isinstance(one, dict | list)
            for item in (one.values() if isinstance(one, dict) else one)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True
