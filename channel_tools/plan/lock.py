# SPDX-License-Identifier: BSD-3-Clause
"""The foundation lock: the packages of a foundation that a tree's environments have, recorded in the tree.

The file (docs/reference/foundation-lock.md) has the records as the foundation's repodata has them (CEP 36, with their
run_exports), and for every set of requirements the records that it resolved to. A plan needs nothing else, so it is
the same on every machine and every day, until the tree changes or the lock is moved. It names no address, because a
mirror serves the same records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from channel_tools.conda.specs import InvalidRecordError, InvalidSpecError, read_spec, record_of, texts_of
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ConfigError
from channel_tools.system.files import write_bytes_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from channel_tools.requests.names import FoundationKind

LOCK_SCHEMA = 1
_RESTORE = "restore it from version control, or remove it and run: channel_tools foundation lock"


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundationLock:
    """A tree's view of a foundation for one platform, and of further channels.

    ``records`` are by ``subdir/file name``, for a further channel below its name: ``NAME/subdir/file name``.
    ``environments`` are by requirements; a set of requirements that comes to different packages with different builds
    of ours has several, of which the first that has a solution counts. ``unserved`` are the requirements that the
    foundation could not satisfy, with the reason.
    """

    records: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    environments: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    unserved: Mapping[str, str] = field(default_factory=dict)


class _FoundationLockFile(msgspec.Struct, forbid_unknown_fields=True):
    schema: int
    foundation: str
    platform: str
    records: dict[str, dict[str, Any]]
    environments: dict[str, list[list[str]]]
    unserved: dict[str, str]


def split_key(key: str) -> tuple[str, str, str]:
    """The further channel of a record's key ("" for the foundation), its subdir and its file name.

    >>> split_key("linux-64/toy-1.0-0.conda"), split_key("site/linux-64/toy-1.0-0.conda")
    (('', 'linux-64', 'toy-1.0-0.conda'), ('site', 'linux-64', 'toy-1.0-0.conda'))
    """
    parent, _, name = key.rpartition("/")
    channel, _, subdir = parent.rpartition("/")
    return channel, subdir, name


def lock_path(root: Path, kind: FoundationKind, platform: str) -> Path:
    """The lock file of a tree for a kind of foundation and a platform."""
    return root / "locks" / f"{kind}-{platform}.json"


def read_lock(root: Path, kind: FoundationKind, platform: str) -> FoundationLock:
    """The tree's lock; an empty one if it has none. Raises ConfigError for a file that cannot be used as it is."""
    path = lock_path(root, kind, platform)
    try:
        file = decode_json(path.read_bytes(), _FoundationLockFile)
    except FileNotFoundError:
        return FoundationLock()
    except (OSError, ValueError) as err:
        raise ConfigError(f"not a foundation lock: {err}", path=path, hint=_RESTORE) from None
    if file.schema != LOCK_SCHEMA:
        message = f"has schema {file.schema}; this version reads {LOCK_SCHEMA}"
        raise ConfigError(message, path=path, hint="update channel_tools")
    if (file.foundation, file.platform) != (kind, platform):
        message = f"is for {file.foundation} on {file.platform}; expected {kind} on {platform}"
        raise ConfigError(message, path=path, hint=_RESTORE)
    _check_records(file, path)
    return FoundationLock(
        records=file.records,
        environments={text: tuple(map(tuple, key_lists)) for text, key_lists in file.environments.items()},
        unserved=file.unserved,
    )


def _check_records(file: _FoundationLockFile, path: Path) -> None:
    for key, record in file.records.items():
        _channel, subdir, _name = split_key(key)
        if subdir not in {file.platform, "noarch"} or "sha256" not in record:
            message = f"the record {key} is not one of {file.platform} or noarch with a sha256"
            raise ConfigError(message, path=path, hint=_RESTORE)
        try:
            record_of(record, name=str(record.get("name")), subdir=subdir)
            for spec in texts_of(record, "depends"):
                read_spec(spec)
        except (InvalidRecordError, InvalidSpecError) as err:
            raise ConfigError(f"the record {key} cannot be read: {err}", path=path, hint=_RESTORE) from None
    named = {key for key_lists in file.environments.values() for keys in key_lists for key in keys}
    if missing := sorted(named - file.records.keys()):
        message = f"an environment has {missing[0]}, of which there is no record"
        raise ConfigError(message, path=path, hint=_RESTORE)


def write_lock(root: Path, kind: FoundationKind, platform: str, lock: FoundationLock) -> Path:
    """Write the tree's lock, one line per record and per package of an environment; returns its path.

    The same lock gives the same bytes. Raises ConfigError if the tree cannot be written.
    """
    path = lock_path(root, kind, platform)
    try:
        path.parent.mkdir(exist_ok=True)
        write_bytes_atomically(path, encode_lock(kind, platform, lock))
    except PermissionError:
        hint = "give the tree to the user who builds, or make the lock where it can be written and commit it"
        raise ConfigError("the foundation lock cannot be written: permission denied", path=path, hint=hint) from None
    return path


def encode_lock(kind: FoundationKind, platform: str, lock: FoundationLock) -> bytes:
    """The lock as it stands in a file."""
    environments = {
        text: b"[\n" + b",\n".join(_lines(b"[", map(_text, keys), b"]") for keys in key_lists) + b"\n]"
        for text, key_lists in lock.environments.items()
    }
    parts = [
        (b'"schema": %d' % LOCK_SCHEMA),
        b'"foundation": ' + _text(kind),
        b'"platform": ' + _text(platform),
        b'"records": ' + _mapping({key: _text(record) for key, record in lock.records.items()}),
        b'"environments": ' + _mapping(environments),
        b'"unserved": ' + _mapping({key: _text(reason) for key, reason in lock.unserved.items()}),
    ]
    return _lines(b"{", parts, b"}") + b"\n"


def _mapping(values: Mapping[str, bytes]) -> bytes:
    return _lines(b"{", (_text(key) + b": " + value for key, value in sorted(values.items())), b"}")


def _lines(start: bytes, lines: Iterable[bytes], end: bytes) -> bytes:
    return start + b"\n" + b",\n".join(lines) + b"\n" + end


def _text(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")
