# SPDX-License-Identifier: BSD-3-Clause
"""Rewrites a finished package without anything that depends on when, where and on which machine it was built.

The engine writes the current time into the metadata and the timestamp of every file, the build prefix into the files,
and the machine's kernel and processor into the rendered recipe. Instead, a package gets the date of the newest thing
that it is made from (SOURCE_DATE_EPOCH in its recipe), so that building it again gives the same bytes. Who built it,
when and on what is in its attestation.
"""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

import yaml

from channel_tools.build.clean import cleaned_files
from channel_tools.build.model import RECIPE_FILE
from channel_tools.build.resolved import check_resolved
from channel_tools.conda.compiled_in import RENDERED_RECIPE
from channel_tools.conda.metadata import SOURCE_DATE, UNDATED_S
from channel_tools.conda.rewrite import settle_package
from channel_tools.conda.writer import ENGINE_LEVEL
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError
from channel_tools.system.yamlfile import load_plain_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
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
    is_planned: bool = False,
) -> tuple[str, ...]:
    """Rewrite a package that was built from ``recipe_folder``; ``threads`` (1 or more) compress it.

    ``renamed`` are addresses of channels that the engine used, with those to name instead. What pip and Python write
    for the machine that they run on is left out if it names ``work``, the folder of the build: direct_url.json
    (PEP 610), and byte code of a module. Returns notes on what was left out.

    If the package ``is_planned``, its build must have had the environments that its recipe's digest covers. Raises
    IntegrityError for a damaged package, and as check_resolved does; the package then stays as it is.
    """
    recipe = load_plain_yaml((recipe_folder / RECIPE_FILE).read_bytes())
    date_s = source_date_of(recipe)
    date_s = UNDATED_S if date_s is None else date_s

    def edit(info: Mapping[str, bytes]) -> dict[str, bytes]:
        named = {name: _with_channels(info[name], renamed or {}) for name in (_ABOUT, RENDERED_RECIPE) if name in info}
        settled_files = {_INDEX: info[_INDEX], **named} if _INDEX in info else named
        edited = {name: settled(name, content, date_s=date_s) for name, content in settled_files.items()}
        about, rendered = (_mapping(edited.get(name), package) for name in (_ABOUT, RENDERED_RECIPE))
        if is_planned:
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
