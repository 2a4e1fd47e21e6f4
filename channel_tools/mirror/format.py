# SPDX-License-Identifier: BSD-3-Clause
"""What a bundle consists of: where its files lie, what its JSON files say, and the faults for which one is rejected.

A bundle is a TUF repository in a folder or a tar file: every path below is a target, named and hashed by signed
metadata, so that nothing about it needs to be believed. Versions grow by one with every bundle that a key folder signs.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from channel_tools.conda.package import OLD_SUFFIX, PACKAGE_SUFFIX, PackageKey
from channel_tools.conda.repodata import encode_json
from channel_tools.pins import Lock  # noqa: TC001  (msgspec reads the annotation)
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ConfigError, IntegrityError

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")

BUNDLE_SCHEMA: Literal[1] = 1
METADATA_FOLDER = "metadata"
MANIFEST = "bundle.json"
BOOTSTRAP = "bootstrap.py"
CHANNELS_FOLDER = "channels"
LOCKS_FOLDER = "locks"
SOURCES_FOLDER = "sources"
TOOL_FOLDER = "tool"
VENV = "venv"
"""Where the bootstrap script installs this program, below ``tool``."""

STATE_FOLDER = ".mirror"
RECEIVED = "received.json"
"""Where an importing site keeps what it trusts and has, and the list of the latter."""

TRUSTED_FILES = ("root.json", "timestamp.json", "snapshot.json", "targets.json")
"""The metadata of the last bundle that an importing site keeps, in the order in which the TUF client reads it."""


Fault = Literal[
    "changed",
    "missing",
    "added",
    "older",
    "frozen",
    "mixed",
    "wrong keys",
    "too few signatures",
    "too long",
    "damaged",
    "newer schema",
    "unsafe",
]

COPY_AGAIN = "copy the bundle again from where it was made, or make it again there"
_INSTALL_NEWER = "install the channel_tools that the bundle holds: python bootstrap.py in it"
_PATH = re.compile(r"[A-Za-z0-9_.+!~@=-]+(?:/[A-Za-z0-9_.+!~@=-]+)*")
_PATH_LIMIT = 400


class BundleRejectedError(IntegrityError):
    """A bundle that must not be imported; ``fault`` says in which way it is not what was signed."""

    def __init__(self, fault: Fault, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{fault}: {message}", hint=hint)
        self.fault: Fault = fault


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleFile:
    """A file of a bundle, as its signed list names it; ``path`` is relative to the bundle, with slashes."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleChannel:
    """A channel that a bundle holds a part of.

    ``name`` is its folder under ``channels/``, ``address`` where the part comes from (without credentials). ``own``
    says that it is ours. ``removed`` are packages (``subdir/file name``) that its index does not list any more, though
    lock files name them.
    """

    name: str
    address: str
    own: bool
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolWheels:
    """This program as wheels: its version, and the Pythons (``3.12``) and machines (``x86_64``) that they fit."""

    version: str
    pythons: tuple[str, ...]
    machines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """bundle.json: what a bundle is for.

    ``since`` is the version that the importing site was taken to have (None: the bundle is complete), ``omitted`` are
    targets that are therefore not in it.
    """

    version: int
    created: str
    created_with: str
    stacks: tuple[str, ...]
    platforms: tuple[str, ...]
    channels: tuple[BundleChannel, ...]
    locks: tuple[str, ...]
    with_sources: bool
    tool: ToolWheels | None
    since: int | None
    omitted: tuple[str, ...]
    schema: int = BUNDLE_SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """received.json: the files that an importing site has, by target path to sha256. It may be carried back."""

    version: int
    root_sha256: str
    files: dict[str, str] = field(default_factory=dict)
    schema: int = BUNDLE_SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class _LockFile:
    lock: Lock
    schema: int = BUNDLE_SCHEMA


class _Schema(msgspec.Struct):
    schema: int


def is_safe_path(path: str) -> bool:
    """Whether a path may name a file of a bundle: relative, in plain characters, without dots as parts."""
    if len(path) > _PATH_LIMIT or not _PATH.fullmatch(path):
        return False
    return all(part.strip(".") for part in path.split("/"))


def channel_path(channel: str, file: str | PackageKey) -> str:
    """Where a bundle holds a file (``subdir/name``) of one of its channels."""
    return f"{CHANNELS_FOLDER}/{channel}/{file}"


def package_at(path: str, channel: str | None = None) -> PackageKey | None:
    """The package of ``channel`` (None: of any) that lies at a path of a bundle; None for any other file."""
    top, _, rest = path.partition("/")
    name, _, key = rest.partition("/")
    if top != CHANNELS_FOLDER or channel not in {None, name} or not key.endswith((PACKAGE_SUFFIX, OLD_SUFFIX)):
        return None
    try:
        return PackageKey.parse(key)
    except ValueError:
        return None


def lock_path(stack: str) -> str:
    """Where a bundle holds the lock of a stack."""
    return f"{LOCKS_FOLDER}/{stack}.json"


def sha256_of(content: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def encode_lock(lock: Lock) -> bytes:
    """The content of a bundle's ``locks/STACK.json``."""
    return encode_json(_LockFile(lock=lock)) + b"\n"


def decode_lock(content: bytes, *, where: str) -> Lock:
    """The lock that ``encode_lock`` wrote. Raises BundleRejectedError."""
    return _decode(content, _LockFile, where).lock


def decode_manifest(content: bytes, *, where: str) -> Manifest:
    """What a bundle.json says. Raises BundleRejectedError."""
    return _decode(content, Manifest, where)


def _decode(content: bytes, kind: type[T], where: str) -> T:
    try:
        schema = decode_json(content, _Schema).schema
        if schema > BUNDLE_SCHEMA:
            message = f"{where}: has schema {schema}; this version of channel_tools reads {BUNDLE_SCHEMA}"
            raise BundleRejectedError("newer schema", message, hint=_INSTALL_NEWER)
        return decode_json(content, kind)
    except msgspec.MsgspecError as err:
        raise BundleRejectedError("damaged", f"{where}: cannot be read: {err}") from None


def encode_received(received: Received) -> bytes:
    """The content of received.json."""
    return msgspec.json.encode(received, order="sorted") + b"\n"


def read_received(path: Path) -> Received:
    """The list in a received.json. Raises ConfigError when it cannot be read or has a newer schema."""
    hint = f"take {RECEIVED} from the importing site's folder {STATE_FOLDER}, or the last bundle itself"
    try:
        received = decode_json(path.read_bytes(), Received)
    except (OSError, msgspec.MsgspecError) as err:
        raise ConfigError(f"cannot be read as a list of received files: {err}", path=path, hint=hint) from None
    if received.schema > BUNDLE_SCHEMA:
        message = f"has schema {received.schema}; this version of channel_tools reads {BUNDLE_SCHEMA}"
        raise ConfigError(message, path=path, hint="use the version of channel_tools that wrote it")
    return received
