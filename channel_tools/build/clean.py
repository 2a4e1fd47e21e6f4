# SPDX-License-Identifier: BSD-3-Clause
"""Removes the build machine's paths and addresses from info/.

The engine records the channels it solved from, the folders it worked in and the addresses it fetched sources from, all
of them specific to the build machine. They are replaced: channels by their public names, folders by the names that
build scripts use, sources by upstream's addresses. The audit finds what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from channel_tools.conda.addresses import channel_name, local_path, without_credentials

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_KEPT = frozenset({"paths.json", "files", "has_prefix"})
"""Files that describe the payload: installation replaces the prefix that they name."""
_FOLDERS = {
    "host_prefix": "$PREFIX",
    "build_prefix": "$BUILD_PREFIX",
    "work_dir": "$SRC_DIR",
    "build_dir": "$BUILD_DIR",
}


def cleaned_files(
    info: Mapping[str, bytes], *, about: Mapping[str, Any], rendered: Mapping[str, Any]
) -> dict[str, bytes]:
    """Those files of info/ that name the machine, by their names without ``info/``, with public names instead.

    ``about`` and ``rendered`` are the values of two of them, about.json and the rendered recipe.
    """
    replacements = machine_texts(about, rendered)
    edited = {name: cleaned(name, content, replacements) for name, content in info.items()}
    return {name: content for name, content in edited.items() if content != info[name]}


def cleaned(name: str, content: bytes, replacements: Mapping[str, str]) -> bytes:
    """The content of a file of info/ with the build machine's strings replaced."""
    if name in _KEPT or b"\0" in content:
        return content
    for text in sorted(replacements, key=lambda text: (-len(text), text)):
        content = content.replace(text.encode(), replacements[text].encode())
    return content


def machine_texts(about: Mapping[str, Any], rendered: Mapping[str, Any]) -> dict[str, str]:
    """The strings in the metadata that are specific to the build machine, and their replacements."""
    configuration = _at(rendered, "build_configuration")
    replacements = dict(_source_texts(about, rendered))
    for address in {*_strings(about.get("channels")), *_strings(configuration.get("channels"))}:
        replacements |= _channel_texts(address)
    for key, name in _FOLDERS.items():
        folder = _at(configuration, "directories").get(key)
        if isinstance(folder, str) and folder.startswith("/"):
            replacements[folder] = name
    return replacements


def _channel_texts(address: str) -> dict[str, str]:
    """``file:///srv/channel/`` becomes ``channel``; other addresses lose their credentials."""
    if local_path(address) is not None:
        plain, name = address.rstrip("/"), channel_name(address) or "local"
        return {plain: name, f"{plain}/": name + "/"}
    public = without_credentials(address)
    return {address: public} if public != address else {}


def _source_texts(about: Mapping[str, Any], rendered: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Pairs of an address in the source store and upstream's address of the same source.

    The rendered recipe names the sources that the build used, in the order of ``extra.channel_tools.sources``.
    """
    origins = _at(about, "extra", "channel_tools").get("sources")
    sources = _at(rendered, "recipe").get("source")
    from_store = [source for source in _mappings(sources) if "path" not in source]
    for source, origin in zip(from_store, _mappings(origins), strict=False):
        upstream = next(iter(_strings(origin.get("url")) or _strings(origin.get("git"))), None)
        for address in _strings(source.get("url")):
            if upstream is not None and local_path(address) is not None:
                yield address, upstream if "url" in origin else f"git+{upstream}@{origin.get('rev')}"


def _at(value: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    section: Any = value
    for key in keys:
        section = section.get(key) if isinstance(section, dict) else None
    return section if isinstance(section, dict) else {}


def _mappings(value: object) -> Iterable[Mapping[str, Any]]:
    rows = value if isinstance(value, list) else [value]
    return [row for row in rows if isinstance(row, dict)]


def _strings(value: object) -> list[str]:
    rows = value if isinstance(value, list) else [value]
    return [row for row in rows if isinstance(row, str)]
