# SPDX-License-Identifier: BSD-3-Clause
"""Reads the facts about one ``.conda`` package that the rules need: its metadata, then its files in one pass.

A PackageReader is a visitor, so code that reads a package anyway (a channel's gate) gets the facts in the same pass.
"""

from __future__ import annotations

import dataclasses
import io
from typing import IO, TYPE_CHECKING, Any

import yaml

from channel_tools.audit.instructions import required_level
from channel_tools.audit.model import FileFacts, Occurrence, PackageFacts, Placeholder
from channel_tools.audit.policy import declared_by
from channel_tools.conda.compiled_in import (
    RENDERED_RECIPE,
    RenderedRecipe,
    host_packages,
    packages_with_texts,
    read_rendered,
)
from channel_tools.conda.contents import damaged_package, info_object, read_path_rows
from channel_tools.conda.metadata import check_link, subdir_of
from channel_tools.system.document import decode_json
from channel_tools.system.yamlfile import load_plain_yaml

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from channel_tools.audit.reading import Reader
    from channel_tools.conda.contents import PathRow
    from channel_tools.system.errors import IntegrityError

PATHS = "paths.json"
_STRUCTURED_BYTES = 4 << 20
"""Larger files of info/ are not parsed, only searched: no engine writes JSON or YAML this large, except paths.json."""
_PREFIX_LISTS = frozenset({PATHS, "has_prefix"})
"""Files that name the build prefix because the package format requires it."""


class PackageReader:
    """Collects the facts about the package ``path`` (``.../subdir/name.conda``) while it is read."""

    def __init__(self, path: Path, reader: Reader) -> None:
        self._path = path
        self._reader = reader
        self._facts = PackageFacts(file_name=path.name, subdir=path.parent.name, name=path.name)
        self._placeholders: Mapping[str, Placeholder] = {}
        self._files: dict[str, FileFacts] = {}

    def visit_info(self, files: Mapping[str, bytes]) -> None:
        """Take the metadata, which says what the payload's files may contain."""
        index = info_object(files, "index.json", self._path)
        name = str(index.get("name"))
        self._facts = dataclasses.replace(
            self._facts, index=index, name=name, subdir=subdir_of(index) or self._facts.subdir
        )
        specs = (*self._facts.depends, *self._facts.constrains)
        self._reader = dataclasses.replace(self._reader, level=required_level(specs))
        rendered = read_rendered(files.get(RENDERED_RECIPE))
        self._facts = dataclasses.replace(
            self._facts,
            declared=declared_by(self._object(files, "about.json"), rendered, name=name),
            entry_points=self._entry_points(files),
            host=host_packages(rendered),
            licensed=packages_with_texts(files),
        )
        if PATHS not in files:
            raise damaged_package(self._path, f"it has no info/{PATHS}")
        self._placeholders = dict(_placeholders(read_path_rows(files[PATHS], self._path).values()))
        paths = tuple(_info_paths(files, rendered, self._reader, self._placeholders))
        self._facts = dataclasses.replace(self._facts, info_paths=paths)

    def visit_member(self, member: tarfile.TarInfo, stream: IO[bytes] | None) -> None:
        """Read a file or link of the payload."""
        name, mode = member.name, member.mode
        if member.issym():
            facts = FileFacts(path=name, kind="link", mode=mode, target=member.linkname)
        elif member.islnk():
            facts = FileFacts(path=name, kind="file", mode=mode)
        elif stream is None:
            facts = FileFacts(path=name, kind="special", mode=mode)
        else:
            placeholder = self._placeholders.get(name)
            facts = self._reader.read(name, stream, mode=mode, size_bytes=member.size, placeholder=placeholder)
        self._files[name] = facts

    def facts(self, damage: IntegrityError | None = None) -> PackageFacts:
        """The facts that were found; ``damage`` is the error that ended the reading, if any."""
        words = () if damage is None else (damage.message.removeprefix(f"{self._path}: "),)
        return dataclasses.replace(self._facts, files=self._files, damage=words)

    def _entry_points(self, files: Mapping[str, bytes]) -> tuple[str, ...]:
        """The ``command = module:function`` lines of a noarch python package."""
        return check_link(self._object(files, "link.json"), self._path)

    def _object(self, files: Mapping[str, bytes], name: str) -> dict[str, Any]:
        return info_object(files, name, self._path) if name in files else {}


def _placeholders(rows: Iterable[PathRow]) -> Iterator[tuple[str, Placeholder]]:
    for row in rows:
        if row.prefix_placeholder:
            yield (
                row.path,
                Placeholder(text=row.prefix_placeholder, mode="text" if row.file_mode == "text" else "binary"),
            )


def _info_paths(
    files: Mapping[str, bytes], rendered: RenderedRecipe, reader: Reader, placeholders: Mapping[str, Placeholder]
) -> Iterator[tuple[str, Occurrence]]:
    """The paths of the build machine that files of info/ name; the prefix lists may contain placeholders."""
    own = tuple({placeholder.text for placeholder in placeholders.values()})
    for name, content in files.items():
        allowed = (*reader.own_paths, *own) if name in _PREFIX_LISTS else reader.own_paths
        looking = dataclasses.replace(reader, own_paths=allowed, reads_code=False)
        facts = looking.read(name, io.BytesIO(content), mode=0, size_bytes=len(content), placeholder=None)
        yield from ((f"info/{name}", occurrence) for occurrence in facts.build_paths)
        if name not in _PREFIX_LISTS:
            yield from ((f"info/{name}", occurrence) for occurrence in facts.strays)
        yield from ((f"info/{name}", occurrence) for occurrence in _local_addresses(name, content, rendered))


def _local_addresses(name: str, content: bytes, rendered: RenderedRecipe) -> Iterator[Occurrence]:
    """Values that are addresses of this machine, in files that the engine wrote; longer strings that merely contain
    one do not count."""
    if len(content) > _STRUCTURED_BYTES:
        return
    try:
        if name.endswith(".json") and name != PATHS:
            value = decode_json(content)
        elif name == RENDERED_RECIPE:
            value = rendered.value
        elif name.endswith(".yaml") and name.startswith("recipe/") and name.count("/") == 1:
            value = load_plain_yaml(content)
        else:
            return
    except (ValueError, RecursionError, yaml.YAMLError):
        return
    local = sorted({text for text in _texts(value) if text.startswith("file:")})
    if local:
        offset = max(content.find(local[0].encode()), 0)
        others = f" and {len(local) - 1} more such addresses" if len(local) > 1 else ""
        yield Occurrence(text=local[0] + others, offset=offset, line=content.count(b"\n", 0, offset) + 1)


def _texts(value: object) -> Iterator[str]:
    """All strings in a value; without recursion, since JSON from elsewhere may be nested deeply."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
