# SPDX-License-Identifier: BSD-3-Clause
"""conda-lock.yml (CEP 37): the lock from which the other formats and every update are made.

The content hash covers the locked packages of a platform, so a file of ours that was truncated or edited is detected
before anything is installed. Of files of other tools the entries of the chosen platforms and categories are read whole,
or refused with the line; the others concern nobody.

The format has no fields for specs, virtual packages, sizes or constraints. They are kept in its ``custom_metadata`` as
lines of text under our own keys, one JSON record per package, so that a change of one package changes one line.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from channel_tools.conda.addresses import without_credentials
from channel_tools.conda.package import split_file_name
from channel_tools.conda.specs import condition_of, is_virtual, spec_name
from channel_tools.pins.choice import (
    EVERYTHING,
    SHA256,
    LockChoice,
    LockEntry,
    check_credentials,
    checked_packages,
    choose_platforms,
    named_packages,
    package_of_address,
    pip_error,
    refuse_options,
)
from channel_tools.pins.lock import (
    WRITE_AGAIN,
    Lock,
    LockedPackage,
    NoArch,
    PlatformLock,
)
from channel_tools.pins.md5 import MD5
from channel_tools.system.errors import ConfigError, IntegrityError, UsageError
from channel_tools.system.progress import ignore
from channel_tools.system.yamlfile import DUMPER, parse_yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.system.progress import Note
    from channel_tools.system.yamlfile import KeyPath, YamlDocument

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
            "custom_metadata": {
                SCHEMA_KEY: OWN_SCHEMA,
                STACK_KEY: lock.stack,
                SPECS_KEY: _lines(lock.specs),
                VIRTUAL_KEY: _lines(
                    " ".join((platform.platform, *platform.virtual_packages)) for platform in lock.platforms
                ),
                RECORDS_KEY: _lines(
                    _own_record(package, platform.platform)
                    for platform in lock.platforms
                    for package in platform.packages
                ),
            },
        },
        "package": [_entry(package, platform.platform) for platform in lock.platforms for package in platform.packages],
    }
    return _HEADER + yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=_NO_LIMIT, allow_unicode=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reading:
    """A file that is being read, with the lines of its entries."""

    document: YamlDocument
    model: CondaLockFile
    own: Mapping[str, str]

    def entry(self, index: int) -> PackageEntry:
        """An entry. Raises ConfigError (file, line) for one that does not follow the format."""
        return _validated(PackageEntry, self.model.package[index], self.document, ("package", index))

    def line_of(self, index: int) -> int:
        """The line of an entry."""
        return self.document.line_of("package", index)


def parse_conda_lock(text: str, path: Path, choice: LockChoice = EVERYTHING, *, note: Note = ignore) -> Lock:
    """The chosen part of the lock in the file. ``note`` gets a line on categories that are left out.

    The sha256 of a package with only an md5 is empty (see pins/md5.py).

    Raises ConfigError (file, line) for another shape or schema, duplicate packages or pip packages among those chosen,
    UsageError for a platform or category that the file does not have, and IntegrityError if a file of ours has changed
    since it was written.
    """
    refuse_options(choice, path, file_kind="a conda-lock.yml", categories=True)
    document = parse_yaml(text, path)
    _check_version(document)
    model = _validated(CondaLockFile, document.value, document, ())
    reading = _Reading(document=document, model=model, own=model.metadata.custom_metadata or {})
    records = _own_records(reading.own, document)
    lines = [line.split() for line in reading.own.get(VIRTUAL_KEY, "").splitlines()]
    virtual = {words[0]: tuple(words[1:]) for words in lines if words}
    platforms = choose_platforms({name: name for name in model.metadata.platforms}, choice, path)
    chosen = _choose_entries(reading, set(platforms), choice, note)
    lock = Lock(
        stack=reading.own.get(STACK_KEY, ""),
        specs=tuple(reading.own.get(SPECS_KEY, "").splitlines()),
        channels=tuple(_channel(channel, document, index) for index, channel in enumerate(model.metadata.channels)),
        platforms=tuple(
            PlatformLock(
                platform=name,
                virtual_packages=virtual.get(name, ()),
                packages=checked_packages(_packages(reading, chosen[name], records), name, path),
            )
            for name in platforms
        ),
    )
    if SCHEMA_KEY in reading.own:
        for platform in lock.platforms:
            if (expected := model.metadata.content_hash.get(platform.platform)) != (
                computed := _content_hash(platform)
            ):
                message = (
                    f"{path}: the packages for {platform.platform} are not those that were locked (content hash "
                    f"{computed}, expected {expected}): the file was truncated or edited"
                )
                raise IntegrityError(message, hint=f"copy the original file again, or {WRITE_AGAIN}")
    return lock


def named_files(text: str, path: Path) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """The address, hashes and line of every conda package, of all platforms and categories.

    Raises as parse_conda_lock does for a file of ours, and ConfigError (file, line) for one that does not follow the
    format.
    """
    document = parse_yaml(text, path)
    _check_version(document)
    model = _validated(CondaLockFile, document.value, document, ())
    if SCHEMA_KEY in (model.metadata.custom_metadata or {}):
        parse_conda_lock(text, path)  # checks that nothing is missing
    for index, content in enumerate(model.package):
        head = _validated(EntryHead, content, document, ("package", index))
        if head.manager == "conda" and not is_virtual(head.name):
            entry = _validated(PackageEntry, content, document, ("package", index))
            hashes = tuple(digest for digest in (entry.hash.sha256, entry.hash.md5) if digest)
            yield entry.url, hashes, document.line_of("package", index)


_AnyModel = TypeVar("_AnyModel", bound=BaseModel)


def _validated(kind: type[_AnyModel], value: object, document: YamlDocument, where: KeyPath) -> _AnyModel:
    try:
        return kind.model_validate(value)
    except ValidationError as err:
        first = err.errors()[0]
        location = (*where, *first["loc"])
        key = ".".join(str(part) for part in location)
        raise document.error(f"{key}: {first['msg']}", *location, hint=f"not a conda-lock.yml; {WRITE_AGAIN}") from None


def _channel(channel: ChannelEntry, document: YamlDocument, index: int) -> str:
    """The address of a channel, without the variables from which conda-lock would take credentials."""
    address = _without_variables(channel.url).rstrip("/")
    check_credentials(address, document.path, line=document.line_of("metadata", "channels", index))
    return address


def _without_variables(address: str) -> str:
    """``address`` without credentials if they are variables (``$TOKEN``), for which --channel gives the values."""
    return without_credentials(address) if "$" in address else address


def _content_hash(platform: PlatformLock) -> str:
    # members without a value are left out, so that locks stay true when LockedPackage gets another one
    packages = [{name: value for name, value in asdict(package).items() if value} for package in platform.packages]
    content = {"virtual_packages": platform.virtual_packages, "packages": packages}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


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
        "category": MAIN,
        "optional": False,
        "build": package.build,
    }


def _dependencies(depends: Iterable[str]) -> dict[str, str]:
    """Requirements by name; the version ranges of several for one name are joined, as far as possible."""
    merged: dict[str, str] = {}
    for text in depends:
        name, condition = spec_name(text), condition_of(text)
        earlier = merged.get(name, "")
        plain = " " not in earlier and " " not in condition
        merged[name] = f"{earlier},{condition}" if earlier and condition and plain else max(earlier, condition, key=len)
    return merged


def _check_version(document: YamlDocument) -> None:
    value = document.value
    if not isinstance(value, dict) or "metadata" not in value:
        raise ConfigError("not a conda-lock.yml: it has no metadata", path=document.path, hint=WRITE_AGAIN)
    version = value.get("version", 1)
    if version != 1:
        message = f"version {version!r} of conda-lock.yml; this program reads version 1"
        raise document.error(message, "version", hint="take a newer channel_tools, or write the lock again")


def _choose_entries(
    reading: _Reading, platforms: Collection[str], choice: LockChoice, note: Note
) -> dict[str, list[int]]:
    """The positions of the chosen entries by platform; virtual packages are none, as for conda-lock."""
    categories = {MAIN, *choice.categories}
    chosen: dict[str, list[int]] = {name: [] for name in platforms}
    chosen_names: set[tuple[str, str]] = set()
    left_out: set[tuple[str, str, str]] = set()
    known_categories = set()
    for index, content in enumerate(reading.model.package):
        head = _validated(EntryHead, content, reading.document, ("package", index))
        if head.platform not in reading.model.metadata.platforms:
            message = f"{head.name}: {head.platform} is not among metadata.platforms"
            raise reading.document.error(message, "package", index, hint=WRITE_AGAIN)
        known_categories.add(head.category)
        if head.platform not in chosen or is_virtual(head.name):
            continue
        if head.category in categories:
            chosen[head.platform].append(index)
            chosen_names.add((head.platform, head.name))
        else:
            left_out.add((head.category, head.platform, head.name))
    _check_categories(choice, known_categories, reading.document.path)
    _note_left_out([entry for entry in left_out if entry[1:] not in chosen_names], reading.document.path, note)
    return chosen


def _check_categories(choice: LockChoice, categories: Collection[str], path: Path) -> None:
    for category in choice.categories:
        if category not in categories:
            message = f"{path}: it has no category {category}; it has {', '.join(sorted(categories)) or 'no packages'}"
            raise UsageError(message, hint="choose one of them with --category")


def _note_left_out(left_out: Collection[tuple[str, str, str]], path: Path, note: Note) -> None:
    for category in sorted({entry[0] for entry in left_out}):
        names = sorted({name for other, _, name in left_out if other == category})
        note(
            f"note: {path}: left out the packages of the category {category} ({named_packages(names)}); "
            f"--category {category} includes them"
        )


def _packages(
    reading: _Reading, chosen: Sequence[int], records: Mapping[tuple[str, str], OwnRecord]
) -> Iterator[LockEntry]:
    entries = {index: reading.entry(index) for index in chosen}
    if pip := {index: entry for index, entry in entries.items() if entry.manager == "pip"}:
        names = list(dict.fromkeys(entry.name for entry in pip.values()))
        raise pip_error(names, reading.document.path, line=reading.line_of(next(iter(pip))), tool="conda-lock")
    for index, entry in entries.items():
        package = _package(entry, records.get((entry.platform, entry.name)), reading.document, index)
        yield LockEntry(package=package, line=reading.line_of(index))


def _package(entry: PackageEntry, record: OwnRecord | None, document: YamlDocument, index: int) -> LockedPackage:
    where = ("package", index)
    has_md5 = not entry.hash.sha256 and MD5.fullmatch(entry.hash.md5 or "")
    if not (has_md5 or SHA256.fullmatch(entry.hash.sha256 or "")):
        digest = entry.hash.sha256 or entry.hash.md5
        problem = f"found {digest!r}" if digest else "no hash"
        message = f"{entry.name}: no sha256 ({problem})"
        raise document.error(message, *where, "hash", hint="lock again with a tool that writes it")
    try:
        package = _bare_package(entry)
        if record is None:  # that of a file of ours is covered by the content hash
            _check_names(package, entry)
    except ValueError as err:
        hint = "expected ADDRESS/SUBDIR/NAME-VERSION-BUILD.conda"
        raise document.error(f"{entry.name}: {err}", *where, "url", hint=hint) from None
    if record is None:
        return package
    values: dict[str, Any] = record.model_dump(exclude_unset=True, exclude={"platform", "name"})
    return replace(package, **values)


def _check_names(package: LockedPackage, entry: PackageEntry) -> None:
    """Raise ValueError if the entry's address is that of another package."""
    parts = split_file_name(package.file_name, old_format=True)
    stated = (entry.name, entry.version, entry.build or package.build)
    if parts is not None and (parts[0].lower(), *parts[1:]) != stated:
        raise ValueError(f"its address is that of another package than {' '.join(stated)}: {package.file_name}")


def _bare_package(entry: PackageEntry) -> LockedPackage:
    """The package from the entry alone."""
    address = _without_variables(entry.url)
    package = package_of_address(address, sha256=entry.hash.sha256 or "", md5=entry.hash.md5 or None)
    return replace(
        package,
        name=entry.name,
        version=entry.version,
        build=entry.build or package.build,
        depends=tuple(f"{name} {spec}".strip() for name, spec in entry.dependencies.items()),
        constrains=tuple(f"{name} {spec}".strip() for name, spec in entry.constrains.items()),
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
