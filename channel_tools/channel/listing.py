# SPDX-License-Identifier: BSD-3-Clause
"""Changes of a channel that change no package file: its listing, and patches of its records.

Changes of a listing are pure functions.

Patches have the format and meaning of conda-index's patch_instructions.json: fields are replaced, null removes one,
and names of the old package format also mean the ``.conda`` file of the same name. Fields that identify a package's
bytes cannot be changed.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeGuard

import msgspec

from channel_tools.conda.contents import JsonObject  # noqa: TC001 - msgspec reads the annotations
from channel_tools.conda.metadata import PATCHABLE, PATCHABLE_SPECS, PATCHABLE_TEXTS, is_purls
from channel_tools.conda.package import OLD_SUFFIX, PACKAGE_SUFFIX, stem_of
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError, ConfigError
from channel_tools.system.files import read_regular

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from channel_tools.channel.model import IndexedFile

INSTRUCTIONS_VERSION = 1
INSTRUCTIONS_FILE = "patch_instructions.json"
REVOKED = "package_has_been_revoked"
_PATCH_BYTES = 256 << 20
_KEYS = ("packages", "packages.conda", "patch_instructions_version", "remove", "revoke")


@dataclass(frozen=True, kw_only=True, slots=True)
class Patch:
    """The changes in one subdir, by file name: fields of ``records``, and packages that are hidden or revoked."""

    records: dict[str, JsonObject] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    revoke: tuple[str, ...] = ()

    def names(self) -> set[str]:
        """Every file name in it."""
        return {*self.records, *self.remove, *self.revoke}

    def only(self, names: Collection[str]) -> Patch:
        """The part of the patch for these names, without removals."""
        return Patch(
            records={name: changes for name, changes in self.records.items() if name in names},
            revoke=tuple(name for name in self.revoke if name in names),
        )

    def resolved(self, known: Collection[str]) -> Patch:
        """The part of the patch for files that exist: a name of the old format may stand for two, or one of them."""
        return Patch(
            records={name: changes for name, changes in self.records.items() if name in known},
            remove=tuple(name for name in self.remove if name in known),
            revoke=tuple(name for name in self.revoke if name in known),
        )

    def merged(self, later: Patch) -> Patch:
        """This patch and ``later``, whose fields win."""
        changes = {
            name: {**self.records.get(name, {}), **later.records.get(name, {})} for name in self.records | later.records
        }
        return Patch(
            records=dict(sorted(changes.items())),
            remove=tuple(sorted({*self.remove, *later.remove})),
            revoke=tuple(sorted({*self.revoke, *later.revoke})),
        )

    def applied(self, file_name: str, record: JsonObject) -> JsonObject:
        """The record with this patch's changes; the same object when it has none for it."""
        changes = self.records.get(file_name, {})
        if not changes and file_name not in self.revoke:
            return record
        patched = {key: value for key, value in {**record, **changes}.items() if value is not None}
        if file_name in self.revoke:
            depends = patched.get("depends")
            patched |= {"depends": [*(depends if isinstance(depends, list) else ()), REVOKED], "revoked": True}
        return dict(sorted(patched.items()))


def changes_between(record: JsonObject, target: JsonObject) -> JsonObject:
    """What a patch has to change in the record ``record`` so that its patchable fields are those of ``target``.

    An absent field and an empty one are equal; an index.json, too, can be ``record``.
    """
    return {
        key: target.get(key) or ([] if key == "depends" else None)
        for key in PATCHABLE
        if _as_listed(key, record.get(key)) != _as_listed(key, target.get(key))
    }


def _as_listed(key: str, value: object) -> object:
    """The value as records have it: an index.json may have a list of features."""
    return " ".join(value) or None if key in PATCHABLE_TEXTS and _is_texts(value) else value or None


def read_patch(path: Path) -> Patch:
    """Read a patch_instructions.json.

    Raises ConfigError naming the key that is wrong, FileAccessError if it is not a regular file.
    """
    try:
        value = decode_json(read_regular(path, limit_bytes=_PATCH_BYTES))
    except FileNotFoundError:
        raise ConfigError("no such file", path=path, hint="give a patch_instructions.json") from None
    except msgspec.DecodeError as err:
        raise ConfigError(f"not valid JSON: {err}", path=path) from None
    if not isinstance(value, dict):
        raise _wrong(path, "the file", value, "an object")
    if unknown := sorted(value.keys() - set(_KEYS)):
        raise ConfigError(f"unknown key {unknown[0]!r}; expected only {', '.join(_KEYS)}", path=path)
    if (version := value.get("patch_instructions_version")) != INSTRUCTIONS_VERSION:
        raise _wrong(path, "patch_instructions_version", version, str(INSTRUCTIONS_VERSION))
    records: dict[str, JsonObject] = {}
    for key in ("packages", "packages.conda"):
        for file_name, changes in _checked_records(value.get(key, {}), key, path).items():
            for name in _meant(file_name):
                records[name] = {**records.get(name, {}), **changes}
    return Patch(
        records=dict(sorted(records.items())),
        remove=_checked_names(value.get("remove", []), "remove", path),
        revoke=_checked_names(value.get("revoke", []), "revoke", path),
    )


def check_names(patch: Patch, subdir: str, known: Collection[str], path: Path) -> None:
    """Raise ConfigError if the patch names files that the subdir does not have."""
    stems = {stem_of(name) for name in known}
    if unknown := sorted({name for name in patch.names() if stem_of(name) not in stems}):
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        message = f"names {unknown[0]}{more}, which {subdir} does not have"
        raise ConfigError(message, path=path, hint="correct the name; expected the names of package files")


def _meant(name: str) -> tuple[str, ...]:
    """The files that a name in a patch means, as for conda-index."""
    return (name, stem_of(name) + PACKAGE_SUFFIX) if name.endswith(OLD_SUFFIX) else (name,)


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _checked_names(value: object, key: str, path: Path) -> tuple[str, ...]:
    if not _is_texts(value):
        raise _wrong(path, key, value, "a list of file names")
    return tuple(sorted({name for item in value for name in _meant(item)}))


def _checked_records(value: object, key: str, path: Path) -> Mapping[str, JsonObject]:
    if not isinstance(value, dict):
        raise _wrong(path, key, value, "an object of file names")
    for name, changes in value.items():
        where = f"{key}: {name}"
        if not isinstance(changes, dict):
            raise _wrong(path, where, changes, "an object of fields")
        for field_name, new in changes.items():
            _check_field(path, f"{where}: {field_name}", field_name, new)
    return value


def _check_field(path: Path, where: str, name: str, value: object) -> None:
    if name not in PATCHABLE:
        message = f"{where}: this field identifies the package and cannot be patched"
        raise ConfigError(message, path=path, hint=f"fields that can be: {', '.join(PATCHABLE)}")
    if value is None and name != "depends":
        return
    if name in PATCHABLE_SPECS:
        from channel_tools.conda.specs import (  # noqa: PLC0415 - a patch is read rarely, rattler is slow to import
            InvalidSpecError,
            read_spec,
        )

        if not _is_texts(value):
            raise _wrong(path, where, value, "a list of MatchSpecs")
        for spec in value:
            try:
                read_spec(spec)
            except InvalidSpecError as err:
                raise ConfigError(f"{where}: {err}", path=path) from None
    elif name in PATCHABLE_TEXTS and not isinstance(value, str):
        raise _wrong(path, where, value, "a string or null")
    elif name == "purls" and not is_purls(value):
        raise _wrong(path, where, value, "a list of package URLs or null")


def _wrong(path: Path, where: str, value: object, expected: str) -> ConfigError:
    text = repr(value)
    return ConfigError(f"{where}: found {text[:80]}; expected {expected}", path=path)


CHANNEL_SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Retired:
    """A file that retention removed from the indexes at ``since_s`` (epoch seconds); its ``sha256`` is remembered."""

    sha256: str
    since_s: float
    deleted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """listing.json: which packages new solves see. All names are ``subdir/file name``.

    ``incoming`` are files of a set that is being added: no index names them until all are there. ``foundation`` is the
    current set of foundation packages, ``superseded`` those of earlier sets, ``hidden`` own packages with the reason.
    ``yanked`` are yanked packages with the reason, ``patches`` the patches of a subdir's records. ``retired`` are files
    that retention removes: hidden at once, deleted later; other bytes may never have their names.
    """

    schema: int = CHANNEL_SCHEMA
    incoming: tuple[str, ...] = ()
    foundation: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    hidden: dict[str, str] = field(default_factory=dict)
    yanked: dict[str, str] = field(default_factory=dict)
    patches: dict[str, Patch] = field(default_factory=dict)
    retired: dict[str, Retired] = field(default_factory=dict)


def not_listed(listing: Listing) -> dict[str, str]:
    """The packages (``subdir/file name``) that new solves must not see, with the reason."""
    removed = {
        f"{subdir}/{name}": "removed by a repodata patch"
        for subdir, patch in listing.patches.items()
        for name in patch.remove
    }
    return removed | hidden_packages(listing)


def hidden_packages(listing: Listing) -> dict[str, str]:
    """The packages (``subdir/file name``) that even the unpatched repodata does not list, with the reason."""
    superseded = dict.fromkeys(listing.superseded, "superseded by the foundation in force")
    retired = dict.fromkeys(listing.retired, "retired")
    yanked = {name: f"yanked: {reason}" for name, reason in listing.yanked.items()}
    return superseded | listing.hidden | retired | yanked


def admitted(listing: Listing, files: Mapping[str, str | None]) -> Listing:
    """The listing after adding ``files`` (``subdir/file name`` to sha256, None if the file exists).

    Files that retention had removed are restored. Raises ChannelError for a name that was yanked, or had other bytes.
    """
    for key, sha256 in files.items():
        if (reason := listing.yanked.get(key)) is not None:
            message = f"{key}: was yanked ({reason}) and is not published again"
            raise ChannelError(message, hint="raise the build number and build again, or channel_tools yank --undo")
        if (retired := listing.retired.get(key)) is not None and sha256 not in {None, retired.sha256}:
            message = (
                f"{key}: other bytes were published under this name before (sha256 {retired.sha256}, not {sha256})"
            )
            raise ChannelError(message, hint="published files never change: raise the recipe's build number")
    back = listing.retired.keys() & files.keys()
    return dataclasses.replace(listing, retired={key: row for key, row in listing.retired.items() if key not in back})


def with_foundation(listing: Listing, names: Collection[str]) -> Listing:
    """The listing with ``names`` (``subdir/file name``) as the foundation of their subdirs; others are superseded."""
    subdirs = {_subdir(name) for name in names}
    elsewhere = {name for name in listing.foundation if _subdir(name) not in subdirs}
    foundation = {*elsewhere, *names}
    return dataclasses.replace(
        listing,
        foundation=tuple(sorted(foundation)),
        superseded=tuple(sorted({*listing.foundation, *listing.superseded} - foundation)),
    )


def prefer(listing: Listing, packages: Iterable[IndexedFile], names: Iterable[str]) -> Listing:
    """The listing in which the own packages ``names`` are visible and no other build of the same variant is.

    Two builds count as the same variant when name, version, build number, subdir and recorded variant are equal.
    """
    variants = {str(package.ref.key): _variant_key(package) for package in packages}
    preferred = {variants[name]: name for name in names if name in variants}
    hidden = dict(listing.hidden)
    for name, variant in variants.items():
        chosen = preferred.get(variant)
        if chosen == name:
            hidden.pop(name, None)
        elif chosen is not None:
            hidden[name] = f"superseded by {chosen}"
    return dataclasses.replace(listing, hidden=hidden)


def with_yanked(listing: Listing, names: Iterable[str], reason: str) -> Listing:
    """The listing with the packages ``names`` yanked; what was yanked before keeps its reason."""
    return dataclasses.replace(listing, yanked=dict(sorted((dict.fromkeys(names, reason) | listing.yanked).items())))


def without_yanked(listing: Listing, names: Collection[str]) -> Listing:
    """The listing with the packages ``names`` no longer yanked."""
    remaining = {name: reason for name, reason in listing.yanked.items() if name not in names}
    return dataclasses.replace(listing, yanked=remaining)


def with_patch(listing: Listing, subdir: str, patch: Patch, *, replace: bool) -> Listing:
    """The listing with a repodata patch added to the subdir's current one, or replacing it."""
    before = None if replace else listing.patches.get(subdir)
    merged = patch if before is None else before.merged(patch)
    others = {name: old for name, old in listing.patches.items() if name != subdir}
    return dataclasses.replace(
        listing, patches=dict(sorted((others | {subdir: merged} if merged.names() else others).items()))
    )


def names_in(subdir: str, keys: Iterable[str]) -> frozenset[str]:
    """The file names of those ``keys`` (``subdir/file name``) that are in one subdir."""
    return frozenset(key.partition("/")[2] for key in keys if key.startswith(subdir + "/"))


def _subdir(key: str) -> str:
    return key.partition("/")[0]


def _variant_key(package: IndexedFile) -> tuple[object, ...]:
    record, variant = package.row.record, package.row.origin.variant
    known = package.ref.file_name if variant is None else tuple(sorted(variant.items()))
    return package.ref.subdir, package.row.name, record["version"], record["build_number"], known
