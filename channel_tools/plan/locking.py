# SPDX-License-Identifier: BSD-3-Clause
"""Solving in a foundation lock: what plans take from it, what they find missing and add, and what an update moves.

An environment that the lock has is solved with its records alone, so what the lock gains for other environments does
not change it. One that the lock has not is solved with all locked records, and if that has no solution, with the
foundation, which then prefers the locked ones.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from channel_tools.conda.metadata import timestamp_ms
from channel_tools.conda.solving import memory_index
from channel_tools.conda.specs import read_spec, spec_name, texts_of
from channel_tools.plan.lock import FoundationLock, split_key
from channel_tools.plan.run_exports import read_run_exports

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from rattler import RepoDataRecord, SparseRepoData

    from channel_tools.conda.package import RunExports
    from channel_tools.plan.own import OwnRecords

_CHANNEL = "file:///foundation-lock"
_OF_PLACE = ("fn", "url", "channel")
"""What a record says of where it is, which differs between mirrors."""


class LockedFoundation:
    """A lock while plans are made with it; ``moved`` are the names that an update moves, None for all of them.

    ``further`` are the names of the further channels, in order of priority; what the lock has of others is not used.
    An empty lock has nothing to keep: every environment is solved with the channels alone, as in an update.
    """

    def __init__(
        self, lock: FoundationLock, *, moved: Collection[str] | None = (), further: Sequence[str] = ()
    ) -> None:
        moved = moved if lock.records else None
        self._order = [*further, ""]
        self._before = lock
        self._moved = moved
        self._records: dict[str, Mapping[str, Any]] = dict(lock.records)
        self._environments = {
            text: list(environments)
            for text, environments in lock.environments.items()
            if not self._moves(environments)
        }
        self._unserved = dict(lock.unserved) if moved is not None and not moved else {}
        self._requirements: dict[str, frozenset[str]] = {}
        self._used: dict[tuple[str, int], set[str]] = {}
        """What plans came to in each environment."""
        self._told: set[str] = set()
        self.added: dict[str, None] = {}
        """The requirements that the lock had no environment for, in order."""
        for record in self._records.values():
            self._know(record)

    def _moves(self, environments: Iterable[Sequence[str]]) -> bool:
        """Whether the update moves something in these environments."""
        if self._moved is None:
            return True
        return any(self._records[key]["name"] in self._moved for keys in environments for key in keys)

    @property
    def requirements(self) -> Mapping[str, frozenset[str]]:
        """The names that locked packages of each name require."""
        return self._requirements

    def has(self, record: RepoDataRecord) -> bool:
        """Whether a solved record is the lock's."""
        return record.url.startswith(f"{_CHANNEL}/")

    def key_of(self, record: RepoDataRecord) -> str:
        """The key of a locked record."""
        channel = (record.channel or "").removeprefix(_CHANNEL).strip("/")
        return "/".join(filter(None, (channel, record.subdir, record.file_name)))

    def run_exports(self, record: RepoDataRecord) -> RunExports:
        """The run_exports of a locked record."""
        return read_run_exports(self._records[self.key_of(record)].get("run_exports") or {})

    def views(self, text: str) -> Iterator[tuple[int | None, list[SparseRepoData]]]:
        """The indexes to solve these requirements with, in order, each with its place in the lock."""
        for index, keys in enumerate(self._environments.get(text, ())):
            yield index, self._indexes(keys)
        if not (self._moved is None or self._moves(self._before.environments.get(text, ()))):
            yield None, self._indexes(self._records)

    def _indexes(self, keys: Iterable[str]) -> list[SparseRepoData]:
        subdirs: dict[tuple[int, str], dict[str, Mapping[str, Any]]] = {}
        for key in keys:
            channel, subdir, name = split_key(key)
            if channel in self._order:
                subdirs.setdefault((self._order.index(channel), subdir), {})[name] = self._records[key]
        return [
            memory_index(f"{_CHANNEL}/{self._order[rank]}".rstrip("/"), subdir, records)
            for (rank, subdir), records in sorted(subdirs.items())
        ]

    def preferred(self, text: str) -> list[RepoDataRecord]:
        """The locked records that a solve with the foundation prefers: all but those that the update moves."""
        if self._moved is None:
            return []
        earlier = self._before.environments.get(text)
        keys = [
            key for key in (earlier[0] if earlier else self._records) if self._records[key]["name"] not in self._moved
        ]
        newest = {str(self._records[key]["name"]): key for key in sorted(keys, key=self._date)}
        return [record for index in self._indexes(newest.values()) for record in index.load_all_records()]

    def _date(self, key: str) -> int:
        return timestamp_ms(self._records[key].get("timestamp"))

    def unserved(self, text: str) -> str | None:
        """Why the foundation could not satisfy these requirements, if that was found before."""
        reason = self._unserved.get(text)
        if reason is not None:
            self._told.add(text)
        return reason

    def take(self, text: str, index: int | None, records: Sequence[RepoDataRecord]) -> None:
        """Note what these requirements came to in the lock; without an ``index``, that becomes a new environment."""
        keys = sorted(self.key_of(record) for record in records if self.has(record))
        if index is None:
            self._add(text, keys)
        else:
            self._used.setdefault((text, index), set()).update(keys)

    def fill(self, text: str, records: Mapping[str, tuple[RepoDataRecord, RunExports | None]]) -> None:
        """Add what these requirements came to in the channels, by key, with the run_exports of each package."""
        keys = []
        for key, (record, exports) in records.items():
            keys.append(key)
            if not self.has(record):
                plain: dict[str, Any] = json.loads(record.to_json())
                plain = {key: value for key, value in plain.items() if key not in _OF_PLACE and key != "run_exports"}
                kinds = (
                    {}
                    if exports is None
                    else {kind: list(getattr(exports, kind)) for kind in ("weak", "strong", "noarch")}
                )
                if kinds_used := {kind: specs for kind, specs in kinds.items() if specs}:
                    plain["run_exports"] = kinds_used
                self._records[key] = plain
                self._know(self._records[key])
        self._add(text, sorted(keys))

    def _add(self, text: str, keys: Sequence[str]) -> None:
        environments = self._environments.setdefault(text, [])
        environments.append(tuple(keys))
        self._used[text, len(environments) - 1] = set(keys)
        self.added[text] = None

    def refuse(self, text: str, reason: str) -> None:
        """Note that the foundation cannot satisfy these requirements."""
        self._unserved[text] = reason
        self._told.add(text)
        self.added[text] = None

    def _know(self, record: Mapping[str, Any]) -> None:
        names = frozenset(spec_name(spec) for spec in texts_of(record, "depends"))
        self._requirements[record["name"]] = self._requirements.get(record["name"], frozenset()) | names

    def result(self, *, only_used: bool = False) -> FoundationLock:
        """The lock as it is now; ``only_used``: without the environments that no plan with it has asked for."""
        environments = {
            text: tuple(
                tuple(sorted(self._used[text, index])) if only_used else keys
                for index, keys in enumerate(key_lists)
                if not only_used or (text, index) in self._used
            )
            for text, key_lists in sorted(self._environments.items())
        }
        environments = {text: key_lists for text, key_lists in environments.items() if key_lists}
        named = {key for key_lists in environments.values() for keys in key_lists for key in keys}
        unserved = {text: why for text, why in self._unserved.items() if not only_used or text in self._told}
        return FoundationLock(
            records={key: self._records[key] for key in sorted(named)},
            environments=environments,
            unserved=dict(sorted(unserved.items())),
        )


def text_of(specs: Iterable[str], own: OwnRecords) -> str:
    """Requirements as the lock names them; the build of a package of ours, which has its digest, is left out."""
    texts = []
    for spec in specs:
        parsed = read_spec(spec)
        name = spec_name(spec)
        is_own = parsed.build is not None and bool(own.records(name))
        texts.append(f"{name} {parsed.version}" if is_own else spec)
    return "; ".join(sorted(set(texts)))
