# SPDX-License-Identifier: BSD-3-Clause
"""The format of a bundle: where its files are, what its JSON files contain, and the faults for which it is rejected.

A bundle is a TUF repository in a folder or a tar file: every path below is a target, named and hashed by signed
metadata, so nothing about it has to be trusted. Versions grow by one with every bundle that a key folder signs.
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
from channel_tools.requests.names import BaseName  # noqa: TC001  (msgspec reads the annotation)
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ConfigError, FileAccessError, IntegrityError
from channel_tools.system.files import read_regular

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
"""The folder in which an importing site keeps its trusted metadata and the list of the files that it has."""

TRUSTED_FILES = ("root.json", "timestamp.json", "snapshot.json", "targets.json")
"""The metadata of the last bundle, kept by an importing site, in the order in which the TUF client reads it."""

RECORD_BYTES = 256 << 20
"""What is read of a record of a mirror: the list of what a site has, or trusted metadata."""


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
_INSTALL_NEWER = "install the channel_tools that is in the bundle with the bundle's bootstrap.py"
_PATH = re.compile(r"[A-Za-z0-9_.+!~@=-]+(?:/[A-Za-z0-9_.+!~@=-]+)*")
_PATH_LIMIT = 400


class BundleRejectedError(IntegrityError):
    """A bundle that must not be imported; ``fault`` says in which way it differs from what was signed."""

    def __init__(self, fault: Fault, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{fault}: {message}", hint=hint)
        self.fault: Fault = fault


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleChannel:
    """A channel of which a bundle has a part.

    ``name`` is its folder under ``channels/``, ``address`` where the part comes from (without credentials). ``own``
    says that it is ours. ``removed`` are packages (``subdir/file name``) that its index no longer lists, though lock
    files name them. ``base`` is the Debian release that its foundation is made from, where it says so.
    """

    name: str
    address: str
    own: bool
    removed: tuple[str, ...] = ()
    base: BaseName | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolWheels:
    """This program as wheels: its version, and the Pythons (``3.12``) and machines (``x86_64``) that they support."""

    version: str
    pythons: tuple[str, ...]
    machines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """The content of bundle.json: what the bundle is for.

    ``since`` is the version that the importing site was assumed to have (None: the bundle is complete), ``omitted`` are
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
    """received.json: the sha256 of the files that an importing site has, by target path. It may be brought back."""

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
    """Whether a path is allowed in a bundle: relative, with plain characters, without ``.`` or ``..`` as parts."""
    if len(path) > _PATH_LIMIT or not _PATH.fullmatch(path):
        return False
    return all(part.strip(".") for part in path.split("/"))


def channel_path(channel: str, file: str | PackageKey) -> str:
    """The path in a bundle of a file (``subdir/name``) of one of its channels."""
    return f"{CHANNELS_FOLDER}/{channel}/{file}"


def package_at(path: str, channel: str | None = None) -> PackageKey | None:
    """The package of ``channel`` (None: of any) at a path of a bundle; None for any other file."""
    top, _, below = path.partition("/")
    name, _, key = below.partition("/")
    if top != CHANNELS_FOLDER or channel not in {None, name} or not key.endswith((PACKAGE_SUFFIX, OLD_SUFFIX)):
        return None
    try:
        return PackageKey.parse(key)
    except ValueError:
        return None


def lock_path(stack: str) -> str:
    """The path in a bundle of a stack's lock."""
    return f"{LOCKS_FOLDER}/{stack}.json"


def sha256_of(content: bytes) -> str:
    """The sha256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def encode_lock(lock: Lock) -> bytes:
    """The content of a bundle's ``locks/STACK.json``."""
    return encode_json(_LockFile(lock=lock)) + b"\n"


def decode_lock(content: bytes, *, where: str) -> Lock:
    """The lock that ``encode_lock`` wrote. Raises BundleRejectedError."""
    return _decode(content, _LockFile, where).lock


def decode_manifest(content: bytes, *, where: str) -> Manifest:
    """Parse a bundle.json. Raises BundleRejectedError."""
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
    """The list in a received.json. Raises ConfigError if it cannot be read or has a newer schema."""
    try:
        content = read_regular(path, limit_bytes=RECORD_BYTES)
    except (OSError, FileAccessError) as err:
        raise _unreadable(path, err) from None
    return decode_received(content, path)


def _unreadable(path: Path, err: Exception) -> ConfigError:
    hint = f"give {RECEIVED} from the importing site's folder {STATE_FOLDER}, or the last bundle itself"
    return ConfigError(f"cannot be read as a list of received files: {err}", path=path, hint=hint)


def decode_received(content: bytes, path: Path) -> Received:
    """The list in the content of a received.json. Raises ConfigError, naming the file, if it cannot be read."""
    try:
        received = decode_json(content, Received)
    except msgspec.MsgspecError as err:
        raise _unreadable(path, err) from None
    if received.schema > BUNDLE_SCHEMA:
        message = f"has schema {received.schema}; this version of channel_tools reads {BUNDLE_SCHEMA}"
        raise ConfigError(message, path=path, hint="use the version of channel_tools that wrote it")
    return received
