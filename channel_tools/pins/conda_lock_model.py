# SPDX-License-Identifier: BSD-3-Clause
"""The shape of conda-lock.yml (CEP 37), as pydantic models at the boundary.

Only the entries of chosen platforms and categories are held to PackageEntry: the others concern nobody.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from channel_tools.pins.lock import NoArch  # noqa: TC001 - pydantic reads it

MAIN = "main"
"""The category that is always installed."""

_Text = Annotated[str, Field(min_length=1)]


class _Model(BaseModel):
    # most commands do not read such a file
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class ChannelEntry(_Model):
    """A channel, with the names of the variables that its address needs."""

    url: _Text
    used_env_vars: list[str] = []


def _as_channel(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


class Metadata(_Model):
    """The origin of the lock. Members that do not affect what is installed are ignored."""

    content_hash: dict[str, str]
    channels: list[Annotated[ChannelEntry, BeforeValidator(_as_channel)]]
    """Text is a channel, too, as for conda-lock (lockfile/v1/models.py, ``ensure_channels``)."""
    platforms: Annotated[list[_Text], Field(min_length=1)]
    sources: list[str]
    time_metadata: dict[str, str] | None = None
    git_metadata: dict[str, str] | None = None
    inputs_metadata: dict[str, dict[str, str]] | None = None
    custom_metadata: dict[str, str] | None = None


class Hashes(_Model):
    """The hashes of the package file; conda-lock writes ``null`` or nothing for one that it does not know."""

    md5: str | None = None
    sha256: str | None = None


class EntryHead(_Model):
    """What says whether an entry is for the chosen platform and categories; nothing else of the others is read."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, defer_build=True)

    name: _Text
    manager: Literal["conda", "pip"]
    platform: _Text
    category: str = MAIN


class PackageEntry(_Model):
    """One package for one platform and category. A package of several categories has an entry for each."""

    name: _Text
    version: _Text
    manager: Literal["conda", "pip"]
    platform: _Text
    dependencies: dict[str, str] = {}
    constrains: dict[str, str] = {}
    """What mamba's files have beside CEP 37."""
    url: _Text
    hash: Hashes
    source: dict[str, str] | None = None
    build: str | None = None
    category: str = MAIN
    optional: bool = False


class CondaLockFile(_Model):
    """The whole file; ``package`` are of EntryHead, and of PackageEntry if they are chosen."""

    version: Literal[1] = 1
    metadata: Metadata
    package: Annotated[list[dict[str, Any]], BeforeValidator(lambda value: [] if value is None else value)]


class OwnRecord(_Model):
    """What a package's entry cannot express; members as in LockedPackage."""

    platform: _Text
    name: _Text
    subdir: _Text | None = None
    file_name: _Text | None = None
    channel: _Text | None = None
    build_number: int = 0
    size_bytes: int = 0
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    noarch: NoArch | None = None
    python_site_packages_path: str | None = None
    license: str | None = None
    timestamp_ms: int | None = None
