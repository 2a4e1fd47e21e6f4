# SPDX-License-Identifier: BSD-3-Clause
"""Reading one ``.conda`` package for the rules: its metadata, then its files once, as a stream.

Damage ends the reading and becomes a fact, never an exception.
"""

from __future__ import annotations

import dataclasses
import io
import json
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import yaml

from channel_tools.audit.declared import declared_by
from channel_tools.audit.facts import FileFacts, PackageFacts, Place, Placeholder
from channel_tools.audit.processor import required_level
from channel_tools.errors import IntegrityError
from channel_tools.packages.model import split_file_name
from channel_tools.packages.reader import read_info_files, stream_component

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from channel_tools.audit.reading import Reader

RENDERED_RECIPE = "recipe/rendered_recipe.yaml"
PATHS = "paths.json"
_WANTED = frozenset({"index.json", PATHS, "about.json", "link.json", RENDERED_RECIPE})
_PREFIX_LISTS = frozenset({PATHS, "has_prefix"})
"""They name the build prefix by the package format's own rules."""
_INFO_BYTES = 64 << 20
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(kw_only=True, slots=True)
class _Found:
    """What reading has found so far."""

    index: dict[str, Any] = field(default_factory=dict)
    placeholders: dict[str, Placeholder] = field(default_factory=dict)
    files: dict[str, FileFacts] = field(default_factory=dict)
    info_paths: list[tuple[str, Place]] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)


def read_package_facts(path: Path, reader: Reader) -> PackageFacts:
    """Everything about the package file ``path`` (``.../subdir/name.conda``)."""
    found = _Found()
    facts = PackageFacts(file_name=path.name, subdir=path.parent.name, name=path.name)
    try:
        info = read_info_files(path, _WANTED)
        found.index = _object(path, info, "index.json", needed=True)
        about = _object(path, info, "about.json")
        link = _object(path, info, "link.json")
        facts = dataclasses.replace(
            facts,
            name=str(found.index.get("name")),
            subdir=str(found.index.get("subdir")),
            declared=declared_by(about, info.get(RENDERED_RECIPE), name=str(found.index.get("name"))),
            entry_points=tuple((link.get("noarch") or {}).get("entry_points") or ()),
        )
        _check_name(path, found)
        found.placeholders = dict(_placeholders(_object(path, info, PATHS, needed=True)))
        found.info_paths += _info_paths(path, reader, found.placeholders)
        _read_payload(path, _for_package(reader, found), found)
    except IntegrityError as err:
        found.damage.append(err.message.removeprefix(f"{path}: "))
    return dataclasses.replace(
        facts, index=found.index, files=found.files, info_paths=tuple(found.info_paths), damage=tuple(found.damage)
    )


def read_listing(path: Path) -> dict[str, FileFacts]:
    """The files and links of a package as paths.json names them, without reading its payload.

    Links have no target here. Raises IntegrityError.
    """
    rows = _object(path, read_info_files(path, frozenset({PATHS})), PATHS, needed=True).get("paths") or []
    names = [str(row["_path"]) for row in rows if isinstance(row, dict) and "_path" in row]
    return {name: FileFacts(path=name, kind="file", mode=0) for name in names}


def _for_package(reader: Reader, found: _Found) -> Reader:
    specs = (*(found.index.get("depends") or ()), *(found.index.get("constrains") or ()))
    return dataclasses.replace(reader, level=required_level(str(spec) for spec in specs))


def _object(path: Path, info: Mapping[str, bytes], name: str, *, needed: bool = False) -> dict[str, Any]:
    if name not in info:
        if needed:
            raise IntegrityError(f"{path}: info/{name} is missing")
        return {}
    try:
        value = json.loads(info[name])
    except ValueError as err:
        raise IntegrityError(f"{path}: info/{name} is no JSON ({err})") from None
    if not isinstance(value, dict):
        raise IntegrityError(f"{path}: info/{name} is no mapping")
    return value


def _check_name(path: Path, found: _Found) -> None:
    said = tuple(str(found.index.get(key)) for key in ("name", "version", "build"))
    if said != split_file_name(path.name):
        found.damage.append(f"info/index.json says {'-'.join(said)}")


def _placeholders(paths: Mapping[str, Any]) -> Iterator[tuple[str, Placeholder]]:
    for row in paths.get("paths") or ():
        text = row.get("prefix_placeholder") if isinstance(row, dict) else None
        if isinstance(text, str) and text:
            yield str(row["_path"]), Placeholder(text=text, mode="text" if row.get("file_mode") == "text" else "binary")


def _info_paths(path: Path, reader: Reader, placeholders: Mapping[str, Placeholder]) -> Iterator[tuple[str, Place]]:
    """What of the build machine the files of info/ name; the texts of placeholders may stand in the prefix lists."""
    own = tuple({placeholder.text for placeholder in placeholders.values()})
    for member, stream in stream_component(path, "info"):
        if stream is None or member.size > _INFO_BYTES:
            continue
        name = member.name.removeprefix("info/")
        content = stream.read()
        allowed = (*reader.own_paths, *own) if name in _PREFIX_LISTS else reader.own_paths
        looking = dataclasses.replace(reader, own_paths=allowed, reads_code=False)
        facts = looking.read(name, io.BytesIO(content), mode=0, size_bytes=len(content), placeholder=None)
        yield from ((f"info/{name}", place) for place in facts.build_paths)
        if name not in _PREFIX_LISTS:
            yield from ((f"info/{name}", place) for place in facts.strays)
        yield from ((f"info/{name}", place) for place in _local_addresses(name, content))


def _local_addresses(name: str, content: bytes) -> Iterator[Place]:
    """Values that are addresses of this machine, in what the engine wrote; a text that mentions one is none."""
    try:
        if name.endswith(".json") and name != PATHS:
            value = json.loads(content)
        elif name.endswith(".yaml") and name.startswith("recipe/") and name.count("/") == 1:
            value = yaml.load(content, Loader=_LOADER)  # noqa: S506 - a safe loader, the fast one
        else:
            return
    except (ValueError, yaml.YAMLError):
        return
    local = sorted({text for text in _texts(value) if text.startswith("file:")})
    if local:
        offset = max(content.find(local[0].encode()), 0)
        others = f" and {len(local) - 1} more addresses of this kind" if len(local) > 1 else ""
        yield Place(text=local[0] + others, offset=offset, line=content.count(b"\n", 0, offset) + 1)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _read_payload(path: Path, reader: Reader, found: _Found) -> None:
    for member, stream in stream_component(path, "pkg"):
        if not member.isdir():
            found.files[member.name] = _read_member(member, stream, reader, found.placeholders.get(member.name))


def _read_member(
    member: tarfile.TarInfo, stream: IO[bytes] | None, reader: Reader, placeholder: Placeholder | None
) -> FileFacts:
    if member.issym():
        return FileFacts(path=member.name, kind="link", mode=member.mode, target=member.linkname)
    if member.islnk():
        return FileFacts(path=member.name, kind="file", mode=member.mode)
    if stream is None:
        return FileFacts(path=member.name, kind="special", mode=member.mode)
    return reader.read(member.name, stream, mode=member.mode, size_bytes=member.size, placeholder=placeholder)
