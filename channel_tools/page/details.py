# SPDX-License-Identifier: BSD-3-Clause
"""What is only in a package's file and its attestations: its files, sources, patches with reasons, claims.

A patch's reason is the text above its first difference. Values of an unexpected shape are left out: anybody may have
written the recipe in a package. Claims are shown so that people can check them; no signature is verified here.
"""

from __future__ import annotations

import binascii
import posixpath
import re
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import yaml

from channel_tools.conda.archive import read_info_files
from channel_tools.conda.contents import parsed_json
from channel_tools.page.content import texts
from channel_tools.provenance.statements import PROVENANCE, Bundle, Subject, read_statement
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError
from channel_tools.system.yamlfile import load_plain_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from channel_tools.page.model import Build
    from channel_tools.provenance.statements import Statement
    from channel_tools.system.beneath import Beneath


SHOWN_FILES = 1000
_PATHS, _RECIPE = "paths.json", "recipe/rendered_recipe.yaml"
_REASON_CHARACTERS = 2000
_PATCH_STARTS = ("---", "diff ", "Index: ", "+++ ")
_SUBJECT = "Subject: "
_TERMINAL = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
"""Sequences that colour a terminal, move its cursor or set its title (ECMA-48)."""
_LOG_BYTES = 1_000_000
_HEADERS = ("From ", "From: ", "Date: ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Patch:
    """A patch of upstream's source: its file name and the reason in its header (empty if there is none)."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One source: where it is from, the hash or commit that it is pinned to, and what was changed in it."""

    address: str
    pinned: str
    patches: tuple[Patch, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Details:
    """``files`` are the first SHOWN_FILES of ``file_count``, with sizes; ``unpacked_bytes`` is the size of them all."""

    files: tuple[tuple[str, int | None], ...]
    file_count: int
    unpacked_bytes: int
    sources: tuple[Source, ...]


def read_details(path: Path, folder: Beneath | None) -> Details:
    """Read the details from a package file, opened as opened_in does. Raises IntegrityError if it is damaged."""
    info = read_info_files(path, frozenset({_PATHS, _RECIPE}), folder=folder)
    files = _files(parsed_json(info, _PATHS, path) if _PATHS in info else {})
    sources = list(_source_rows(info.get(_RECIPE, b"")))
    wanted = {name: f"recipe/{posixpath.normpath(name)}" for row in sources for name in texts(row.get("patches"))}
    patches = read_info_files(path, frozenset(wanted.values()), folder=folder) if wanted else {}
    return Details(
        files=tuple(files[:SHOWN_FILES]),
        file_count=len(files),
        unpacked_bytes=sum(size or 0 for _name, size in files),
        sources=tuple(_source(row, wanted, patches) for row in sources),
    )


def _files(value: object) -> list[tuple[str, int | None]]:
    rows = value.get("paths") if isinstance(value, dict) else None
    return [
        (row["_path"], size if isinstance(size := row.get("size_in_bytes"), int) else None)
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict) and isinstance(row.get("_path"), str)
    ]


def _source_rows(recipe: bytes) -> Iterator[dict[str, object]]:
    """The sources of a rendered recipe that have an address, not the local ones beside the recipe."""
    try:
        value = load_plain_yaml(recipe)
    except yaml.YAMLError:
        return
    sources = value.get("finalized_sources") if isinstance(value, dict) else None
    for row in sources if isinstance(sources, list) else [sources]:
        if isinstance(row, dict) and (texts(row.get("url")) or texts(row.get("git"))):
            yield row


def _source(row: dict[str, object], wanted: dict[str, str], patches: dict[str, bytes]) -> Source:
    pins = [f"{key} {row[key]}" for key in ("sha256", "rev", "tag") if isinstance(row.get(key), str)]
    return Source(
        address=" or ".join([*texts(row.get("url")), *texts(row.get("git"))]),
        pinned=", ".join(pins),
        patches=tuple(
            Patch(name=posixpath.basename(name), reason=patch_reason(patches.get(wanted[name], b"")))
            for name in texts(row.get("patches"))
        ),
    )


def patch_reason(content: bytes) -> str:
    """The text above the first difference of a patch in git's format."""
    lines: list[str] = []
    for line in content[: 4 * _REASON_CHARACTERS].decode(errors="replace").splitlines():
        if line.startswith(_PATCH_STARTS):
            break
        if not line.startswith(_HEADERS):
            lines.append(line.removeprefix(_SUBJECT))
    return "\n".join(lines).strip()[:_REASON_CHARACTERS]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownLog:
    """A log's text without terminal escape sequences; ``left_out`` counts the bytes before it that are not shown."""

    text: str
    left_out: int


def readable_log(content: bytes) -> ShownLog:
    """The end of a log as text; bytes that are not valid UTF-8 are replaced."""
    shown = content[-_LOG_BYTES:]
    text = _TERMINAL.sub(b"", shown).decode(errors="replace")
    return ShownLog(text=text.replace("\r\n", "\n").replace("\r", "\n"), left_out=len(content) - len(shown))


@dataclass(frozen=True, kw_only=True, slots=True)
class Claims:
    """The ids of the keys that signed, whether Sigstore did, and when the build ended (ISO 8601, "" if not stated).

    ``fault`` says why the attestations prove nothing about the package ("" if they are for its bytes).
    """

    keys: tuple[str, ...] = ()
    by_sigstore: bool = False
    finished: str = ""
    fault: str = ""


def read_claims(content: bytes | None, build: Build) -> Claims:
    """The claims in the file of attestations beside a build; ``content`` is None if that file is missing."""
    if content is None:
        return Claims(fault="its file is missing")
    try:
        bundles = decode_json(content, list[Bundle])
        envelopes = [bundle.dsseEnvelope for bundle in bundles if bundle.dsseEnvelope is not None]
        statements = [read_statement(b64decode(one.payload, validate=True), where=build.file_name) for one in envelopes]
    except (msgspec.DecodeError, binascii.Error, IntegrityError):
        return Claims(fault="its file has no readable attestations")
    return Claims(
        keys=tuple(sorted({one.keyid for envelope in envelopes for one in envelope.signatures if one.keyid})),
        by_sigstore=any(bundle.is_certified for bundle in bundles),
        finished=max((one.finished.isoformat() for one in statements if one.finished is not None), default=""),
        fault=_fault(statements, build),
    )


def _fault(statements: list[Statement], build: Build) -> str:
    wanted = Subject(file_name=build.file_name, sha256=build.row.sha256)
    for statement in statements:
        if statement.subject.file_name != wanted.file_name:
            return f"it is for another package, {statement.subject.file_name}"
        if statement.subject != wanted:
            return "it is for different bytes under this name"
    return "" if any(one.kind == PROVENANCE for one in statements) else "it does not say how the package was built"
