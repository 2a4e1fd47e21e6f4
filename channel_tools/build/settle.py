# SPDX-License-Identifier: BSD-3-Clause
"""Rewrites a finished package without anything that depends on when, where and on which machine it was built.

The engine writes the current time into the metadata and the timestamp of every file, the build prefix into the files,
and the machine's kernel and processor into the rendered recipe. Instead, a package gets the date of the newest thing
that it is made from (SOURCE_DATE_EPOCH in its recipe), so that building it again gives the same bytes. Who built it,
when and on what is in its attestation.

The engine also records the channels it solved from, the folders it worked in and the addresses it fetched sources from.
They are replaced: channels by their public names, folders by the names that build scripts use, sources by upstream's
addresses. The audit finds what is left. What the engine resolved is compared with what was planned, for which the
package's name stands.
"""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

import yaml

from channel_tools.build.model import RECIPE_FILE
from channel_tools.conda.addresses import channel_name, local_path, without_credentials
from channel_tools.conda.compiled_in import RENDERED_RECIPE
from channel_tools.conda.metadata import SOURCE_DATE, UNDATED_S
from channel_tools.conda.rewrite import settle_package
from channel_tools.conda.writer import ENGINE_LEVEL
from channel_tools.system.document import decode_json
from channel_tools.system.errors import BuildError, IntegrityError
from channel_tools.system.yamlfile import load_plain_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path


_ABOUT = "about.json"
_DIRECT_URL = ".dist-info/direct_url.json"
_OF_MACHINE = (_DIRECT_URL, ".pyc", ".pyo")
_SHOWN = 5
_INDEX = "index.json"
_CONFIGURATION = re.compile(rb"^build_configuration:\n(?:[ ].*\n)*", re.MULTILINE)
_TIMESTAMP = re.compile(rb"(?<=^  timestamp: ).*$", re.MULTILINE)
_LEVEL = re.compile(rb"(?<=^    compression_level: ).*$", re.MULTILINE)
_DEPENDENCIES = b"\nfinalized_dependencies:\n"
_ITEM = re.compile(rb"^    - .*\n(?:      .*\n)*", re.MULTILINE)
_NAME = re.compile(rb"^ +name: (.*)$", re.MULTILINE)
_LISTS = re.compile(
    rb"^(?P<key>    (?:specs|resolved|depends|constraints):\n)(?P<items>(?:"
    + _ITEM.pattern.removeprefix(b"^")
    + rb")+)",
    re.MULTILINE,
)
"""Lists that are sorted, since the engine writes run_exports and solved packages in the order of hash tables."""
_MACHINE = re.compile(rb"^    virtual_packages:\n(?:    - .*\n)*", re.MULTILINE)


def settle_built(
    package: Path,
    recipe_folder: Path,
    *,
    threads: int,
    renamed: Mapping[str, str] | None = None,
    work: Path | None = None,
) -> tuple[str, ...]:
    """Rewrite a package that was built from ``recipe_folder``; ``threads`` (1 or more) compress it.

    ``renamed`` are addresses of channels that the engine used, with those to name instead. What pip and Python write
    for the machine that they run on is left out if it names ``work``, the folder of the build: direct_url.json
    (PEP 610), and byte code of a module. Returns notes on what was left out.

    Its build must have had the environments that its recipe's digest covers. Raises IntegrityError for a damaged
    package, and as check_resolved does; the package then stays as it is.
    """
    recipe = load_plain_yaml((recipe_folder / RECIPE_FILE).read_bytes())
    date_s = source_date_of(recipe)
    date_s = UNDATED_S if date_s is None else date_s

    def edit(info: Mapping[str, bytes]) -> dict[str, bytes]:
        named = {name: _with_channels(info[name], renamed or {}) for name in (_ABOUT, RENDERED_RECIPE) if name in info}
        settled_files = {_INDEX: info[_INDEX], **named} if _INDEX in info else named
        edited = {name: settled(name, content, date_s=date_s) for name, content in settled_files.items()}
        about, rendered = (_mapping(edited.get(name), package) for name in (_ABOUT, RENDERED_RECIPE))
        check_resolved(recipe, rendered)
        return edited | cleaned_files({**info, **edited}, about=about, rendered=rendered)

    folder = None if work is None else os.fsencode(work)

    def leaves_out(name: str, content: IO[bytes]) -> bool:
        if folder is None or not name.endswith(_OF_MACHINE):
            return False
        content.seek(0)
        text = content.read()
        return folder in text or (name.endswith(_DIRECT_URL) and b'"file:' in text)

    dropped = settle_package(package, edit, date_s=date_s, threads=threads, leaves_out=leaves_out)
    more = f" and {len(dropped) - _SHOWN} more" if len(dropped) > _SHOWN else ""
    names = ", ".join(dropped[:_SHOWN])
    return (f"left out, since they name folders that only this machine has: {names}{more}",) if dropped else ()


def _mapping(content: bytes | None, package: Path) -> Mapping[str, Any]:
    """Parse JSON or YAML that the engine wrote; the YAML parser reads both."""
    try:
        value = decode_json(content) if content and content.startswith(b"{") else load_plain_yaml(content or b"")
    except (ValueError, RecursionError, yaml.YAMLError) as err:
        raise IntegrityError(f"{package}: its metadata cannot be read ({err})") from None
    return value if isinstance(value, dict) else {}


def _with_channels(content: bytes, renamed: Mapping[str, str]) -> bytes:
    for used, named in renamed.items():
        if used != named:
            content = content.replace(used.rstrip("/").encode(), named.rstrip("/").encode())
    return content


def source_date_of(recipe: Mapping[str, Any]) -> int | None:
    """The SOURCE_DATE_EPOCH (seconds since 1970) that a rendered recipe builds with; None if it names none."""
    value: Any = recipe
    for key in ("build", "script", "env", SOURCE_DATE):
        value = value.get(key) if isinstance(value, dict) else None
    return int(value) if value is not None else None


def settled(name: str, content: bytes, *, date_s: int) -> bytes:
    """The content of a file of info/ without the build's time and machine, and with lists of arbitrary order sorted."""
    if name == _INDEX:
        index = decode_json(content) | {"timestamp": date_s * 1000}
        index |= {key: sorted(index[key]) for key in ("depends", "constrains") if key in index}
        return json.dumps(index, indent=2, ensure_ascii=False).encode()
    if name != RENDERED_RECIPE:
        return content
    content = _CONFIGURATION.sub(lambda match: _without_machine(match[0], date_s), content)
    before, mark, dependencies = content.rpartition(_DEPENDENCIES)
    return before + mark + _LISTS.sub(_sorted_items, dependencies)


def _without_machine(section: bytes, date_s: int) -> bytes:
    when = datetime.fromtimestamp(date_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    section = _LEVEL.sub(str(ENGINE_LEVEL).encode(), _TIMESTAMP.sub(when.encode(), section))
    return _MACHINE.sub(b"    virtual_packages: []\n", section)


def _sorted_items(match: re.Match[bytes]) -> bytes:
    items: list[bytes] = sorted(_ITEM.findall(match["items"]), key=_named)
    return match["key"] + b"".join(items)


def _named(item: bytes) -> tuple[bytes, bytes]:
    name = _NAME.search(item)
    return b"" if name is None else bytes(name[1]), item


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


def check_resolved(recipe: Mapping[str, Any], rendered: Mapping[str, Any]) -> None:
    """Raise BuildError if the environments of a build had other packages of the foundation than its digest covers.

    ``recipe`` is the one that was built, ``rendered`` what the engine recorded of the build.
    """
    planned = recipe.get("extra", {}).get("channel_tools", {}).get("inputs", {})
    if differences := list(_differences(planned, rendered)):
        more = f" and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        message = f"the build did not get the packages that were planned: {'; '.join(differences[:_SHOWN])}{more}"
        raise BuildError(message, hint="run the same command again; if it comes back, report it with the build's log")


def _differences(planned: Mapping[str, str], rendered: Mapping[str, Any]) -> Iterator[str]:
    dependencies = rendered.get("finalized_dependencies") or {}
    for part in ("build", "host"):
        resolved = (dependencies.get(part) or {}).get("resolved") or ()
        by_name = {
            str(package["name"]): f"{package['version']} {package['build']} {package.get('sha256', '')}"
            for package in resolved
        }
        start = f"foundation:{part}/"
        for key, wanted in planned.items():
            name = key.removeprefix(start)
            if key.startswith(start) and by_name.get(name) != wanted:
                yield f"{part}/{name} {_short(by_name.get(name))} instead of {_short(wanted)}"


def _short(text: str | None) -> str:
    return "(none)" if text is None else "-".join(text.split(" ")[:2])
