# SPDX-License-Identifier: BSD-3-Clause
"""What is only in a package's file and its attestations: its files, sources, patches with reasons, claims.

A patch's reason is the text above its first difference. Values of an unexpected shape are left out: anybody may have
written the recipe in a package. Claims are shown so that people can check them; no signature is verified here.
"""

from __future__ import annotations

import binascii
import posixpath
import re
import shlex
from base64 import b64decode
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict

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
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from channel_tools.page.model import Build
    from channel_tools.provenance.statements import Statement
    from channel_tools.system.beneath import Beneath


SHOWN_FILES = 1000
_PATHS, _RECIPE = "paths.json", "recipe/rendered_recipe.yaml"
_REASON_CHARACTERS = 2000
_PATCH_STARTS = ("---", "diff ", "Index: ", "+++ ")
_DIFF_STARTS = ("diff ", "--- ", "Index: ")
_PATCH_LINES, _LINE_CHARACTERS = 400, 300
_SUBJECT = "Subject: "
_TERMINAL = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
"""Sequences that colour a terminal, move its cursor or set its title (ECMA-48)."""
_LOG_BYTES = 1_000_000
_PHASES = (
    ("Sources", ("Fetching source",)),
    ("Environments", ("  Platform:",)),
    ("Build", ("\N{HEAVY CHECK MARK} Successfully updated the host environment",)),
    ("Package", ("Copying done!",)),
    ("Tests", ("Collecting tests",)),
    ("What was built", ("Variant configuration",)),
)
"""What rattler-build prints at the start of each of its phases; a log of other lines has one phase."""
_BESIDE_SOURCES = ("file:", "source:", "pkg:conda/")
"""Materials that are files of the recipe and packages of its environments."""
_SHOWN_SOURCES = 20
_HEADERS = ("From ", "From: ", "Date: ")


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcePatch:
    """A patch of upstream's source: its file name and the reason in its header (empty if there is none).

    ``lines`` are the first of its differences, each with its kind: ``ins``, ``del``, ``b`` for a heading, "" for what
    stays; ``left_out`` counts those that are not among them.
    """

    name: str
    reason: str
    lines: tuple[tuple[str, str], ...]
    left_out: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceDetails:
    """One source: where it is from, the hash or commit that it is pinned to, and what was changed in it."""

    address: str
    pinned: str
    patches: tuple[SourcePatch, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedFile:
    """A file of a package, or a folder with what is in it; ``size_bytes`` is None if the package does not say it."""

    name: str
    size_bytes: int | None
    entries: tuple[ListedFile, ...] = ()
    file_count: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Details:
    """``files`` are the first SHOWN_FILES of ``file_count`` as a tree; ``unpacked_bytes`` is the size of all."""

    files: tuple[ListedFile, ...]
    file_count: int
    unpacked_bytes: int
    sources: tuple[SourceDetails, ...]

    @property
    def is_cut(self) -> bool:
        """Whether not all files are in ``files``."""
        return self.file_count > SHOWN_FILES


def read_details(path: Path, folder: Beneath | None) -> Details:
    """Read the details from a package file, opened as opened_in does. Raises IntegrityError if it is damaged."""
    info = read_info_files(path, frozenset({_PATHS, _RECIPE}), folder=folder)
    files = _files(parsed_json(info, _PATHS, path) if _PATHS in info else {})
    sources = list(_source_rows(info.get(_RECIPE, b"")))
    wanted = {name: f"recipe/{posixpath.normpath(name)}" for row in sources for name in texts(row.get("patches"))}
    patches = read_info_files(path, frozenset(wanted.values()), folder=folder) if wanted else {}
    return Details(
        files=as_tree(files[:SHOWN_FILES]),
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
    if not recipe:
        return
    try:
        value = load_plain_yaml(recipe)
    except yaml.YAMLError:
        return
    sources = value.get("finalized_sources") if isinstance(value, dict) else None
    for row in sources if isinstance(sources, list) else [sources]:
        if isinstance(row, dict) and (texts(row.get("url")) or texts(row.get("git"))):
            yield row


def _source(row: dict[str, object], wanted: dict[str, str], patches: dict[str, bytes]) -> SourceDetails:
    pins = [f"{key} {row[key]}" for key in ("sha256", "rev", "tag") if isinstance(row.get(key), str)]
    return SourceDetails(
        address=" or ".join([*texts(row.get("url")), *texts(row.get("git"))]),
        pinned=", ".join(pins),
        patches=tuple(
            _patch(posixpath.basename(name), patches.get(wanted[name], b"")) for name in texts(row.get("patches"))
        ),
    )


def as_tree(files: Sequence[tuple[str, int | None]]) -> tuple[ListedFile, ...]:
    """Paths with sizes as folders and files: folders first, each with the size of what is in it, sorted."""
    folders: dict[str, list[tuple[str, int | None]]] = {}
    leaves = []
    for path, size in files:
        first, slash, below = path.lstrip("/").partition("/")
        if slash and below:
            folders.setdefault(first, []).append((below, size))
        else:
            leaves.append(ListedFile(name=first, size_bytes=size))
    inner = [_folder(name, within) for name, within in folders.items()]
    return (*sorted(inner, key=lambda entry: entry.name), *sorted(leaves, key=lambda entry: entry.name))


def _folder(name: str, within: Sequence[tuple[str, int | None]]) -> ListedFile:
    """A folder, with the one that it only has in it, if so, as one."""
    entries = as_tree(within)
    if len(entries) == 1 and entries[0].entries:
        return replace(entries[0], name=f"{name}/{entries[0].name}")
    total = sum(size or 0 for _path, size in within)
    return ListedFile(name=name, size_bytes=total, entries=entries, file_count=len(within))


def _patch(name: str, content: bytes) -> SourcePatch:
    text = content.decode(errors="replace").splitlines()
    start = next((number for number, line in enumerate(text) if line.startswith(_DIFF_STARTS)), len(text))
    diff = text[start:]
    shown = [(_kind_of(line), line[:_LINE_CHARACTERS]) for line in diff[:_PATCH_LINES]]
    return SourcePatch(name=name, reason=patch_reason(content), lines=tuple(shown), left_out=len(diff) - len(shown))


def _kind_of(line: str) -> str:
    if line.startswith(("diff ", "index ", "--- ", "+++ ", "@@", "Index: ", "new file", "deleted file")):
        return "b"
    return {"+": "ins", "-": "del"}.get(line[:1], "")


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
    """A log's text without terminal escape sequences, by phases; ``left_out`` counts the bytes that are not shown.

    Phases are (name, text), in the order of the log; the name is "" before the first.
    """

    phases: tuple[tuple[str, str], ...]
    left_out: int


def readable_log(content: bytes) -> ShownLog:
    """The end of a log as text; bytes that are not valid UTF-8 are replaced."""
    shown = content[-_LOG_BYTES:]
    text = _TERMINAL.sub(b"", shown).decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    phases: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines(keepends=True):
        name = next((name for name, starts in _PHASES if line.startswith(starts)), None)
        if name is not None and name not in {known for known, _lines in phases}:
            phases.append((name, []))
        phases[-1][1].append(line)
    shown_phases = tuple((name, "".join(lines)) for name, lines in phases if lines)
    return ShownLog(phases=shown_phases, left_out=len(content) - len(shown))


@dataclass(frozen=True, kw_only=True, slots=True)
class Claims:
    """The ids of the keys that signed, whether Sigstore did, and when the build ended (ISO 8601, "" if not stated).

    ``command`` is what was run, ``tools`` the versions of what ran it, ``sources`` where the sources are from,
    ``materials`` how many things it was made of. ``fault`` says why the attestations prove nothing about the package
    ("" if they are for its bytes).
    """

    keys: tuple[str, ...] = ()
    by_sigstore: bool = False
    finished: str = ""
    command: str = ""
    tools: tuple[tuple[str, str], ...] = ()
    sources: tuple[str, ...] = ()
    materials: int = 0
    fault: str = ""


def read_claims(content: bytes | None, build: Build) -> Claims:
    """The claims in the file of attestations beside a build; ``content`` is None if that file is missing."""
    if content is None:
        return Claims(fault="its file is missing")
    try:
        bundles = decode_json(content, list[Bundle])
        envelopes = [bundle.dsseEnvelope for bundle in bundles if bundle.dsseEnvelope is not None]
        payloads = [b64decode(envelope.payload, validate=True) for envelope in envelopes]
        statements = [read_statement(payload, where=build.file_name) for payload in payloads]
    except (msgspec.DecodeError, binascii.Error, IntegrityError):
        return Claims(fault="its file has no readable attestations")
    return Claims(
        keys=tuple(
            sorted({signature.keyid for envelope in envelopes for signature in envelope.signatures if signature.keyid})
        ),
        by_sigstore=any(bundle.is_certified for bundle in bundles),
        finished=max(
            (statement.finished.isoformat() for statement in statements if statement.finished is not None), default=""
        ),
        **_claimed_build(payloads),
        fault=_fault(statements, build),
    )


def _claimed_build(payloads: Sequence[bytes]) -> _ClaimedBuild:
    """What the last statement of how the package was built says beside that; of another shape, nothing."""
    claimed = _ClaimedBuild(command="", tools=(), sources=(), materials=0)
    for payload in payloads:
        value = decode_json(payload, dict[str, object])
        if value.get("predicateType") != PROVENANCE:
            continue
        definition = _inner(_inner(value, "predicate"), "buildDefinition")
        parameters = _inner(definition, "externalParameters")
        versions = _inner(_inner(_inner(_inner(value, "predicate"), "runDetails"), "builder"), "version")
        made_of = definition.get("resolvedDependencies")
        uris = [str(source["uri"]) for source in (made_of if isinstance(made_of, list) else []) if _has_uri(source)]
        claimed = _ClaimedBuild(
            command=shlex.join(texts(parameters.get("command"))),
            tools=tuple(sorted((name, str(version)) for name, version in versions.items())),
            sources=tuple(uri for uri in uris if not uri.startswith(_BESIDE_SOURCES))[:_SHOWN_SOURCES],
            materials=len(uris),
        )
    return claimed


class _ClaimedBuild(TypedDict):
    """The fields of Claims that show a statement, and prove nothing by themselves."""

    command: str
    tools: tuple[tuple[str, str], ...]
    sources: tuple[str, ...]
    materials: int


def _has_uri(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("uri"), str)


def _inner(value: dict[str, object], key: str) -> dict[str, object]:
    nested = value.get(key)
    return nested if isinstance(nested, dict) else {}


def _fault(statements: list[Statement], build: Build) -> str:
    wanted = Subject(file_name=build.file_name, sha256=build.row.sha256)
    for statement in statements:
        if statement.subject.file_name != wanted.file_name:
            return f"it is for another package, {statement.subject.file_name}"
        if statement.subject != wanted:
            return "it is for different bytes under this name"
    says_how = any(statement.kind == PROVENANCE for statement in statements)
    return "" if says_how else "it does not say how the package was built"
