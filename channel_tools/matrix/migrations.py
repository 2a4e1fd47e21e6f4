# SPDX-License-Identifier: BSD-3-Clause
"""conda-forge's migrations, applied to its pinning as conda-smithy applies them to a feedstock's variants.

A migration is a variant file with ``__migrator``, which says how its values are added to the pinning's (CFEP 9;
``conda_smithy/variant_algebra.py``). Most settings in it are for the bot that opens pull requests, and change no value.
Where conda-smithy ends in a traceback, and for what it would ignore, there is an error with file and line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rattler import Version
from rattler.exceptions import InvalidVersionError

from channel_tools.matrix.variants import OLD_FORMAT_KEYS, read_conda_build_config, scalar_of
from channel_tools.system.counting import counted
from channel_tools.system.errors import nearest_names_hint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from channel_tools.matrix.model import VariantFile, VariantScalar
    from channel_tools.matrix.selectors import Selectors
    from channel_tools.system.errors import ConfigError
    from channel_tools.system.yamlfile import YamlDocument, YamlValue

    _Values = tuple[VariantScalar, ...]
    _Groups = tuple[tuple[str, ...], ...]

MIGRATOR = "__migrator"
_TIMESTAMP = "migrator_ts"
_OPERATIONS = ("key_add", "key_remove")
_ALGEBRA_KEYS = frozenset({"operation", "primary_key", "ordering", "additional_zip_keys", "exclude"})
_BOT_KEYS = frozenset(
    [
        "allowlist_file",
        "automerge",
        "build_number",
        "bump_number",
        "check_solvable",
        "commit_message",
        "conda_forge_yml_patches",
        "exclude_pinned_pkgs",
        "force_pr_after_solver_attempts",
        "ignored_deps_per_node",
        "include_noarch",
        "kind",
        "longterm",
        "max_solver_attempts",
        "migration_number",
        "override_cbc_keys",
        "paused",
        "platform_allowlist",
        "pr_limit",
        "use_local",
        "wait_for_migrators",
    ]
)
"""Settings that decide which feedstocks get a pull request, when, and what it says."""
_UNSTAMPED = -1.0
"""conda-smithy's time for a migration without one: it is applied first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Migration:
    """A migration for one platform: its values and groups, and what ``__migrator`` says of them."""

    name: str
    file: VariantFile
    timestamp: float
    operation: str | None
    primary_keys: tuple[str, ...]
    ordering: Mapping[str, _Values]
    additional_zip_keys: tuple[str, ...]
    exclude: frozenset[str]
    """The feedstocks that are not migrated."""

    def error(self, message: str, *key_path: str | int, hint: str) -> ConfigError:
        """A ConfigError that names the file of the migration and the line of ``key_path``."""
        return self.file.document.error(f"migration {self.name!r}: {message}", *key_path, hint=hint)


def read_migration(text: str, path: Path, selectors: Selectors) -> Migration:
    """Read a migration for a platform. Raises ConfigError (file, line) for what is not understood."""
    file = read_conda_build_config(text, path, selectors, without={*OLD_FORMAT_KEYS, MIGRATOR, _TIMESTAMP})
    document = file.document
    settings = document.value.get(MIGRATOR) if isinstance(document.value, dict) else None
    if not isinstance(settings, dict):
        message = f"a migration needs the mapping {MIGRATOR}"
        raise document.error(message, MIGRATOR, hint="name a migration of conda-forge-pinning, or leave it out")
    for key in settings:
        if key not in _ALGEBRA_KEYS | _BOT_KEYS:
            known = sorted(_ALGEBRA_KEYS | _BOT_KEYS)
            message = f"{MIGRATOR} has {key!r}, which is not a known setting of migrations"
            raise document.error(message, MIGRATOR, key, hint=nearest_names_hint(key, known, noun="setting"))
    _check_kind(document, settings)
    ordering = settings.get("ordering") or {}
    if not isinstance(ordering, dict):
        message = "ordering must be a mapping of keys to lists of values"
        raise document.error(message, MIGRATOR, "ordering", hint="correct it")
    return Migration(
        name=path.stem,
        file=file,
        timestamp=_timestamp(document),
        operation=str(settings["operation"]) if settings.get("operation") else None,
        primary_keys=_texts(document, "primary_key"),
        ordering={key: _scalars(document, "ordering", key) for key in ordering},
        additional_zip_keys=_texts(document, "additional_zip_keys"),
        exclude=frozenset(_texts(document, "exclude")),
    )


def _check_kind(document: YamlDocument, settings: Mapping[str, YamlValue]) -> None:
    if (kind := settings.get("kind", "version")) != "version":
        message = f"the kind {kind!r} is not known; expected 'version'"
        raise document.error(message, MIGRATOR, "kind", hint="leave this migration out")
    operation = settings.get("operation")
    if operation and operation not in _OPERATIONS:
        message = f"the operation {operation!r} is not known; expected {' or '.join(_OPERATIONS)}, or none"
        raise document.error(message, MIGRATOR, "operation", hint="leave this migration out")


def _timestamp(document: YamlDocument) -> float:
    stated = document.value.get(_TIMESTAMP, _UNSTAMPED) if isinstance(document.value, dict) else _UNSTAMPED
    try:
        return float(str(stated))
    except ValueError:
        message = f"{_TIMESTAMP} must be a number of seconds, got {stated!r}"
        raise document.error(message, _TIMESTAMP, hint="write what  date +%s  prints") from None


def _texts(document: YamlDocument, key: str) -> tuple[str, ...]:
    return tuple(map(str, _scalars(document, key)))


def _scalars(document: YamlDocument, *key_path: str) -> _Values:
    """A value in ``__migrator``, or each of a list, as read_conda_build_config reads those of a variant key."""
    node: YamlValue = document.value
    for key in (MIGRATOR, *key_path):
        node = node.get(key) if isinstance(node, dict) else None
    if not isinstance(node, list):
        return () if node is None else (scalar_of(document, (MIGRATOR, *key_path), node),)
    return tuple(scalar_of(document, (MIGRATOR, *key_path, index), item) for index, item in enumerate(node))


def apply_migrations(pinning: VariantFile, migrations: Iterable[Migration]) -> VariantFile:
    """The pinning with the migrations applied, the oldest first, and by name where they are of one time.

    Raises ConfigError (file, line) for a migration that does not fit the pinning.
    """
    for migration in sorted(migrations, key=lambda migration: (migration.timestamp, migration.name)):
        pinning = _apply(pinning, migration)
        for group in pinning.zip_keys or ():
            counts = {key: len(pinning.values[key]) for key in group if key in pinning.values}
            if len(set(counts.values())) > 1:
                lengths = ", ".join(f"{key} has {count}" for key, count in counts.items())
                message = f"after it, keys that move together have different numbers of values: {lengths}"
                key = next((member for member in group if member in migration.file.values), MIGRATOR)
                raise migration.error(message, key, hint="take the pinning and its migrations from one version")
    return pinning


def _apply(pinning: VariantFile, migration: Migration) -> VariantFile:
    if migration.operation is None:
        return _add_versions(pinning, migration)
    if len(migration.primary_keys) != 1:
        message = f"{migration.operation} needs one primary_key, found {len(migration.primary_keys)}"
        raise migration.error(message, MIGRATOR, "operation", hint="leave this migration out")
    (primary,) = migration.primary_keys
    if primary not in migration.file.values:  # its selectors leave it out on this platform
        return pinning
    if migration.operation == "key_remove":
        return _remove_key(pinning, migration, primary)
    return _add_key(pinning, migration, primary)


# ---- version: the higher of two values at each place


def _add_versions(pinning: VariantFile, migration: Migration) -> VariantFile:
    """``variant_add`` without an operation."""
    left, right = pinning.values, migration.file.values
    groups = _merged_groups(pinning.zip_keys or (), migration.file.zip_keys or ())
    joint: dict[str, _Values] = {}
    for primary in migration.primary_keys:
        if primary in right:
            joint |= _add_with_group(left, migration, primary, (*(pinning.zip_keys or ()), *_groups_of(migration)))
    for key in left.keys() & right.keys() - joint.keys():
        joint[key] = _higher(left[key], right[key], migration, key)
    return replace(pinning, values={**left, **right, **joint}, zip_keys=groups)


def _groups_of(migration: Migration) -> _Groups:
    return migration.file.zip_keys or ()


def _add_with_group(
    left: Mapping[str, _Values], migration: Migration, primary: str, groups: Iterable[tuple[str, ...]]
) -> dict[str, _Values]:
    """The primary key's values, and those of the keys zipped with it from the same places."""
    right = migration.file.values
    group = next((group for group in groups if primary in group), (primary,))
    for key in group:
        _require(key, left, migration, primary, f"the pinning has no values of {key!r}, which {primary!r} moves with")
        _require(key, right, migration, primary, f"it has no values of {key!r}, which {primary!r} moves with")
    merged = _higher(left[primary], right[primary], migration, primary)
    chosen = [index for index, value in enumerate((*left[primary], *right[primary])) if value in merged]
    values_by_key = {primary: merged}
    for key in group:
        if key != primary:
            values = (*left[key], *right[key])
            values_by_key[key] = tuple(values[index] for index in chosen if index < len(values))
    return values_by_key


def _require(key: str, values: Mapping[str, _Values], migration: Migration, primary: str, message: str) -> None:
    if key not in values:
        hint = "take the pinning and its migrations from one version, or leave this migration out"
        raise migration.error(message, key if key in migration.file.values else primary, hint=hint)


def _higher(left: _Values, right: _Values, migration: Migration, key: str) -> _Values:
    """``variant_key_add``."""
    if key not in migration.ordering:
        common = min(len(left), len(right))
        pairs = zip(left[:common], right[:common], strict=True)
        higher = [second if _is_less(first, second, migration, key) else first for first, second in pairs]
        return (*higher, *left[common:], *right[common:])
    longer = max(len(left), len(right))
    merged = sorted({_rank(value, migration, key) for value in (*left, *right)})
    if len(merged) < longer and len(merged) > 1:
        message = f"the ordering of {key!r} does not decide between values that are there twice"
        raise migration.error(message, MIGRATOR, "ordering", key, hint="leave this migration out")
    places = merged * longer if len(merged) == 1 else merged[-longer:]
    return tuple(migration.ordering[key][rank] for rank in places)


def _rank(value: VariantScalar, migration: Migration, key: str) -> int:
    known = migration.ordering[key]
    if value not in known:
        message = f"the ordering of {key!r} does not have the value {value!r}"
        hint = "take the pinning and its migrations from one version"
        raise migration.error(message, MIGRATOR, "ordering", key, hint=hint)
    return known.index(value)


def _is_less(left: VariantScalar, right: VariantScalar, migration: Migration, key: str) -> bool:
    """``_version_order``: text that is no version is compared as text."""
    first, second = _order(left), _order(right)
    if isinstance(first, Version) and isinstance(second, Version):
        return first < second
    if isinstance(first, str) and isinstance(second, str):
        return first < second
    message = f"{key!r} has {left!r} and {right!r}, of which only one is a version, and no ordering for them"
    raise migration.error(message, key, hint="leave this migration out")


def _order(value: VariantScalar) -> Version | str:
    text = _text(value).replace(" ", ".").replace("*", "1")
    try:
        return Version(text)
    except InvalidVersionError:
        return text


def _text(value: VariantScalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _merged_groups(left: _Groups, right: _Groups) -> _Groups:
    """The groups of both; one of the pinning's within one of the migration's is taken into it."""
    if not left or not right:
        return left or right
    merged = [frozenset(group) for group in left]
    for group in sorted(map(frozenset, right), key=len, reverse=True):
        within = sorted((other for other in merged if other <= group), key=len, reverse=True)
        if within:
            merged.remove(within[0])
        merged.append(group)
    return tuple(
        sorted(
            (tuple(sorted(group)) for group in dict.fromkeys(merged)), key=lambda members: (len(members), str(members))
        )
    )


# ---- key_add and key_remove: one more or one less variant of a key and what is zipped with it


def _add_key(pinning: VariantFile, migration: Migration, primary: str) -> VariantFile:
    """``op_variant_key_add``."""
    added = migration.file.values
    _require(primary, pinning.values, migration, primary, f"the pinning has no values of its primary key {primary!r}")
    group, new, groups = _group_with(pinning.zip_keys or (), primary, migration.additional_zip_keys)
    values = dict(pinning.values)
    for key in new:
        _require(
            key, values, migration, primary, f"the pinning has no values of {key!r}, which is to move with {primary!r}"
        )
        if len(values[key]) != 1:
            having = counted(len(values[key]), "value")
            message = f"{key!r} is to move with {primary!r}, but the pinning has {having} of it"
            raise migration.error(message, MIGRATOR, "additional_zip_keys", hint="leave this migration out")
        values[key] *= len(values[primary])
    for key in group:
        _require(key, added, migration, primary, f"it has no values of {key!r}, which {primary!r} moves with")
    rows = list(zip(*(values[key] for key in group), strict=True))
    for index in range(len(added[primary])):
        row = tuple(_value_at(migration, key, index) for key in group)
        if row not in rows:
            rows = _sorted_rows([*rows, row], group, migration, primary)
    values |= {key: tuple(row[index] for row in rows) for index, key in enumerate(group)}
    for key in migration.ordering.keys() - new - {primary}:
        if key in pinning.values and key in added:
            values[key] = _higher(pinning.values[key], added[key], migration, key)
    return replace(pinning, values=values, zip_keys=groups)


def _group_with(groups: _Groups, primary: str, more: Sequence[str]) -> tuple[tuple[str, ...], frozenset[str], _Groups]:
    """The primary key's group with the additional keys, those that it did not have, and all groups."""
    old = next((group for group in groups if primary in group), None)
    group = old or (primary,)
    new = tuple(key for key in more if key not in group)
    whole_group = (*group, *new)
    if old is None:
        return whole_group, frozenset(new), (*groups, whole_group) if new else groups
    return whole_group, frozenset(new), tuple(whole_group if known == old else known for known in groups)


def _value_at(migration: Migration, key: str, index: int) -> VariantScalar:
    values = migration.file.values[key]
    if index >= len(values):
        message = f"{key!r} has {counted(len(values), 'value')}, fewer than the key that it moves with"
        raise migration.error(message, key, hint="leave this migration out")
    return values[index]


def _sorted_rows(rows: Sequence[_Values], group: Sequence[str], migration: Migration, primary: str) -> list[_Values]:
    """As ``variant_key_set_union`` and the sort by the primary key: a repeated combination is kept once."""
    at = group.index(primary)
    unique = sorted(dict.fromkeys(rows), key=lambda row: tuple(map(_text, row)))
    if primary in migration.ordering:
        return sorted(unique, key=lambda row: _rank(row[at], migration, primary))
    ordered: list[_Values] = []
    for row in unique:
        index = sum(not _is_less(row[at], other[at], migration, primary) for other in ordered)
        ordered.insert(index, row)
    return ordered


def _remove_key(pinning: VariantFile, migration: Migration, primary: str) -> VariantFile:
    """``op_variant_key_remove``."""
    removed = migration.file.values[primary]
    if len(removed) != 1:
        message = f"key_remove removes one value of {primary!r}, found {len(removed)}"
        raise migration.error(message, primary, hint="leave this migration out")
    old = pinning.values.get(primary, ())
    if removed[0] not in old:
        return pinning
    rows = _sorted_rows([(value,) for value in old], (primary,), migration, primary)
    places = [old.index(row[0]) for row in rows if row[0] != removed[0]]
    group = next((group for group in pinning.zip_keys or () if primary in group), (primary,))
    remaining = {key: tuple(pinning.values[key][index] for index in places) for key in group if key in pinning.values}
    values = {key: of_key for key, of_key in {**pinning.values, **remaining}.items() if of_key}
    return replace(pinning, values=values)
