# SPDX-License-Identifier: BSD-3-Clause
"""conda-lock.yml (CEP 37): the lock from which the other formats and every update are made.

The content hash covers the locked packages of a platform, so a file of ours that was truncated or edited is detected
before anything is installed. Files of other tools are read as far as possible.

The format has no fields for specs, virtual packages, sizes or constraints. They are kept in its ``custom_metadata`` as
lines of text under our own keys, one JSON record per package, so that a change of one package changes one line.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from channel_tools.conda.specs import condition_of, spec_name
from channel_tools.pins.explicit import package_of_address
from channel_tools.pins.lock import (
    WRITE_AGAIN,
    Lock,
    LockedPackage,
    NoArch,
    PlatformLock,
)
from channel_tools.system.errors import ConfigError, IntegrityError
from channel_tools.system.yamlfile import DUMPER, parse_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from channel_tools.system.yamlfile import YamlDocument

_SOURCES = ["variants/stacks.yaml"]
_HEADER = """\
# Written by channel_tools pins. Change it with: channel_tools pins --update
# Install it with: channel_tools env create --lock FILE PREFIX, or conda-lock install
"""

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
    # most commands do not read such a file
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class ChannelEntry(_Model):
    """A channel, with the names of the variables that its address needs."""

    url: _Text
    used_env_vars: list[str] = []


class Metadata(_Model):
    """The origin of the lock. Members that do not affect what is installed are ignored."""

    content_hash: dict[str, str]
    channels: list[ChannelEntry]
    platforms: Annotated[list[_Text], Field(min_length=1)]
    sources: list[str]
    time_metadata: dict[str, str] | None = None
    git_metadata: dict[str, str] | None = None
    inputs_metadata: dict[str, dict[str, str]] | None = None
    custom_metadata: dict[str, str] | None = None


class Hashes(_Model):
    """The hashes of the package file."""

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


_NO_LIMIT = 2**31 - 1
"""The line width: libyaml's largest."""


class _Dumper(DUMPER):  # type: ignore[valid-type, misc]  # which of two classes it is, PyYAML's build decides
    """Text of several lines, written as a literal block."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def render_conda_lock(lock: Lock) -> str:
    """The text of the whole lock, with all platforms."""
    content = {
        "version": 1,
        "metadata": {
            "content_hash": {platform.platform: _content_hash(platform) for platform in lock.platforms},
            "channels": [{"url": channel, "used_env_vars": []} for channel in lock.channels],
            "platforms": [platform.platform for platform in lock.platforms],
            "sources": _SOURCES,
            "custom_metadata": _own_metadata(lock),
        },
        "package": [_entry(package, platform.platform) for platform in lock.platforms for package in platform.packages],
    }
    return _HEADER + yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=_NO_LIMIT, allow_unicode=True)


def parse_conda_lock(text: str, path: Path) -> Lock:
    """The lock in the file.

    Raises ConfigError (file, line) for another shape or schema, duplicate packages or pip packages, and IntegrityError
    if a file of ours has changed since it was written.
    """
    document = parse_yaml(text, path)
    _check_version(document)
    try:
        model = CondaLockFile.model_validate(document.value)
    except ValidationError as err:
        first = err.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise document.error(
            f"{where}: {first['msg']}", *first["loc"], hint=f"not a conda-lock.yml; {WRITE_AGAIN}"
        ) from None
    own = model.metadata.custom_metadata or {}
    records = _own_records(own, document)
    virtual = _virtual_packages(own)
    by_platform = _packages(model, records, document)
    lock = Lock(
        stack=own.get(STACK_KEY, ""),
        specs=tuple(own.get(SPECS_KEY, "").splitlines()),
        channels=tuple(channel.url.rstrip("/") for channel in model.metadata.channels),
        platforms=tuple(
            PlatformLock(platform=name, virtual_packages=virtual.get(name, ()), packages=tuple(by_platform[name]))
            for name in sorted(model.metadata.platforms)
        ),
    )
    if SCHEMA_KEY in own:
        _check_content(lock, model.metadata, path)
    return lock


def _content_hash(platform: PlatformLock) -> str:
    # members without a value are left out, so that locks stay true when LockedPackage gets another one
    packages = [{name: value for name, value in asdict(one).items() if value} for one in platform.packages]
    content = {"virtual_packages": platform.virtual_packages, "packages": packages}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _own_metadata(lock: Lock) -> dict[str, str]:
    return {
        SCHEMA_KEY: OWN_SCHEMA,
        STACK_KEY: lock.stack,
        SPECS_KEY: _lines(lock.specs),
        VIRTUAL_KEY: _lines(" ".join((one.platform, *one.virtual_packages)) for one in lock.platforms),
        RECORDS_KEY: _lines(_own_record(package, one.platform) for one in lock.platforms for package in one.packages),
    }


def _lines(texts: Iterable[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def _own_record(package: LockedPackage, platform: str) -> str:
    bare = _bare_package(PackageEntry.model_validate(_entry(package, platform)))
    values = {
        name: value
        for name, value in asdict(package).items()
        if name in OwnRecord.model_fields and value != getattr(bare, name)
    }
    return json.dumps({"platform": platform, "name": package.name} | values, ensure_ascii=False)


def _entry(package: LockedPackage, platform: str) -> dict[str, object]:
    hashes = {"md5": package.md5, "sha256": package.sha256}
    return {
        "name": package.name,
        "version": package.version,
        "manager": "conda",
        "platform": platform,
        "dependencies": _dependencies(package.depends),
        "url": package.url,
        "hash": {name: value for name, value in hashes.items() if value is not None},
        "category": "main",
        "optional": False,
        "build": package.build,
    }


def _dependencies(depends: Iterable[str]) -> dict[str, str]:
    """Requirements by name; the version ranges of several for one name are joined, as far as possible."""
    merged: dict[str, str] = {}
    for text in depends:
        name, rest = spec_name(text), condition_of(text)
        earlier = merged.get(name, "")
        plain = " " not in earlier and " " not in rest
        merged[name] = f"{earlier},{rest}" if earlier and rest and plain else max(earlier, rest, key=len)
    return merged


def _check_version(document: YamlDocument) -> None:
    value = document.value
    if not isinstance(value, dict) or "metadata" not in value:
        raise ConfigError("not a conda-lock.yml: it has no metadata", path=document.path, hint=WRITE_AGAIN)
    version = value.get("version", 1)
    if version != 1:
        message = f"version {version!r} of conda-lock.yml; this program reads version 1"
        raise document.error(message, "version", hint="take a newer channel_tools, or write the lock again")


def _packages(
    model: CondaLockFile, records: Mapping[tuple[str, str], OwnRecord], document: YamlDocument
) -> dict[str, list[LockedPackage]]:
    by_platform: dict[str, list[LockedPackage]] = {name: [] for name in model.metadata.platforms}
    for index, entry in enumerate(model.package):
        where = ("package", index)
        if entry.platform not in by_platform:
            raise document.error(
                f"{entry.name}: {entry.platform} is not among metadata.platforms", *where, hint=WRITE_AGAIN
            )
        if entry.manager == "pip":
            hint = "lock conda packages only, or install the file with conda-lock"
            raise document.error(f"{entry.name}: a pip package, which this program does not install", *where, hint=hint)
        if entry.category == "main":
            package = _package(entry, records.get((entry.platform, entry.name)), document, index)
            by_platform[entry.platform].append(package)
    return by_platform


def _package(entry: PackageEntry, record: OwnRecord | None, document: YamlDocument, index: int) -> LockedPackage:
    where = ("package", index)
    if entry.hash.sha256 is None:
        raise document.error(f"{entry.name}: no sha256", *where, "hash", hint="lock again with a tool that writes it")
    try:
        package = _bare_package(entry)
    except ValueError as err:
        hint = "expected ADDRESS/SUBDIR/NAME-VERSION-BUILD.conda"
        raise document.error(f"{entry.name}: {err}", *where, "url", hint=hint) from None
    if record is None:
        return package
    values: dict[str, Any] = record.model_dump(exclude_unset=True, exclude={"platform", "name"})
    return replace(package, **values)


def _bare_package(entry: PackageEntry) -> LockedPackage:
    """The package from the entry alone."""
    package = package_of_address(entry.url, sha256=entry.hash.sha256 or "", md5=entry.hash.md5)
    return replace(
        package,
        name=entry.name,
        version=entry.version,
        build=entry.build or package.build,
        depends=tuple(f"{name} {rest}".strip() for name, rest in entry.dependencies.items()),
    )


def _own_records(own: Mapping[str, str], document: YamlDocument) -> dict[tuple[str, str], OwnRecord]:
    where = ("metadata", "custom_metadata")
    schema = own.get(SCHEMA_KEY, OWN_SCHEMA)
    if schema != OWN_SCHEMA:
        message = f"{SCHEMA_KEY} is {schema!r}; this program reads {OWN_SCHEMA!r}"
        raise document.error(message, *where, SCHEMA_KEY, hint="use a newer channel_tools, or write the lock again")
    try:
        records = [OwnRecord.model_validate_json(line) for line in own.get(RECORDS_KEY, "").splitlines()]
    except ValidationError as err:
        message = f"{RECORDS_KEY} is damaged: {err.errors()[0]['msg']}"
        raise document.error(message, *where, RECORDS_KEY, hint=WRITE_AGAIN) from None
    return {(record.platform, record.name): record for record in records}


def _virtual_packages(own: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    lines = [line.split() for line in own.get(VIRTUAL_KEY, "").splitlines()]
    return {words[0]: tuple(words[1:]) for words in lines if words}


def _check_content(lock: Lock, metadata: Metadata, path: Path) -> None:
    for platform in lock.platforms:
        written, found = metadata.content_hash.get(platform.platform), _content_hash(platform)
        if written != found:
            message = (
                f"{path}: the packages for {platform.platform} are not those that were locked (content hash {found}, "
                f"expected {written}): the file was truncated or edited"
            )
            raise IntegrityError(message, hint=f"copy the original file again, or {WRITE_AGAIN}")
