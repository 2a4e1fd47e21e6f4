# SPDX-License-Identifier: BSD-3-Clause
"""The shape of conda-lock.yml (CEP 37), and of what stands in its ``custom_metadata`` when it was written here.

The format has no place for specs, virtual packages, sizes or constraints. They are kept as lines of text under keys of
our own, one JSON record per package, so that a change of one package shows as a change of one line.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from channel_tools.pins.model import NoArch  # noqa: TC001  (pydantic reads the annotation when it makes the model)

OWN_SCHEMA = "1"
SCHEMA_KEY = "channel_tools_schema"
STACK_KEY = "channel_tools_stack"
SPECS_KEY = "channel_tools_specs"
VIRTUAL_KEY = "channel_tools_virtual_packages"
RECORDS_KEY = "channel_tools_records"

_Text = Annotated[str, Field(min_length=1)]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Md5 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ChannelEntry(_Model):
    """A channel; where its address needs variables, they are named."""

    url: _Text
    used_env_vars: list[str] = []


class Metadata(_Model):
    """Where the lock comes from. Members that say nothing about what to install are let through unread."""

    content_hash: dict[str, str]
    channels: list[ChannelEntry]
    platforms: Annotated[list[_Text], Field(min_length=1)]
    sources: list[str]
    time_metadata: dict[str, str] | None = None
    git_metadata: dict[str, str] | None = None
    inputs_metadata: dict[str, dict[str, str]] | None = None
    custom_metadata: dict[str, str] | None = None


class Hashes(_Model):
    """Of the package file."""

    md5: _Md5 | None = None
    sha256: _Sha256 | None = None


class PackageEntry(_Model):
    """One package for one platform."""

    name: _Text
    version: _Text
    manager: Literal["conda", "pip"]
    platform: _Text
    dependencies: dict[str, str] = {}
    url: _Text
    hash: Hashes
    source: dict[str, str] | None = None
    build: str | None = None
    category: str = "main"
    optional: bool


class CondaLockFile(_Model):
    """The whole file."""

    version: Literal[1] = 1
    metadata: Metadata
    package: list[PackageEntry]


class OwnRecord(_Model):
    """What one package's entry leaves out or says otherwise; members as in LockedPackage."""

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
