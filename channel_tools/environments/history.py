# SPDX-License-Identifier: BSD-3-Clause
r"""What an environment was asked for: ``conda-meta/history``, as conda, mamba and this program read and write it.

Each change of an environment is a revision: its time, its command, the packages that it removed and linked, and the
MatchSpecs that the user asked for, or no longer asks for:

    ==> 2026-11-28 13:36:05 <==
    # cmd: channel_tools env create /envs/job tool --channel file:///srv/ours
    +file:///srv/ours/linux-64::tool-1.0-0
    # update specs: ['tool']

Whatever is in an environment and is neither asked for nor needed by what is, may be removed by the next change of any
client; so this decides what survives. The format is that of conda/history.py (conda 26.7); mamba's history.cpp reads
the same. A later request for a name takes the place of an earlier one.

Records of packages have ``requested_specs``, too, which rattler's tools write. They count for names that the history
does not speak of: earlier versions of this program wrote no history.
"""

from __future__ import annotations

import ast
import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from channel_tools.conda.addresses import without_credentials
from channel_tools.conda.specs import InvalidSpecError, condition_of, read_spec, spec_name
from channel_tools.system.errors import IntegrityError
from channel_tools.system.files import read_regular, write_bytes_atomically
from channel_tools.system.harmless import harmless_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from rattler import PrefixRecord, RepoDataRecord

HISTORY = "conda-meta/history"
Requested = Mapping[str, tuple[str, ...]]
"""The MatchSpecs that an environment was asked for, by the names of the packages."""

CHANNEL_ALIAS = "https://conda.anaconda.org/"
"""What conda leaves out of the address where it names a channel."""
_LIMIT_BYTES = 64 * 2**20
_HEADER = re.compile(r"==>\s*(.+?)\s*<==")
_COMMAND = re.compile(r"#\s*cmd:\s*(.+)")
_SPECS = re.compile(r"#\s*(\w+)\s*specs:\s*(.+)?")
_OF_ITS_SPEC = re.compile(r"(=|==|!=|<=|>=|<|>|~=)(?![=<>!~])\S+")
"""A part of conda's form of before 4.5, ``a >=1,<2,b``, that goes on with the version of the spec before it."""
_BUILD_NUMBER_OF_MAMBA = re.compile(r"""(?<=build_number=)(["']?)=(?=\d)""")
"""mamba writes a build number with a sign that rattler does not know there: ``a[build_number="=1"]``."""
_ASKING = frozenset({"update", "install", "create", "neutered"})
_REMOVING = frozenset({"remove", "uninstall"})
_CHANNEL_OPTIONS = ("-c", "--channel")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s'\"`<>,\]]+", re.IGNORECASE)
_HASH = re.compile(r"#(?:md5:|sha256:)?(?:[0-9a-f]{64}|[0-9a-f]{32})$", re.IGNORECASE)
_UNKNOWN_TO_CONDA = re.compile(r"\[(?:.*,\s*)?(?:extras|when|flags)=")


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """What the file says: the requests that are in force, names that are no longer asked for, linked packages.

    ``channels`` are the words after ``--channel`` of all commands, the first command's first: addresses, and names in
    conda's.
    """

    requested: Requested = field(default_factory=dict)
    withdrawn: frozenset[str] = frozenset()
    packages: frozenset[str] = frozenset()
    channels: tuple[str, ...] = ()


def read_history(prefix: Path) -> History:
    """The history of an environment; an empty one if there is none.

    Lines that mean nothing to conda are ignored, as conda does. Raises IntegrityError for a line of MatchSpecs that
    cannot be read: what was asked for would be lost. Raises FileAccessError for something else than a file.
    """
    path = prefix / HISTORY
    try:
        text = read_regular(path, limit_bytes=_LIMIT_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return History()
    requested: dict[str, tuple[str, ...]] = {}
    withdrawn: set[str] = set()
    channels: dict[str, None] = {}
    packages: set[str] = set()
    for lines in _revisions(text):
        changes = {action: _specs_of(lines, action, path) for action in (_REMOVING, _ASKING)}
        for name in changes[_REMOVING]:
            requested.pop(name, None)
            withdrawn.add(name)
        requested |= changes[_ASKING]
        withdrawn -= changes[_ASKING].keys()
        channels |= dict.fromkeys(word for _, line in lines for word in _channel_words(line))
        listed = {line for _, line in lines if not line.startswith("#")}
        if listed and not any(line.startswith(("+", "-")) for line in listed):
            packages = listed
        packages -= {line[1:] for line in listed if line.startswith("-")}
        packages |= {line[1:] for line in listed if line.startswith("+")}
    return History(
        requested=requested,
        withdrawn=frozenset(withdrawn),
        packages=frozenset(packages),
        channels=tuple(channels),
    )


def _revisions(text: str) -> Iterator[list[tuple[int, str]]]:
    """The lines of each revision, numbered; what is before the first belongs to none."""
    lines: list[tuple[int, str]] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if _HEADER.match(line.strip()):
            if lines is not None:
                yield lines
            lines = []
        elif line.strip() and lines is not None:
            lines.append((number, line.strip()))
    if lines is not None:
        yield lines


def _specs_of(lines: Iterable[tuple[int, str]], actions: Collection[str], path: Path) -> dict[str, tuple[str, ...]]:
    """The MatchSpecs on those of the lines that are about one of the actions, by name."""
    collected: dict[str, tuple[str, ...]] = {}
    for number, line in lines:
        match = _SPECS.match(line)
        if match is None or match[1] not in actions:
            continue
        try:
            specs = by_name(parse_specs(match[2] or ""))
        except (ValueError, InvalidSpecError) as err:
            message = f"{path}, line {number}: what was asked for cannot be read: {err}"
            raise IntegrityError(message, hint="correct that line, or remove it with what it asks for") from None
        # conda relaxes a request with a line of its own, "neutered", in the same revision
        collected = collected | specs if match[1] == "neutered" else merged(collected, specs)
    return collected


def parse_specs(text: str) -> list[str]:
    """The MatchSpecs after ``specs:``: Python's list of texts (conda, mamba), or conda's form of before 4.5.

    Names of features, which end with ``@``, are left out, as conda does. Raises ValueError.

    >>> parse_specs("['python=3.12', 'numpy >=1,<3']")
    ['python=3.12', 'numpy >=1,<3']
    >>> parse_specs("python>=3.5.1,jupyter >=1.0.0,<2.0")
    ['python>=3.5.1', 'jupyter >=1.0.0,<2.0']
    """
    specs: list[str] = []
    if text.startswith("["):
        try:
            listed = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            listed = None
        if not isinstance(listed, list) or not all(isinstance(spec, str) for spec in listed):
            raise ValueError(f"{text!r:.80}: expected a list of texts in quotes")
        specs = listed
    elif "[" in text:
        raise ValueError(f"{text!r:.80}: expected a list in brackets")
    else:
        for part in text.split(","):
            if specs and _OF_ITS_SPEC.fullmatch(part):
                specs[-1] += f",{part}"
            else:
                specs.append(part)
    return [_BUILD_NUMBER_OF_MAMBA.sub(r"\1", spec) for spec in specs if spec.strip() and not spec.endswith("@")]


def by_name(specs: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """MatchSpecs by the names of their packages, as they may be recorded: without credentials, each on one line.

    Raises InvalidSpecError.
    """
    collected: dict[str, tuple[str, ...]] = {}
    for spec in specs:
        collected = merged(collected, {spec_name(spec): (_without_secrets(" ".join(spec.split())),)})
    return collected


def merged(first: Requested, second: Requested) -> dict[str, tuple[str, ...]]:
    """What both ask for."""
    return dict(first) | {name: tuple(dict.fromkeys((*first.get(name, ()), *specs))) for name, specs in second.items()}


def requested_specs(
    history: History, installed: Sequence[PrefixRecord], *, of_unknown: bool = True
) -> dict[str, tuple[str, ...]]:
    """What an environment with these packages was asked for.

    Where neither its history nor its records say anything, each of its packages may be what somebody wanted: all of
    them count, unless ``of_unknown`` is False. A request for a package that is not there does not count, as for conda.
    """
    collected: dict[str, tuple[str, ...]] = {}
    for record in installed:
        name = record.name.normalized
        recorded = tuple(spec for spec in record.requested_specs if spec not in {"", "None"})
        in_history = history.requested.get(name)
        if in_history is not None:
            # conda's form of a request can lack a part that only the record has
            collected[name] = recorded if tuple(map(_written, recorded)) == in_history else in_history
        elif recorded and name not in history.withdrawn:
            collected[name] = recorded
    if of_unknown and not collected and not history.withdrawn:
        return {record.name.normalized: (record.name.normalized,) for record in installed}
    return collected


def append_revision(
    prefix: Path, requested: Requested, installed: Iterable[RepoDataRecord], *, command: Sequence[str]
) -> None:
    """Add a revision to the history: now the packages ``installed`` are there, and ``requested`` is asked for.

    ``command`` are the words of a command that does that. Nothing is written that the history says already, so that an
    interrupted run can do it again. Raises as read_history does, and OSError.
    """
    history = read_history(prefix)
    written = {name: tuple(map(_written, specs)) for name, specs in requested.items()}
    # conda has its own names of some channels, so what follows the channel decides
    before = {_without_channel(package): package for package in history.packages}
    after = {_without_channel(package): package for package in map(_package_line, installed)}
    lines = [f"-{before[package]}" for package in sorted(before.keys() - after.keys())]
    lines += [f"+{after[package]}" for package in sorted(after.keys() - before.keys())]
    requests = _spec_lines("remove", {name: (name,) for name in history.requested if name not in written})
    requests += _spec_lines(
        "update", {name: specs for name, specs in written.items() if history.requested.get(name) != specs}
    )
    if not lines and not requests:
        return
    # conda takes a revision without packages for one that leaves none, and a list without signs for all that there are
    lines = lines or sorted(before.values())
    path = prefix / HISTORY
    content = read_regular(path, limit_bytes=_LIMIT_BYTES) if path.exists() else b""
    # another program may have been killed as it wrote the last line
    end = b"\n" if content and not content.endswith(b"\n") else b""
    # conda reads the file by Python's splitlines, which knows more ends of a line
    header = [
        f"==> {time.strftime('%Y-%m-%d %H:%M:%S')} <==",
        f"# cmd: {harmless_line(_without_secrets(shlex.join(command)))}",
    ]
    write_bytes_atomically(path, content + end + "".join(f"{line}\n" for line in [*header, *lines, *requests]).encode())


def _spec_lines(action: str, specs: Requested) -> list[str]:
    return [specs_line(action, (spec for name in sorted(specs) for spec in specs[name]))] if specs else []


def specs_line(action: str, specs: Iterable[str]) -> str:
    """A line of MatchSpecs, as conda writes it."""
    return f"# {action} specs: {list(specs)!r}"


def _written(spec: str) -> str:
    """A recorded MatchSpec as conda can read it, which fails at conditions, extras and flags."""
    if _UNKNOWN_TO_CONDA.search(str(read_spec(spec))):
        return f"{spec_name(spec)} {condition_of(spec)}".strip()
    return spec


def _without_secrets(text: str) -> str:
    """A text whose addresses have no credentials; the hash of a package that stands after one stays."""

    def plain(match: re.Match[str]) -> str:
        address, hashed = match[0], _HASH.search(match[0])
        if hashed is None:
            return without_credentials(address)
        return without_credentials(address.removesuffix(hashed[0])) + hashed[0]

    return _ADDRESS.sub(plain, text)


def _package_line(record: RepoDataRecord) -> str:
    """A package as conda names it: ``CHANNEL/SUBDIR::NAME-VERSION-BUILD``."""
    channel = without_credentials(record.channel or "<unknown>").rstrip("/")
    for end in (f"/{record.subdir}", "/noarch"):  # conda's own records may have it in the channel
        channel = channel.removesuffix(end)
    name = f"{record.name.normalized}-{record.version}-{record.build}"
    return f"{channel.removeprefix(CHANNEL_ALIAS)}/{record.subdir}::{name}"


def _without_channel(package: str) -> str:
    return package.rpartition("::")[2]


def _channel_words(line: str) -> Iterator[str]:
    """The channels that a line with a command names."""
    match = _COMMAND.match(line)
    if match is None:
        return
    try:
        words = shlex.split(match[1])
    except ValueError:  # conda does not quote what has blanks
        words = match[1].split()
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option in _CHANNEL_OPTIONS and (value if equals else following):
            yield value if equals else following
