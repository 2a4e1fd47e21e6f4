# SPDX-License-Identifier: BSD-3-Clause
"""Repodata patches: what people change in the records of published packages, in the form of patch_instructions.json.

The form and its meaning are conda-index's: fields are replaced, null takes one out, names of the old package format
mean the ``.conda`` file of the same name. Only fields that do not say which bytes a package is may be changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeGuard

import msgspec

from channel_tools.conda.info import JsonObject  # noqa: TC001 - msgspec reads the annotations
from channel_tools.conda.metadata import is_purls
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

INSTRUCTIONS_VERSION = 1
INSTRUCTIONS_FILE = "patch_instructions.json"
REVOKED = "package_has_been_revoked"
_OLD_SUFFIX, _SUFFIX = ".tar.bz2", ".conda"
_SPECS = ("depends", "constrains")
_TEXTS = ("features", "license", "license_family", "track_features")
_PATCHABLE = (*_SPECS, *_TEXTS, "purls")
_KEYS = ("packages", "packages.conda", "patch_instructions_version", "remove", "revoke")


@dataclass(frozen=True, kw_only=True, slots=True)
class Patch:
    """What is changed in one subdir, by file name: fields of ``records``, packages that are hidden or made unusable."""

    records: dict[str, JsonObject] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    revoke: tuple[str, ...] = ()

    def names(self) -> set[str]:
        """Every file name in it."""
        return {*self.records, *self.remove, *self.revoke}

    def only(self, names: Collection[str]) -> Patch:
        """What the patch says of these names, apart from what it removes."""
        return Patch(
            records={name: changes for name, changes in self.records.items() if name in names},
            revoke=tuple(name for name in self.revoke if name in names),
        )

    def merged(self, later: Patch) -> Patch:
        """This patch and ``later``, whose fields win."""
        both = {
            name: {**self.records.get(name, {}), **later.records.get(name, {})} for name in self.records | later.records
        }
        return Patch(
            records=dict(sorted(both.items())),
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


def read_patch(path: Path) -> Patch:
    """Read a patch_instructions.json. Raises ConfigError naming the key that is wrong."""
    try:
        value = decode_json(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError("no such file", path=path, hint="give a patch_instructions.json") from None
    except (msgspec.DecodeError, IsADirectoryError) as err:
        raise ConfigError(f"not valid JSON: {err}", path=path) from None
    if not isinstance(value, dict):
        raise _wrong(path, "the file", value, "an object")
    if unknown := sorted(value.keys() - set(_KEYS)):
        raise ConfigError(f"unknown key {unknown[0]!r}; expected only {', '.join(_KEYS)}", path=path)
    if (version := value.get("patch_instructions_version")) != INSTRUCTIONS_VERSION:
        raise _wrong(path, "patch_instructions_version", version, str(INSTRUCTIONS_VERSION))
    records: dict[str, JsonObject] = {}
    for key in ("packages", "packages.conda"):
        for name, changes in _checked_records(value.get(key, {}), key, path).items():
            records[_modern(name)] = {**records.get(_modern(name), {}), **changes}
    return Patch(
        records=dict(sorted(records.items())),
        remove=_checked_names(value.get("remove", []), "remove", path),
        revoke=_checked_names(value.get("revoke", []), "revoke", path),
    )


def check_names(patch: Patch, subdir: str, known: Collection[str], path: Path) -> None:
    """Raise ConfigError when the patch names files that the subdir does not have."""
    if unknown := sorted(patch.names() - set(known)):
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        message = f"names {unknown[0]}{more}, which {subdir} does not have"
        raise ConfigError(message, path=path, hint="correct the name; names are those of package files, with .conda")


def _modern(name: str) -> str:
    return name.removesuffix(_OLD_SUFFIX) + _SUFFIX if name.endswith(_OLD_SUFFIX) else name


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _checked_names(value: object, key: str, path: Path) -> tuple[str, ...]:
    if not _is_texts(value):
        raise _wrong(path, key, value, "a list of file names")
    return tuple(sorted({_modern(item) for item in value}))


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
    if name not in _PATCHABLE:
        message = f"{where}: this field says which package it is and cannot be patched"
        raise ConfigError(message, path=path, hint=f"fields that can be: {', '.join(_PATCHABLE)}")
    if value is None and name != "depends":
        return
    if name in _SPECS:
        _check_specs(path, where, value)
    elif name in _TEXTS and not isinstance(value, str):
        raise _wrong(path, where, value, "a text or null")
    elif name == "purls" and not is_purls(value):
        raise _wrong(path, where, value, "a list of package URLs or null")


def _check_specs(path: Path, where: str, value: object) -> None:
    from rattler import MatchSpec  # noqa: PLC0415 - a patch is read rarely, rattler is slow to import
    from rattler.exceptions import InvalidMatchSpecError  # noqa: PLC0415

    if not _is_texts(value):
        raise _wrong(path, where, value, "a list of MatchSpecs")
    for spec in value:
        try:
            MatchSpec(spec)
        except InvalidMatchSpecError as err:
            raise ConfigError(f"{where}: {spec!r} is not a valid MatchSpec ({err})", path=path) from None


def _wrong(path: Path, where: str, found: object, expected: str) -> ConfigError:
    shown = repr(found)
    return ConfigError(f"{where}: found {shown[:80]}; expected {expected}", path=path)
