# SPDX-License-Identifier: BSD-3-Clause
"""The values of the mirror stage: what a bundle is, what it holds, and the ways in which one is refused.

A bundle is a TUF repository in a folder or a tar file: every path below is a target, named and hashed by signed
metadata, so that nothing about it needs to be believed. Versions grow by one with every bundle that a key folder signs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from channel_tools.errors import IntegrityError

if TYPE_CHECKING:
    from pathlib import Path

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

TRUSTED_FILES = ("root.json", "timestamp.json", "snapshot.json", "targets.json")
"""What a far side keeps of the metadata of the last bundle, in the order in which the TUF client reads it."""

Role = Literal["root", "targets", "snapshot", "timestamp"]
ROLES: tuple[Role, ...] = ("root", "targets", "snapshot", "timestamp")
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
    "untrusted",
    "newer schema",
    "unsafe",
]

_PATH = re.compile(r"[A-Za-z0-9_.+!~@=-]+(?:/[A-Za-z0-9_.+!~@=-]+)*")
_PATH_LIMIT = 400


class BundleRefusedError(IntegrityError):
    """A bundle that must not be taken in; ``fault`` says in which way it is not what was signed."""

    def __init__(self, fault: Fault, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{fault}: {message}", hint=hint)
        self.fault: Fault = fault


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class BundleFile:
    """A file of a bundle by its path in it, with slashes."""

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

    ``since`` is the version that the far side was taken to have (None: the bundle is complete), ``omitted`` are targets
    that are therefore not in it.
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
    """received.json on the far side: what it has, by target path to sha256. It may be carried back, and be read."""

    version: int
    root_sha256: str
    files: dict[str, str] = field(default_factory=dict)
    schema: int = BUNDLE_SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustedBundle:
    """What the signed metadata of a bundle says, after all of it was verified."""

    version: int
    root_version: int
    root_sha256: str
    expires: str
    targets: dict[str, BundleFile]
    metadata: dict[str, bytes]
    """The client's metadata files after this bundle, by name; kept, they are what detects an older one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyReport:
    """A bundle found right: what it is, and how much of it was read."""

    bundle: TrustedBundle
    manifest: Manifest
    files: int
    size_bytes: int


def is_safe_path(path: str) -> bool:
    """Whether a path may name a file of a bundle: relative, in plain characters, without dots as parts."""
    if len(path) > _PATH_LIMIT or not _PATH.fullmatch(path):
        return False
    return all(part.strip(".") for part in path.split("/"))


def channel_path(channel: str, key: str) -> str:
    """Where a bundle holds a file (``subdir/name``) of one of its channels."""
    return f"{CHANNELS_FOLDER}/{channel}/{key}"


def bundle_damaged(where: Path, what: str) -> BundleRefusedError:
    """The refusal of a bundle that cannot be read."""
    return BundleRefusedError("damaged", f"{where}: {what}", hint=COPY_AGAIN)


COPY_AGAIN = "copy the bundle again from where it was made, or make it again there"
